//! Log and image belong together: the image has a stamp, which the log's root has to fit.
//!
//! A file that is exchanged for an older or newer one of the same pool would be taken for that of a
//! power failure: blocks of the image with changes that the log does not have, or a root whose
//! changes the image does not have. The stamp says how old and how new the image's blocks may be.

use super::CLEAN;
use crate::checksum::crc32c;
use std::mem::offset_of;
use wal::Root;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "PerdImg" and a zero.
const MAGIC: u64 = u64::from_le_bytes(*b"PerdImg\0");
const VERSION: u32 = 1;
/// The check covers the stamp from this byte on.
const CHECKED_FROM: usize = 12;

/// A statement of how old and how new the image's blocks may be. It lies in the block of the second
/// superblock, in a sector of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ImageStamp {
    /// "PerdImg" and a zero.
    pub magic: u64,
    /// CRC32C of the bytes behind this field.
    pub check: u32,
    /// Format of the stamp: 1.
    pub version: u32,
    /// Identity of the pool.
    pub identity: [u8; 16],
    /// The use of the pool that wrote it: `user` of the log's root, with bit 0 clear.
    pub token: u64,
    /// `token`, or the use before if the image has nothing of this one.
    pub former: u64,
    /// The image has all batches before this position of the log.
    pub complete: u64,
    /// The image has no record with a larger number.
    pub newest: u64,
}

const _: () = {
    assert!(size_of::<ImageStamp>() == STAMP_BYTES);
    assert!(offset_of!(ImageStamp, version) == CHECKED_FROM);
    assert!(offset_of!(ImageStamp, token) == 32);
    assert!(offset_of!(ImageStamp, newest) == 56);
};

/// Bytes of the stamp.
pub(super) const STAMP_BYTES: usize = 64;
/// Of the second superblock's block, where the stamp begins.
pub const STAMP_AT: usize = 512;

/// Why log and image do not belong together.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Mixture {
    /// The image has no stamp.
    #[error("the image has no valid stamp")]
    NoStamp,
    /// They were written by different uses of the pool.
    #[error("the log is of another mount than the image")]
    OtherUse,
    /// The log's root promises more than the image has.
    #[error(
        "the image has the log's bytes up to {complete} only, and the log begins at {position}: the image is older"
    )]
    ImageIsOlder {
        /// The image has the log up to this position.
        complete: u64,
        /// The log begins at this position.
        position: u64,
    },
    /// The image has more than the log.
    #[error(
        "the image may have record {newest}, and the log ends with {last}: the log is older, or the disk has damaged it"
    )]
    LogIsOlder {
        /// The newest record that the image may have.
        newest: u64,
        /// Last record of the log.
        last: u64,
    },
}

impl ImageStamp {
    /// Of a new pool.
    pub(super) fn new(identity: [u8; 16]) -> ImageStamp {
        ImageStamp {
            magic: MAGIC,
            check: 0,
            version: VERSION,
            identity,
            token: 0,
            former: 0,
            complete: 0,
            newest: 0,
        }
    }

    /// The stamp with a check that fits.
    #[doc(hidden)]
    #[must_use]
    pub fn sealed(mut self) -> ImageStamp {
        self.check = crc32c(&self.as_bytes()[CHECKED_FROM..]);
        self
    }

    /// The stamp in a block, if it is one of this pool.
    pub(super) fn read(block: &[u8], identity: [u8; 16]) -> Option<ImageStamp> {
        let (stamp, _) = ImageStamp::read_from_prefix(block.get(STAMP_AT..)?).ok()?;
        let is_whole = stamp.magic == MAGIC && stamp == stamp.sealed();
        let is_known = stamp.version == VERSION && stamp.identity == identity;
        (is_whole && is_known).then_some(stamp)
    }

    /// Whether this image was the one beside a log with this root.
    pub(super) fn fits(&self, root: &Root) -> Result<(), Mixture> {
        if ![self.token, self.former].contains(&(root.user & !CLEAN)) {
            return Err(Mixture::OtherUse);
        }
        match root.position > self.complete {
            true => Err(Mixture::ImageIsOlder {
                complete: self.complete,
                position: root.position,
            }),
            false => Ok(()),
        }
    }

    /// Whether a log whose last record is `last` has all that the image may have.
    pub(super) fn is_within(&self, last: u64) -> Result<(), Mixture> {
        match self.newest > last {
            true => Err(Mixture::LogIsOlder {
                newest: self.newest,
                last,
            }),
            false => Ok(()),
        }
    }

    /// A use of the pool begins, and has changed nothing yet.
    pub(super) fn begin_use(&mut self, token: u64, root: &Root) {
        (self.token, self.former) = (token & !CLEAN, root.user & !CLEAN);
    }

    /// Blocks are about to get changes up to this record.
    pub(super) fn get_changes(&mut self, newest: u64) {
        self.former = self.token;
        self.newest = self.newest.max(newest);
    }
}
