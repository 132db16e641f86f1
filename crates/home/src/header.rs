//! The bytes at the beginning of a home.

use crate::HomeError;
use pmem::{BLOCK_BYTES, crc32c};
use std::path::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of every home.
pub const HOME_MAGIC: [u8; 8] = *b"PRDHOME\x01";
/// Version of its format.
pub const HOME_VERSION: u32 = 1;
/// Where data block 0 begins: behind the two headers, at a border that all disks like.
pub const DATA_AT: u64 = 1 << 20;
/// Where the two headers lie. One is written at a time.
pub(crate) const HEADERS_AT: [u64; 2] = [0, BLOCK_BYTES as u64];

/// A home's header. It is stored twice, and the one with the larger generation counts.
#[derive(Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq)]
#[repr(C)]
pub struct HomeHeader {
    /// [`HOME_MAGIC`].
    pub magic: [u8; 8],
    /// [`HOME_VERSION`].
    pub version: u32,
    /// CRC32C of this structure with this field zero.
    pub checksum: u32,
    /// Identity of the pool, as in its superblock.
    pub pool: [u8; 16],
    /// Counts the mounts for writing. The pool has the same number, or a smaller one by one.
    pub generation: u64,
    /// Data blocks.
    pub blocks: u64,
    /// When it was made, nanoseconds since the epoch.
    pub created_ns: i64,
}

const _: () = {
    assert!(size_of::<HomeHeader>() == 56);
    assert!(std::mem::offset_of!(HomeHeader, checksum) == 12);
    assert!(std::mem::offset_of!(HomeHeader, generation) == 32);
};

impl HomeHeader {
    /// The same with the checksum that fits.
    pub(crate) fn sealed(mut self) -> HomeHeader {
        self.checksum = 0;
        self.checksum = crc32c(self.as_bytes());
        self
    }

    /// Reads what a unit of the disk holds; `None` if it is no header, or a damaged one.
    pub(crate) fn parse(unit: &[u8]) -> Option<HomeHeader> {
        let (header, _) = HomeHeader::read_from_prefix(unit).ok()?;
        (header.magic == HOME_MAGIC && header.sealed() == header).then_some(header)
    }

    /// Fails unless this is the header of a home of this program's version, and of this pool.
    pub(crate) fn require(&self, path: &Path, pool: &[u8; 16]) -> Result<(), HomeError> {
        if self.version != HOME_VERSION {
            return Err(HomeError::OtherVersion {
                path: path.to_owned(),
                found: self.version,
            });
        }
        if self.pool != *pool {
            return Err(HomeError::OtherPool {
                path: path.to_owned(),
                found: hex(&self.pool),
                expected: hex(pool),
            });
        }
        Ok(())
    }
}

/// An identity as users see it.
pub(crate) fn hex(bytes: &[u8; 16]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
