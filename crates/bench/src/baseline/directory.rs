//! Directories as PMFS has them: blocks of entries that are searched one after the other.
//!
//! ```text
//! 0  inode number u64, 0 for an entry that is dead
//! 8  de_len u16 | name_len u8 | file type u8
//! 12 name
//! ```
//!
//! An entry reaches to the next one: what its name does not need of its `de_len` is free. Removing an entry adds its length to the one before
//! it; only the first of a block has none before it, and is marked dead instead. Insertion takes the first entry with enough free bytes
//! behind it. All of that runs through every entry from the first block on (section II-C of the paper); only a lookup begins in the
//! block where the last one ended. Entries are aligned to 4 bytes and never cross a block.

use std::sync::atomic::Ordering;

use pmem::{BLOCK_BYTES, BlockNumber, Flushed, Offset, Region};

use super::block_map;
use super::error::{Corruption, PmfsError};
use super::inode::Inode;
use super::layout::{BLOCK, FileType, InodeNumber, RECORD_BYTES, Record};
use super::transaction::Transaction;
use super::volume::Medium;

/// The longest name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

const LENGTH_IN_ENTRY: u64 = 8;
const NAME_IN_ENTRY: u64 = 12;
const ENTRY_BYTES_MIN: u64 = bytes_for(1);
const ENTRY_BYTES_MAX: usize = bytes_for(NAME_BYTES_MAX) as usize;

/// Log entries that adding or removing an entry takes at most: the directory's record, and one pointer per level of a map that grows, or
/// the entry before.
pub(super) const ENTRIES_TO_CHANGE: u32 = 1 + super::layout::HEIGHT_MAX as u32;

/// Bytes of an entry with a name of so many bytes.
const fn bytes_for(name_bytes: usize) -> u64 {
    (NAME_IN_ENTRY + name_bytes as u64).next_multiple_of(4)
}

/// An entry's second word: length, name length, type, and the first 4 bytes of the name.
#[derive(Copy, Clone)]
struct Head(u64);

impl Head {
    #[inline]
    fn bytes(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    #[inline]
    fn name_bytes(self) -> usize {
        (self.0 >> 16 & 0xff) as usize
    }

    fn type_code(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// Bytes that a living entry needs.
    #[inline]
    fn used_bytes(self) -> usize {
        bytes_for(self.name_bytes()) as usize
    }
}

/// A block of entries, copied out in one piece: a search of the copy needs no access to the region per entry.
struct Entries {
    start: Offset,
    /// So long that a word can be loaded at the last name.
    bytes: [u8; BLOCK_BYTES + 8],
}

/// An entry in the copy.
#[derive(Copy, Clone)]
struct Entry {
    at: usize,
    head: Head,
}

impl Entries {
    fn new() -> Entries {
        Entries {
            start: Offset::new(0),
            bytes: [0; BLOCK_BYTES + 8],
        }
    }

    /// Copies the block of a directory at an index.
    fn load(&mut self, medium: &Medium, record: &Record, index: u64) -> Result<(), Corruption> {
        self.start = block_at(medium, record, index)?.offset();
        medium
            .region
            .read(self.start, &mut self.bytes[..BLOCK_BYTES]);
        Ok(())
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        match self.bytes[at..].first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => 0,
        }
    }

    /// The entry at `at`, if the block does not end there.
    #[inline]
    fn entry(&self, at: usize) -> Result<Option<Entry>, Corruption> {
        if at >= BLOCK_BYTES {
            return Ok(None);
        }
        let head = Head(self.word(at + LENGTH_IN_ENTRY as usize));
        let bytes = head.bytes();
        let is_sound = bytes >= ENTRY_BYTES_MIN as usize
            && bytes.is_multiple_of(4)
            && at + bytes <= BLOCK_BYTES;
        match is_sound {
            true => Ok(Some(Entry { at, head })),
            false => Err(self.corruption(at)),
        }
    }

    /// The inode number of an entry; 0 if it is dead.
    #[inline]
    fn number(&self, entry: Entry) -> u64 {
        self.word(entry.at)
    }

    /// The name of an entry.
    fn name(&self, entry: Entry) -> Result<&[u8], Corruption> {
        let start = entry.at + NAME_IN_ENTRY as usize;
        match entry.head.used_bytes() <= entry.head.bytes() {
            true => Ok(&self.bytes[start..start + entry.head.name_bytes()]),
            false => Err(self.corruption(entry.at)),
        }
    }

    fn place(&self, entry: Entry) -> Offset {
        self.start + entry.at as u64
    }

    fn corruption(&self, at: usize) -> Corruption {
        Corruption::Entry {
            at: self.start + at as u64,
        }
    }
}

/// A name that is looked for.
struct Wanted<'n> {
    name: &'n [u8],
    /// Its first 8 bytes, or all, as a word.
    front: u64,
    mask: u64,
}

impl Wanted<'_> {
    fn new(name: &[u8]) -> Wanted<'_> {
        let mut front = [0; 8];
        let length = name.len().min(8);
        front[..length].copy_from_slice(&name[..length]);
        Wanted {
            name,
            front: u64::from_le_bytes(front),
            mask: if length == 8 {
                u64::MAX
            } else {
                !(u64::MAX << (8 * length))
            },
        }
    }

    #[inline]
    fn is_name_of(&self, entries: &Entries, entry: Entry) -> Result<bool, Corruption> {
        if entry.head.name_bytes() != self.name.len() {
            return Ok(false);
        }
        let front = entries.word(entry.at + NAME_IN_ENTRY as usize);
        if (front ^ self.front) & self.mask != 0 {
            return Ok(false);
        }
        Ok(entries.name(entry)? == self.name && entries.number(entry) != 0)
    }
}

/// An entry's bytes, up to the end of its name.
fn encode(
    number: InodeNumber,
    entry_bytes: u64,
    file_type: FileType,
    name: &[u8],
) -> ([u8; ENTRY_BYTES_MAX], usize) {
    let mut bytes = [0; ENTRY_BYTES_MAX];
    bytes[..8].copy_from_slice(&number.get().to_le_bytes());
    bytes[8..10].copy_from_slice(&(entry_bytes as u16).to_le_bytes());
    bytes[10] = name.len() as u8;
    bytes[11] = file_type.code();
    let end = NAME_IN_ENTRY as usize + name.len();
    bytes[NAME_IN_ENTRY as usize..end].copy_from_slice(name);
    (bytes, end)
}

/// A living entry.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
struct Found {
    at: Offset,
    bytes: u64,
    number: InodeNumber,
    previous: Option<(Offset, u64)>,
}

/// The block of a directory at an index.
fn block_at(medium: &Medium, record: &Record, index: u64) -> Result<BlockNumber, Corruption> {
    block_map::find(medium, record, index)?.ok_or(Corruption::Block { number: 0 })
}

/// Looks for a name in one block.
fn search(entries: &Entries, wanted: &Wanted<'_>) -> Result<Option<Found>, Corruption> {
    let mut previous: Option<Entry> = None;
    let mut at = 0;
    while let Some(entry) = entries.entry(at)? {
        if wanted.is_name_of(entries, entry)? {
            return Ok(Some(Found {
                at: entries.place(entry),
                bytes: entry.head.bytes() as u64,
                number: InodeNumber::new(entries.number(entry)),
                previous: previous
                    .map(|previous| (entries.place(previous), previous.head.bytes() as u64)),
            }));
        }
        at += entry.head.bytes();
        previous = Some(entry);
    }
    Ok(None)
}

/// The inode that a name leads to. The caller holds the directory's lock.
pub(super) fn lookup(
    medium: &Medium,
    directory: &Inode,
    record: &Record,
    name: &[u8],
) -> Result<Option<InodeNumber>, Corruption> {
    let blocks = record.size_blocks();
    let start = directory.search_from.load(Ordering::Relaxed) % blocks.max(1);
    let (wanted, mut entries) = (Wanted::new(name), Entries::new());
    for index in (start..blocks).chain(0..start) {
        entries.load(medium, record, index)?;
        if let Some(found) = search(&entries, &wanted)? {
            directory.search_from.store(index, Ordering::Relaxed);
            return Ok(Some(found.number));
        }
    }
    Ok(None)
}

/// A new name.
#[derive(Copy, Clone)]
pub(super) struct Name<'n> {
    pub(super) bytes: &'n [u8],
    pub(super) number: InodeNumber,
    pub(super) file_type: FileType,
}

/// Where a new entry fits.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Room {
    /// Behind the name of a living entry, whose length becomes `keeps`.
    Behind { at: Offset, keeps: u64, free: u64 },
    /// In place of a dead one.
    Dead { at: Offset, bytes: u64 },
}

/// The first place in a block where an entry of so many bytes fits.
fn first_room(entries: &Entries, needed: u64) -> Result<Option<Room>, Corruption> {
    let mut at = 0;
    while let Some(entry) = entries.entry(at)? {
        let bytes = entry.head.bytes();
        let is_dead = entries.number(entry) == 0;
        let keeps = if is_dead { 0 } else { entry.head.used_bytes() };
        let free = bytes
            .checked_sub(keeps)
            .ok_or_else(|| entries.corruption(at))? as u64;
        if free >= needed {
            let at = entries.place(entry);
            return Ok(Some(match is_dead {
                true => Room::Dead { at, bytes: free },
                false => Room::Behind {
                    at,
                    keeps: keeps as u64,
                    free,
                },
            }));
        }
        at += bytes;
    }
    Ok(None)
}

/// Adds a name that is not there yet, in a directory that the caller has locked. `record` is the directory's, and is stored.
pub(super) fn insert(
    transaction: &mut Transaction<'_>,
    directory: &Inode,
    record: &mut Record,
    name: Name<'_>,
) -> Result<(), PmfsError> {
    let medium = &transaction.volume().medium;
    let logged = transaction.log(directory.at, RECORD_BYTES as u64);
    let needed = bytes_for(name.bytes.len());
    let (mut room, mut entries) = (None, Entries::new());
    for index in 0..record.size_blocks() {
        entries.load(medium, record, index)?;
        room = first_room(&entries, needed)?;
        if room.is_some() {
            break;
        }
    }
    match room {
        Some(room) => fill(transaction, room, name),
        None => {
            let index = record.size_blocks();
            block_map::allocate(transaction, record, 1, index..index + 1)?;
            record.size_bytes += BLOCK;
            let at = block_at(medium, record, index)?.offset();
            write_fresh(transaction, at, BLOCK, name);
        }
    }
    record.touch();
    transaction.change(&logged, directory.at, &record.bytes());
    Ok(())
}

/// Writes an entry where nothing leads to it before the commit.
fn write_fresh(transaction: &mut Transaction<'_>, at: Offset, bytes: u64, name: Name<'_>) {
    let (entry, length) = encode(name.number, bytes, name.file_type, name.bytes);
    let region = transaction.volume().region();
    transaction.fresh(region.store(at, &entry[..length]).flush());
}

fn fill(transaction: &mut Transaction<'_>, room: Room, name: Name<'_>) {
    match room {
        Room::Behind { at, keeps, free } => {
            write_fresh(transaction, at + keeps, free, name);
            let length_at = at + LENGTH_IN_ENTRY;
            let logged = transaction.log(length_at, 2);
            transaction.change(&logged, length_at, &(keeps as u16).to_le_bytes());
        }
        Room::Dead { at, bytes } => {
            // The number makes it live; what else a dead entry holds means nothing.
            let logged = transaction.log(at, 8);
            let (entry, length) = encode(name.number, bytes, name.file_type, name.bytes);
            let region = transaction.volume().region();
            let rest = region.store(
                at + LENGTH_IN_ENTRY,
                &entry[LENGTH_IN_ENTRY as usize..length],
            );
            transaction.fresh(rest.flush());
            transaction.change(&logged, at, &entry[..8]);
        }
    }
}

/// Removes a name from a directory that the caller has locked. `record` is the directory's, and is stored.
pub(super) fn remove(
    transaction: &mut Transaction<'_>,
    directory: &Inode,
    record: &mut Record,
    name: &[u8],
) -> Result<(), PmfsError> {
    let medium = &transaction.volume().medium;
    let (wanted, mut found, mut entries) = (Wanted::new(name), None, Entries::new());
    for index in 0..record.size_blocks() {
        entries.load(medium, record, index)?;
        found = search(&entries, &wanted)?;
        if found.is_some() {
            break;
        }
    }
    let found = found.ok_or(PmfsError::NotFound)?;
    match found.previous {
        Some((previous, bytes)) => {
            let length_at = previous + LENGTH_IN_ENTRY;
            let logged = transaction.log(length_at, 2);
            let joined = (bytes + found.bytes) as u16;
            transaction.change(&logged, length_at, &joined.to_le_bytes());
        }
        None => {
            let logged = transaction.log(found.at, 8);
            transaction.change(&logged, found.at, &[0; 8]);
        }
    }
    let logged = transaction.log(directory.at, RECORD_BYTES as u64);
    record.touch();
    transaction.change(&logged, directory.at, &record.bytes());
    Ok(())
}

/// Gives a directory that nothing leads to yet its first block, with `.` and `..`.
pub(super) fn begin(
    transaction: &mut Transaction<'_>,
    record: &mut Record,
    number: InodeNumber,
    parent: InodeNumber,
) -> Result<(), PmfsError> {
    block_map::allocate(transaction, record, 1, 0..1)?;
    record.size_bytes = BLOCK;
    let medium = &transaction.volume().medium;
    let first = block_at(medium, record, 0)?;
    transaction.fresh(write_first(&medium.region, first, number, parent));
    Ok(())
}

/// Writes the first block of a directory.
pub(super) fn write_first(
    region: &Region,
    block: BlockNumber,
    number: InodeNumber,
    parent: InodeNumber,
) -> Flushed {
    let own_bytes = bytes_for(1);
    let mut batch = Flushed::nothing(region);
    for (at, bytes, number, name) in [
        (0, own_bytes, number, &b"."[..]),
        (own_bytes, BLOCK - own_bytes, parent, b".."),
    ] {
        let (entry, length) = encode(number, bytes, FileType::Directory, name);
        batch.join(region.store(block.offset() + at, &entry[..length]).flush());
    }
    batch
}

/// An entry of a directory.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Does it lead to a directory?
    pub is_directory: bool,
    /// The inode it leads to.
    pub inode: InodeNumber,
}

/// All living entries in the order of the blocks, `.` and `..` included.
pub(super) fn entries(medium: &Medium, record: &Record) -> Result<Vec<DirEntry>, Corruption> {
    let (mut all, mut entries) = (Vec::new(), Entries::new());
    for index in 0..record.size_blocks() {
        entries.load(medium, record, index)?;
        let mut at = 0;
        while let Some(entry) = entries.entry(at)? {
            if entries.number(entry) != 0 {
                let file_type = FileType::from_code(entry.head.type_code());
                let file_type = file_type.ok_or_else(|| entries.corruption(at))?;
                all.push(DirEntry {
                    name: entries.name(entry)?.to_vec(),
                    is_directory: file_type == FileType::Directory,
                    inode: InodeNumber::new(entries.number(entry)),
                });
            }
            at += entry.head.bytes();
        }
    }
    Ok(all)
}
