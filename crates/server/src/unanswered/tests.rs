use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Once};

use fs::{FileSystem, MountOptions};
use fuser::{Config, Filesystem, Session, SessionACL};
use log::{LevelFilter, Log, Metadata, Record};
use pmem::Region;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use txn::{FormatOptions, Mode, PmemStore};

use crate::direct::SegmentFiles;
use crate::handler::{Handler, Shared};
use crate::null_server::NullFileSystem;

const INIT: u32 = 26;
const WRITE: u32 = 16;
const SETXATTR: u32 = 21;
/// FORGET, INIT, INTERRUPT, DESTROY, NOTIFY_REPLY, BATCH_FORGET.
const WITHOUT_ANSWER: [u32; 6] = [2, INIT, 36, 38, 41, 42];
const REQUESTS_MAX: u32 = 47;
const HEADER_BYTES: usize = 40;

static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The log is one of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Collector;

impl Log for Collector {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = record.args().to_string();
        if line.contains("Not Implemented") {
            LOGGED.lock().expect("no panic").push(line);
        }
    }

    fn flush(&self) {}
}

/// A request whose body is zeros: empty names, length 0.
fn request(number: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = (HEADER_BYTES + body.len()) as u32;
    bytes.extend([length, number].map(u32::to_ne_bytes).concat());
    bytes.extend([u64::from(number), 1].map(u64::to_ne_bytes).concat());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

fn ask(kernel: &OwnedFd, number: u32, body: &[u8]) -> i32 {
    let message = request(number, body);
    rustix::net::send(kernel, &message, SendFlags::empty()).expect("the server listens");
    let mut answer = [0; 4096];
    let (length, _) =
        rustix::net::recv(kernel, &mut answer[..], RecvFlags::empty()).expect("an answer");
    assert!(length >= 16, "request {number} gets {length} bytes");
    i32::from_ne_bytes([answer[4], answer[5], answer[6], answer[7]])
}

/// Sends every request as the kernel would. Returns what `fuser` logs of those without a method.
fn unanswered(file_system: impl Filesystem) -> Vec<String> {
    static COLLECT: Once = Once::new();
    COLLECT.call_once(|| {
        log::set_logger(&Collector).expect("the only logger");
        log::set_max_level(LevelFilter::Warn);
    });
    LOGGED.lock().expect("no panic").clear();
    let (kernel, server) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("sockets");
    let serving = std::thread::spawn(move || -> io::Result<()> {
        Session::from_fd(file_system, server, SessionACL::All, Config::default())?.run()
    });
    // Version 7.40, every capability.
    let offer = [[7, 40, 1 << 17, u32::MAX, u32::MAX].as_slice(), &[0; 11]].concat();
    let offer: Vec<u8> = offer.into_iter().flat_map(u32::to_ne_bytes).collect();
    assert_eq!(ask(&kernel, INIT, &offer), 0);
    for number in (1..=REQUESTS_MAX).filter(|number| !WITHOUT_ANSWER.contains(number)) {
        // `fuser` checks the length of these two.
        let body_bytes = match number {
            WRITE => 40,
            SETXATTR => 9,
            _ => 256,
        };
        ask(&kernel, number, &[0; 256][..body_bytes]);
    }
    drop(kernel);
    // How it ends says nothing: the kernel does not hang up like this.
    let _ = serving.join().expect("no panic");
    LOGGED.lock().expect("no panic").clone()
}

struct Nothing;

impl Filesystem for Nothing {}

fn mounted() -> Handler<PmemStore> {
    let region =
        fs::mkfs_region(Region::anonymous(1 << 20), &FormatOptions::tiny(), (0, 0)).expect("mkfs");
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
    let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
    Handler::new(Arc::new(Shared::new(files, Box::new(|| {}))))
}

#[test]
fn no_request_is_left_to_the_library() {
    let _turn = ONE_AT_A_TIME.lock();
    assert!(
        unanswered(Nothing).len() >= 30,
        "the library logs what has no method"
    );
    assert_eq!(unanswered(mounted()), Vec::<String>::new(), "the mount");
    assert_eq!(
        unanswered(SegmentFiles::of_nobody(1 << 21)),
        Vec::<String>::new(),
        "segments as processes get them"
    );
    assert_eq!(
        unanswered(NullFileSystem::new(4096)),
        Vec::<String>::new(),
        "the benches' floor"
    );
}
