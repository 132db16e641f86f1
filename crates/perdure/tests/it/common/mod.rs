//! A pool in a directory that goes with the test.

use perdure::{CreateOptions, Pool};
use std::path::PathBuf;
use tempfile::TempDir;

/// Keeps the directory while the pool is used.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let shared_memory = PathBuf::from("/dev/shm");
        let parent = if shared_memory.is_dir() {
            shared_memory
        } else {
            std::env::temp_dir()
        };
        Place {
            directory: tempfile::tempdir_in(parent).expect("a temporary directory"),
        }
    }

    pub(crate) fn pool_path(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    /// A new pool of 32 MiB in segments of 1 MiB.
    pub(crate) fn create(&self) -> Pool {
        Pool::create(self.pool_path(), &small()).expect("a new pool")
    }
}

pub(crate) fn small() -> CreateOptions {
    CreateOptions::new()
        .size_bytes(32 << 20)
        .segment_bytes(1 << 20)
        .journals(2)
        .volatile(true)
}
