//! The names in one directory: its index, and dentries found, planned and logged.

use crate::block_map::{BlockMap, MapEditor};
use crate::directory::{
    self, Candidate, Directory, Edit, Lookup, Plan, name_is_valid, record_bytes,
};
use crate::format::inode::INODE_BYTES;
use crate::format::{FileType, InodeNumber, NAME_BYTES_MAX, Pointer, RawInode};
use crate::inode::node::{Body, BodyWrite, Node};
use crate::inode::table::InodeTable;
use crate::mounted::file_system::Core;
use crate::mounted::roaming::Change;
use crate::values::error::{FsError, damaged_inode};
use pmem::{BLOCK_BYTES, LINE_BYTES, Offset};
use scatter::{DomainId, Purpose};
use txn::{Corruption, Store, Transaction};

/// Longest record of a dentry.
const RECORD_BYTES_MAX: usize = record_bytes(NAME_BYTES_MAX);
/// A dentry that is compared without much ado: of a name up to 112 bytes.
const SHORT_RECORD_BYTES: usize = record_bytes(112);
/// Where the name starts in a record.
const NAME_AT: usize = record_bytes(1) - directory::UNIT_BYTES;
/// Blocks that a shrinking directory gives back at once, so that a removal stays cheap.
const SHRINK_BLOCKS: u64 = 16;

/// A name that exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) candidate: Candidate,
    pub(crate) file_type: FileType,
}

impl Found {
    pub(crate) fn inode(&self) -> InodeNumber {
        self.candidate.inode
    }
}

pub(crate) fn require_name(name: &[u8]) -> Result<(), FsError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong { length: name.len() });
    }
    if name == b"." || name == b".." {
        return Err(FsError::InvalidArgument(
            "the names . and .. are not for changing",
        ));
    }
    if name_is_valid(name) {
        Ok(())
    } else {
        Err(FsError::InvalidArgument(
            "a name is not empty and has no / or NUL",
        ))
    }
}

impl<S: Store> Core<S> {
    /// Builds the index of a directory that was not used before.
    pub(crate) fn build_directory(&self, node: &Node, body: &mut Body) -> Result<(), FsError> {
        body.require_directory()?;
        if body.directory.is_some() {
            return Ok(());
        }
        let number = node.number();
        let names = node.names().cloned().unwrap_or_default();
        let mut directory = Box::new(Directory::over(number, names));
        let blocks = body.raw.size / BLOCK_BYTES as u64;
        if blocks > directory::BLOCKS_MAX {
            return Err(damaged_inode(
                number,
                "its size is impossible for a directory",
            ));
        }
        let mut block = [0; BLOCK_BYTES];
        let map = BlockMap::of(number, &body.raw);
        for index in 0..blocks {
            let at = directory_block(&self.store, &map, index)?;
            self.store.read(at, &mut block);
            directory.load_block(index, &block).map_err(dentry_fault)?;
        }
        self.cache.directory_built(directory.heap_bytes());
        body.directory = Some(directory);
        Ok(())
    }

    /// Finds a name in a directory that the caller has locked, and whose index is built.
    #[inline]
    pub(crate) fn find(
        &self,
        number: InodeNumber,
        body: &Body,
        name: &[u8],
    ) -> Result<Option<Found>, FsError> {
        let Some(index) = &body.directory else {
            return Err(damaged_inode(number, "its index is missing"));
        };
        let map = BlockMap::of(number, &body.raw);
        let found = index.find(name, |candidate| self.verify(&map, candidate, name))?;
        Ok(found.map(|(candidate, file_type)| Found {
            candidate,
            file_type,
        }))
    }

    /// Finds a name without the directory's lock.
    #[inline]
    pub(crate) fn look_up(&self, directory: &Node, name: &[u8]) -> Lookup {
        let Some(names) = directory.names() else {
            return Lookup::Unknown;
        };
        names.look_up(name, |map, candidate| {
            let map = BlockMap {
                inode: directory.number(),
                root: map.root,
                height: map.height,
            };
            self.verify(&map, candidate, name)
        })
    }

    /// Whether the candidate's dentry has this name.
    #[inline]
    fn verify(
        &self,
        map: &BlockMap,
        candidate: Candidate,
        name: &[u8],
    ) -> Result<Option<FileType>, FsError> {
        // The next thing that the caller needs is the inode: all lines travel at the same time.
        let home = InodeTable::home(candidate.inode);
        if let Some(inode) = self.store.homes().place(home) {
            for line in (0..INODE_BYTES).step_by(LINE_BYTES) {
                self.store.prefetch(inode + line as u64);
            }
        }
        let offset = candidate.offset.bytes();
        let in_block = offset % BLOCK_BYTES as u64;
        let at = directory_block(&self.store, map, offset / BLOCK_BYTES as u64)? + in_block;
        let rest = BLOCK_BYTES - in_block as usize;
        // Nearly always the candidate is right and its name short; then only its own bytes are needed, and little room for them.
        let expected = record_bytes(name.len()).min(rest);
        let mut buffer = [0; SHORT_RECORD_BYTES];
        if let Some(record) = buffer.get_mut(..expected) {
            self.store.read(at, record);
            let found = record.get(NAME_AT..).unwrap_or_default();
            if usize::from(record[2]) == name.len() && found.starts_with(name) {
                return directory::has_name(map.inode, candidate, name, record)
                    .map_err(dentry_fault);
            }
        }
        self.look_closely(map.inode, candidate, name, at, rest)
    }

    /// Whether the candidate at `at`, `rest` bytes before the end of its block, has this name, however long, or another, or is damaged.
    #[cold]
    #[inline(never)]
    fn look_closely(
        &self,
        number: InodeNumber,
        candidate: Candidate,
        name: &[u8],
        at: Offset,
        rest: usize,
    ) -> Result<Option<FileType>, FsError> {
        let mut buffer = [0; RECORD_BYTES_MAX];
        let record = &mut buffer[..RECORD_BYTES_MAX.min(rest)];
        self.store.read(at, record);
        directory::has_name(number, candidate, name, record).map_err(dentry_fault)
    }

    /// Logs edits of a directory's blocks.
    pub(crate) fn log_edit(
        &self,
        number: InodeNumber,
        raw: &RawInode,
        edit: &Edit,
        transaction: &mut impl Transaction,
    ) -> Result<(), FsError> {
        let map = BlockMap::of(number, raw);
        let block = directory_block(&self.store, &map, edit.offset / BLOCK_BYTES as u64)?;
        transaction.store(block + edit.offset % BLOCK_BYTES as u64, &edit.bytes);
        Ok(())
    }

    /// Plans and logs a new dentry; the directory grows by a block if it has to.
    pub(crate) fn insert_name(
        &self,
        parent: (InodeNumber, &Body),
        new_parent: &mut RawInode,
        plan: &mut Plan,
        name: &[u8],
        child: (InodeNumber, FileType),
        transaction: &mut impl Transaction,
    ) -> Result<(), FsError> {
        let (number, body) = parent;
        let Some(index) = &body.directory else {
            return Err(damaged_inode(number, "its index is missing"));
        };
        if let Some(edit) = plan.insert(index, name, child.0, child.1) {
            return self.log_edit(number, &body.raw, &edit, transaction);
        }
        let mut bytes = [0; BLOCK_BYTES];
        let Some(block_index) = plan.insert_in_new_block(name, child.0, child.1, &mut bytes) else {
            return Err(FsError::NoSpace);
        };
        let block = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary)?;
        transaction.write_fresh(block, 0, &bytes);
        let mut editor = MapEditor::new(&self.store, BlockMap::of(number, new_parent));
        editor.set(
            transaction,
            block_index,
            &[Pointer::Written(block)],
            DomainId::METADATA,
        )?;
        new_parent.blocks += 1 + editor.added;
        (new_parent.root, new_parent.height) = editor.finish(transaction);
        new_parent.size = (block_index + 1) * BLOCK_BYTES as u64;
        Ok(())
    }

    /// Plans and logs the removal of a dentry; a directory that is mostly empty gives blocks back.
    pub(crate) fn remove_name(
        &self,
        parent: (InodeNumber, &Body),
        new_parent: &mut RawInode,
        plan: &mut Plan,
        name: &[u8],
        found: Found,
        transaction: &mut impl Transaction,
    ) -> Result<(), FsError> {
        let (number, body) = parent;
        let Some(index) = &body.directory else {
            return Err(damaged_inode(number, "its index is missing"));
        };
        let edit = plan.remove(index, name, found.candidate);
        let old_blocks = new_parent.size / BLOCK_BYTES as u64;
        let mut blocks = old_blocks;
        if index.free_bytes() * 2 > new_parent.size && old_blocks > 1 {
            blocks = plan.shrink(index, SHRINK_BLOCKS);
        }
        if edit.offset / (BLOCK_BYTES as u64) < blocks {
            self.log_edit(number, &body.raw, &edit, transaction)?;
        }
        if blocks < old_blocks {
            let mut editor = MapEditor::new(&self.store, BlockMap::of(number, new_parent));
            editor.remove(transaction, blocks, u64::MAX)?;
            new_parent.blocks = new_parent.blocks.saturating_sub(editor.removed);
            (new_parent.root, new_parent.height) = editor.finish(transaction);
            new_parent.size = blocks * BLOCK_BYTES as u64;
        }
        Ok(())
    }

    /// Follows a committed plan of directory `number`, whose inode is up to date.
    #[inline]
    pub(crate) fn commit_plan(&self, number: InodeNumber, body: &mut Body, plan: Plan) {
        let changed = plan.changed_block();
        if let Some(directory) = &mut body.directory {
            directory.commit(plan);
        }
        if let Some(block) = changed
            && self.roaming.draw(Change::Name)
        {
            self.move_block(number, body, block, Change::Name);
        }
    }

    /// Locks a directory for change, with its index built.
    pub(crate) fn lock_directory<'n>(&self, node: &'n Node) -> Result<BodyWrite<'n>, FsError> {
        let mut body = node.write();
        self.build_directory(node, &mut body)?;
        Ok(body)
    }
}

/// Fails if `body` is a directory with entries.
pub(crate) fn require_empty(body: &Body) -> Result<(), FsError> {
    match &body.directory {
        Some(directory) if !directory.is_empty() => Err(FsError::DirectoryNotEmpty),
        _ => Ok(()),
    }
}

pub(crate) fn dentry_fault(fault: directory::DentryFault) -> FsError {
    let object = format!(
        "directory {} at byte {}",
        fault.directory,
        fault.offset.bytes()
    );
    FsError::Corrupt(Corruption::new(object, fault.kind.to_string()))
}

/// Where block `index` of a directory lies.
#[inline]
pub(crate) fn directory_block<S: Store>(
    store: &S,
    map: &BlockMap,
    index: u64,
) -> Result<Offset, FsError> {
    match map.lookup(store, index)? {
        Some(Pointer::Written(block)) => Ok(block.offset()),
        _ => Err(damaged_inode(map.inode, "the directory has a hole")),
    }
}
