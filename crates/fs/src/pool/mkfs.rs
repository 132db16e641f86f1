//! mkfs: the inode table and the root directory of a new pool.

use crate::block_map::{BlockMap, MapEditor};
use crate::format::inode::INODE_BYTES;
use crate::format::{FileType, InodeNumber, Pointer, RawInode};
use crate::values::clock::Clock;
use crate::values::error::FsError;
use pmem::{BLOCK_BYTES, Region};
use scatter::{DomainId, Options, Purpose};
use std::path::Path;
use txn::format::write_header;
use txn::{
    Content, FormatError, FormatOptions, Mode, PmemStore, PoolDirectory, PoolState, Store,
    Transaction, pool,
};

/// Makes a pool with an empty root directory that belongs to `root_owner` (user, group).
///
/// # Errors
///
/// [`FormatError`]; nothing is left behind.
pub fn mkfs(
    path: &Path,
    options: &FormatOptions,
    root_owner: (u32, u32),
) -> Result<(), FormatError> {
    mkfs_with_progress(path, options, root_owner, &mut |_, _| ())
}

/// The same; `progress` is told bytes written
/// and bytes in all, if a log has to be written.
///
/// # Errors
///
/// [`FormatError`]; nothing is left behind.
pub fn mkfs_with_progress(
    path: &Path,
    options: &FormatOptions,
    root_owner: (u32, u32),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), FormatError> {
    let region = pool::create(path, options)?;
    let result = initialise(region, root_owner)
        .and_then(|region| pool::finish(path, &region, options, progress));
    if result.is_err() {
        let _ = PoolDirectory::open(path).and_then(|made| txn::remove(&made));
    }
    result
}

/// Makes a pool in `region` (emulated or private memory) and hands the region back.
///
/// # Errors
///
/// [`FormatError`] for options that do not fit the region.
pub fn mkfs_region(
    region: Region,
    options: &FormatOptions,
    root_owner: (u32, u32),
) -> Result<Region, FormatError> {
    let superblock = options.superblock()?;
    if superblock.geometry().total_bytes() > region.length() {
        return Err(FormatError::TooSmall {
            size_bytes: region.length(),
            minimum_bytes: superblock.geometry().total_bytes(),
        });
    }
    initialise(
        write_header(region, &superblock, Content::Anybodys),
        root_owner,
    )
}

fn initialise(region: Region, root_owner: (u32, u32)) -> Result<Region, FormatError> {
    let failed = |error: &dyn std::fmt::Display| FormatError::Initialise(error.to_string());
    let store = PmemStore::open_region(region, Mode::ReadWrite).map_err(|error| failed(&error))?;
    let rebuild = store.rebuild().map_err(|error| failed(&error))?;
    store.install(rebuild, Options::default());
    write_root(&store, root_owner).map_err(|error| failed(&error))?;
    store.checkpoint();
    store
        .into_region()
        .ok_or_else(|| FormatError::Initialise("the region is still in use".into()))
}

fn write_root<S: Store>(store: &S, (uid, gid): (u32, u32)) -> Result<(), FsError> {
    let now = Clock::default().now();
    let mut transaction = store.begin();
    let block = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary)?;
    let mut root = RawInode {
        mode: FileType::Directory.mode_bits() | 0o755,
        links: 2,
        uid,
        gid,
        generation: 1,
        accessed: now.nanoseconds(),
        created: now.nanoseconds(),
        parent: InodeNumber::ROOT.get(),
        ..RawInode::ZERO
    };
    root.touch_modified(now);
    root.checksum = root.expected_checksum(InodeNumber::ROOT);
    let mut bytes = [0; BLOCK_BYTES];
    let at = InodeNumber::ROOT.get() as usize * INODE_BYTES;
    bytes[at..at + INODE_BYTES].copy_from_slice(zerocopy::IntoBytes::as_bytes(&root));
    transaction.write_fresh(block, 0, &bytes);
    let mut table = RawInode {
        mode: FileType::Regular.mode_bits() | 0o600,
        links: 1,
        generation: 1,
        size: BLOCK_BYTES as u64,
        blocks: 1,
        ..RawInode::ZERO
    };
    table.touch_modified(now);
    let mut editor = MapEditor::new(store, BlockMap::of(InodeNumber::TABLE, &table));
    editor.set(
        &mut transaction,
        0,
        &[Pointer::Written(block)],
        DomainId::METADATA,
    )?;
    (table.root, table.height) = editor.finish(&mut transaction);
    table.log_changes(&RawInode::ZERO, InodeNumber::TABLE, |at, bytes| {
        transaction.store(store.root_area() + at, bytes);
    });
    transaction.commit()?;
    Ok(())
}
