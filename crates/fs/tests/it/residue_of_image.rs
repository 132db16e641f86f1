//! A pool of class `log` after a power failure: its memory is what the image was, with what others
//! had left in blocks that were cleared in memory alone.

use crate::residue::{SEGMENT_BYTES, leave_secrets, look, write_own};
use perdure_fs::{FileSystem, MountOptions, mkfs};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore, Store};

struct Pool {
    place: TempDir,
}

impl Pool {
    /// `None` if there is no disk.
    fn new() -> Option<Pool> {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let pool = Pool { place };
        if !txn::pool::needs_log(&pool.path()) {
            eprintln!("skipped: the build directory is not on an ordinary disk");
            return None;
        }
        let options = FormatOptions {
            size_bytes: 16 << 20,
            segment_bytes: SEGMENT_BYTES,
            log: true,
            ..FormatOptions::default()
        };
        mkfs(&pool.path(), &options, (0, 0)).expect("mkfs");
        Some(pool)
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("pool")
    }

    fn mount(&self) -> FileSystem {
        let store = PmemStore::open(&self.path(), Mode::ReadWrite, false).expect("opened");
        FileSystem::mount(store, MountOptions::default()).expect("mounted")
    }

    /// All that is not on the disk is gone.
    fn fail_power(&self, files: FileSystem) {
        files.sync().expect("durable");
        drop(files);
        std::fs::remove_dir_all(self.memory()).expect("memory");
    }

    fn memory(&self) -> PathBuf {
        let (superblock, _) = txn::pool::read_header(&self.path()).expect("a header");
        let name = superblock.uuid.map(|byte| format!("{byte:02x}")).concat();
        Path::new("/dev/shm").join(format!("perdure-{name}"))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.memory());
    }
}

/// User 1 leaves secrets that reach the image, and user 2 gets the segments. Returns what user 2
/// can see after a power failure.
fn seen_after_a_power_failure(pool: &Pool) -> (usize, usize) {
    let files = pool.mount();
    leave_secrets(&files, 1);
    let logger = files.store().logger().expect("a log");
    logger.sync().expect("durable");
    logger.checkpoint().expect("an image");
    write_own(&files, 2).expect("room");
    look(&files, 2);
    pool.fail_power(files);
    let files = pool.mount();
    let seen = look(&files, 2);
    files.unmount();
    seen
}

#[test]
fn what_was_cleared_in_memory_is_not_shown_after_a_power_failure() {
    let Some(pool) = Pool::new() else { return };
    let (_, secrets) = seen_after_a_power_failure(&pool);
    assert_eq!(secrets, 0);
}

#[test]
fn segments_that_nobody_else_has_used_are_given_before_and_after_it() {
    let Some(pool) = Pool::new() else { return };
    let files = pool.mount();
    write_own(&files, 2).expect("room");
    let (before, _) = look(&files, 2);
    assert!(before > 2, "{before}");
    pool.fail_power(files);
    let files = pool.mount();
    assert_eq!(look(&files, 2), (before, 0));
    files.unmount();
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn what_the_image_has_left_is_noticed() {
    use pmem::deliberate::{Bug, set};
    let Some(pool) = Pool::new() else { return };
    set(Some(Bug::ShowImageResidue));
    let (mapped, secrets) = seen_after_a_power_failure(&pool);
    set(None);
    assert!(secrets > 0, "{mapped} segments");
}
