//! The pool's segments, as far as this process has them.

use crate::line::{Line, NoAnswer};
use crate::memory::keeps_size;
use crate::protocol::{Kind, Request, Row, SEGMENTS_AT_ONCE, Welcome};
use crate::socket::WAIT;
use locks::Mutex;
use pmem::{BLOCK_BYTES, BlockNumber, DurabilityClass, Offset, Part, Permission, Region};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Largest pool whose addresses are reserved: 64 TiB.
const POOL_BYTES_MAX: u64 = 1 << 46;
/// Blocks whose pages are mapped together at first use: 2 MiB.
const UNIT_BLOCKS_SHIFT_MAX: u32 = 9;

/// Segments that can be asked for together if they are needed together.
const TOGETHER: u64 = SEGMENTS_AT_ONCE as u64;

/// How far a unit, or a segment, is ready for use.
const NOT_YET: u8 = 0;

fn level(permission: Permission) -> u8 {
    match permission {
        Permission::Read => 1,
        Permission::ReadWrite => 2,
    }
}

/// What is known of a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// For what it is mapped.
    level: u8,
    /// From which level on the server refuses it; 0 if it does not.
    refused_from: u8,
}

impl Standing {
    fn is_refused(&self, level: u8) -> bool {
        self.refused_from != 0 && self.refused_from <= level
    }

    fn refuse(&mut self, level: u8) {
        if !self.is_refused(level) {
            self.refused_from = level;
        }
    }
}

/// The addresses of the whole pool, over which segments are mapped when they are first used. They stay until the connection ends, so whoever reads from one that he may not read from any more reads
/// something wrong, and nothing worse.
#[derive(Debug)]
pub(crate) struct Segments {
    region: Arc<Region>,
    first_block: u64,
    segment_shift: u32,
    unit_shift: u32,
    /// A level for each unit: what every access looks at.
    units: Box<[AtomicU8]>,
    standings: Mutex<Box<[Standing]>>,
}

impl Segments {
    /// Reserves addresses for a pool; `None` if it makes no sense or there are not so many.
    pub(crate) fn new(welcome: &Welcome) -> Option<Segments> {
        let block = BLOCK_BYTES as u64;
        let bytes = welcome.segments.checked_mul(welcome.segment_bytes)?;
        let length = bytes.checked_add(welcome.first_segment_at)?;
        let is_sound = welcome.first_segment_at.is_multiple_of(block)
            && welcome.segment_bytes.is_power_of_two()
            && welcome.segment_bytes >= block
            && (1..=1 << 20).contains(&welcome.segments)
            && length <= POOL_BYTES_MAX;
        if !is_sound {
            return None;
        }
        let class = match welcome.is_dax {
            1 => DurabilityClass::Dax,
            _ => DurabilityClass::Volatile,
        };
        let segment_shift = (welcome.segment_bytes / block).trailing_zeros();
        let unit_shift = segment_shift.min(UNIT_BLOCKS_SHIFT_MAX);
        let units = (welcome.segments << segment_shift) >> unit_shift;
        Some(Segments {
            region: Arc::new(Region::reserve(length, class).ok()?),
            first_block: welcome.first_segment_at / block,
            segment_shift,
            unit_shift,
            units: (0..units).map(|_| AtomicU8::new(NOT_YET)).collect(),
            standings: Mutex::new(vec![Standing::default(); welcome.segments as usize].into()),
        })
    }

    /// Where the segments are. Only blocks that [`is_ready`](Self::is_ready) says so of may be accessed.
    #[inline(always)]
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    #[inline(always)]
    fn unit(&self, block: BlockNumber) -> Option<&AtomicU8> {
        let unit = block.get().checked_sub(self.first_block)? >> self.unit_shift;
        self.units.get(unit as usize)
    }

    /// Whether a block can be accessed.
    #[inline(always)]
    pub(crate) fn is_ready(&self, block: BlockNumber, permission: Permission) -> bool {
        match self.unit(block) {
            // Acquire: the mapping was made before the level was raised.
            Some(unit) => unit.load(Ordering::Acquire) >= level(permission),
            None => false,
        }
    }

    fn segment(&self, block: BlockNumber) -> Option<u64> {
        Some(block.get().checked_sub(self.first_block)? >> self.segment_shift)
    }

    /// Makes a block ready, with those around it. `false` if the server refuses its segment, or there is no such block. If the server has to be asked, it is asked for the segments of other blocks
    /// too that may be needed `soon`.
    #[cold]
    pub(crate) fn make_ready(
        &self,
        line: &Line,
        block: BlockNumber,
        permission: Permission,
        soon: impl Iterator<Item = BlockNumber>,
    ) -> bool {
        let (Some(unit), Some(segment)) = (self.unit(block), self.segment(block)) else {
            return false;
        };
        if !self.map_segment(line, segment, permission, soon) {
            return false;
        }
        let index = (block.get() - self.first_block) >> self.unit_shift;
        let first = BlockNumber::new(self.first_block + (index << self.unit_shift));
        // Shared memory's pages can be written when they were mapped for reading, 16 in one fault: 140 us for 2 MiB instead of 460. With DAX a write has to be noticed.
        let is_for_writing =
            permission == Permission::ReadWrite && self.region.class() == DurabilityClass::Dax;
        self.region.populate(
            first.offset(),
            BLOCK_BYTES << self.unit_shift,
            is_for_writing,
        );
        unit.fetch_max(level(permission), Ordering::Release);
        true
    }

    /// Where this process has a block mapped, with those behind it in its segment, and whether for writing. Its pages are not made ready; other blocks may be needed `soon`, as above. `None` if the
    /// server refuses the segment.
    pub(crate) fn address_of(
        &self,
        line: &Line,
        block: BlockNumber,
        soon: impl Iterator<Item = BlockNumber>,
    ) -> Option<(usize, bool)> {
        self.unit(block)?;
        let segment = self.segment(block)?;
        if !self.map_segment(line, segment, Permission::Read, soon) {
            return None;
        }
        let standing = *self
            .standings
            .try_lock_for(2 * WAIT)?
            .get(segment as usize)?;
        let address = self.region.as_ptr(block.offset(), BLOCK_BYTES);
        let is_writable = standing.level == level(Permission::ReadWrite);
        Some((address.expose_provenance(), is_writable))
    }

    /// Whether a block is the first one of its segment: it lies in another file than the one before.
    pub(crate) fn begins_segment(&self, block: BlockNumber) -> bool {
        let behind_first = block.get().wrapping_sub(self.first_block);
        behind_first.trailing_zeros() >= self.segment_shift
    }

    /// Maps a segment, if it is not yet mapped for this.
    fn map_segment(
        &self,
        line: &Line,
        segment: u64,
        permission: Permission,
        soon: impl Iterator<Item = BlockNumber>,
    ) -> bool {
        let wanted = level(permission);
        let Some(mut standings) = self.standings.try_lock_for(2 * WAIT) else {
            return false;
        };
        let Some(standing) = standings.get(segment as usize) else {
            return false;
        };
        if standing.level >= wanted {
            return true;
        }
        if standing.is_refused(wanted) {
            return false;
        }
        let row = self.with_others(&standings, segment, wanted, soon);
        self.ask_for(line, &mut standings, row, permission);
        let standing = standings[segment as usize];
        if standing.level < wanted && !standing.is_refused(wanted) && !row.bits.is_power_of_two() {
            // The descriptors that this process may have went to the others.
            let alone = Row {
                first: segment,
                distance: 1,
                bits: 1,
            };
            self.ask_for(line, &mut standings, alone, permission);
        }
        standings[segment as usize].level >= wanted
    }

    /// A segment, and of those others that are needed soon, and neither mapped nor refused, as many as fit into a row with it: of its neighbours, or of those at some distance from each other.
    fn with_others(
        &self,
        standings: &[Standing],
        segment: u64,
        wanted: u8,
        soon: impl Iterator<Item = BlockNumber>,
    ) -> Row {
        // The allocator goes from zone to zone, whose numbers have their bits reversed: what it gives lies at distances of powers of two.
        let far = (standings.len() as u64)
            .div_ceil(TOGETHER)
            .next_power_of_two();
        let [mut near, mut far] = [1, far].map(|distance| {
            let place = segment / distance % TOGETHER;
            Row {
                first: segment - place * distance,
                distance,
                bits: 1 << place,
            }
        });
        for other in soon.filter_map(|block| self.segment(block)) {
            let is_open =
                |standing: &Standing| standing.level < wanted && !standing.is_refused(wanted);
            if standings.get(other as usize).is_some_and(is_open) {
                for row in [&mut near, &mut far] {
                    row.bits |= row.place(other).map_or(0, |place| 1 << place);
                }
            }
        }
        match far.bits.count_ones() > near.bits.count_ones() {
            true => far,
            false => near,
        }
    }

    /// Asks the server for the segments of a row, and maps what it gives. What it neither gives nor promises it refuses; of what it says that it gives there may be fewer descriptors than this process has room for.
    fn ask_for(&self, line: &Line, standings: &mut [Standing], row: Row, permission: Permission) {
        let request = Request {
            kind: Kind::Segments as u32,
            file: u32::from(permission == Permission::ReadWrite),
            first: row.first,
            second: row.word(),
        };
        let (given, later, descriptors) = match line.ask_for_many(request, None) {
            Err(NoAnswer::Lost) => return,
            Err(NoAnswer::Refused(_)) => (0, 0, Vec::new()),
            Ok((reply, descriptors)) => {
                let [given, later] = [0, 1].map(|word| reply.words[word] & row.bits);
                (given, later & !given, descriptors)
            }
        };
        let mut descriptors = descriptors.into_iter();
        for (place, segment) in row.wanted() {
            if later & 1 << place != 0 {
                continue;
            }
            let standing = &mut standings[segment as usize];
            let descriptor = match given & 1 << place {
                0 => None,
                _ => match descriptors.next() {
                    None if !row.bits.is_power_of_two() => continue,
                    descriptor => descriptor,
                },
            };
            let descriptor = descriptor.filter(|it| keeps_size(it).unwrap_or(false));
            let is_mapped = descriptor.is_some_and(|it| self.map(segment, it.into(), permission));
            match is_mapped {
                true => standing.level = level(permission),
                false => standing.refuse(level(permission)),
            }
        }
    }

    /// Maps a segment that the server gives unasked, for writing. What comes of it is seen by who needs it.
    pub(crate) fn accept(&self, segment: u64, descriptor: OwnedFd) {
        let Some(mut standings) = self.standings.try_lock_for(2 * WAIT) else {
            return;
        };
        let wanted = level(Permission::ReadWrite);
        if let Some(standing) = standings.get_mut(segment as usize)
            && standing.level < wanted
            && keeps_size(&descriptor).unwrap_or(false)
            && self.map(segment, descriptor.into(), Permission::ReadWrite)
        {
            standing.level = wanted;
        }
    }

    fn map(&self, segment: u64, file: File, permission: Permission) -> bool {
        let path = PathBuf::from(format!("segment {segment}"));
        let part = Part {
            file: &file,
            path: &path,
            file_offset: 0,
            length: (BLOCK_BYTES as u64) << self.segment_shift,
        };
        let first = self.first_block + (segment << self.segment_shift);
        let at: Offset = BlockNumber::new(first).offset();
        self.region.map_later(at, &part, permission).is_ok()
    }
}
