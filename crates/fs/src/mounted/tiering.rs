//! State of the tier of a mount: files, counters, threads. The engine that moves data is
//! `crate::tier`.

use crate::block_map::BlockMap;
use crate::format::{InodeNumber, Pointer, RawInode};
use crate::inode::node::Node;
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use crate::values::types::TierOptions;
use parking_lot::{Condvar, Mutex};
use pmem::{BLOCK_BYTES, BlockNumber};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tier::{Files, Levels, Touches};
use txn::{PoolDevice, Store};

/// Cold blocks that wait to be brought in at most. Those beyond stay where they are.
const WANTED_MAX: usize = 4096;
/// Part of the memory that one transaction writes at most.
const WRITE_PART: u64 = 16;
/// The pace of a device that has not written yet.
const BLOCK_NS_AT_FIRST: u64 = 10_000;

/// Deeds of the tier, in blocks.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) copied: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) brought_in: AtomicU64,
    pub(crate) cold_reads: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) pauses: AtomicU64,
}

/// Attempts that failed one after the other.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pub(crate) attempts: u32,
    pub(crate) since: Option<Instant>,
    /// The device is left alone until then.
    pub(crate) until: Option<Instant>,
}

/// State of the tier.
#[derive(Debug)]
pub(crate) struct Tiering {
    pub(crate) options: TierOptions,
    pub(crate) levels: Levels,
    pub(crate) files: Mutex<Files>,
    touches: Touches,
    write_bytes_max: usize,
    /// Blocks of files that were read twice.
    pub(crate) wanted: Mutex<VecDeque<(u64, u64)>>,
    /// Whether writers look for room first.
    pub(crate) is_tight: AtomicBool,
    pub(crate) counters: Counters,
    /// Blocks that a writer without room asks for.
    pub(crate) demand: AtomicU64,
    /// As of the last count.
    pub(crate) metadata_blocks: AtomicU64,
    /// Time that the device needs for a block, lately.
    pub(crate) block_ns: AtomicU64,
    pub(crate) failing: Mutex<Failing>,
    /// Blocks that are dirty since this moment or before are copied whatever their age.
    pub(crate) flush_until: Mutex<Option<Instant>>,
    /// The first inode that nobody has looked at since the mount.
    pub(crate) next_inode: Mutex<u64>,
    pub(crate) ends: AtomicBool,
    /// Rings with `has_work` and `has_room`.
    pub(crate) bell: Mutex<()>,
    pub(crate) has_work: Condvar,
    pub(crate) has_room: Condvar,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Tiering {
    /// The state of a tier over a region of `blocks` blocks that begins.
    pub(crate) fn new(options: TierOptions, blocks: u64) -> Tiering {
        Tiering {
            options,
            levels: Levels {
                dirty_max_percent: options.dirty_max_percent,
            },
            files: Mutex::default(),
            touches: Touches::new(blocks),
            write_bytes_max: (blocks / WRITE_PART) as usize * BLOCK_BYTES,
            wanted: Mutex::default(),
            is_tight: AtomicBool::new(false),
            counters: Counters::default(),
            demand: AtomicU64::new(0),
            metadata_blocks: AtomicU64::new(0),
            block_ns: AtomicU64::new(BLOCK_NS_AT_FIRST),
            failing: Mutex::default(),
            flush_until: Mutex::default(),
            next_inode: Mutex::default(),
            ends: AtomicBool::new(false),
            bell: Mutex::default(),
            has_work: Condvar::new(),
            has_room: Condvar::new(),
            threads: Mutex::default(),
        }
    }

    /// Most bytes of one transaction: a small memory finds room for that.
    pub(crate) fn write_bytes_max(&self) -> usize {
        self.write_bytes_max.max(BLOCK_BYTES)
    }

    /// A file, which the caller has locked, gets dirty blocks.
    #[inline]
    pub(crate) fn note(&self, node: &Node) {
        if !node.0.is_noted.load(Ordering::Relaxed) {
            self.note_first(node);
        }
    }

    #[cold]
    fn note_first(&self, node: &Node) {
        node.0.is_noted.store(true, Ordering::Relaxed);
        let mut files = self.files.lock();
        files.changed(node.number().get(), Instant::now());
    }

    /// A block was read from the device.
    pub(crate) fn read_cold(&self, node: &Node, block: u64) {
        self.counters.cold_reads.fetch_add(1, Ordering::Relaxed);
        let number = node.number().get();
        if !self.touches.touch(number, block) {
            return;
        }
        let mut wanted = self.wanted.lock();
        if wanted.len() < WANTED_MAX {
            wanted.push_back((number, block));
            drop(wanted);
            self.has_work.notify_all();
        }
    }

    /// How long the device needs for a block, lately.
    pub(crate) fn pace(&self) -> Duration {
        Duration::from_nanos(self.block_ns.load(Ordering::Relaxed))
    }

    /// Ends the threads, and waits for them.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::SeqCst);
        drop(self.bell.lock());
        self.has_work.notify_all();
        self.has_room.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The last reference to the file system may be the thread's own.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Tiering {
    fn drop(&mut self) {
        self.end();
    }
}

impl<S: Store> Core<S> {
    /// A block of memory was read or written once more.
    #[inline]
    pub(crate) fn used(&self, block: BlockNumber) {
        if self.tier.is_some()
            && let Some(known) = self.store.device().and_then(PoolDevice::residents)
        {
            known.used(block);
        }
    }

    /// From now on a process may store into the blocks of a file, which the caller has locked: the
    /// device has no copies of them any more.
    pub(crate) fn forget_twins(&self, number: InodeNumber, raw: &RawInode) -> Result<(), FsError> {
        if self.tier.is_none() {
            return Ok(());
        }
        let map = BlockMap::of(number, raw);
        map.walk(&self.store, &mut |pointer, level, _| {
            if let (Pointer::Written(block), 0) = (pointer, level) {
                self.store.changed_in_place(block);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// A file, which the caller has locked, gets dirty blocks.
    #[inline]
    pub(crate) fn note_change(&self, node: &Node) {
        if let Some(tier) = &self.tier {
            tier.note(node);
        }
    }
}
