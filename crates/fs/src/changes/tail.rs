//! The end of a file: its size, and the zeros behind it.

use crate::block_map::{BlockMap, MapEditor};
use crate::format::{BLOCK, FILE_BYTES_MAX, InodeNumber, Pointer, RawInode};
use crate::inode::node::Body;
use crate::mounted::file_system::Core;
use crate::values::error::{FsError, not_brought_in};
use pmem::BLOCK_BYTES;
use pmem::deliberate::{self, Bug};
use scatter::DomainId;
use txn::{Store, Transaction};

/// Changes a file's size inside a transaction.
pub(crate) fn resize<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &Body,
    new: &mut RawInode,
    size: u64,
    transaction: &mut impl Transaction,
) -> Result<(), FsError> {
    if size > FILE_BYTES_MAX {
        return Err(FsError::FileTooLarge);
    }
    if size < body.raw.size {
        let map = BlockMap::of(number, &body.raw);
        zero_range_in_block(
            core,
            &map,
            size,
            body.raw.size.min(size.next_multiple_of(BLOCK)),
            transaction,
        )?;
        let mut editor = MapEditor::new(&core.store, map);
        editor.remove(transaction, size.div_ceil(BLOCK), u64::MAX)?;
        new.blocks = new.blocks.saturating_sub(editor.removed);
        (new.root, new.height) = editor.finish(transaction);
    }
    new.size = size;
    Ok(())
}

/// Zeroes the last block behind the file's end before the file grows: one transaction, or none.
///
/// Processes of the owner may have stored there. A later store changes the user's own file.
pub(crate) fn zero_tail<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    raw: &RawInode,
) -> Result<(), FsError> {
    let used = (raw.size % BLOCK) as usize;
    if used == 0 || deliberate::is(Bug::TrustTail) {
        return Ok(());
    }
    let map = BlockMap::of(number, raw);
    // A block on the device has its zeros: no process stores there, and the move there zeroes the
    // bytes behind the end.
    let Some(Pointer::Written(block)) = map.lookup(&core.store, raw.size / BLOCK)? else {
        return Ok(());
    };
    let domain = core.store.allocator().domain_of(block);
    if domain.is_some_and(DomainId::is_server_only) {
        return Ok(());
    }
    let mut content = [0; BLOCK_BYTES];
    core.store.read_data(block, used, &mut content[used..]);
    if content[used..].iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    let mut transaction = core.begin();
    transaction.zero(block.offset() + used as u64, BLOCK_BYTES - used);
    transaction.commit()?;
    core.store.changed_in_place(block);
    Ok(())
}

/// Logs zeros over `from..to`, which lie in one block; keeps R5 (zeros beyond the end of the file).
pub(crate) fn zero_range_in_block<S: Store>(
    core: &Core<S>,
    map: &BlockMap,
    from: u64,
    to: u64,
    transaction: &mut impl Transaction,
) -> Result<(), FsError> {
    if from >= to || deliberate::is(Bug::ZeroTailForgotten) {
        return Ok(());
    }
    match map.lookup(&core.store, from / BLOCK)? {
        Some(Pointer::Written(block)) => {
            transaction.zero(block.offset() + from % BLOCK, (to - from) as usize);
            transaction.changes_in_place(block);
            Ok(())
        }
        Some(Pointer::Device(block)) => Err(not_brought_in(block)),
        Some(Pointer::Unwritten(_)) | None => Ok(()),
    }
}
