//! The header of a pool that another process has open, read from its file without a lock.
//!
//! Superblocks never change. An entry of the segment table changes by 8-byte stores and carries its own check, so one
//! that is read in the middle of a change is recognised and counted as in transition.

use crate::failure::{Failure, Status};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use txn::Superblock;
use txn::layout::SegmentEntry;
use txn::pool::SUPER_FILE;
use zerocopy::{FromZeros, IntoBytes};

pub(super) struct Header {
    pub(super) superblock: Superblock,
    pub(super) entries: Vec<SegmentEntry>,
}

impl Header {
    /// Reads the header of the pool in directory `pool`; a device in use cannot be read.
    pub(super) fn read(pool: &Path) -> Result<Header, Failure> {
        let path = pool.join(SUPER_FILE);
        let file = File::open(&path).map_err(Failure::io("open", &path))?;
        let read = || -> io::Result<Header> {
            let mut superblock = Superblock::new_zeroed();
            file.read_exact_at(superblock.as_mut_bytes(), 0)?;
            superblock.validate().map_err(io::Error::other)?;
            let geometry = superblock.geometry();
            let mut entries = vec![SegmentEntry::new_zeroed(); geometry.segments as usize];
            file.read_exact_at(entries.as_mut_bytes(), geometry.segment_entry(0).get())?;
            Ok(Header {
                superblock,
                entries,
            })
        };
        read().map_err(|error| {
            Failure::io("read the header", &path)(error).with_status(Status::BadPool)
        })
    }
}
