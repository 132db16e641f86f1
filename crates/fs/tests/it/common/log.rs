//! A pool of class `log` in files.

use perdure_fs::{FileSystem, MountOptions, mkfs};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore};

pub(crate) struct Pool {
    place: TempDir,
}

impl Pool {
    /// `None` if there is no disk.
    pub(crate) fn new(options: &FormatOptions) -> Option<Pool> {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let pool = Pool { place };
        if !txn::pool::needs_log(&pool.path()) {
            eprintln!("skipped: the build directory is not on an ordinary disk");
            return None;
        }
        let options = FormatOptions {
            log: true,
            ..*options
        };
        mkfs(&pool.path(), &options, (0, 0)).expect("mkfs");
        Some(pool)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.place.path().join("pool")
    }

    pub(crate) fn mount(&self) -> FileSystem {
        let store = PmemStore::open(&self.path(), Mode::ReadWrite, false).expect("opened");
        FileSystem::mount(store, MountOptions::default()).expect("mounted")
    }

    /// All that is not on the disk is gone.
    pub(crate) fn fail_power(&self, files: FileSystem) {
        files.sync().expect("durable");
        drop(files);
        std::fs::remove_dir_all(self.memory()).expect("memory");
    }

    pub(crate) fn memory(&self) -> PathBuf {
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
