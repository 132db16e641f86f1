//! One content, whatever way it is reached: read and write, shared and private mappings, direct I/O, several processes.

use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use crate::common::direct::status;
use crate::common::{Mounted, Place, Remote, ServerProcess};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// A mapping of a file's first bytes.
struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    fn new(file: &File, length: usize, flags: MapFlags) -> Mapping {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks the place, so no memory of ours is replaced.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, access, flags, file, 0) };
        Mapping {
            start: start.expect("mmap"),
            length,
        }
    }

    fn get(&self, index: usize) -> u8 {
        assert!(index < self.length);
        // SAFETY: inside the mapping; other processes' changes are allowed for by the volatile access.
        unsafe { self.start.cast::<u8>().add(index).read_volatile() }
    }

    fn set(&self, index: usize, value: u8) {
        assert!(index < self.length);
        // SAFETY: inside the mapping, which is writable.
        unsafe { self.start.cast::<u8>().add(index).write_volatile(value) }
    }

    fn sync(&self) {
        self.try_sync().expect("msync");
    }

    fn try_sync(&self) -> rustix::io::Result<()> {
        // SAFETY: the range is the mapping.
        unsafe { rustix::mm::msync(self.start, self.length, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, and nobody holds a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("open")
}

/// Names that the kernel has asked for.
fn lookups(mounted: &Mounted) -> u64 {
    let operations = status(mounted).statistics.operations;
    let lookups = operations.iter().filter(|one| one.operation == "lookup");
    lookups.map(|one| one.count).sum()
}

/// A question to the kernel opens the file by its handle, which makes the kernel forget its name.
#[test]
fn a_file_that_has_no_whole_page_is_not_asked_about() {
    let mounted = Mounted::new();
    let path = mounted.path("journal");
    let file = open(&path);
    let before = lookups(&mounted);
    for (offset, bytes) in [(0, 512), (512, 4), (516, 4096), (4612, 4)] {
        file.write_all_at(&vec![1; bytes], offset).expect("write");
        let size = file.metadata().expect("stat").len();
        assert_eq!(size, offset + bytes as u64);
    }
    fs::remove_file(&path).expect("remove");
    assert_eq!(lookups(&mounted), before);
}

#[test]
fn names_of_a_file_that_may_be_mapped_are_kept() {
    let mounted = Mounted::new();
    let file = open(&mounted.path("mapped"));
    file.write_all_at(&[1; 8192], 0).expect("write");
    let other = mounted.path("other");
    fs::hard_link(mounted.path("mapped"), &other).expect("link");
    let before = lookups(&mounted);
    fs::remove_file(&other).expect("remove");
    assert_eq!(lookups(&mounted), before);
}

#[test]
fn what_a_dead_server_did_not_get_is_not_called_durable() {
    let place = Place::new();
    let mut server = ServerProcess::start(&place);
    let file = open(&place.mountpoint().join("mapped"));
    file.write_all_at(&[1; 8192], 0).expect("write");
    let mapping = Mapping::new(&file, 8192, MapFlags::SHARED);
    mapping.set(0, 2);
    mapping.sync();
    file.sync_all().expect("fsync");
    server.signal(rustix::process::Signal::KILL);
    server.wait();
    // The page is in the kernel's cache, so nothing stops the store.
    mapping.set(1, 3);
    assert!(mapping.try_sync().is_err(), "msync");
    assert!(file.sync_all().is_err(), "fsync");
}

#[test]
fn a_shared_mapping_and_calls_see_each_other() {
    let mounted = Remote::new();
    let path = mounted.path("mapped");
    fs::write(&path, vec![1; 100_000]).expect("write");
    let file = open(&path);
    let mapping = Mapping::new(&file, 100_000, MapFlags::SHARED);
    let mut byte = [0];
    for round in 2..100u8 {
        let index = usize::from(round) * 1000;
        mapping.set(index, round);
        file.read_exact_at(&mut byte, index as u64).expect("read");
        assert_eq!(byte[0], round, "a store is read at once");
        file.write_all_at(&[round + 100], index as u64 + 1)
            .expect("write");
        assert_eq!(
            mapping.get(index + 1),
            round + 100,
            "a write is seen at once"
        );
    }
    mapping.sync();
    drop((mapping, file));
    let mounted = mounted.remount();
    let content = fs::read(mounted.path("mapped")).expect("read");
    assert_eq!((content[5000], content[5001], content[5002]), (5, 105, 1));
}

#[test]
fn a_private_mapping_keeps_its_changes() {
    let mounted = Remote::new();
    let path = mounted.path("mapped");
    fs::write(&path, vec![1; 8192]).expect("write");
    let file = open(&path);
    let mapping = Mapping::new(&file, 8192, MapFlags::PRIVATE);
    mapping.set(10, 2);
    assert_eq!(fs::read(&path).expect("read")[10], 1);
    file.write_all_at(&[3], 5000).expect("write");
    assert_eq!(
        mapping.get(5000),
        3,
        "a page not changed yet still follows the file"
    );
}

#[test]
fn stores_without_msync_survive_a_clean_unmount() {
    let mounted = Remote::new();
    let path = mounted.path("mapped");
    fs::write(&path, vec![0; 1 << 20]).expect("write");
    let file = open(&path);
    let mapping = Mapping::new(&file, 1 << 20, MapFlags::SHARED);
    (0..1 << 20)
        .step_by(4096)
        .for_each(|index| mapping.set(index, 9));
    drop((mapping, file));
    let mounted = mounted.remount();
    let content = fs::read(mounted.path("mapped")).expect("read");
    assert!(content.iter().step_by(4096).all(|byte| *byte == 9));
}

#[test]
fn truncation_is_seen_by_everybody() {
    let mounted = Remote::new();
    let path = mounted.path("file");
    fs::write(&path, vec![1; 10_000]).expect("write");
    let (reader, writer) = (open(&path), open(&path));
    let mapping = Mapping::new(&reader, 8192, MapFlags::SHARED);
    assert_eq!(mapping.get(8000), 1);
    writer.set_len(5000).expect("shrink");
    writer.set_len(10_000).expect("grow");
    let mut content = vec![9; 10_000];
    reader.read_exact_at(&mut content, 0).expect("read");
    assert!(
        content[..5000].iter().all(|byte| *byte == 1)
            && content[5000..].iter().all(|byte| *byte == 0)
    );
    assert_eq!(
        (mapping.get(4999), mapping.get(5000), mapping.get(8000)),
        (1, 0, 0)
    );
    File::create(&path).expect("open with O_TRUNC");
    assert_eq!(reader.metadata().expect("fstat").len(), 0);
    assert_eq!(reader.read_at(&mut content, 0).expect("read"), 0);
}

#[test]
fn direct_and_cached_access_agree() {
    let mounted = Remote::new();
    let path = mounted.path("direct");
    let cached = open(&path);
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .expect("open directly");
    // Direct I/O wants aligned memory: a page inside a larger buffer.
    let mut space = vec![0u8; 4 * 4096];
    let start = space.as_ptr().align_offset(4096);
    let page = &mut space[start..start + 4096];
    for round in 1..50u8 {
        let offset = u64::from(round) * 4096;
        page.fill(round);
        direct.write_all_at(page, offset).expect("write directly");
        let mut byte = [0];
        cached.read_exact_at(&mut byte, offset + 100).expect("read");
        assert_eq!(byte[0], round);
        cached
            .write_all_at(&[round + 100], offset + 200)
            .expect("write");
        direct.read_exact_at(page, offset).expect("read directly");
        assert_eq!(
            (page[199], page[200], page[201]),
            (round, round + 100, round)
        );
    }
}

#[test]
fn appends_of_several_processes_all_land_whole() {
    const WRITERS: usize = 4;
    const LINES: usize = 1000;
    let mounted = Remote::new();
    let path = mounted.path("log");
    let script = format!(
        "exec 3>>{}; i=0; while [ $i -lt {LINES} ]; do echo \"$0 $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" >&3; i=$((i+1)); done",
        path.display()
    );
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            Command::new("sh")
                .args(["-c", &script, &writer.to_string()])
                .spawn()
                .expect("start a writer")
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().expect("wait").success());
    }
    let content = fs::read_to_string(&path).expect("read");
    let mut next = [0; WRITERS];
    for line in content.lines() {
        let mut words = line.split(' ');
        let mut number = || {
            words
                .next()
                .and_then(|word| word.parse::<usize>().ok())
                .expect("a whole line")
        };
        let (writer, index) = (number(), number());
        assert_eq!(index, next[writer], "lines of one writer keep their order");
        next[writer] += 1;
    }
    assert_eq!(next, [LINES; WRITERS]);
}

#[test]
fn locks_hold_between_processes() {
    let mounted = Remote::new();
    let path = mounted.path("locked");
    fs::write(&path, b"").expect("write");
    let shown = path.display();
    let script = format!(
        "import fcntl, os, sys\n\
         f = open('{shown}', 'r+')\n\
         try:\n  fcntl.{{}}(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
         except OSError: sys.exit(7)\n"
    );
    let file = open(&path);
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("flock");
    let attempt = |call: &str| {
        let status = Command::new("python3")
            .args(["-c", &script.replace("{}", call)])
            .status();
        status.expect("python3").code()
    };
    assert_eq!(attempt("flock"), Some(7), "held here");
    assert_eq!(attempt("lockf"), Some(0), "the other kind of lock is free");
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).expect("lock");
    assert_eq!(attempt("lockf"), Some(7), "held here");
}

#[test]
fn what_was_written_survives_a_killed_server() {
    let place = crate::common::Place::new();
    let mut server = ServerProcess::start(&place);
    let file = open(&place.mountpoint().join("file"));
    for round in 0..200u64 {
        file.write_all_at(&round.to_le_bytes(), round * 5000)
            .expect("write");
    }
    server.signal(rustix::process::Signal::KILL);
    server.wait();
    assert!(file.write_all_at(b"x", 0).is_err(), "nobody answers");
    drop(file);
    let _second = ServerProcess::start(&place);
    let content = fs::read(place.mountpoint().join("file")).expect("read");
    for round in 0..200u64 {
        let at = round as usize * 5000;
        assert_eq!(content[at..at + 8], round.to_le_bytes());
    }
}
