//! Pools of class `log`: processes read by themselves, and whatever changes a file goes through the
//! server, whose log has it.

use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::direct::{BLOCK, LATEST, Own, direct_status, status};
use crate::common::{Mounted, Place};
use crate::hostile;
use crate::kept::{FOR_READING, FOR_WRITING, Talk, await_that, make};
use direct::Client;
use direct::protocol::{Attached, Kind, Refusal, Row};
use fs::{FileSystem, MountOptions};
use perdure_server::{Mounting, spawn};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use tempfile::TempDir;
use txn::lost::Damage;
use txn::{Durability, Loading, LogOptions, Mode, PmemStore};

/// What `statfs` calls tmpfs.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// A mount of a new pool on the disk of the build directory; `None` if that is none.
fn mount(durability: Durability) -> Option<Mounted> {
    mount_on(Place::new_on_disk()?, durability)
}

pub(crate) fn mount_on(place: Place, durability: Durability) -> Option<Mounted> {
    let mounting = place.mounting();
    mount_as(place, durability, &mounting)
}

pub(crate) fn mount_as(
    place: Place,
    durability: Durability,
    mounting: &Mounting,
) -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return None;
    }
    place.format_logged();
    let store = PmemStore::open_with(
        &place.pool(),
        Mode::ReadWrite,
        false,
        Damage::Refuse,
        LogOptions {
            durability,
            loading: Loading::First,
        },
    );
    let files = FileSystem::mount(store.expect("opened"), MountOptions::default());
    let running = spawn(files.expect("mounted"), mounting).expect("served");
    Some(Mounted {
        running: Some(running),
        place,
    })
}

/// A block of the file, and whether it was read directly.
pub(crate) fn block(own: &Own, index: u64) -> (u8, bool) {
    let (mut data, offset) = ([0; BLOCK], index * BLOCK as u64);
    let slices = &mut [IoSliceMut::new(&mut data)];
    let read = own.direct.read_at(own.file.as_fd(), slices, offset);
    if read.is_none() {
        own.file.read_exact_at(&mut data, offset).expect("read");
    }
    assert!(data.iter().all(|byte| *byte == data[0]), "a torn block");
    (data[0], read.is_some())
}

/// Read requests that the server has had.
fn reads_of_server(mounted: &Mounted) -> u64 {
    let operations = status(mounted).statistics.operations;
    let reads = operations.iter().filter(|one| one.operation == "read");
    reads.map(|one| one.count).sum()
}

#[test]
fn a_process_reads_directly_and_writes_through_the_server() {
    let Some(mounted) = mount(Durability::default()) else {
        return;
    };
    let client = Client::default();
    let own = Own::create(&mounted, "file", &client);
    assert_eq!(own.write(64), 0, "writes go through the server");
    assert!((0..200).any(|_| block(&own, 3).1), "never attached");
    let requests = reads_of_server(&mounted);
    for index in (0..64).cycle().take(5000) {
        assert_eq!(block(&own, index), (index as u8, true));
    }
    assert_eq!(reads_of_server(&mounted), requests);
    // The process sees at once what another one and it itself writes.
    let other = OpenOptions::new().write(true).open(mounted.path("file"));
    let other = other.expect("open");
    for version in 100..104 {
        let by = if version % 2 == 0 { &other } else { &own.file };
        by.write_all_at(&[version; BLOCK], 0).expect("written");
        assert_eq!(block(&own, 0).0, version);
        let begin = Instant::now();
        while !block(&own, 0).1 {
            assert!(begin.elapsed() < LATEST, "not attached again");
        }
        assert_eq!(block(&own, 0), (version, true));
    }
    other.set_len(5 * BLOCK as u64).expect("made shorter");
    let mut data = [0; BLOCK];
    let slices = &mut [IoSliceMut::new(&mut data)];
    let read = own
        .direct
        .read_at(own.file.as_fd(), slices, 6 * BLOCK as u64);
    assert!(matches!(read, None | Some(0)), "behind the end: {read:?}");
    let direct = direct_status(&mounted);
    assert!(direct.reads_only && direct.attached > 0);
    assert_eq!((direct.leases, direct.leases_granted), (0, 0));
    assert!(!own.direct.is_durable(), "fsync has to go to the server");
}

/// A segment as a process gets it, in which the file is, and the file.
fn segment_of(mounted: &Mounted, name: &str) -> (Talk, Attached, OwnedFd) {
    let file = make(mounted, name, 4 * BLOCK);
    let talk = Talk::begin(&file);
    let (attached, _) = talk.attach(&file, FOR_READING).expect("attached");
    for segment in 0..32 {
        let row = Row {
            first: segment,
            distance: 1,
            bits: 1,
        };
        let words = [0, row.first, row.word()];
        let (reply, mut beside) = talk.ask(Kind::Segments, words, None);
        if reply.refusal == 0 && reply.words[0] == 1 {
            return (talk, attached, beside.pop().expect("a descriptor"));
        }
    }
    panic!("no segment is given");
}

/// A part of a segment, mapped for reading.
struct Mapping(*mut std::ffi::c_void);

impl Mapping {
    const BYTES: usize = 1 << 20;

    fn new(segment: &OwnedFd, protection: ProtFlags) -> rustix::io::Result<Mapping> {
        let at = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe {
            rustix::mm::mmap(at, Mapping::BYTES, protection, MapFlags::SHARED, segment, 0)
        };
        mapped.map(Mapping)
    }

    /// How many of its bytes are `byte`.
    fn count(&self, byte: u8) -> usize {
        let start = self.0.cast::<u8>();
        // SAFETY: mapped as long as this lives.
        let bytes = (0..Mapping::BYTES).map(|at| unsafe { start.add(at).read_volatile() });
        bytes.filter(|found| *found == byte).count()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.0, Mapping::BYTES) };
    }
}

#[test]
fn a_hostile_process_cannot_change_the_memory() {
    let Some(mounted) = mount(Durability::default()) else {
        return;
    };
    let (talk, _attached, segment) = segment_of(&mounted, "file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(mounted.path("file"));
    let refused = talk.attach(&file.expect("open"), FOR_WRITING);
    assert_eq!(refused.err(), Some(Refusal::Unsuitable as u32));
    for segment in 0..32 {
        let row = Row {
            first: segment,
            distance: 1,
            bits: 1,
        };
        let words = [1, row.first, row.word()];
        let (reply, beside) = talk.ask(Kind::Segments, words, None);
        let refusal = Refusal::of(reply.refusal);
        assert_eq!((refusal, beside.len()), (Some(Refusal::NotYours), 0));
    }
    let mapping = Mapping::new(&segment, ProtFlags::READ).expect("for reading");
    assert!(mapping.count(7) >= 4 * BLOCK);
    assert!(Mapping::new(&segment, ProtFlags::READ | ProtFlags::WRITE).is_err());
    let writable = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: it is not changed, which is what is tried.
    let (protected, removed) = unsafe {
        (
            rustix::mm::mprotect(mapping.0, Mapping::BYTES, writable),
            rustix::mm::madvise(mapping.0, Mapping::BYTES, Advice::LinuxRemove),
        )
    };
    assert!(protected.is_err() && removed.is_err());
    let given = File::from(segment.try_clone().expect("a descriptor"));
    assert!(given.write_at(b"x", 0).is_err() && given.set_len(0).is_err());
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(&given, punch, 0, BLOCK as u64).is_err());
    // Root, which this process is, could open the memory's own file again if it had that.
    let again = format!("/proc/self/fd/{}", segment.as_raw_fd());
    if rustix::fs::fstatfs(&segment).expect("a file system").f_type != TMPFS_MAGIC {
        assert!(OpenOptions::new().write(true).open(again).is_err());
    }
    let memory = std::fs::read(mounted.path("file")).expect("read");
    assert!(memory == [7; 4 * BLOCK]);
}

#[test]
fn no_conversation_changes_a_byte() {
    let Some(mounted) = mount(Durability::default()) else {
        return;
    };
    hostile::survive(&mounted, |content| {
        assert!(content == [7; 50_000], "a process has changed its file");
    });
    let direct = direct_status(&mounted);
    assert!(
        direct.attached > 0 && direct.leases_granted == 0,
        "{direct:?}"
    );
}

#[test]
fn memory_is_given_back_at_the_unmount_whoever_has_it_mapped() {
    let Some(mut mounted) = mount(Durability::default()) else {
        return;
    };
    let (talk, _attached, segment) = segment_of(&mounted, "file");
    let mapping = Mapping::new(&segment, ProtFlags::READ).expect("mapped");
    assert!(mapping.count(7) >= 4 * BLOCK);
    let running = mounted.running.take().expect("mounted");
    running.unmount().expect("unmounted");
    assert_eq!(
        mapping.count(0),
        Mapping::BYTES,
        "the pages are still there"
    );
    drop(talk);
    // The process that is left behind harms no later mount.
    let mounted = remount(mounted);
    let content = std::fs::read(mounted.path("file")).expect("read");
    assert!(content == [7; 4 * BLOCK]);
    assert_eq!(mapping.count(0), Mapping::BYTES);
}

fn remount(mounted: Mounted) -> Mounted {
    let Mounted { place, .. } = mounted;
    Mounted::at(place)
}

/// A file system of its own on a disk that can be made to stand still.
pub(crate) struct Standstill(TempDir);

impl Standstill {
    pub(crate) fn new() -> Option<Standstill> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return None;
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let image = folder.path().join("image");
        let file = File::create(&image).expect("an image");
        file.set_len(160 << 20).expect("its length");
        std::fs::create_dir(folder.path().join("disk")).expect("a mount point");
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
        let mounted = Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(folder.path().join("disk"))
            .status();
        if ![made, mounted]
            .into_iter()
            .all(|done| done.is_ok_and(|it| it.success()))
        {
            eprintln!("skipped: no ext4 on a loop device here");
            return None;
        }
        Some(Standstill(folder))
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.0.path().join("disk")
    }

    /// From here on no write of the log ends, until [`Still`] is dropped.
    pub(crate) fn stop(&self) -> Still {
        let still = Still(self.path());
        let frozen = Command::new("fsfreeze").arg("-f").arg(&still.0).status();
        assert!(frozen.expect("fsfreeze").success());
        still
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

pub(crate) struct Still(std::path::PathBuf);

impl Drop for Still {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

/// Returns whether a process that attaches a file is answered while a write of it waits for a log
/// that stands still.
fn is_answered_too_early(patience: Duration) -> Option<bool> {
    let disk = Standstill::new()?;
    let place = Place::new_on(&disk.path());
    let mounted = mount_on(place, Durability::Call)?;
    let file = make(&mounted, "file", BLOCK);
    file.sync_all().expect("durable");
    let talk = Talk::begin(&file);
    let used = || status(&mounted).log.expect("a log").used_bytes;
    let before = used();
    let still = disk.stop();
    let is_early = std::thread::scope(|scope| {
        scope.spawn(|| file.write_all_at(&[8; BLOCK], 0).expect("written"));
        await_that("the change is not made", || used() > before);
        let asking = scope.spawn(|| talk.attach(&file, FOR_READING).expect("attached"));
        let begin = Instant::now();
        while begin.elapsed() < patience && !asking.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_early = asking.is_finished();
        drop(still);
        asking.join().expect("no panic");
        is_early
    });
    let mut data = [0; BLOCK];
    file.read_exact_at(&mut data, 0).expect("read");
    assert_eq!(data, [8; BLOCK]);
    drop((talk, file));
    drop(mounted);
    Some(is_early)
}

#[test]
fn with_the_policy_call_nothing_is_read_directly_that_is_not_durable() {
    assert_ne!(
        is_answered_too_early(Duration::from_millis(300)),
        Some(true)
    );
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn an_attachment_that_does_not_wait_is_noticed() {
    use pmem::deliberate::{Bug, set};
    set(Some(Bug::ReadBeforeLog));
    let is_early = is_answered_too_early(LATEST);
    set(None);
    assert_ne!(is_early, Some(false));
}
