//! Requests of a real kernel, by both ways. Skipped with a word where this user may not mount, and
//! over io_uring where the system has it off.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::{
    At, Config, Errno, FileAttr, FileType, Filesystem, Filled, Generation, INodeNo, InitFlags,
    Options, Read, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs,
    ReplyWrite, Request, Session, Space, Time, Write,
};
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

/// Files by number: `plain`, `slow`, whose readers wait, and `later`, which others answer for.
const NAMES: [&str; 3] = ["plain", "slow", "later"];
const PLAIN: INodeNo = INodeNo(2);
const SLOW: INodeNo = INodeNo(3);
const LATER: INodeNo = INodeNo(4);
const FILE_BYTES: usize = 4 << 20;
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const NOTHING: Duration = Duration::ZERO;

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    fn await_waiting(&self, count: usize) {
        let start = Instant::now();
        while self.waiting.load(Ordering::SeqCst) < count {
            assert!(start.elapsed() < PATIENCE, "requests do not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Files {
    content: Arc<Mutex<Vec<u8>>>,
    gate: Arc<Gate>,
    /// How many references were given back: STATFS tells it as free inodes.
    forgotten: AtomicUsize,
}

fn attributes(inode: INodeNo) -> FileAttr {
    let kind = match inode {
        INodeNo::ROOT => FileType::Directory,
        _ => FileType::Regular,
    };
    FileAttr {
        inode,
        size_bytes: FILE_BYTES as u64,
        sectors: 0,
        accessed: Time::default(),
        modified: Time::default(),
        changed: Time::default(),
        mode: kind.mode() | 0o755,
        links: 1,
        uid: 0,
        gid: 0,
        device: 0,
        block_bytes: 4096,
    }
}

impl Filesystem for Files {
    fn init(&mut self, config: &mut Config) -> io::Result<()> {
        config.want(InitFlags::PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let known = NAMES.iter().position(|known| name == *known);
        let numbered = name.to_str().and_then(|name| name.parse::<u64>().ok());
        let number = known.map(|index| PLAIN.0 + index as u64).or(numbered);
        match number {
            Some(number) => {
                let attributes = attributes(INodeNo(number));
                reply.entry(&NOTHING, &NOTHING, &attributes, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn forget(&self, _: INodeNo, references: u64) {
        self.forgotten
            .fetch_add(references as usize, Ordering::SeqCst);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, reply: ReplyAttr) {
        match inode {
            SLOW => self.gate.pass(),
            LATER => {
                let gate = Arc::clone(&self.gate);
                std::thread::spawn(move || {
                    gate.pass();
                    reply.attr(&NOTHING, &attributes(inode));
                });
                return;
            }
            _ => {}
        }
        reply.attr(&NOTHING, &attributes(inode));
    }

    fn unlink(&self, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(&self, _: &Request, at: At, read: Read, reply: ReplyData) {
        let content = self.content.lock();
        let start = content.len().min(at.offset as usize);
        let end = content.len().min(start + read.bytes as usize);
        reply.fill::<Vec<u8>>(read.bytes as usize, |room| {
            room[..end - start].copy_from_slice(&content[start..end]);
            Ok(Filled::Room(end - start))
        });
    }

    fn write(&self, _: &Request, at: At, write: Write<'_>, reply: ReplyWrite) {
        let (start, data) = (at.offset as usize, write.data);
        self.content.lock()[start..start + data.len()].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn readdir(&self, at: At, mut reply: ReplyDirectory) {
        for (index, name) in (0..).zip(NAMES).skip(at.offset as usize) {
            let inode = INodeNo(PLAIN.0 + index);
            if reply.add(inode, index + 1, FileType::Regular, OsStr::new(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let forgotten = self.forgotten.load(Ordering::SeqCst) as u64;
        reply.statfs(&Space {
            blocks: 1,
            free_blocks: 1,
            available_blocks: 1,
            inodes: 1 << 20,
            free_inodes: forgotten,
            block_bytes: 4096,
            name_max: 255,
        });
    }
}

struct Mounted {
    place: PathBuf,
    gate: Arc<Gate>,
    session: Option<JoinHandle<io::Result<()>>>,
    _directory: tempfile::TempDir,
}

impl Mounted {
    /// A mount, if this user may have one and the system has the way.
    fn new(over_io_uring: bool) -> Option<Mounted> {
        if over_io_uring && let Err(why) = fuse::check_io_uring() {
            eprintln!("skipped: io_uring is {why}");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let Ok(device) = device else {
            eprintln!("skipped: no /dev/fuse");
            return None;
        };
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
            device.as_raw_fd()
        );
        let data = std::ffi::CString::new(data).expect("no NUL");
        let place = directory.path().to_owned();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        if let Err(error) = rustix::mount::mount("test", &place, "fuse", flags, &*data) {
            eprintln!("skipped: no mount: {error}");
            return None;
        }
        let gate = Arc::<Gate>::default();
        let files = Files {
            content: Arc::new(Mutex::new(vec![0; FILE_BYTES])),
            gate: Arc::clone(&gate),
            forgotten: AtomicUsize::new(0),
        };
        let options = Options {
            threads: 2,
            over_io_uring,
            stations: 2,
        };
        let session = std::thread::spawn(move || {
            let session = Session::new(files, device, options)?;
            assert_eq!(session.is_over_io_uring(), over_io_uring);
            session.run(|| panic!("the session failed"))
        });
        Some(Mounted {
            place,
            gate,
            session: Some(session),
            _directory: directory,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Threads that ask for the attributes of a file.
    fn ask(&self, name: &str, count: usize) -> Vec<JoinHandle<io::Result<()>>> {
        let path = self.path(name);
        let ask = move |path: PathBuf| std::fs::metadata(path).map(drop);
        (0..count)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || ask(path))
            })
            .collect()
    }

    fn end(mut self) -> io::Result<()> {
        self.gate.open();
        let session = self.session.take().expect("one end");
        rustix::mount::unmount(&self.place, UnmountFlags::DETACH).expect("unmounted");
        session.join().expect("no panic")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.gate.open();
            let _ = rustix::mount::unmount(&self.place, UnmountFlags::DETACH);
        }
    }
}

/// Held by tests that run beside others; one counts what the whole process has.
static TOGETHER: RwLock<()> = RwLock::new(());

/// Runs a test by each way that the machine has.
fn both_ways(test: impl Fn(Mounted)) {
    for over_io_uring in [false, true] {
        if let Some(mounted) = Mounted::new(over_io_uring) {
            test(mounted);
        }
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("a directory")
        .count()
}

#[test]
fn content_of_all_lengths_goes_both_ways() {
    let _turn = TOGETHER.read();
    both_ways(|mounted| {
        let file = File::options()
            .read(true)
            .write(true)
            .open(mounted.path("plain"));
        let file = file.expect("opened");
        for length in [1, 4096, 5000, 1 << 20, FILE_BYTES] {
            let data: Vec<u8> = (0..length)
                .map(|index| (index * 7 + length) as u8)
                .collect();
            file.write_all_at(&data, 0).expect("written");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
            let mut found = vec![0; length];
            file.read_exact_at(&mut found, 0).expect("read");
            assert!(found == data, "{length}");
        }
        drop(file);
        let names = std::fs::read_dir(&mounted.place).expect("listed");
        let names: Vec<_> = names
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, NAMES);
        let missing = File::open(mounted.path("missing")).expect_err("no such file");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let long = OsStr::from_bytes(&[b'n'; 255]).to_owned();
        assert!(File::open(mounted.place.join(long)).is_err());
        mounted.end().expect("a good end");
    });
}

/// Of the classic queue's two threads each would wait for ever.
#[test]
fn a_queue_full_of_slow_requests_does_not_hold_up_others() {
    let _turn = TOGETHER.read();
    let Some(mounted) = Mounted::new(true) else {
        return;
    };
    let slow = mounted.ask("slow", 24);
    mounted.gate.await_waiting(24);
    for _ in 0..100 {
        std::fs::metadata(mounted.path("plain")).expect("attributes");
    }
    mounted.gate.open();
    for thread in slow {
        thread.join().expect("no panic").expect("attributes");
    }
    mounted.end().expect("a good end");
}

#[test]
fn other_threads_may_answer() {
    let _turn = TOGETHER.read();
    let Some(mounted) = Mounted::new(true) else {
        return;
    };
    let later = mounted.ask("later", 24);
    mounted.gate.await_waiting(24);
    std::fs::metadata(mounted.path("plain")).expect("attributes");
    mounted.gate.open();
    for thread in later {
        thread.join().expect("no panic").expect("attributes");
    }
    mounted.end().expect("a good end");
}

/// Ends a connection with requests under way: by force, as the kernel's `umount -f` does.
#[test]
fn a_mount_ends_with_requests_under_way() {
    let _turn = TOGETHER.read();
    both_ways(|mut mounted| {
        let waiting = mounted.ask("slow", 2);
        mounted.gate.await_waiting(2);
        let force = UnmountFlags::DETACH | UnmountFlags::FORCE;
        rustix::mount::unmount(&mounted.place, force).expect("unmounted");
        for thread in waiting {
            let error = thread
                .join()
                .expect("no panic")
                .expect_err("the mount is gone");
            assert!(matches!(
                error.raw_os_error(),
                Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED)
            ));
        }
        mounted.gate.open();
        let session = mounted.session.take().expect("the session");
        session.join().expect("no panic").expect("a good end");
    });
}

#[test]
fn descriptors_and_threads_are_given_back() {
    let _turn = TOGETHER.write();
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .expect("threads")
            .count()
    };
    let mut first = None;
    for _ in 0..20 {
        both_ways(|mounted| {
            let slow = mounted.ask("slow", 8);
            mounted.gate.await_waiting(1);
            mounted.gate.open();
            for thread in slow {
                thread.join().expect("no panic").expect("attributes");
            }
            mounted.end().expect("a good end");
        });
        let now = (descriptors(), threads());
        assert_eq!(*first.get_or_insert(now), now);
    }
}

/// The kernel sends FORGET by a way of its own, which must not be slower.
#[test]
fn what_is_forgotten_is_free_in_the_next_answer() {
    let _turn = TOGETHER.read();
    let Some(mounted) = Mounted::new(true) else {
        return;
    };
    for round in 1..=50_u64 {
        // An inode without a name that nobody has open is forgotten at once.
        let path = mounted.path(&(100 + round).to_string());
        std::fs::remove_file(path).expect("removed");
        let space = rustix::fs::statvfs(&mounted.place).expect("space");
        assert!(space.f_ffree >= round, "{} of {round}", space.f_ffree);
    }
    mounted.end().expect("a good end");
}
