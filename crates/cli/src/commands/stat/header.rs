//! The header of a pool that another process has open, read without a lock.

use crate::failure::{Failure, failure_of_open};
use std::path::Path;
use txn::Superblock;
use txn::layout::SegmentEntry;

pub(super) struct Header {
    pub(super) superblock: Superblock,
    pub(super) entries: Vec<SegmentEntry>,
}

impl Header {
    /// Reads the header of the pool at `pool`, be it a directory or a device.
    pub(super) fn read(pool: &Path) -> Result<Header, Failure> {
        let (superblock, entries) =
            txn::pool::read_header(pool).map_err(|error| failure_of_open(pool, error))?;
        Ok(Header {
            superblock,
            entries,
        })
    }
}
