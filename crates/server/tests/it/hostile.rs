//! Processes that send the server anything, with any descriptor beside it, and write anything into what they were given: it answers or hangs up, and everybody else is served.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::direct::{LATEST, clients, direct_status};
use crate::common::{Mounted, Place};
use direct::layout::{Layout, PROCESS_BYTES, slot_at};
use direct::protocol::{Attached, Kind, Reply, Request, Row, VERSION, Welcome};
use direct::{Client, SharedMemory, transport};
use fs::MountOptions;
use lease::{NO_SLOT, Record, Salt};
use perdure_server::Mounting;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use zerocopy::IntoBytes;

const CASES: u32 = 100;
const BLOCK: u64 = 4096;
/// An honest server takes no longer, even if it has to take a lease back from somebody who stands still.
const PATIENCE: Duration = Duration::from_secs(5);

/// What goes beside a message.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Writable(bool),
    ReadOnly,
    WriteOnly,
    PathOnly,
    Folder,
    Pipe,
    Null,
    Memory,
    Socket,
}

/// Something that a process does.
#[derive(Clone, Debug)]
enum Step {
    /// A message of any length.
    Bytes(Vec<u8>),
    Ask(u32, [u64; 3], Beside),
    /// Stores a word into the file in which it says what it is busy with, or makes that file shorter.
    Busy(u64, u64),
    Shorten(u64),
    /// Stores a record, whole or not, into the ring of what it attached last.
    Record([u64; 6], bool),
    /// Stores into a segment that it was given.
    Segment(u64, u64),
    /// Somebody else reads the file.
    Disturb,
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..4_u64,
        2 => 0..600_u64,
        1 => (0..64_u32).prop_map(|bit| 1 << bit),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ]
}

fn beside() -> impl Strategy<Value = Beside> {
    use Beside::{
        Folder, Memory, Nothing, Null, PathOnly, Pipe, ReadOnly, Socket, Writable, WriteOnly,
    };
    prop_oneof![
        6 => any::<bool>().prop_map(Writable),
        4 => prop::sample::select(&[
            Nothing, ReadOnly, WriteOnly, PathOnly, Folder, Pipe, Null, Memory, Socket,
        ][..]),
    ]
}

fn ask(kind: Kind) -> impl Strategy<Value = Step> {
    let words = [word(), word(), word()];
    (words, beside()).prop_map(move |(words, beside)| Step::Ask(kind as u32, words, beside))
}

fn step() -> impl Strategy<Value = Step> {
    let prospect = prop_oneof![4 => 0..2_u64, 1 => word()];
    let attach =
        (0..4_u64, 0..2_u64, prospect, beside()).prop_map(|(let_go, writes, prospect, beside)| {
            let words = [let_go, writes, prospect];
            Step::Ask(Kind::Attach as u32, words, beside)
        });
    let records = (prop::array::uniform6(word()), any::<bool>());
    prop_oneof![
        5 => attach,
        2 => ask(Kind::Segments),
        2 => ask(Kind::Map),
        2 => ask(Kind::Fold),
        1 => ask(Kind::Detach),
        1 => ask(Kind::Outcome),
        1 => ask(Kind::Ring),
        1 => ask(Kind::LetGo),
        2 => ask(Kind::Mapping),
        1 => ask(Kind::Hello),
        8 => records.prop_map(|(words, is_whole)| Step::Record(words, is_whole)),
        2 => (word(), word()).prop_map(|(at, word)| Step::Busy(at, word)),
        1 => word().prop_map(Step::Shorten),
        2 => (any::<u64>(), any::<u64>()).prop_map(|(at, word)| Step::Segment(at, word)),
        2 => Just(Step::Disturb),
    ]
}

/// Steps that keep the conversation going, and perhaps one that ends it.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let last = prop_oneof![
        2 => Just(Step::Disturb),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Step::Bytes),
        1 => (any::<u32>(), beside()).prop_map(|(kind, beside)| Step::Ask(kind, [0; 3], beside)),
    ];
    (prop::collection::vec(step(), 0..40), last).prop_map(|(mut steps, last)| {
        steps.push(last);
        steps
    })
}

/// The process's side of a conversation.
struct Liar<'m> {
    mounted: &'m Mounted,
    /// The file that it is about to use.
    name: String,
    socket: OwnedFd,
    welcome: Option<Welcome>,
    /// Its file of words, and where it has it mapped.
    process: Option<(OwnedFd, SharedMemory)>,
    attached: Option<(Attached, File)>,
    next: u64,
    segments: Vec<(u64, File)>,
}

impl Liar<'_> {
    fn connect(mounted: &Mounted) -> Liar<'_> {
        let file = File::open(mounted.path("hostile")).expect("open");
        let name = direct::server_of(file.as_fd()).expect("a server").name;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .expect("a socket");
        let address = SocketAddrUnix::new_abstract_name(&name).expect("an address");
        rustix::net::connect(&socket, &address).expect("connect");
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).expect("a time-out");
        Liar {
            mounted,
            name: "hostile".to_owned(),
            socket,
            welcome: None,
            process: None,
            attached: None,
            next: 0,
            segments: Vec::new(),
        }
    }

    /// Says hello, as each conversation begins.
    fn say_hello(&mut self) {
        let hello = [0, u64::from(VERSION), 0];
        let is_answered = self.ask(Kind::Hello as u32, hello, Beside::Nothing);
        assert!(is_answered, "taken in");
    }

    /// Does the step: `false` if the server has hung up.
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Bytes(bytes) => {
                let _ = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL);
                false
            }
            Step::Ask(kind, words, beside) => self.ask(*kind, *words, *beside),
            Step::Busy(at, word) => {
                let at = at % (PROCESS_BYTES as u64 / 8) * 8;
                self.say(at, *word);
                true
            }
            Step::Shorten(length) => {
                self.change_words_file(length % (2 * PROCESS_BYTES as u64));
                true
            }
            Step::Record(words, is_whole) => {
                self.write_record(*words, *is_whole);
                true
            }
            Step::Segment(at, word) => {
                if let Some((number, file)) = self.segments.last() {
                    let bytes = self.welcome.map_or(BLOCK, |welcome| welcome.segment_bytes);
                    let at = at % (bytes - 8);
                    // Only what it got for writing can be written.
                    let _ = (number, file.write_all_at(&word.to_ne_bytes(), at));
                }
                true
            }
            Step::Disturb => {
                std::fs::read(self.mounted.path("hostile")).expect("somebody else reads");
                true
            }
        }
    }

    fn say(&self, at: u64, word: u64) {
        if let Some((_, words)) = &self.process {
            words.word(at as usize).store(word, Ordering::Relaxed);
        }
    }

    /// Does to its file of words what it may not: another length, or more in it.
    fn change_words_file(&self, length: u64) {
        let Some((file, _)) = &self.process else {
            return;
        };
        let file = File::from(file.try_clone().expect("a descriptor"));
        if file.set_len(length).is_ok() {
            // A server that cannot administer the system gives the file itself.
            file.set_len(PROCESS_BYTES as u64).expect("as before");
        } else {
            assert!(file.write_at(&[1; 9], length).is_err());
            let mode = rustix::fs::FallocateFlags::empty();
            assert!(rustix::fs::fallocate(&file, mode, 0, 1 << 40).is_err());
            let found = file.metadata().expect("attributes").len();
            assert_eq!(found, PROCESS_BYTES as u64);
        }
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, kind: u32, words: [u64; 3], beside: Beside) -> bool {
        let request = Request {
            kind,
            file: words[0] as u32,
            first: words[1],
            second: words[2],
        };
        let descriptor = self.descriptor(beside);
        let descriptor = descriptor.as_ref().map(AsFd::as_fd);
        let socket = self.socket.as_fd();
        if transport::send(socket, &request, descriptor.as_slice(), SendFlags::empty()).is_err() {
            return false;
        }
        if kind == Kind::Ring as u32 || kind == Kind::LetGo as u32 {
            return true;
        }
        match transport::receive::<Reply>(socket) {
            Ok(None) => false,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no answer to {request:?}: {error}"),
            Ok(Some((reply, _))) if reply.refusal != 0 => true,
            Ok(Some((reply, beside))) => {
                let beside = beside.into_iter().map(File::from).collect();
                self.note(Kind::of(kind), &request, &reply, beside);
                true
            }
        }
    }

    fn note(&mut self, kind: Option<Kind>, request: &Request, reply: &Reply, beside: Vec<File>) {
        if kind == Some(Kind::Segments) {
            let is_granted = |(place, _): &(u64, u64)| reply.words[0] >> place & 1 == 1;
            let granted = Row::of(request).wanted().filter(is_granted);
            self.segments
                .extend(granted.map(|(_, number)| number).zip(beside));
            return;
        }
        let mut beside = beside.into_iter();
        match kind {
            Some(Kind::Hello) => {
                if let Some(file) = beside.next() {
                    self.welcome = Some(Welcome::of(reply));
                    let file = OwnedFd::from(file);
                    let words = SharedMemory::map_file(&file, PROCESS_BYTES, true);
                    self.process = Some((file, words.expect("mapped")));
                }
            }
            Some(Kind::Attach) => {
                let attached = Attached::of(reply);
                if attached.is_same_memory == 0
                    && let Some(memory) = beside.next()
                {
                    self.next = attached.next;
                    self.attached = Some((attached, memory));
                }
                let numbers = attached.segments.iter().filter_map(|it| it.checked_sub(1));
                self.segments.extend(numbers.map(u64::from).zip(beside));
            }
            _ => {}
        }
    }

    /// Writes record number `self.next` where the server looks for it.
    fn write_record(&mut self, words: [u64; 6], is_whole: bool) -> Option<()> {
        let welcome = self.welcome?;
        let (attached, memory) = self.attached.as_ref()?;
        let layout = Layout {
            ring_blocks: attached.ring_blocks,
            spare_blocks: attached.spare_blocks,
            capacity_blocks: attached.capacity_blocks,
        };
        if attached.is_lease == 0 {
            return None;
        }
        let at = self.next % (attached.ring_blocks * 64);
        let mut block = [0; 8];
        memory
            .read_exact_at(&mut block, layout.ring_at(at / 64) as u64)
            .expect("the ring's blocks");
        let place = u64::from_ne_bytes(block) * BLOCK + at % 64 * 64 - welcome.first_segment_at;
        let salt = Salt(attached.salt);
        let [index, size, slot, data_at, data_bytes, other] = words;
        let record = Record {
            sequence: self.next,
            index,
            size: match size {
                0..4 => attached.size_bytes + size * 1000,
                size => size,
            },
            modified: other as i64,
            slot: if other % 3 == 0 { NO_SLOT } else { slot as u32 },
            continues: u32::from(other % 7 == 0),
            data_at: data_at as u32,
            data_bytes: data_bytes as u32,
            data_checksum: 0,
            checksum: other as u32,
            reserved: 0,
        };
        let record = if is_whole {
            record.sealed(salt)
        } else {
            record
        };
        let number = place / welcome.segment_bytes;
        let ask = [1, number, 1];
        if !self.segments.iter().any(|(known, _)| *known == number)
            && !self.ask(Kind::Segments as u32, ask, Beside::Nothing)
        {
            return None;
        }
        let (_, file) = self.segments.iter().find(|(known, _)| *known == number)?;
        // A segment that it got for reading first cannot be written.
        let written = file.write_all_at(record.as_bytes(), place % welcome.segment_bytes);
        self.next += u64::from(written.is_ok());
        Some(())
    }

    fn descriptor(&self, beside: Beside) -> Option<OwnedFd> {
        let path = self.mounted.path(&self.name);
        let mut options = OpenOptions::new();
        let opened = match beside {
            Beside::Nothing => return None,
            Beside::Writable(true) => options.read(true).write(true).open(path),
            Beside::Writable(false) => options.read(true).append(true).open(path),
            Beside::ReadOnly => options.read(true).open(path),
            Beside::WriteOnly => options.write(true).open(path),
            Beside::PathOnly => options.read(true).custom_flags(libc::O_PATH).open(path),
            Beside::Folder => options.read(true).open(self.mounted.path("")),
            Beside::Null => options.read(true).write(true).open("/dev/null"),
            Beside::Pipe => return Some(std::io::pipe().expect("a pipe").0.into()),
            Beside::Memory => {
                let flags = rustix::fs::MemfdFlags::CLOEXEC;
                return Some(rustix::fs::memfd_create("hostile", flags).expect("memory"));
            }
            Beside::Socket => return self.socket.try_clone().ok(),
        };
        Some(opened.expect("open").into())
    }
}

fn one_case(mounted: &Mounted, steps: &[Step], secret: &[u8], look: impl Fn(&[u8])) {
    let mut liar = Liar::connect(mounted);
    liar.say_hello();
    steps.iter().all(|step| liar.take(step));
    drop(liar);
    look(&std::fs::read(mounted.path("hostile")).expect("the file can be read"));
    let found = std::fs::read(mounted.path("secret")).expect("read");
    assert!(found == secret, "a file of another domain has changed");
}

/// Has hostile processes talk to the server. After each of them `look` is shown the content of its
/// file, whose bytes were 7.
pub(crate) fn survive(mounted: &Mounted, look: impl Fn(&[u8])) {
    let make = |name: &str, mode: u32, content: &[u8]| {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).mode(mode);
        let mut file = options.open(mounted.path(name)).expect("a file");
        file.write_all(content).expect("written");
    };
    let secret: Vec<u8> = (0..100_000_u32).map(|at| ((at * 31) >> 4) as u8).collect();
    make("secret", 0o600, &secret);
    make("hostile", 0o666, &[7; 50_000]);
    let config = Config {
        cases: CASES,
        max_shrink_iters: 50,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            one_case(mounted, &steps, &secret, &look);
            Ok(())
        })
        .expect("survived");
}

#[test]
fn any_conversation_is_survived() {
    let mut mounted = Mounted::new();
    survive(&mounted, |_| ());
    // Who is honest is served as ever.
    let client = Client::default();
    let path = mounted.path("honest");
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    let file = options.open(path).expect("a file");
    let direct = client.look(file.as_fd()).expect("a file of the mount");
    let mut done_directly = 0;
    for block in 0..100 {
        let data = [block as u8; BLOCK as usize];
        match direct.write_at(file.as_fd(), &[IoSlice::new(&data)], block * BLOCK) {
            Some(_) => done_directly += 1,
            None => file.write_all_at(&data, block * BLOCK).expect("written"),
        }
    }
    assert!(done_directly > 50, "{done_directly} of 100 directly");
    direct.close();
    drop((direct, file));
    let running = mounted.running.take().expect("it runs");
    running.unmount().expect("unmounted");
    let store = txn::PmemStore::open(&mounted.place.pool(), txn::Mode::ReadOnly, true);
    let store = store.expect("the pool opens");
    let report = fs::check::check(store.region(), &fs::check::CheckOptions::default());
    assert!(report.is_clean(), "{:?}", report.faults);
}

#[test]
fn who_says_to_be_busy_with_many_files_makes_nobody_wait_for_each() {
    /// Waited for one by one, 10 ms each, they take four seconds.
    const FILES: usize = 400;
    let place = Place::new();
    place.format_of(1 << 30);
    let mounting = Mounting {
        lease_timeout: Some(Duration::from_secs(2)),
        ..place.mounting()
    };
    let mounted = Mounted::as_wanted(place, MountOptions::default(), &mounting);
    std::fs::write(mounted.path("hostile"), [7; 50]).expect("a file");
    let mut liar = Liar::connect(&mounted);
    liar.say_hello();
    for number in 0..FILES {
        liar.name = number.to_string();
        std::fs::write(mounted.path(&liar.name), [7; 50]).expect("a file");
        assert!(liar.ask(Kind::Attach as u32, [0, 1, 1], Beside::Writable(true)));
        let (attached, _) = liar.attached.as_ref().expect("attached");
        assert_eq!(
            attached.inode,
            inode(&mounted, &liar.name),
            "each has its lease"
        );
        let busy = slot_at(attached.slot as usize) as u64;
        liar.take(&Step::Busy(busy / 8, 1));
        liar.take(&Step::Record([0, 0, 0, 0, 0, 1], true));
    }
    assert_eq!(direct_status(&mounted).leases_granted, FILES as u64);
    let mut longest = Duration::ZERO;
    let begin = Instant::now();
    while direct_status(&mounted).leases > 0 {
        assert!(begin.elapsed() < LATEST, "the leases do not end");
        let asked = Instant::now();
        assert!(liar.ask(Kind::Hello as u32, [0; 3], Beside::Nothing));
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}

#[test]
fn who_hangs_up_in_the_middle_of_a_write_has_its_blocks_until_it_has_come_to_the_end() {
    let mounted = Mounted::new();
    std::fs::write(mounted.path("hostile"), [7; 50]).expect("a file");
    let free = || {
        let status = rustix::fs::statvfs(mounted.path("").as_path());
        status.expect("statvfs").f_bfree
    };
    let before = free();
    let mut liar = Liar::connect(&mounted);
    liar.say_hello();
    assert!(liar.ask(Kind::Attach as u32, [0, 1, 0], Beside::Writable(true)));
    let (attached, _) = liar.attached.take().expect("attached");
    let busy = slot_at(attached.slot as usize) as u64;
    let (_file, words) = liar.process.take().expect("its file");
    let say = |word: u64| words.word(busy as usize).store(word, Ordering::Relaxed);
    say(1);
    drop(liar);
    let begin = Instant::now();
    while direct_status(&mounted).leases > 0 {
        assert!(begin.elapsed() < LATEST, "the lease does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        free() + attached.spare_blocks <= before,
        "they may still be stored into"
    );
    assert_eq!(clients(&mounted).len(), 1);
    say(0);
    let begin = Instant::now();
    while !clients(&mounted).is_empty() || free() + 50 < before {
        assert!(
            begin.elapsed() < LATEST,
            "its place stays taken: {} of {before}",
            free()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn inode(mounted: &Mounted, name: &str) -> u64 {
    let metadata = std::fs::metadata(mounted.path(name));
    metadata.expect("metadata").ino()
}
