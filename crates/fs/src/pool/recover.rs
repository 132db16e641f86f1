//! Volatile state at mount: restored after a clean unmount, rebuilt in parallel after a crash.
//!
//! Free space is whatever no inode reaches, so rebuilding walks the inode table: time grows with
//! the number of inodes and blocks in use, not with the pool.

use super::saved::{self, Saved};
use crate::block_map::BlockMap;
use crate::format::inode::INODES_PER_BLOCK;
use crate::format::map::{HEIGHT_MAX, INODE_BLOCKS_MAX};
use crate::format::{InodeNumber, Pointer, Position, RawInode};
use crate::inode::table::InodeTable;
use crate::inode::xattr;
use crate::values::types::MountOptions;
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{Extent, Options, Rebuild};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use txn::{Corruption, OpenError, PoolDevice, Store};

/// What a mount starts from.
pub(crate) struct Recovered {
    pub(crate) table: InodeTable,
    /// Inodes without a name: unlinked, but open when the power went.
    pub(crate) orphans: Vec<InodeNumber>,
}

/// Blocks of the inode table that a thread takes at a time: 1,024 inodes.
const BATCH_BLOCKS: usize = 64;

/// Cores of this machine. Asked once: the answer takes the kernel several files to find.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |cores| cores.get()))
}

/// Blocks kept for overwrites in a full pool: enough for the largest write call, plus some for its
/// map.
fn reserve_blocks(segments_blocks: u64) -> u64 {
    (segments_blocks / 64).clamp(8, 1536)
}

pub(crate) fn recover<S: Store>(store: &S, options: &MountOptions) -> Result<Recovered, OpenError> {
    let own: RawInode = store.load(store.root_area());
    if own.is_free() || !own.is_intact(InodeNumber::TABLE) {
        return Err(
            Corruption::new("inode table", "the checksum of its inode does not match").into(),
        );
    }
    let blocks = table_blocks(store, &own)?;
    let geometry = store.geometry();
    let total = u64::from(geometry.segments) * geometry.segment_blocks;
    let defaults = Options::default();
    let install = Options {
        reserve_blocks: reserve_blocks(total),
        seed: options.seed.unwrap_or(defaults.seed),
        ..defaults
    };
    let shards = cores();
    let device_words = store.device().map_or(0, saved::words_of);
    let saved = store.saved_state();
    let saved = saved.and_then(|bytes| Saved::parse(&bytes, &blocks, device_words));
    if let Some(saved) = saved {
        let mut in_use = InUse::new(store)?;
        if in_use.mark_saved(&saved) {
            in_use.install(store, install);
            let table = table_over(store, own, &blocks, shards);
            table.add_free(0, &saved.free_numbers);
            return Ok(Recovered {
                table,
                orphans: Vec::new(),
            });
        }
    }
    walk(store, own, blocks, install, options, shards)
}

/// Blocks that are known to be in use, of memory and of the device.
struct InUse {
    memory: Rebuild,
    device: Option<device::Rebuild>,
}

impl InUse {
    /// Nothing but the store's own blocks.
    fn new<S: Store>(store: &S) -> Result<InUse, Corruption> {
        Ok(InUse {
            memory: store.rebuild()?,
            device: store.device().map(PoolDevice::rebuild),
        })
    }

    /// Marks the blocks that a clean unmount saved. `false` if they do not fit the pool.
    fn mark_saved(&mut self, saved: &Saved) -> bool {
        let device = self.device.as_mut();
        self.memory.mark_word_image(&saved.bitmap).is_ok()
            && device.is_none_or(|device| device.mark_words(&saved.device_bitmap))
    }

    /// Marks a block of inode `number`.
    fn mark(&self, number: InodeNumber, pointer: Pointer) -> Result<(), Corruption> {
        let damaged = |detail: String| Corruption::new(format!("inode {number}"), detail);
        match (pointer, &self.device) {
            (Pointer::Written(start) | Pointer::Unwritten(start), _) => {
                let extent = Extent { start, blocks: 1 };
                let marked = self.memory.mark(extent);
                marked.map_err(|error| damaged(error.to_string()))
            }
            (Pointer::Device(block), Some(device)) => {
                let marked = device.mark(block);
                marked.map_err(|error| damaged(error.to_string()))
            }
            (Pointer::Device(_), None) => Err(damaged("the pool has no device".into())),
        }
    }

    /// Installs the free space, after every block in use is marked.
    fn install<S: Store>(self, store: &S, options: Options) {
        store.install(self.memory, options);
        if let (Some(device), Some(rebuild)) = (store.device(), self.device) {
            device.install(rebuild);
        }
    }
}

fn walk<S: Store>(
    store: &S,
    own: RawInode,
    blocks: Vec<BlockNumber>,
    install: Options,
    options: &MountOptions,
    shards: usize,
) -> Result<Recovered, OpenError> {
    let started = std::time::Instant::now();
    let in_use = InUse::new(store)?;
    mark_map(store, &in_use, InodeNumber::TABLE, &own)?;
    let threads = if options.threads == 0 {
        shards
    } else {
        options.threads
    };
    let next = AtomicUsize::new(0);
    let scan = || scan_table(store, &in_use, &blocks, &next);
    let parts = if blocks.len() <= BATCH_BLOCKS || threads <= 1 {
        vec![scan()]
    } else {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(scan)).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("scanning does not panic"))
                .collect()
        })
    };
    let mut found = Vec::with_capacity(parts.len());
    for part in parts {
        found.push(part?);
    }
    in_use.install(store, install);
    let inodes = blocks.len() as u64 * INODES_PER_BLOCK;
    let table = table_over(store, own, &blocks, shards);
    let mut orphans = Vec::new();
    for (shard, mut part) in found.into_iter().enumerate() {
        part.free.sort_unstable_by(|a, b| b.cmp(a));
        table.add_free(shard, &part.free);
        orphans.append(&mut part.orphans);
    }
    tracing::info!(inodes, elapsed = ?started.elapsed(), "volatile state rebuilt");
    Ok(Recovered { table, orphans })
}

fn table_over<S: Store>(
    store: &S,
    own: RawInode,
    blocks: &[BlockNumber],
    shards: usize,
) -> InodeTable {
    for &block in blocks {
        store.homes().push(block);
    }
    InodeTable::new(own, shards)
}

/// The blocks of the inode table, in order.
fn table_blocks<S: Store>(store: &S, own: &RawInode) -> Result<Vec<BlockNumber>, Corruption> {
    let count = own.size / BLOCK_BYTES as u64;
    let damaged = |detail: &str| Corruption::new("inode table", detail);
    let too_many = own.blocks > INODE_BLOCKS_MAX;
    if own.height > HEIGHT_MAX || count > store.geometry().total_blocks() || too_many {
        return Err(damaged("its size is impossible"));
    }
    let mut blocks = Vec::with_capacity(count as usize);
    let mut hole = false;
    BlockMap::of(InodeNumber::TABLE, own).lookup_range(
        store,
        0,
        count,
        |_, pointer| match pointer {
            Some(Pointer::Written(block)) => blocks.push(block),
            _ => hole = true,
        },
    )?;
    if hole || blocks.is_empty() {
        return Err(damaged("it has a hole"));
    }
    Ok(blocks)
}

#[derive(Default)]
struct Found {
    free: Vec<u32>,
    orphans: Vec<InodeNumber>,
}

/// Marks what the inodes of unclaimed batches own, until no batch is left.
fn scan_table<S: Store>(
    store: &S,
    in_use: &InUse,
    blocks: &[BlockNumber],
    next: &AtomicUsize,
) -> Result<Found, Corruption> {
    let mut found = Found::default();
    loop {
        let first = next.fetch_add(BATCH_BLOCKS, Ordering::Relaxed);
        if first >= blocks.len() {
            return Ok(found);
        }
        for (index, block) in blocks.iter().enumerate().skip(first).take(BATCH_BLOCKS) {
            scan_block(store, in_use, index as u64, *block, &mut found)?;
        }
    }
}

fn scan_block<S: Store>(
    store: &S,
    in_use: &InUse,
    index: u64,
    block: BlockNumber,
    found: &mut Found,
) -> Result<(), Corruption> {
    let inodes: [RawInode; INODES_PER_BLOCK as usize] = store.load(block.offset());
    for (slot, raw) in inodes.iter().enumerate() {
        let number = InodeNumber::new(index * INODES_PER_BLOCK + slot as u64);
        if !raw.is_intact(number) {
            return Err(Corruption::new(
                format!("inode {number}"),
                "its checksum does not match",
            ));
        }
        if raw.is_free() {
            if number > InodeNumber::ROOT {
                found.free.push(number.get() as u32);
            }
            continue;
        }
        if raw.links == 0 {
            found.orphans.push(number);
        }
        mark_map(store, in_use, number, raw)?;
    }
    Ok(())
}

fn mark_map<S: Store>(
    store: &S,
    in_use: &InUse,
    number: InodeNumber,
    raw: &RawInode,
) -> Result<(), Corruption> {
    let map = BlockMap::of(number, raw);
    map.walk(store, &mut |pointer, _, _| in_use.mark(number, pointer))?;
    let position = Position {
        inode: number,
        level: Position::ATTRIBUTES,
        index: 0,
    };
    match Pointer::read_metadata(raw.attributes, position) {
        Ok(None) => Ok(()),
        Ok(Some(root)) => xattr::blocks(store, number, root)?
            .into_iter()
            .try_for_each(|block| in_use.mark(number, Pointer::Written(block))),
        Err(_) => Err(Corruption::new(
            format!("inode {number}"),
            "its attribute pointer fails its check",
        )),
    }
}
