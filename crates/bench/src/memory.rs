//! The raw side: memory of the same kind as the pool's, without a file system.

use crate::error::BenchError;
use pmem::{Access, BLOCK_BYTES, DurabilityClass, MediaModel, Offset, Part, Region};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::path::Path;

/// A buffer as good as any: aligned to a page, so that neither side gets the luckier alignment.
#[repr(align(4096))]
pub(crate) struct Page(pub(crate) [u8; BLOCK_BYTES]);

impl Page {
    pub(crate) fn filled() -> Box<Page> {
        Box::new(Page([0x5a; BLOCK_BYTES]))
    }

    /// Makes the next content differ from the last one.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) {
        self.0[..8].copy_from_slice(&number.to_le_bytes());
    }

    #[inline]
    pub(crate) fn first_word(&self) -> u64 {
        u64::from_le_bytes([
            self.0[0], self.0[1], self.0[2], self.0[3], self.0[4], self.0[5], self.0[6], self.0[7],
        ])
    }
}

/// A file without a name in `directory`, its blocks reserved, mapped as pools are.
pub(crate) fn raw_region(
    directory: &Path,
    length: u64,
    class: DurabilityClass,
) -> Result<Region, BenchError> {
    let file =
        tempfile::tempfile_in(directory).map_err(BenchError::io("make a file in", directory))?;
    // As a pool has them.
    pmem::use_huge_pages(&file, length).map_err(BenchError::io("make a file in", directory))?;
    fallocate(&file, FallocateFlags::empty(), 0, length)
        .map_err(BenchError::io("reserve memory in", directory))?;
    let part = Part {
        file: &file,
        path: directory,
        file_offset: 0,
        length,
    };
    let region = Region::map(&[part], class, Access::ReadWrite)?;
    region.fence(region.zero_streaming(Offset::new(0), length));
    Ok(region)
}

/// Takes the page faults of a whole region, so that no operation does. Returns a sum of what it saw.
pub(crate) fn touch(region: &Region) -> u64 {
    let pages = region.length() / BLOCK_BYTES as u64;
    (0..pages)
        .map(|page| region.load_u64(Offset::new(page * BLOCK_BYTES as u64)))
        .fold(0, u64::wrapping_add)
}

/// Lays the media model over a region whose pages are touched.
pub(crate) fn prepare(region: &Region, media: &MediaModel) -> u64 {
    let sum = touch(region);
    region.set_media(media);
    sum
}

/// Refuses to fill the memory of the machine.
pub(crate) fn require_room(directory: &Path, needed_bytes: u64) -> Result<(), BenchError> {
    let space = statvfs(directory).map_err(BenchError::io("read the free space of", directory))?;
    let free_bytes = space.f_bavail * space.f_frsize;
    match free_bytes >= needed_bytes {
        true => Ok(()),
        false => Err(BenchError::NoRoom {
            path: directory.to_owned(),
            free_bytes,
            needed_bytes,
        }),
    }
}
