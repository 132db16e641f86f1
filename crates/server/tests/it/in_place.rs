//! A mount whose processes overwrite in place: what is stored when, and what of a process that stands still in the middle of it.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::direct::{BLOCK, direct_status};
use crate::common::{Mounted, Place};
use direct::Client;
use fs::MountOptions;
use perdure_server::Mounting;

fn mount_in_place() -> Mounted {
    let place = Place::new();
    place.format();
    let mounting = Mounting {
        in_place: true,
        ..place.mounting()
    };
    Mounted::as_wanted(place, MountOptions::default(), &mounting)
}

/// A file of so many blocks that this process writes directly.
struct Own {
    file: File,
    direct: Arc<direct::File>,
}

impl Own {
    fn create(mounted: &Mounted, blocks: usize) -> Own {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(mounted.path("file")).expect("open");
        file.write_all_at(&vec![1; blocks * BLOCK], 0)
            .expect("filled");
        let direct = Client::default().look(file.as_fd());
        let own = Own {
            direct: direct.expect("a file of the mount"),
            file,
        };
        let is_direct = |_: &u32| own.write(&[1], 0).is_some();
        assert!((0..20).any(|time| is_direct(&time)), "attached");
        own
    }

    fn write(&self, data: &[u8], offset: u64) -> Option<usize> {
        let slices = [IoSlice::new(data)];
        self.direct.write_at(self.file.as_fd(), &slices, offset)
    }
}

#[test]
fn an_overwrite_is_where_the_file_was_and_changes_its_time() {
    let mounted = mount_in_place();
    assert!(direct_status(&mounted).in_place);
    let own = Own::create(&mounted, 100);
    let before = own.file.metadata().expect("metadata");
    // More than the clock's tick.
    std::thread::sleep(Duration::from_millis(20));
    let data = vec![2; 99 * BLOCK + 7];
    assert_eq!(own.write(&data, 11), Some(data.len()));
    let after = own.file.metadata().expect("metadata");
    let time = |of: &std::fs::Metadata| (of.mtime(), of.mtime_nsec());
    assert!(time(&after) > time(&before), "{before:?} {after:?}");
    assert_eq!(after.len(), before.len());
    let now = direct_status(&mounted);
    assert_eq!((now.leases, now.leases_taken_back), (1, 0));
    // Of 100 blocks, which would have been a record each.
    assert!(now.records_folded < 20, "{now:?}");
    let mut wanted = vec![1; 100 * BLOCK];
    wanted[11..11 + data.len()].copy_from_slice(&data);
    assert!(std::fs::read(mounted.path("file")).expect("read") == wanted);
    let mounted = mounted.remount();
    assert!(std::fs::read(mounted.path("file")).expect("read") == wanted);
}

/// Memory of several pages, one of which cannot be read before somebody says so: who copies from it stands still in the middle.
struct Gate;

static GATE: AtomicPtr<libc::c_void> = AtomicPtr::new(null_mut());
/// 0: nobody is there; 1: somebody waits; 2: he may pass.
static WAITS: AtomicU32 = AtomicU32::new(0);

extern "C" fn wait_at_gate(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page = GATE.load(Ordering::Acquire);
    // SAFETY: the kernel passes what it says of a page fault.
    let at = unsafe { (*info).si_addr() };
    if (at as usize) & !(BLOCK - 1) != page as usize {
        // A fault of another kind is none of ours.
        std::process::abort();
    }
    WAITS.store(1, Ordering::Release);
    while WAITS.load(Ordering::Acquire) != 2 {
        std::hint::spin_loop();
    }
    // SAFETY: the page belongs to this test alone.
    unsafe { libc::mprotect(page, BLOCK, libc::PROT_READ) };
}

impl Gate {
    /// `pages` pages of `byte`, of which page `closed` is the gate.
    fn close(pages: usize, closed: usize, byte: u8) -> &'static [u8] {
        // SAFETY: new memory, filled before anybody else knows of it, and never given back.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(null_mut(), pages * BLOCK, protection, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::ptr::write_bytes(at.cast::<u8>(), byte, pages * BLOCK);
            let page = at.byte_add(closed * BLOCK);
            GATE.store(page, Ordering::Release);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = wait_at_gate as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, null_mut()), 0);
            assert_eq!(libc::mprotect(page, BLOCK, libc::PROT_NONE), 0);
            std::slice::from_raw_parts(at.cast::<u8>(), pages * BLOCK)
        }
    }

    fn wait_for_somebody() {
        let begin = Instant::now();
        while WAITS.load(Ordering::Acquire) != 1 {
            assert!(begin.elapsed() < Duration::from_secs(20), "nobody came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn open() {
        WAITS.store(2, Ordering::Release);
    }
}

/// The lease is taken from a process that has stored half of its second block. Others write the file then; nothing that the process stores later gets into it.
#[test]
fn what_is_stored_after_the_lease_was_forced_gets_nowhere() {
    let mounted = mount_in_place();
    let own = Own::create(&mounted, 6);
    let data = Gate::close(4, 1, 2);
    std::thread::scope(|scope| {
        // In the second block from its middle on: half of that comes from the first page, the rest from the gate.
        let offset = (BLOCK + BLOCK / 2) as u64;
        let writer = scope.spawn(move || own.write(data, offset));
        Gate::wait_for_somebody();
        let path = mounted.path("file");
        let seen = std::fs::read(&path).expect("read by somebody else");
        let now = direct_status(&mounted);
        assert_eq!((now.leases_forced, now.leases), (1, 0));
        // What is before the middle of the write is new, what is behind it old.
        let half = BLOCK + BLOCK / 2;
        let is_new = |from: usize, to: usize| seen[from..to].iter().all(|&byte| byte == 2);
        let is_old = |from: usize, to: usize| seen[from..to].iter().all(|&byte| byte == 1);
        assert!(is_old(0, half) && is_new(half, 2 * BLOCK) && is_old(3 * BLOCK, 6 * BLOCK));
        let others = File::options().write(true).open(&path).expect("open");
        others.write_all_at(&[3; 6 * BLOCK], 0).expect("write");
        Gate::open();
        let told = writer.join().expect("the writer ends");
        assert_eq!(told, None, "the kernel is to do it again");
        let found = std::fs::read(&path).expect("read");
        assert!(found == [3; 6 * BLOCK], "what came too late is there");
    });
    let mounted = mounted.remount();
    let found = std::fs::read(mounted.path("file")).expect("read");
    assert!(found == [3; 6 * BLOCK]);
}
