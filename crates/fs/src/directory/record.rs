//! The records of a directory block: their bytes, their checks, and the walk over them.
//!
//! ```text
//!  byte  0        2     3     4           8             16                 16 + name_length
//!        +--------+-----+-----+-----------+-------------+------------------+---------+
//! dentry | record | name| file|   check   |    inode    |       name       |  zero   |
//!        | length | len.| type|           |    number   |                  | padding |
//!        +--------+-----+-----+-----------+-------------+------------------+---------+
//! free   | record |  0  |  0  |   check   |  whatever was there before …
//!        | length |     |     |           |
//!        +--------+-----+-----+-----------+
//! ```
//!
//! Numbers are little-endian. `check` is the CRC32C of: the directory's inode number (8 bytes), the record's byte offset in
//! the directory (8), the record's header with `check` zero (8), and for a dentry everything behind the header. So every
//! bit of a dentry is covered, and a record that strayed from another place or directory does not pass.

use super::{BLOCK_BYTES, BLOCKS_MAX, NAME_BYTES_MAX, UNIT_BYTES, UNITS_PER_BLOCK};
pub use crate::format::FileType;
use crate::format::InodeNumber;
use txn::checksum::crc32c;

/// Bytes of a record's header; it is one word, so it is replaced atomically.
pub(crate) const HEADER_BYTES: usize = 8;

/// Bytes in front of a dentry's name.
pub(super) const NAME_AT: usize = 16;

/// Longest dentry in bytes.
pub(super) const DENTRY_BYTES_MAX: usize = record_bytes(NAME_BYTES_MAX);

/// Directory and offset stand in front of the record when its check is computed.
const SALT_BYTES: usize = 16;

/// Bytes of a dentry for a name of this length.
pub const fn record_bytes(name_length: usize) -> usize {
    NAME_AT + name_length.next_multiple_of(UNIT_BYTES)
}

/// May this be a name of a dentry? 1 to 255 bytes, neither `/` nor NUL among them, and neither `.` nor `..`, which are
/// not stored.
pub fn name_is_valid(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
        && name != b"."
        && name != b".."
}

/// Where a record starts, counted in units of 8 bytes from the start of the directory. It stays valid as long as the
/// dentry lives, so it serves as a readdir cookie.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DentryOffset(u32);

impl DentryOffset {
    /// The record at this unit of this block.
    pub(crate) const fn new(block_index: u64, unit: usize) -> Self {
        debug_assert!(block_index < BLOCKS_MAX && unit < UNITS_PER_BLOCK);
        Self((block_index as usize * UNITS_PER_BLOCK + unit) as u32)
    }

    /// From a number of units, as [`DentryOffset::units`] gave it.
    pub const fn from_units(units: u32) -> Self {
        Self(units)
    }

    /// The offset in units of 8 bytes.
    pub const fn units(self) -> u32 {
        self.0
    }

    /// The offset in bytes from the start of the directory.
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * UNIT_BYTES as u64
    }

    /// The block of the directory in which the record lies.
    pub const fn block_index(self) -> u64 {
        self.0 as u64 / UNITS_PER_BLOCK as u64
    }

    /// The record's unit within its block.
    pub(super) const fn unit_in_block(self) -> usize {
        self.0 as usize % UNITS_PER_BLOCK
    }

    /// The record's first byte within its block.
    pub const fn byte_in_block(self) -> usize {
        self.unit_in_block() * UNIT_BYTES
    }
}

/// A record that is not what the format allows: corruption of the medium (or a bug), never a caller's mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("directory {}, record at byte {}: {kind}", directory.get(), offset.bytes())]
pub struct DentryFault {
    /// The directory.
    pub directory: InodeNumber,
    /// The record.
    pub offset: DentryOffset,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// The length is zero, no multiple of 8, or reaches beyond the block. What follows in the block cannot be found.
    #[error("record length {0} is impossible here; the rest of the block is unreadable")]
    Length(u16),
    /// The check does not fit the bytes, the place or the directory. Following records can still be found.
    #[error("check is {found:#010x}, the bytes demand {expected:#010x}")]
    Check {
        /// On the medium.
        found: u32,
        /// From the bytes.
        expected: u32,
    },
    /// The length does not belong to a name of that length.
    #[error("a name of {0} bytes does not fit the record length")]
    NameLength(u8),
    /// The name holds `/` or NUL, or is `.` or `..`.
    #[error("the name is not allowed")]
    Name,
    /// The file type is none that exists.
    #[error("file type {0} does not exist")]
    FileType(u8),
    /// The inode number is none that can exist.
    #[error("inode number {0} is impossible")]
    Inode(u64),
    /// Two free ranges stand side by side, which no operation leaves behind.
    #[error("free range directly behind a free range")]
    Unmerged,
    /// The index says that the dentry refers to another inode.
    #[error("the dentry refers to inode {found}, but it was read as {expected} before")]
    Changed {
        /// On the medium.
        found: u64,
        /// When the directory was loaded or last changed.
        expected: u64,
    },
}

impl FaultKind {
    /// Can the walk go on behind a record with this fault?
    const fn next_is_known(self) -> bool {
        !matches!(self, Self::Length(_))
    }
}

/// A dentry, as it stands on the medium.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<'a> {
    /// Where.
    pub offset: DentryOffset,
    /// The inode it refers to.
    pub inode: InodeNumber,
    /// The inode's type.
    pub file_type: FileType,
    /// The name.
    pub name: &'a [u8],
}

/// One tile of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Record<'a> {
    /// A dentry.
    Entry(Entry<'a>),
    /// A free range.
    Free {
        /// Where it starts.
        offset: DentryOffset,
        /// Its length in bytes, header included.
        bytes: usize,
    },
}

/// The check of `record`, which is a whole dentry or only the header of a free range.
fn check(directory: InodeNumber, offset: DentryOffset, record: &[u8]) -> u32 {
    // Most records are short; clearing and copying the longest buffer would cost more than the checksum.
    const SHORT: usize = 64;
    if SALT_BYTES + record.len() <= SHORT {
        check_in(&mut [0; SHORT], directory, offset, record)
    } else {
        check_in(
            &mut [0; SALT_BYTES + DENTRY_BYTES_MAX],
            directory,
            offset,
            record,
        )
    }
}

#[inline(always)]
fn check_in(buffer: &mut [u8], directory: InodeNumber, offset: DentryOffset, record: &[u8]) -> u32 {
    let bytes = &mut buffer[..SALT_BYTES + record.len()];
    bytes[..8].copy_from_slice(&directory.get().to_le_bytes());
    bytes[8..SALT_BYTES].copy_from_slice(&offset.bytes().to_le_bytes());
    bytes[SALT_BYTES..].copy_from_slice(record);
    bytes[SALT_BYTES + 4..SALT_BYTES + HEADER_BYTES].fill(0);
    crc32c(bytes)
}

fn seal(directory: InodeNumber, offset: DentryOffset, record: &mut [u8]) {
    let sum = check(directory, offset, record);
    record[4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// The header of a free range.
pub(crate) fn free_header(
    directory: InodeNumber,
    offset: DentryOffset,
    range_bytes: usize,
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&(range_bytes as u16).to_le_bytes());
    seal(directory, offset, &mut header);
    header
}

/// Fills `record`, which has exactly the dentry's length.
pub(crate) fn write_dentry(directory: InodeNumber, entry: &Entry<'_>, record: &mut [u8]) {
    let name = entry.name;
    debug_assert!(name_is_valid(name) && record.len() == record_bytes(name.len()));
    let padding = NAME_AT + name.len();
    let length = record.len() as u16;
    record[..2].copy_from_slice(&length.to_le_bytes());
    record[2] = name.len() as u8;
    record[3] = entry.file_type as u8;
    record[8..16].copy_from_slice(&entry.inode.get().to_le_bytes());
    record[NAME_AT..padding].copy_from_slice(name);
    record[padding..].fill(0);
    seal(directory, entry.offset, record);
}

/// Fills a new block of the directory: one dentry, the rest free. The block is to be written whole, outside the log,
/// before the transaction that links it (DESIGN, R2).
pub fn write_fresh_block(
    directory: InodeNumber,
    block_index: u64,
    name: &[u8],
    inode: InodeNumber,
    file_type: FileType,
    block: &mut [u8; BLOCK_BYTES],
) {
    let length = record_bytes(name.len());
    let entry = Entry {
        offset: DentryOffset::new(block_index, 0),
        inode,
        file_type,
        name,
    };
    write_dentry(directory, &entry, &mut block[..length]);
    let rest = DentryOffset::new(block_index, length / UNIT_BYTES);
    block[length..length + HEADER_BYTES].copy_from_slice(&free_header(
        directory,
        rest,
        BLOCK_BYTES - length,
    ));
    block[length + HEADER_BYTES..].fill(0);
}

/// Reads the record at `offset`; `bytes` reaches from there to the end of the block (at least to the end of the record).
pub(crate) fn decode(
    directory: InodeNumber,
    offset: DentryOffset,
    bytes: &[u8],
) -> Result<(Record<'_>, usize), FaultKind> {
    let length_raw = u16::from_le_bytes([bytes[0], bytes[1]]);
    let length = usize::from(length_raw);
    if length == 0 || !length.is_multiple_of(UNIT_BYTES) || length > bytes.len() {
        return Err(FaultKind::Length(length_raw));
    }
    let name_length = bytes[2];
    let covered = if name_length == 0 {
        HEADER_BYTES
    } else {
        length
    };
    if name_length != 0 && length != record_bytes(name_length.into()) {
        return Err(FaultKind::NameLength(name_length));
    }
    let expected = check(directory, offset, &bytes[..covered]);
    let found = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    if found != expected {
        return Err(FaultKind::Check { found, expected });
    }
    if name_length == 0 {
        return if bytes[3] == 0 {
            Ok((
                Record::Free {
                    offset,
                    bytes: length,
                },
                length,
            ))
        } else {
            Err(FaultKind::FileType(bytes[3]))
        };
    }
    let name = &bytes[NAME_AT..NAME_AT + usize::from(name_length)];
    if !name_is_valid(name)
        || bytes[NAME_AT + name.len()..length]
            .iter()
            .any(|&byte| byte != 0)
    {
        return Err(FaultKind::Name);
    }
    let file_type = FileType::from_raw(bytes[3]).ok_or(FaultKind::FileType(bytes[3]))?;
    let inode = inode_at(bytes);
    if inode.get() == 0 || inode > InodeNumber::MAX {
        return Err(FaultKind::Inode(inode.get()));
    }
    Ok((
        Record::Entry(Entry {
            offset,
            inode,
            file_type,
            name,
        }),
        length,
    ))
}

/// The inode number of the dentry that starts at `bytes`.
fn inode_at(bytes: &[u8]) -> InodeNumber {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8..16]);
    InodeNumber::new(u64::from_le_bytes(word))
}

/// Has the dentry that starts at `bytes` this name? Answers by comparing bytes, without the check: only when they
/// differ is the check consulted, because a record that the index led to and that has another name is either a rare
/// collision of two tags or a damaged dentry.
pub(super) fn has_name(
    directory: InodeNumber,
    offset: DentryOffset,
    inode: InodeNumber,
    name: &[u8],
    bytes: &[u8],
) -> Result<Option<FileType>, DentryFault> {
    let fault = |kind| DentryFault {
        directory,
        offset,
        kind,
    };
    let length = record_bytes(name.len());
    let header_fits = bytes.len() >= length
        && u16::from_le_bytes([bytes[0], bytes[1]]) as usize == length
        && usize::from(bytes[2]) == name.len();
    if header_fits && bytes[NAME_AT..NAME_AT + name.len()] == *name {
        let file_type = FileType::from_raw(bytes[3]).ok_or(fault(FaultKind::FileType(bytes[3])))?;
        let found = inode_at(bytes).get();
        return if found == inode.get() {
            Ok(Some(file_type))
        } else {
            Err(fault(FaultKind::Changed {
                found,
                expected: inode.get(),
            }))
        };
    }
    decode(directory, offset, bytes).map_err(fault)?;
    Ok(None)
}

/// The walk over all records of a block, in order; see [`records`].
pub struct Records<'a> {
    block: &'a [u8; BLOCK_BYTES],
    block_index: u64,
    directory: InodeNumber,
    next_byte: usize,
    after_free: bool,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, DentryFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.next_byte;
        if start >= BLOCK_BYTES {
            return None;
        }
        let offset = DentryOffset::new(self.block_index, start / UNIT_BYTES);
        let bytes = &self.block[start..];
        let after_free = std::mem::take(&mut self.after_free);
        let decoded =
            decode(self.directory, offset, bytes).and_then(|(record, length)| match record {
                Record::Free { .. } if after_free => Err(FaultKind::Unmerged),
                _ => Ok((record, length)),
            });
        match decoded {
            Ok((record, length)) => {
                self.next_byte += length;
                self.after_free = matches!(record, Record::Free { .. });
                Some(Ok(record))
            }
            Err(kind) => {
                let length = u16::from_le_bytes([bytes[0], bytes[1]]);
                self.next_byte = if kind.next_is_known() {
                    start + usize::from(length)
                } else {
                    BLOCK_BYTES
                };
                Some(Err(DentryFault {
                    directory: self.directory,
                    offset,
                    kind,
                }))
            }
        }
    }
}

/// All records of a block, in order. A faulty record yields its fault once; the walk goes on behind it if its length is
/// possible, and ends otherwise. It ends in any case after at most 512 steps, whatever the bytes are.
///
/// `block_index` must be below [`BLOCKS_MAX`].
pub fn records(block: &[u8; BLOCK_BYTES], block_index: u64, directory: InodeNumber) -> Records<'_> {
    Records {
        block,
        block_index,
        directory,
        next_byte: 0,
        after_free: false,
    }
}

/// All dentries of a block, in order, with faults as in [`records`]. For readdir: continue behind a cookie by skipping
/// entries whose offset is not above it; a walk must start at the start of a block, because a dentry that was removed
/// meanwhile may have become the middle of a free range.
pub fn entries(
    block: &[u8; BLOCK_BYTES],
    block_index: u64,
    directory: InodeNumber,
) -> impl Iterator<Item = Result<Entry<'_>, DentryFault>> {
    records(block, block_index, directory).filter_map(|record| match record {
        Ok(Record::Entry(entry)) => Some(Ok(entry)),
        Ok(Record::Free { .. }) => None,
        Err(fault) => Some(Err(fault)),
    })
}
