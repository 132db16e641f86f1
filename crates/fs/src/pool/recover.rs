//! Volatile state at mount: restored after a clean unmount, rebuilt in parallel after a crash.
//!
//! Free space is whatever no inode reaches, so rebuilding walks the inode table: time grows with the number of
//! inodes and blocks in use, not with the pool.

use super::saved::Saved;
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
use txn::{Corruption, OpenError, Store};

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

/// Blocks kept for overwrites in a full pool: enough for the largest write call, plus some for its map.
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
    let rebuild = store.rebuild()?;
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
    if let Some(saved) = store
        .saved_state()
        .and_then(|bytes| Saved::parse(&bytes, &blocks))
    {
        let mut rebuild = rebuild;
        if rebuild.mark_word_image(&saved.bitmap).is_ok() {
            store.install(rebuild, install);
            let table = table_over(store, own, &blocks, shards);
            table.add_free(0, &saved.free_numbers);
            return Ok(Recovered {
                table,
                orphans: Vec::new(),
            });
        }
        return walk(
            store,
            store.rebuild()?,
            own,
            blocks,
            install,
            options,
            shards,
        );
    }
    walk(store, rebuild, own, blocks, install, options, shards)
}

fn walk<S: Store>(
    store: &S,
    rebuild: Rebuild,
    own: RawInode,
    blocks: Vec<BlockNumber>,
    install: Options,
    options: &MountOptions,
    shards: usize,
) -> Result<Recovered, OpenError> {
    let started = std::time::Instant::now();
    mark_map(store, &rebuild, InodeNumber::TABLE, &own)?;
    let threads = if options.threads == 0 {
        shards
    } else {
        options.threads
    };
    let next = AtomicUsize::new(0);
    let scan = || scan_table(store, &rebuild, &blocks, &next);
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
    store.install(rebuild, install);
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
            Some(Pointer {
                block,
                unwritten: false,
            }) => blocks.push(block),
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
    rebuild: &Rebuild,
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
            scan_block(store, rebuild, index as u64, *block, &mut found)?;
        }
    }
}

fn scan_block<S: Store>(
    store: &S,
    rebuild: &Rebuild,
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
        mark_map(store, rebuild, number, raw)?;
    }
    Ok(())
}

fn mark_map<S: Store>(
    store: &S,
    rebuild: &Rebuild,
    number: InodeNumber,
    raw: &RawInode,
) -> Result<(), Corruption> {
    let mark = |block: BlockNumber| {
        rebuild
            .mark(Extent {
                start: block,
                blocks: 1,
            })
            .map_err(|error| Corruption::new(format!("inode {number}"), error.to_string()))
    };
    BlockMap::of(number, raw).walk(store, &mut |block, _, _| mark(block))?;
    let position = Position {
        inode: number,
        level: Position::ATTRIBUTES,
        index: 0,
    };
    match Pointer::read(raw.attributes, position) {
        Ok(None) => Ok(()),
        Ok(Some(pointer)) => xattr::blocks(store, number, pointer.block)?
            .into_iter()
            .try_for_each(mark),
        Err(_) => Err(Corruption::new(
            format!("inode {number}"),
            "its attribute pointer fails its check",
        )),
    }
}
