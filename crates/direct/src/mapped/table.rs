//! The mappings of this process that lie on blocks.
//!
//! One table for the process, because its address space is one. Under its lock there are only system calls that change what is mapped: nobody waits for a server there, and nobody allocates or frees, because the
//! program's own allocator may be the one that unmaps.

use super::Mapped;
use super::keeper::Keeper;
use super::lock::{Held, Lock};
use super::plan::Plan;
use super::space;
use crate::file::File;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// Most pieces that lie on blocks at a time. What comes beyond is the kernel's.
const PIECES: usize = 256;
/// Most runs of all of them: the kernel allows a process some 65,000 areas.
const RUNS_MAX: usize = 16_384;

/// A part of the address space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Area {
    /// First address.
    pub start: usize,
    /// Bytes; rounded up to pages by the kernel.
    pub bytes: usize,
}

impl Area {
    fn range(&self) -> Range<usize> {
        let end = self.start.saturating_add(self.bytes);
        self.start..end.checked_next_multiple_of(4096).unwrap_or(usize::MAX)
    }
}

/// Whose mapping it is.
#[derive(Debug)]
struct Owner {
    file: Arc<File>,
    mapped: Arc<Mapped>,
}

/// A part of a mapping that lies on blocks, or did.
#[derive(Debug)]
struct Piece {
    start: usize,
    bytes: usize,
    shadow: usize,
    runs: usize,
    /// Whether it lies on blocks. If not, only the owner is left to be dropped.
    is_direct: bool,
    owner: Option<Owner>,
}

const NO_PIECE: Piece = Piece {
    start: 0,
    bytes: 0,
    shadow: 0,
    runs: 0,
    is_direct: false,
    owner: None,
};

struct Table {
    lock: Lock,
    /// Pieces that lie on blocks, so that others look no further.
    direct: AtomicUsize,
    /// Pieces that do not any more.
    over: AtomicUsize,
    /// Threads that are about to fork: no piece comes meanwhile.
    forks: AtomicUsize,
    pieces: UnsafeCell<[Piece; PIECES]>,
}

// SAFETY: the cell is used under the lock only, or in a child of `fork` that has one thread; and what is in it may go to other threads.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    lock: Lock::new(),
    direct: AtomicUsize::new(0),
    over: AtomicUsize::new(0),
    forks: AtomicUsize::new(0),
    pieces: UnsafeCell::new([NO_PIECE; PIECES]),
};

/// The table, locked.
struct Locked {
    _held: Held<'static>,
    pieces: &'static mut [Piece; PIECES],
}

fn lock() -> Locked {
    let held = TABLE.lock.hold();
    // SAFETY: the lock is held as long as the reference lives.
    let pieces = unsafe { &mut *TABLE.pieces.get() };
    Locked {
        _held: held,
        pieces,
    }
}

impl Piece {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// The part of it that lies in `range`.
    fn within(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let (start, end) = (
            self.start.max(range.start),
            (self.start + self.bytes).min(range.end),
        );
        (self.is_direct && start < end).then_some(start..end)
    }

    fn shadow_of(&self, address: usize) -> usize {
        self.shadow + (address - self.start)
    }

    /// It does not lie on blocks any more.
    fn finish(&mut self) {
        self.is_direct = false;
        TABLE.direct.fetch_sub(1, SeqCst);
        TABLE.over.fetch_add(1, SeqCst);
        if let Some(owner) = &self.owner {
            owner.mapped.pieces.fetch_sub(1, SeqCst);
            owner.mapped.end();
        }
    }

    /// Gives it to the kernel. `false` if there was no memory for it.
    fn restore(&mut self) -> bool {
        if space::restore(self.shadow, self.start, self.bytes).is_err() {
            return false;
        }
        if let Some(owner) = &self.owner {
            owner.mapped.is_left.store(true, SeqCst);
        }
        self.finish();
        true
    }
}

impl Locked {
    fn restore_where(&mut self, is_meant: impl Fn(&Piece, &Owner) -> bool) -> Restored {
        let mut restored = Restored::default();
        for piece in self.pieces.iter_mut().filter(|piece| piece.is_direct) {
            let Some(owner) = &piece.owner else {
                continue;
            };
            if is_meant(piece, owner) {
                match piece.restore() {
                    true => restored.done += 1,
                    false => restored.failed += 1,
                }
            }
        }
        restored
    }

    fn free_place(&mut self) -> Option<&mut Piece> {
        self.pieces.iter_mut().find(|piece| piece.owner.is_none())
    }

    fn runs(&self) -> usize {
        let direct = self.pieces.iter().filter(|piece| piece.is_direct);
        direct.map(|piece| piece.runs).sum()
    }

    /// The program has unmapped `range`, or mapped something else there.
    fn forget(&mut self, range: &Range<usize>) {
        for place in 0..PIECES {
            let piece = &mut self.pieces[place];
            let Some(gone) = piece.within(range) else {
                continue;
            };
            space::drop_shadow(piece.shadow_of(gone.start), gone.len());
            let whole = piece.range();
            let (before, behind) = (whole.start..gone.start, gone.end..whole.end);
            match (before.is_empty(), behind.is_empty()) {
                (true, true) => piece.finish(),
                (false, true) => piece.bytes = before.len(),
                (true, false) => piece.shrink_to(&behind),
                (false, false) => self.split(place, &before, &behind),
            }
        }
    }

    fn split(&mut self, place: usize, before: &Range<usize>, behind: &Range<usize>) {
        let piece = &mut self.pieces[place];
        let mut second = Piece {
            owner: piece.owner.as_ref().map(|owner| Owner {
                file: Arc::clone(&owner.file),
                mapped: Arc::clone(&owner.mapped),
            }),
            ..*piece
        };
        second.shrink_to(behind);
        piece.bytes = before.len();
        if let Some(owner) = &second.owner {
            owner.mapped.uses.fetch_add(1, SeqCst);
            owner.mapped.pieces.fetch_add(1, SeqCst);
        }
        TABLE.direct.fetch_add(1, SeqCst);
        match self.free_place() {
            Some(free) => *free = second,
            None => self.give_up(place, second),
        }
    }

    /// There is no place for the second part of a piece: the kernel gets both.
    #[cold]
    fn give_up(&mut self, place: usize, mut second: Piece) {
        let is_restored = second.restore();
        debug_assert!(is_restored, "a part that was just split off");
        TABLE.over.fetch_sub(1, SeqCst);
        if let Some(owner) = second.owner.take() {
            owner.mapped.uses.fetch_sub(1, SeqCst);
        }
        self.pieces[place].restore();
    }
}

impl Piece {
    fn shrink_to(&mut self, part: &Range<usize>) {
        self.shadow = self.shadow_of(part.start);
        self.start = part.start;
        self.bytes = part.len();
    }
}

/// What came of giving pieces to the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restored {
    pub(super) done: usize,
    pub(super) failed: usize,
}

/// Lays the blocks of a plan over what the kernel has mapped at `start` for it. If that cannot be done, it stays as it is.
pub(super) fn lay(plan: &Plan, start: usize, descriptor: BorrowedFd<'_>) -> bool {
    let mut locked = lock();
    if TABLE.forks.load(SeqCst) > 0 || locked.runs() + plan.runs.len() > RUNS_MAX {
        return false;
    }
    let Some(place) = locked.free_place() else {
        return false;
    };
    let mapped = &plan.mapped;
    let is_laid = mapped.begin() && lay_runs(plan, start, descriptor, place);
    if is_laid {
        mapped.uses.fetch_add(1, SeqCst);
        mapped.pieces.fetch_add(1, SeqCst);
        TABLE.direct.fetch_add(1, SeqCst);
        // Who takes it back now finds it in the table, and if he has looked already, it is not live any more.
        if !mapped.is_live() {
            place.restore();
        }
    } else {
        mapped.end();
    }
    is_laid
}

fn lay_runs(plan: &Plan, start: usize, descriptor: BorrowedFd<'_>, place: &mut Piece) -> bool {
    let Ok(shadow) = space::map_shadow(descriptor, plan.bytes, plan.offset, plan.is_private) else {
        return false;
    };
    for run in &plan.runs {
        if space::lay(run, start).is_err() {
            // What was laid goes away with it.
            let is_restored = space::restore(shadow, start, plan.bytes).is_ok();
            if is_restored {
                return false;
            }
        }
    }
    *place = Piece {
        start,
        bytes: plan.bytes,
        shadow,
        runs: plan.runs.len(),
        is_direct: true,
        owner: Some(Owner {
            file: Arc::clone(&plan.file),
            mapped: Arc::clone(&plan.mapped),
        }),
    };
    true
}

/// Gives to the kernel what the server wants back, or all, of the pieces that one thread looks after.
pub(super) fn give_back(keeper: &Keeper, all: bool) -> Restored {
    lock().restore_where(|_, owner| {
        std::ptr::eq(&*owner.mapped.keeper, keeper) && (all || !owner.mapped.is_live())
    })
}

/// Gives to the kernel all mappings of one attachment, of a file that the caller is inside of.
pub(crate) fn leave_all_of(mapped: &Arc<Mapped>) {
    if TABLE.direct.load(SeqCst) > 0 {
        lock().restore_where(|_, owner| Arc::ptr_eq(&owner.mapped, mapped));
        tidy_of(mapped);
    }
}

/// A call of the program is about to do to an area what only the kernel can do to its own mappings: it gets those that lie there, whole.
pub fn leave_to_kernel(area: Area) {
    if TABLE.direct.load(Relaxed) == 0 {
        return;
    }
    let range = area.range();
    let restored = lock().restore_where(|piece, _| piece.within(&range).is_some());
    // Only then: the program's allocator, which calls this for memory of its own, may hold locks without which nothing can be freed.
    if restored.done > 0 {
        tidy();
    }
}

/// Makes a call of the program that unmaps an area or maps something else there, if `succeeded` says so of its result.
pub fn changing<T>(area: Area, call: impl FnOnce() -> T, succeeded: impl FnOnce(&T) -> bool) -> T {
    if TABLE.direct.load(Relaxed) == 0 {
        return call();
    }
    let range = area.range();
    let mut locked = lock();
    let concerns_us = locked
        .pieces
        .iter()
        .any(|piece| piece.within(&range).is_some());
    if !concerns_us {
        drop(locked);
        return call();
    }
    // Under the lock, so that nothing is moved to where the program may have something else by then.
    let result = call();
    if succeeded(&result) {
        locked.forget(&range);
    }
    drop(locked);
    tidy();
    result
}

/// This process is about to get a child, which must not find blocks in its memory: all that lie there become the kernel's, and no new ones come until [`end_fork`].
pub fn begin_fork() {
    TABLE.forks.fetch_add(1, SeqCst);
    if TABLE.direct.load(SeqCst) > 0 {
        lock().restore_where(|_, _| true);
    }
}

/// The child has what it gets: called in the parent, and in a child that [`forget`]s nothing.
pub fn end_fork() {
    let _ = TABLE
        .forks
        .try_update(SeqCst, SeqCst, |forks| forks.checked_sub(1));
}

/// In a child of `fork`, whose only thread this is: forgets what is the parent's, and drops nothing of it.
pub fn forget() {
    TABLE.lock.forget();
    TABLE.direct.store(0, SeqCst);
    TABLE.over.store(0, SeqCst);
    TABLE.forks.store(0, SeqCst);
    // SAFETY: there is no other thread, and this one does not hold the lock: its holder is not interrupted.
    let pieces = unsafe { &mut *TABLE.pieces.get() };
    for piece in pieces {
        std::mem::forget(std::mem::replace(piece, NO_PIECE));
    }
}

/// Drops the owners of pieces that are over. A file whose last one that was, and that the program has closed, is let go. The caller is inside of no file.
pub(crate) fn tidy() {
    while let Some(Owner { file, mapped }) = take_over(|_| true) {
        mapped.uses.fetch_sub(1, SeqCst);
        file.unmapped();
    }
}

/// The same for the pieces of one file, which the caller is inside of: it would wait for itself if the file were told.
pub(crate) fn tidy_of(mapped: &Arc<Mapped>) {
    while take_over(|owner| Arc::ptr_eq(&owner.mapped, mapped)).is_some() {
        mapped.uses.fetch_sub(1, SeqCst);
    }
}

/// The owner of a piece that is over, if there is one of those that are `wanted`.
fn take_over(wanted: impl Fn(&Owner) -> bool) -> Option<Owner> {
    if TABLE.over.load(Acquire) == 0 {
        return None;
    }
    let locked = lock();
    let is_over =
        |piece: &&mut Piece| !piece.is_direct && piece.owner.as_ref().is_some_and(&wanted);
    let owner = locked.pieces.iter_mut().find(is_over)?.owner.take();
    TABLE.over.fetch_sub(1, SeqCst);
    owner
}
