//! The allocator: groups under their locks, the reserve, and what happens when a group has no room.

use crate::group::{Group, Kind, Place, Shared, segments_of_group};
use crate::sync::{Mutex, MutexGuard, SharedBool, SharedU32, SharedU64};
use crate::tree::Shape;
use crate::{
    BlockNumber, DomainId, Extent, Extents, FreeError, Geometry, Lifetime, Options, OutOfSpace,
    Purpose, Request, SegmentLedger, Unit,
};
use pmem::deliberate::{self, Bug};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// A group and its lock, on cache lines of its own.
#[repr(align(128))]
struct Slot {
    group: Mutex<Group>,
    /// The group's free blocks, readable without the lock.
    free_blocks: SharedU64,
}

/// Extents that are freed under one lock.
const EXTENTS_PER_LOCK: usize = 8;

/// Runs that a request has got so far: group, place, blocks.
pub(crate) type Taken = SmallVec<[(usize, Place, u32); 4]>;

/// The free space of a pool. All methods may be called from any thread.
pub struct Allocator {
    shared: Shared,
    slots: Vec<Slot>,
}

impl Allocator {
    /// An allocator whose segments are all free and unworn. O(segments).
    ///
    /// # Panics
    /// If the geometry is impossible (see [`Geometry`]).
    #[must_use]
    pub fn new(geometry: Geometry, options: Options, ledger: Box<dyn SegmentLedger>) -> Self {
        geometry.validate();
        let words = (0..geometry.effective_groups())
            .map(|group| zeroed_words(&geometry, group))
            .collect();
        Self::assemble(geometry, options, ledger, words, None)
    }

    /// Puts groups around bitmaps; with `contents`, around bitmaps with marks of the given owners and wear.
    pub(crate) fn assemble(
        geometry: Geometry,
        options: Options,
        ledger: Box<dyn SegmentLedger>,
        words: Vec<Vec<AtomicU64>>,
        contents: Option<(&[Option<DomainId>], &[u64])>,
    ) -> Self {
        let shared = Shared {
            geometry,
            shape: Shape::new(geometry.blocks_per_segment as u32),
            options,
            groups: geometry.effective_groups(),
            group_reciprocal: (1_u128 << 64).div_ceil(u128::from(geometry.effective_groups())),
            ledger,
            free_segments: SharedU32::new(geometry.segments),
            dug: SharedBool::new(false),
            turn: SharedU32::new(0),
            written: (0..geometry.effective_groups())
                .map(|_| SharedU64::new(0))
                .collect(),
        };
        let slots = words.into_iter().enumerate().map(|(index, words)| {
            let mut group = Group::new(index as u32, &geometry, &options, words);
            if let Some((domains, wear)) = contents {
                group.load(&shared, domains, wear);
                shared.written[index].store(group.zones.total(), Ordering::Relaxed);
            }
            Slot {
                free_blocks: SharedU64::new(group.free_blocks),
                group: Mutex::new(group),
            }
        });
        let slots = slots.collect();
        let allocator = Self { shared, slots };
        allocator.share_reserve(&mut allocator.lock_all());
        allocator
    }

    /// The shape of the pool.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    // ---- allocation ----

    /// Allocates one block: the hot path, O(log blocks per segment).
    ///
    /// # Errors
    /// [`OutOfSpace`] if no block is free beyond the reserve.
    #[inline]
    pub fn allocate_one(
        &self,
        domain: DomainId,
        purpose: Purpose,
        home: usize,
    ) -> Result<BlockNumber, OutOfSpace> {
        self.take_one(domain, purpose, self.home(home))
    }

    #[inline]
    fn take_one(
        &self,
        domain: DomainId,
        purpose: Purpose,
        home: usize,
    ) -> Result<BlockNumber, OutOfSpace> {
        let slot = &self.slots[home];
        {
            let mut group = slot.group.lock();
            if self.may_take(&group, 1, purpose)
                && let Some(place) = group.take_one(&self.shared, domain)
            {
                slot.free_blocks.store(group.free_blocks, Ordering::Relaxed);
                return Ok(self.block(home, place));
            }
        }
        let request = Request {
            domain,
            blocks: 1,
            unit: Unit::Block4K,
            purpose,
            home,
        };
        self.allocate_elsewhere(&request, 1, Kind::Single)
            .map(|extents| extents[0].start)
    }

    /// Allocates `request.blocks` blocks, all or nothing, in as few extents as possible: one, if the domain may use a run that is long enough.
    /// An extent never crosses a segment border. A request for no block gets no extent.
    ///
    /// # Errors
    /// [`OutOfSpace`] if fewer blocks are free beyond the reserve, or none in units as large as asked for.
    pub fn allocate(&self, request: &Request) -> Result<Extents, OutOfSpace> {
        self.allocate_with(request, Lifetime::Unknown)
    }

    /// [`allocate`](Self::allocate), with a hint when the blocks will be freed.
    ///
    /// # Errors
    /// As `allocate`.
    pub fn allocate_with(
        &self,
        request: &Request,
        lifetime: Lifetime,
    ) -> Result<Extents, OutOfSpace> {
        let unit = request.unit.blocks();
        if request.blocks == 0 {
            return Ok(Extents::new());
        }
        let Some(blocks) = request.blocks.checked_next_multiple_of(unit) else {
            return Err(self.out_of_space(request));
        };
        let home = self.home(request.home);
        if blocks == 1 && lifetime == Lifetime::Unknown {
            return self
                .take_one(request.domain, request.purpose, home)
                .map(|start| Extents::from_slice(&[Extent { start, blocks: 1 }]));
        }
        let kind = match lifetime {
            Lifetime::Unknown => Kind::Run,
            Lifetime::Brief => Kind::Brief,
        };
        self.allocate_elsewhere(&Request { home, ..*request }, blocks, kind)
    }

    /// Asks one group after the other, from the home group on, for one run; then all together.
    #[cold]
    fn allocate_elsewhere(
        &self,
        request: &Request,
        blocks: u32,
        kind: Kind,
    ) -> Result<Extents, OutOfSpace> {
        let unit = request.unit.blocks();
        let first = self.group_with_room(request.home);
        let is_bound = request.domain.is_server_only() || request.purpose == Purpose::Direct;
        let domains: &[DomainId] = if is_bound || !self.shared.scarce() {
            &[request.domain]
        } else {
            &[request.domain, DomainId::MIXED]
        };
        for &domain in domains {
            for step in 0..self.slots.len() {
                let index = (first + step) % self.slots.len();
                let slot = &self.slots[index];
                let mut group = slot.group.lock();
                if !self.may_take(&group, blocks, request.purpose) {
                    continue;
                }
                let place = if kind == Kind::Single {
                    group.take_one(&self.shared, domain)
                } else {
                    group.take_run(&self.shared, domain, blocks, unit, kind)
                };
                if let Some(place) = place {
                    if kind == Kind::Brief {
                        group.uncount(&self.shared, place.0, blocks);
                    }
                    slot.free_blocks.store(group.free_blocks, Ordering::Relaxed);
                    return Ok(Extents::from_slice(&[Extent {
                        start: self.block(index, place),
                        blocks,
                    }]));
                }
            }
        }
        self.gather(request, blocks, kind)
    }

    /// Under all locks: takes what there is, in pieces if need be, from whoever has it.
    fn gather(&self, request: &Request, blocks: u32, kind: Kind) -> Result<Extents, OutOfSpace> {
        let mut groups = self.lock_all();
        let usable = usable_blocks(&groups);
        let own = groups
            .iter()
            .map(|group| group.held_blocks_of(request.domain));
        let free = usable + own.sum::<u64>();
        let kept = if request.purpose == Purpose::Overwrite {
            0
        } else {
            self.shared.options.reserve_blocks
        };
        if free < kept.min(usable) + u64::from(blocks) {
            self.share_reserve(&mut groups);
            drop(groups);
            return Err(self.out_of_space(request));
        }
        let mut taken = Taken::new();
        let mut left = blocks;
        let is_direct = request.purpose == Purpose::Direct;
        let domains: &[DomainId] = match is_direct {
            true => &[request.domain],
            false => &[request.domain, DomainId::MIXED, DomainId::METADATA],
        };
        if usable < kept + u64::from(blocks) {
            // What is the domain's alone first: else a search would find what the reserve needs, and the request be refused.
            left = self.gather_held(&mut groups, request, left, &mut taken);
        }
        for &domain in domains {
            left = self.gather_from(&mut groups, request, domain, left, &mut taken);
        }
        // Blocks suffice, so this ends with success, unless the last ones are in segments that others have mapped. Huge units never take from other owners: they are a wish, not a need.
        while left > 0 && request.unit == Unit::Block4K && !is_direct {
            let emptiest = (0..groups.len())
                .filter_map(|index| {
                    groups[index]
                        .emptiest_foreign(&self.shared, request.domain)
                        .map(|(free, local)| (free, index, local))
                })
                .max();
            let Some((_, index, local)) = emptiest else {
                break;
            };
            groups[index].convert_to_mixed(&self.shared, local);
            left = self.gather_from(&mut groups, request, DomainId::MIXED, left, &mut taken);
        }
        // Who has room of his own takes none of the others' reserve beside it.
        let is_refused = left > 0 || usable_blocks(&groups) < kept.min(usable);
        for &(index, (local, offset), blocks) in &taken {
            if is_refused {
                groups[index].take_back(&self.shared, local, offset, blocks);
            } else if kind == Kind::Brief {
                groups[index].uncount(&self.shared, local, blocks);
            }
        }
        self.publish_counts(&groups);
        self.share_reserve(&mut groups);
        drop(groups);
        if is_refused {
            return Err(self.out_of_space(request));
        }
        Ok(taken
            .iter()
            .map(|&(index, place, blocks)| Extent {
                start: self.block(index, place),
                blocks,
            })
            .collect())
    }

    /// Takes up to `left` blocks from one domain's segments, longest runs first. Returns what is still missing.
    fn gather_from(
        &self,
        groups: &mut [MutexGuard<'_, Group>],
        request: &Request,
        domain: DomainId,
        mut left: u32,
        taken: &mut Taken,
    ) -> u32 {
        let unit = request.unit.blocks();
        let mut wanted = left.min(self.shared.shape.blocks / unit * unit);
        while left > 0 && wanted > 0 {
            let found = (0..groups.len()).find_map(|step| {
                let index = (request.home + step) % groups.len();
                groups[index]
                    .take_run(&self.shared, domain, wanted, unit, Kind::Run)
                    .map(|place| (index, place))
            });
            match found {
                Some((index, place)) => {
                    taken.push((index, place, wanted));
                    left -= wanted;
                    wanted = wanted.min(left);
                }
                None => {
                    let longest = groups
                        .iter_mut()
                        .map(|group| group.longest_run(domain, unit))
                        .max()
                        .unwrap_or(0);
                    wanted = longest.min(wanted - unit);
                }
            }
        }
        left
    }

    // ---- free ----

    /// Frees allocated blocks. The extent need not be one that was allocated, and may cross segments.
    ///
    /// # Errors
    /// If a block of it is not allocated or not in the pool; then nothing was freed.
    pub fn free(&self, extent: Extent) -> Result<(), FreeError> {
        let out_of_range = FreeError::OutOfRange {
            block: extent.start,
            blocks: extent.blocks,
        };
        let mut pieces = self.shared.geometry.pieces(extent).ok_or(out_of_range)?;
        let Some((segment, offset, blocks)) = pieces.next() else {
            return Ok(());
        };
        if blocks < extent.blocks {
            return self.free_across(extent);
        }
        let (index, local) = self.split(segment.0);
        let slot = &self.slots[index];
        let mut group = slot.group.lock();
        self.free_in_group(&mut group, index, (local, offset), blocks)?;
        slot.free_blocks.store(group.free_blocks, Ordering::Relaxed);
        Ok(())
    }

    /// Frees blocks of one segment, if all of them are allocated.
    #[inline]
    fn free_in_group(
        &self,
        group: &mut Group,
        index: usize,
        (local, offset): Place,
        blocks: u32,
    ) -> Result<(), FreeError> {
        if let Some(offset) = group.tree(local).first_unlike(offset, blocks, true) {
            return Err(FreeError::NotAllocated {
                block: self.block(index, (local, offset)),
            });
        }
        if !deliberate::is(Bug::LeakBlock) {
            group.give(&self.shared, local, offset, blocks);
        }
        Ok(())
    }

    /// Frees many extents, each as [`free`](Self::free) does; those that are not allocated are handed to `refused`. A lock is kept as
    /// long as one extent after the other lies in the same group.
    pub fn free_all(&self, extents: &[Extent], mut refused: impl FnMut(Extent, FreeError)) {
        let mut held: Option<(usize, MutexGuard<'_, Group>)> = None;
        for (number, &extent) in extents.iter().enumerate() {
            let place = (extent.blocks == 1)
                .then(|| self.shared.geometry.locate(extent.start))
                .flatten();
            let Some((segment, offset)) = place else {
                self.publish_and_unlock(held.take());
                if let Err(error) = self.free(extent) {
                    refused(extent, error);
                }
                continue;
            };
            let (index, local) = self.split(segment.0);
            // Allocations in the same group must not wait for all of a long list.
            if number % EXTENTS_PER_LOCK == 0 || held.as_ref().is_none_or(|held| held.0 != index) {
                self.publish_and_unlock(held.take());
                held = Some((index, self.slots[index].group.lock()));
            }
            let Some((_, group)) = &mut held else {
                continue;
            };
            if let Err(error) = self.free_in_group(group, index, (local, offset), 1) {
                refused(extent, error);
            }
        }
        self.publish_and_unlock(held);
    }

    fn publish_and_unlock(&self, held: Option<(usize, MutexGuard<'_, Group>)>) {
        if let Some((index, group)) = held {
            self.slots[index]
                .free_blocks
                .store(group.free_blocks, Ordering::Relaxed);
        }
    }

    #[cold]
    fn free_across(&self, extent: Extent) -> Result<(), FreeError> {
        let pieces = || self.shared.geometry.pieces(extent).into_iter().flatten();
        let mut groups = self.lock_all();
        for (segment, offset, blocks) in pieces() {
            let (index, local) = self.split(segment.0);
            if let Some(offset) = groups[index].tree(local).first_unlike(offset, blocks, true) {
                return Err(FreeError::NotAllocated {
                    block: self.block(index, (local, offset)),
                });
            }
        }
        for (segment, offset, blocks) in pieces() {
            let (index, local) = self.split(segment.0);
            groups[index].give(&self.shared, local, offset, blocks);
        }
        self.publish_counts(&groups);
        Ok(())
    }

    // ---- helpers ----

    /// The home group, unless it has much less room than another: one thread that fills the pool must not use up its own group, or
    /// all threads meet in those that are left.
    fn group_with_room(&self, home: usize) -> usize {
        let (most, index) = self.published_counts().zip(0..).max().unwrap_or((0, home));
        let own = self.slots[home].free_blocks.load(Ordering::Relaxed);
        if own / 3 < most / 4 { index } else { home }
    }

    /// The group of a home. Homes move on together when one group is written more than another.
    #[inline]
    fn home(&self, hint: usize) -> usize {
        let groups = self.slots.len();
        let own = if hint < groups { hint } else { hint % groups };
        let turned = own + self.shared.turn.load(Ordering::Relaxed) as usize;
        if turned < groups {
            turned
        } else {
            turned - groups
        }
    }

    /// Group and number within the group.
    #[inline]
    pub(crate) fn split(&self, segment: u32) -> (usize, u32) {
        let local = ((u128::from(segment) * self.shared.group_reciprocal) >> 64) as u32;
        ((segment - local * self.shared.groups) as usize, local)
    }

    #[inline]
    fn block(&self, index: usize, (local, offset): Place) -> BlockNumber {
        let segment = u64::from(local) * u64::from(self.shared.groups) + index as u64;
        let geometry = &self.shared.geometry;
        geometry.first_block + (segment * geometry.blocks_per_segment + u64::from(offset))
    }

    pub(crate) fn lock(&self, index: usize) -> MutexGuard<'_, Group> {
        self.slots[index].group.lock()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn published_counts(&self) -> impl Iterator<Item = u64> {
        self.slots
            .iter()
            .map(|slot| slot.free_blocks.load(Ordering::Relaxed))
    }

    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, Group>> {
        self.slots.iter().map(|slot| slot.group.lock()).collect()
    }

    fn publish_counts(&self, groups: &[MutexGuard<'_, Group>]) {
        for (slot, group) in self.slots.iter().zip(groups) {
            slot.free_blocks.store(group.free_blocks, Ordering::Relaxed);
        }
    }

    /// Whether a request may be met from this group alone, without a look at the others.
    ///
    /// Invariant: unless the reserve was used (`dug`), every group keeps its share free outside of segments that somebody has mapped, and the shares add up to the reserve. So a group
    /// that stays above its share cannot hurt the reserve.
    #[inline]
    fn may_take(&self, group: &Group, blocks: u32, purpose: Purpose) -> bool {
        if self.shared.dug.load(Ordering::Relaxed) {
            return purpose == Purpose::Overwrite && group.free_blocks >= u64::from(blocks);
        }
        group.usable_blocks() >= group.share + u64::from(blocks)
    }

    /// Divides the reserve among the groups in proportion to what all can use of them.
    pub(crate) fn share_reserve(&self, groups: &mut [MutexGuard<'_, Group>]) {
        let reserve = self.shared.options.reserve_blocks;
        let free = usable_blocks(groups);
        self.shared.dug.store(free < reserve, Ordering::Relaxed);
        for group in groups {
            let share = (u128::from(reserve) * u128::from(group.usable_blocks()))
                .div_ceil(u128::from(free.max(1)));
            group.share = share as u64;
        }
    }

    #[cold]
    fn out_of_space(&self, request: &Request) -> OutOfSpace {
        let free = self.free_blocks();
        let reserved = if request.purpose == Purpose::Overwrite {
            0
        } else {
            self.reserve_blocks().min(free)
        };
        OutOfSpace {
            requested: request.blocks,
            free,
            reserved,
        }
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator")
            .field("geometry", &self.shared.geometry)
            .field("options", &self.shared.options)
            .field("free_blocks", &self.free_blocks())
            .finish_non_exhaustive()
    }
}

/// Free blocks that are not in segments which somebody has mapped.
fn usable_blocks(groups: &[MutexGuard<'_, Group>]) -> u64 {
    groups.iter().map(|group| group.usable_blocks()).sum()
}

/// A group's bitmap, all free, in memory that the kernel zeroes when it is first touched.
pub(crate) fn zeroed_words(geometry: &Geometry, group: u32) -> Vec<AtomicU64> {
    let words = Shape::new(geometry.blocks_per_segment as u32).words as usize
        * segments_of_group(geometry, group) as usize;
    zerocopy::FromZeros::new_vec_zeroed(words)
        .unwrap_or_else(|_| panic!("no memory for {words} words of free-space bitmap"))
}
