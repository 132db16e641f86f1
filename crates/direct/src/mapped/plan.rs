//! Which blocks go where.

use super::Mapped;
use super::space::Run;
use super::table;
use crate::attachment::Attachment;
use crate::connection::Connection;
use crate::file::File;
use crate::layout::Entry;
use lease::Place;
use pmem::{BLOCK_BYTES, BlockNumber};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A smaller mapping is not worth what attaching its file costs.
const BYTES_MIN: u64 = 256 << 10;
/// A mapping may have so many runs, and one more for each [`RUN_BYTES`]: each is an area of the process's address space, of which the kernel allows some 65,000.
const RUNS_FREE: u64 = 64;
const RUN_BYTES: u64 = 64 << 10;

/// What a program asks of `mmap`.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Bytes.
    pub bytes: usize,
    /// `PROT_…`.
    pub protection: i32,
    /// `MAP_…`.
    pub flags: i32,
    /// Where in the file.
    pub offset: i64,
}

/// A mapping for reading that may lie on blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    first: u64,
    blocks: u64,
    is_private: bool,
}

impl Wanted {
    /// `None` if the kernel has to make it.
    pub(crate) fn of(request: &MapRequest) -> Option<Wanted> {
        /// What changes nothing about where the bytes come from.
        const HARMLESS: i32 = libc::MAP_FIXED
            | libc::MAP_FIXED_NOREPLACE
            | libc::MAP_NORESERVE
            | libc::MAP_DENYWRITE
            | libc::MAP_EXECUTABLE;
        let is_private = match request.flags & libc::MAP_TYPE {
            libc::MAP_PRIVATE => true,
            libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => false,
            _ => return None,
        };
        let offset = u64::try_from(request.offset).ok()?;
        let is_simple = request.protection == libc::PROT_READ
            && request.flags & !(libc::MAP_TYPE | HARMLESS) == 0
            && offset.is_multiple_of(BLOCK);
        let blocks = (request.bytes as u64).div_ceil(BLOCK);
        (is_simple && blocks * BLOCK >= BYTES_MIN).then_some(Wanted {
            first: offset / BLOCK,
            blocks,
            is_private,
        })
    }

    /// The part of it that lies inside a file. What is behind is the kernel's: touching it ends the process.
    pub(crate) fn inside(self, size_bytes: u64) -> Option<Wanted> {
        let blocks = size_bytes.div_ceil(BLOCK).checked_sub(self.first)?;
        let blocks = blocks.min(self.blocks);
        (blocks * BLOCK >= BYTES_MIN).then_some(Wanted { blocks, ..self })
    }
}

/// A mapping that can lie on blocks, before the kernel has made it. While it lives the attachment stays.
#[derive(Debug)]
pub struct Plan {
    pub(super) file: Arc<File>,
    pub(super) mapped: Arc<Mapped>,
    pub(super) runs: Vec<Run>,
    pub(super) bytes: usize,
    pub(super) offset: u64,
    pub(super) is_private: bool,
}

impl Plan {
    pub(crate) fn new(
        file: &Arc<File>,
        mapped: &Arc<Mapped>,
        wanted: Wanted,
        runs: Vec<Run>,
    ) -> Plan {
        mapped.uses.fetch_add(1, SeqCst);
        Plan {
            file: Arc::clone(file),
            mapped: Arc::clone(mapped),
            runs,
            bytes: (wanted.blocks * BLOCK) as usize,
            offset: wanted.first * BLOCK,
            is_private: wanted.is_private,
        }
    }

    /// The kernel has made the mapping that was asked for, at this address: lays the blocks over it. `false`: it stays the kernel's, and so should the file.
    pub fn lay(self, start: usize, descriptor: BorrowedFd<'_>) -> bool {
        table::lay(&self, start, descriptor)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.mapped.uses.fetch_sub(1, SeqCst);
    }
}

/// Where the blocks are. `None` if there is a hole or an unwritten block among them, one where this process may not go, or too many runs.
pub(crate) fn runs_of(
    attachment: &Attachment,
    connection: &Connection,
    wanted: Wanted,
) -> Option<Vec<Run>> {
    let runs_max = RUNS_FREE + wanted.blocks * BLOCK / RUN_BYTES;
    let segments = connection.segments();
    let mut runs: Vec<Run> = Vec::new();
    let mut next = None;
    for number in 0..wanted.blocks {
        let entry = attachment.place_of(connection, wanted.first + number)?;
        let Entry::Place(Place::At(block)) = entry else {
            return None;
        };
        let is_neighbour = next == Some(block) && !segments.begins_segment(block);
        next = Some(BlockNumber::new(block.get() + 1));
        if let Some(run) = runs.last_mut().filter(|_| is_neighbour) {
            run.bytes += BLOCK_BYTES;
            continue;
        }
        if runs.len() as u64 == runs_max {
            return None;
        }
        let soon = attachment.blocks_around(wanted.first + number);
        let (source, is_writable) = segments.address_of(connection.line(), block, soon)?;
        runs.push(Run {
            source,
            is_writable,
            at: (number * BLOCK) as usize,
            bytes: BLOCK_BYTES,
        });
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> MapRequest {
        MapRequest {
            bytes,
            protection: libc::PROT_READ,
            flags: libc::MAP_SHARED,
            offset: 0,
        }
    }

    #[test]
    fn only_plain_mappings_for_reading_are_wanted() {
        let plain = request(1 << 20);
        assert!(Wanted::of(&plain).is_some());
        let private = libc::MAP_PRIVATE | libc::MAP_FIXED;
        for (flags, protection, offset, is_wanted) in [
            (private, libc::PROT_READ, 4096, true),
            (private, libc::PROT_READ, 100, false),
            (private, libc::PROT_READ, -4096, false),
            (
                libc::MAP_SHARED | libc::MAP_POPULATE,
                libc::PROT_READ,
                0,
                false,
            ),
            (
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                libc::PROT_READ,
                0,
                false,
            ),
            (
                libc::MAP_SHARED,
                libc::PROT_READ | libc::PROT_WRITE,
                0,
                false,
            ),
            (
                libc::MAP_PRIVATE,
                libc::PROT_READ | libc::PROT_EXEC,
                0,
                false,
            ),
            (libc::MAP_SHARED, libc::PROT_NONE, 0, false),
        ] {
            let request = MapRequest {
                flags,
                protection,
                offset,
                ..plain
            };
            assert_eq!(Wanted::of(&request).is_some(), is_wanted, "{request:?}");
        }
        assert!(Wanted::of(&request(BYTES_MIN as usize - BLOCK_BYTES)).is_none());
    }

    #[test]
    fn what_lies_behind_the_end_is_not_ours() {
        let wanted = Wanted::of(&request(1 << 20)).expect("plain");
        let inside = wanted.inside((512 << 10) + 1).expect("large enough");
        assert_eq!(inside.blocks, 129);
        assert!(wanted.inside(1000).is_none(), "too small");
        let behind = Wanted {
            first: 1000,
            ..wanted
        };
        assert!(behind.inside(1 << 20).is_none());
    }
}
