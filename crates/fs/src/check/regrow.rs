//! Holes in the inode table and in directories: missing blocks are found again or replaced by empty ones.
//!
//! Runs when everything else is in order, so what nobody claims is free. The changes are transactions of the ordinary kind.

use super::claims::Claims;
use super::plan::Plan;
use super::records;
use super::table_root::{is_spoilt, own_inode};
use crate::FsError;
use crate::block_map::{BlockMap, MapEditor};
use crate::format::inode::{INODE_BYTES, INODES_PER_BLOCK};
use crate::format::{InodeNumber, Pointer, RawInode};
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use scatter::{DomainId, Extent, Options, Purpose};
use std::collections::HashMap;
use std::sync::Arc;
use txn::checksum::mix64;
use txn::{
    Corruption, Domain, Metadata, Mode, OpenError, PmemStore, PoolState, Store, Transaction,
};

/// Why holes could not be filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegrowError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Operation(#[from] FsError),
    #[error(transparent)]
    Commit(#[from] txn::CommitError),
    #[error(transparent)]
    Corrupt(#[from] Corruption),
}

/// Fills the holes of a plan: those of the table, and only if it has none those of directories.
pub(super) fn fill(region: &Arc<Region>, claims: &Claims, plan: &Plan) -> Result<(), RegrowError> {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite)?;
    let found = find_table_blocks(&store, claims, &plan.table_holes);
    install_allocator(&store, claims, &found)?;
    // Nobody has claimed yet what belongs to the inodes in the blocks that were found: neither journals nor new blocks may lie there. The next
    // pass knows more.
    store.keep_journals();
    for &index in &plan.table_holes {
        if found.is_empty() || found.contains_key(&index) {
            fill_table(&store, index, found.get(&index).copied())?;
        }
    }
    if plan.table_holes.is_empty() {
        for &(directory, index) in &plan.directory_holes {
            fill_directory(&store, directory, index)?;
        }
    }
    store.checkpoint();
    Ok(())
}

fn install_allocator(
    store: &PmemStore,
    claims: &Claims,
    found: &HashMap<u64, BlockNumber>,
) -> Result<(), RegrowError> {
    let rebuild = store.rebuild()?;
    for start in claims
        .iter(true)
        .chain(found.values().copied())
        .filter(|block| !rebuild.is_marked(*block))
    {
        rebuild
            .mark(Extent { start, blocks: 1 })
            .map_err(|error| Corruption::new(format!("block {start}"), error.to_string()))?;
    }
    store.install(rebuild, Options::default());
    Ok(())
}

/// Looks for missing blocks of the table among the blocks that nobody claims.
///
/// An inode's checksum contains its number, so a block that holds sixteen inodes tells which sixteen.
fn find_table_blocks(
    store: &PmemStore,
    claims: &Claims,
    holes: &[u64],
) -> HashMap<u64, BlockNumber> {
    let numbers: HashMap<u32, u64> = holes
        .iter()
        .flat_map(|&hole| (0..INODES_PER_BLOCK).map(move |slot| hole * INODES_PER_BLOCK + slot))
        .map(|number| (mix64(number) as u32, number))
        .collect();
    let mut found = HashMap::new();
    if holes.is_empty() {
        return found;
    }
    let geometry = store.geometry();
    for block in claims.iter(false) {
        let segment = ((block.get() - geometry.header_blocks) / geometry.segment_blocks) as u32;
        let domain = store.domains().entry(segment).domain(segment);
        if !matches!(domain, Ok(Some(Domain::Metadata | Domain::Mixed))) {
            continue;
        }
        let raws: [RawInode; INODES_PER_BLOCK as usize] = store.load(block.offset());
        if let Some(index) = index_of(&raws, &numbers) {
            found.entry(index).or_insert(block);
        }
    }
    found
}

/// Which block of the table this is, of those that hold `numbers`; most of its inodes say so.
fn index_of(
    raws: &[RawInode; INODES_PER_BLOCK as usize],
    numbers: &HashMap<u32, u64>,
) -> Option<u64> {
    if is_spoilt(&raws[0]) {
        return None;
    }
    let first_of = |(slot, raw): (u64, &RawInode)| {
        // The table's own number is 0, which mixes to 0.
        let mixed = raw.checksum ^ raw.expected_checksum(InodeNumber::TABLE);
        let number = numbers.get(&mixed).filter(|_| *raw != RawInode::ZERO)?;
        (number % INODES_PER_BLOCK == slot).then_some(number - slot)
    };
    let first = (0..).zip(raws).find_map(first_of)?;
    let numbered = raws.iter().zip(first..);
    let is_intact = |(raw, number): &(&RawInode, u64)| raw.is_intact(InodeNumber::new(*number));
    let intact = numbered.filter(is_intact).count();
    (2 * intact > raws.len()).then_some(first / INODES_PER_BLOCK)
}

fn fill_table(
    store: &PmemStore,
    index: u64,
    found: Option<BlockNumber>,
) -> Result<(), RegrowError> {
    let mut transaction = store.begin();
    let block = match found {
        Some(block) => block,
        None => {
            let block = transaction
                .allocate_one(DomainId::METADATA, Purpose::Overwrite)
                .map_err(FsError::from)?;
            transaction.write_fresh(block, 0, &[0; BLOCK_BYTES]);
            block
        }
    };
    link(
        store,
        transaction,
        (InodeNumber::TABLE, own_inode()),
        index,
        block,
    )
}

fn fill_directory(
    store: &PmemStore,
    directory: InodeNumber,
    index: u64,
) -> Result<(), RegrowError> {
    let own: RawInode = store.load(own_inode());
    let table = BlockMap::of(InodeNumber::TABLE, &own);
    let pointer = table
        .lookup(store, directory.get() / INODES_PER_BLOCK)
        .map_err(FsError::from)?;
    let Some(Pointer::Written(table_block)) = pointer else {
        return Err(
            Corruption::new(format!("inode {directory}"), "it has no place in the table").into(),
        );
    };
    let at = table_block.offset() + directory.get() % INODES_PER_BLOCK * INODE_BYTES as u64;
    let mut transaction = store.begin();
    let block = transaction
        .allocate_one(DomainId::METADATA, Purpose::Overwrite)
        .map_err(FsError::from)?;
    transaction.write_fresh(block, 0, &records::build(directory, index, &[]));
    link(store, transaction, (directory, at), index, block)
}

/// Points block `index` of a file to `block`.
fn link<T: Transaction>(
    store: &PmemStore,
    mut transaction: T,
    (number, at): (InodeNumber, Offset),
    index: u64,
    block: BlockNumber,
) -> Result<(), RegrowError> {
    let old: RawInode = store.load(at);
    let mut new = old;
    let mut editor = MapEditor::new(store, BlockMap::of(number, &old));
    editor.set(
        &mut transaction,
        index,
        &[Pointer::Written(block)],
        DomainId::METADATA,
    )?;
    new.blocks += 1 + editor.added;
    (new.root, new.height) = editor.finish(&mut transaction);
    new.log_changes(&old, number, |offset, bytes| {
        transaction.store(at + offset, bytes)
    });
    transaction.commit()?;
    Ok(())
}
