//! What the server keeps for processes that attach files, until they have let them go, and no longer. The processes here speak the protocol themselves, without a library that is kind to the server.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::Mounted;
use crate::common::direct::{BLOCK, LATEST};
use direct::layout::{PROCESS_BYTES, head, slot_at};
use direct::protocol::{Attached, Kind, Reply, Request, VERSION};
use direct::{SharedMemory, transport};
use rustix::fs::FallocateFlags;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

pub(crate) const FOR_READING: u64 = 0;
pub(crate) const FOR_WRITING: u64 = 1;

/// The process's side of a conversation.
pub(crate) struct Talk {
    socket: OwnedFd,
    words: SharedMemory,
}

impl Talk {
    /// With the server of a mount, one of whose files this is.
    pub(crate) fn begin(file: &File) -> Talk {
        let name = direct::server_of(file.as_fd()).expect("a server").name;
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
        let socket = socket.expect("a socket");
        let address = SocketAddrUnix::new_abstract_name(&name).expect("an address");
        rustix::net::connect(&socket, &address).expect("connect");
        let (_, beside) = ask(&socket, Kind::Hello, [0, u64::from(VERSION), 0], None);
        let words = SharedMemory::map_file(&beside[0], PROCESS_BYTES, true).expect("mapped");
        Talk { socket, words }
    }

    pub(crate) fn ask(
        &self,
        kind: Kind,
        words: [u64; 3],
        beside: Option<&File>,
    ) -> (Reply, Vec<OwnedFd>) {
        ask(&self.socket, kind, words, beside)
    }

    pub(crate) fn attach(&self, file: &File, how: u64) -> Result<(Attached, Vec<OwnedFd>), u32> {
        let (reply, beside) = self.ask(Kind::Attach, [0, how, 0], Some(file));
        match reply.refusal {
            0 => Ok((Attached::of(&reply), beside)),
            refusal => Err(refusal),
        }
    }

    fn detach(&self, attached: &Attached) {
        let (reply, _) = self.ask(Kind::Detach, [attached.file, 0, 0], None);
        assert_eq!(reply.refusal, 0);
    }
}

/// Asks about attachment `words[0]`, and waits for the answer.
fn ask(
    socket: &OwnedFd,
    kind: Kind,
    words: [u64; 3],
    beside: Option<&File>,
) -> (Reply, Vec<OwnedFd>) {
    let request = Request {
        kind: kind as u32,
        file: words[0] as u32,
        first: words[1],
        second: words[2],
    };
    let beside = beside.map(AsFd::as_fd);
    let flags = SendFlags::empty();
    transport::send(socket.as_fd(), &request, beside.as_slice(), flags).expect("asked");
    let answer = transport::receive(socket.as_fd()).expect("an answer");
    answer.expect("an answer, not the end")
}

/// A file of so many bytes, opened for both.
pub(crate) fn make(mounted: &Mounted, name: &str, bytes: usize) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(true);
    let file = options.open(mounted.path(name)).expect("a file");
    file.write_all_at(&vec![7; bytes], 0).expect("written");
    file
}

/// Memories of attachments that this process has open, which is the server too.
fn memories() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("open files");
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter(|target| target.starts_with("/memfd:perdure (deleted)"))
        .count()
}

/// Waits until it is so.
pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LATEST, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_attachment_that_a_reader_by_the_kernel_has_ended_goes_when_it_is_let_go() {
    const FILES: usize = 100;
    let mounted = Mounted::new();
    let first = make(&mounted, "first", 10);
    let talk = Talk::begin(&first);
    for number in 0..FILES {
        let file = make(&mounted, &number.to_string(), 10);
        let (attached, memory) = talk.attach(&file, FOR_READING).expect("attached");
        file.read_exact_at(&mut [0; 10], 0).expect("read");
        drop(memory);
        talk.detach(&attached);
    }
    // Tests beside this one have a few.
    await_that("they stay", || memories() < FILES / 2);
}

/// Has a process that has a file attached say that it has mapped it, which is then made empty: the word by which it says so.
fn keep_mapped(talk: &Talk, attached: &Attached, file: &File) -> usize {
    let (reply, _) = talk.ask(Kind::Mapping, [attached.file, 0, 0], None);
    assert_eq!(reply.refusal, 0);
    let word = slot_at(reply.words[0] as usize);
    talk.words.word(word).store(1, Ordering::SeqCst);
    file.set_len(0).expect("made empty");
    word
}

#[test]
fn blocks_are_free_when_who_saw_them_has_let_go_though_others_have_the_file_attached() {
    const BYTES: u64 = 48 << 20;
    let mounted = Mounted::new();
    let file = make(&mounted, "file", BYTES as usize);
    let (one, other) = (Talk::begin(&file), Talk::begin(&file));
    let (attached, _) = one.attach(&file, FOR_READING).expect("attached");
    let _others = other.attach(&file, FOR_READING).expect("attached");
    one.ask(Kind::Map, [attached.file, 0, BYTES / BLOCK as u64], None);
    let word = keep_mapped(&one, &attached, &file);
    let status = rustix::fs::statvfs(mounted.path("").as_path()).expect("statvfs");
    let most = status.f_bavail * BLOCK as u64 - BYTES / 2;
    let has_room = || {
        let room = make(&mounted, "room", 0);
        rustix::fs::fallocate(&room, FallocateFlags::empty(), 0, most).is_ok()
    };
    assert!(!has_room(), "they are seen");
    one.words.word(word).store(0, Ordering::SeqCst);
    one.detach(&attached);
    await_that("they are held", has_room);
}

#[test]
fn a_lease_that_is_refused_leaves_nobody_reading_beside_the_kernel() {
    let mounted = Mounted::new();
    let file = make(&mounted, "file", 2 * BLOCK);
    let (reader, writer) = (Talk::begin(&file), Talk::begin(&file));
    std::fs::remove_file(mounted.path("file")).expect("removed");
    let (_, memory) = reader.attach(&file, FOR_READING).expect("attached");
    let memory = SharedMemory::map_file(&memory[0], head::BYTES, false).expect("mapped");
    let state = || memory.word(head::STATE).load(Ordering::SeqCst);
    let live = state();
    assert!(writer.attach(&file, FOR_WRITING).is_err(), "it has no name");
    file.read_exact_at(&mut [0; 10], 0).expect("read");
    assert_ne!(state(), live);
}
