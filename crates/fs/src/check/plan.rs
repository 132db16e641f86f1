//! What a check would change if it were allowed to.
//!
//! Plain stores first: words, bytes and inodes. What needs free blocks or names (journals, holes, lost inodes) has to wait for a
//! pass that finds nothing else, because only then it is certain which blocks are free.

use crate::format::{InodeNumber, RawInode};
use pmem::{Flushed, Offset, Region};
use std::collections::BTreeMap;
use txn::places::HalfName;
use zerocopy::IntoBytes;

/// Most stores that one pass plans; the next pass finds the rest.
const STORES_MAX: usize = 1 << 14;

/// The repairs of one pass.
#[derive(Debug, Default)]
pub(super) struct Plan {
    words: Vec<(Offset, u64)>,
    bytes: Vec<(Offset, Vec<u8>)>,
    inodes: BTreeMap<InodeNumber, (Offset, RawInode)>,
    /// Halves of journals that have no place.
    pub(super) lost_halves: Vec<HalfName>,
    /// Blocks of the inode table that are missing.
    pub(super) table_holes: Vec<u64>,
    /// Blocks of directories that are missing.
    pub(super) directory_holes: Vec<(InodeNumber, u64)>,
    /// Inodes with links but without a name.
    pub(super) lost: Vec<InodeNumber>,
}

impl Plan {
    /// Plans to store `word`.
    pub(super) fn word(&mut self, at: Offset, word: u64) {
        if self.words.len() < STORES_MAX {
            self.words.push((at, word));
        }
    }

    /// Plans to fill a hole in a directory.
    pub(super) fn hole(&mut self, directory: InodeNumber, index: u64) {
        if self.directory_holes.len() < STORES_MAX {
            self.directory_holes.push((directory, index));
        }
    }

    /// Plans to store `bytes`.
    pub(super) fn bytes(&mut self, at: Offset, bytes: Vec<u8>) {
        if self.bytes.len() < STORES_MAX {
            self.bytes.push((at, bytes));
        }
    }

    /// Plans a new version of an inode; its checksum is computed when it is stored.
    pub(super) fn inode(&mut self, number: InodeNumber, at: Offset, raw: RawInode) {
        if self.inodes.len() < STORES_MAX {
            self.inodes.insert(number, (at, raw));
        }
    }

    /// The version of an inode that is planned so far.
    pub(super) fn planned(&self, number: InodeNumber) -> Option<RawInode> {
        self.inodes.get(&number).map(|(_, raw)| *raw)
    }

    /// Whether there are plain stores.
    pub(super) fn has_stores(&self) -> bool {
        !(self.words.is_empty() && self.bytes.is_empty() && self.inodes.is_empty())
    }

    /// Whether something needs free blocks or names.
    pub(super) fn has_growth(&self) -> bool {
        !(self.lost_halves.is_empty()
            && self.table_holes.is_empty()
            && self.directory_holes.is_empty()
            && self.lost.is_empty())
    }

    /// Takes over what another part of the check plans.
    pub(super) fn merge(&mut self, other: Plan) {
        self.words.extend(other.words);
        self.bytes.extend(other.bytes);
        self.inodes.extend(other.inodes);
        self.lost_halves.extend(other.lost_halves);
        self.table_holes.extend(other.table_holes);
        self.directory_holes.extend(other.directory_holes);
        self.lost.extend(other.lost);
    }

    /// Does the plain stores and makes them durable.
    pub(super) fn store(&self, region: &Region) {
        let mut batch = Flushed::nothing(region);
        for (at, word) in &self.words {
            batch.join(region.store_u64(*at, *word).flush());
        }
        for (at, bytes) in &self.bytes {
            batch.join(region.store(*at, bytes).flush());
        }
        for (number, (at, raw)) in &self.inodes {
            let mut raw = *raw;
            raw.checksum = 0;
            // An inode that was never used is all zeros, its checksum too.
            if raw != RawInode::ZERO {
                raw.checksum = raw.expected_checksum(*number);
            }
            batch.join(region.store(*at, raw.as_bytes()).flush());
        }
        region.fence(batch);
    }
}
