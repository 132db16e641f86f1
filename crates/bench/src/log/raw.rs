//! Durable writes of 4 KiB without a file system's help: into a file that was written before.

use crate::error::BenchError;
use crate::memory::Page;
use parking_lot::{Condvar, Mutex};
use pmem::BLOCK_BYTES;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file of so many bytes, written once and durable.
pub(super) struct RawFile {
    path: PathBuf,
    bytes: u64,
}

impl RawFile {
    pub(super) fn make(directory: &Path, name: &str, bytes: u64) -> Result<RawFile, BenchError> {
        const PIECE: usize = 1 << 20;
        let path = directory.join(name);
        let failed = || BenchError::io("fill", &path);
        let mut file = File::create(&path).map_err(failed())?;
        let content = vec![0x5a; PIECE];
        for _ in 0..bytes.div_ceil(PIECE as u64) {
            file.write_all(&content).map_err(failed())?;
        }
        file.sync_all().map_err(failed())?;
        Ok(RawFile { path, bytes })
    }

    /// For writes that are durable when they return.
    pub(super) fn durable(&self) -> Result<File, BenchError> {
        self.open(libc::O_DIRECT | libc::O_DSYNC)
    }

    /// For writes that go to the page cache.
    pub(super) fn buffered(&self) -> Result<File, BenchError> {
        self.open(0)
    }

    fn open(&self, flags: i32) -> Result<File, BenchError> {
        let file = File::options()
            .write(true)
            .custom_flags(flags)
            .open(&self.path);
        file.map_err(BenchError::io("open", &self.path))
    }

    pub(super) fn blocks(&self) -> u64 {
        self.bytes / BLOCK
    }

    pub(super) fn write(&self, file: &File, page: &Page, block: u64) -> Result<(), BenchError> {
        file.write_all_at(&page.0, block * BLOCK)
            .map_err(BenchError::io("write", &self.path))
    }

    pub(super) fn sync(&self, file: &File) -> Result<(), BenchError> {
        file.sync_data().map_err(BenchError::io("sync", &self.path))
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        // It goes with the directory at the latest.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Blocks that threads leave here, and the thread that finds no write under way writes all of them.
pub(super) struct GroupCommit<'r> {
    raw: &'r RawFile,
    file: File,
    state: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    /// Blocks for the next write, and how many.
    pages: Box<Pages>,
    count: usize,
    /// Number of the next write, and of the last that is durable.
    next: u64,
    durable: u64,
    /// Taken while a write is under way.
    spare: Option<Box<Pages>>,
}

const PAGES_MAX: usize = 64;

#[repr(align(4096))]
struct Pages([[u8; BLOCK_BYTES]; PAGES_MAX]);

impl GroupCommit<'_> {
    /// For at most 64 threads.
    pub(super) fn over(raw: &RawFile) -> Result<GroupCommit<'_>, BenchError> {
        let pages = || Box::new(Pages([[0; BLOCK_BYTES]; PAGES_MAX]));
        Ok(GroupCommit {
            raw,
            file: raw.durable()?,
            state: Mutex::new(Waiting {
                pages: pages(),
                count: 0,
                next: 1,
                durable: 0,
                spare: Some(pages()),
            }),
            changed: Condvar::new(),
        })
    }

    /// Returns when the block is durable.
    pub(super) fn write(&self, page: &Page) -> Result<(), BenchError> {
        let mut state = self.state.lock();
        let (at, ticket) = (state.count, state.next);
        state.pages.0[at] = page.0;
        state.count += 1;
        while state.durable < ticket {
            let Some(spare) = state.spare.take() else {
                self.changed.wait(&mut state);
                continue;
            };
            let full = std::mem::replace(&mut state.pages, spare);
            let (count, number) = (std::mem::take(&mut state.count), state.next);
            state.next += 1;
            drop(state);
            let written = self.write_all(&full, count, number);
            state = self.state.lock();
            state.spare = Some(full);
            state.durable = number;
            self.changed.notify_all();
            written?;
        }
        Ok(())
    }

    fn write_all(&self, pages: &Pages, count: usize, number: u64) -> Result<(), BenchError> {
        let places = self.raw.blocks() / PAGES_MAX as u64;
        let at = number % places.max(1) * PAGES_MAX as u64 * BLOCK;
        let bytes = pages.0[..count].as_flattened();
        self.file
            .write_all_at(bytes, at)
            .map_err(BenchError::io("write", &self.raw.path))
    }
}
