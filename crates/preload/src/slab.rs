//! Where descriptions live.
//!
//! A place is never unmapped, so that whoever finds its index in the table may count himself in and only then ask whether the index still stands there. Counters are several,
//! each with a line of its own, and a thread keeps to one: threads that read the same file do not fight over a line. Counting takes no lock and no memory, so a signal handler may. Beside the
//! counter a thread that comes often can be the line's owner, and go in without a locked instruction ([`direct::bias`]).
//!
//! A place's description is dropped when no entry of the table leads to it (*dying*), and after that each counter was seen at zero and each owner outside: new readers cannot come, because what they
//! validate against is gone. Whoever goes out last sees that it is dying, or the one who made it so sees nobody.

use crate::client::{arrive, depart};
use crate::description::Description;
use crate::leaked::Leaked;
use crate::thread::{self, Inside};
use direct::bias::{Bias, Thread, heavy_fence};
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

const COUNTERS: usize = 8;
const CHUNK_PLACES: usize = 64;
const CHUNKS: usize = 1024;

/// States of a place; a smaller number counts the entries of the table that lead to it.
const FREE: u32 = 0;
const DYING: u32 = u32::MAX;
const CHANGING: u32 = u32::MAX - 1;

/// A thread that came so often to a line of its own becomes its owner.
const TURNS_BEFORE: u32 = 64;

/// Readers of a place that keep to the same line.
#[derive(Default)]
#[repr(align(64))]
struct Readers {
    count: AtomicU32,
    /// How often it was counted up: about, as nobody waits for others here.
    turns: AtomicU32,
    bias: Bias,
}

#[derive(Default)]
struct Place {
    readers: [Readers; COUNTERS],
    state: AtomicU32,
    description: UnsafeCell<Option<Description>>,
}

// SAFETY: the cell is changed only in state `CHANGING` by the one who brought it there, when nobody is counted in; and a description may be used by all threads.
unsafe impl Sync for Place {}

static PLACES: [Leaked<[Place; CHUNK_PLACES]>; CHUNKS] = [const { Leaked::new() }; CHUNKS];
/// Where the search for a free place begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Some place is dying and nobody could end it: the thread was inside.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// A description that does not go away while this lives.
pub(crate) struct Pin {
    place: &'static Place,
    readers: &'static Readers,
    index: usize,
    /// It went in as the owner.
    is_owner: bool,
}

/// Made one by one where they stay: all of them together are more than many a thread has of stack.
fn no_places() -> Box<[Place; CHUNK_PLACES]> {
    let places: Box<[Place]> = (0..CHUNK_PLACES).map(|_| Place::default()).collect();
    places
        .try_into()
        .unwrap_or_else(|_| unreachable!("there are as many as were made"))
}

impl Readers {
    #[cold]
    fn count_in(&self) {
        self.count.fetch_add(1, SeqCst);
        let turns = self.turns.load(Relaxed).saturating_add(1);
        self.turns.store(turns, Relaxed);
        // Counted in, so that the place does not end meanwhile. A kernel without the fence shows itself here.
        if turns == TURNS_BEFORE && heavy_fence() {
            self.bias.give(Thread::current());
        }
    }
}

impl Pin {
    #[inline(always)]
    fn on(index: usize) -> Pin {
        let chunk = PLACES[index / CHUNK_PLACES].get_or_box(no_places);
        let place = &chunk[index % CHUNK_PLACES];
        let me = Thread::current();
        let readers = &place.readers[me.spread_over(COUNTERS)];
        let is_owner = readers.bias.enter(me);
        if !is_owner {
            readers.count_in();
        }
        Pin {
            place,
            readers,
            index,
            is_owner,
        }
    }

    /// Index of the place.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// One entry of the table more leads to it; false if none does any more, and none may.
    pub(crate) fn add_entry(&self) -> bool {
        self.place
            .state
            .try_update(AcqRel, Acquire, |state| {
                (state != FREE && state < CHANGING - 1).then(|| state + 1)
            })
            .is_ok()
    }
}

impl Deref for Pin {
    type Target = Description;

    #[inline]
    fn deref(&self) -> &Description {
        // SAFETY: only who was counted in while the table led here has a pin, so the place holds a description and nobody changes it.
        let description = unsafe { &*self.place.description.get() };
        description
            .as_ref()
            .expect("a place that is pinned holds a description")
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        match self.is_owner {
            true => self.readers.bias.leave(),
            false => {
                self.readers.count.fetch_sub(1, SeqCst);
            }
        }
        if self.place.state.load(SeqCst) == DYING {
            end(self.place);
        }
    }
}

/// Pins what an index leads to, if it still stands in the table after that.
#[inline(always)]
pub(crate) fn pin(index: usize, still_stands: impl FnOnce() -> bool) -> Option<Pin> {
    let pin = Pin::on(index);
    still_stands().then_some(pin)
}

/// The same for the owner of the line only.
pub(crate) struct OwnersPin {
    place: &'static Place,
    bias: &'static Bias,
}

impl OwnersPin {
    /// What is there.
    #[inline(always)]
    pub(crate) fn description(&self) -> Option<&Description> {
        // SAFETY: as for any pin.
        unsafe { (*self.place.description.get()).as_ref() }
    }
}

impl Drop for OwnersPin {
    #[inline(always)]
    fn drop(&mut self) {
        self.bias.leave();
        if self.place.state.load(SeqCst) == DYING {
            end(self.place);
        }
    }
}

/// As [`pin`], if this thread is the owner of its line: then it takes no locked instruction.
#[inline(always)]
pub(crate) fn pin_as_owner(index: usize, still_stands: impl FnOnce() -> bool) -> Option<OwnersPin> {
    let chunk = PLACES.get(index / CHUNK_PLACES)?.get()?;
    let place = &chunk[index % CHUNK_PLACES];
    let me = Thread::current();
    let bias = &place.readers[me.spread_over(COUNTERS)].bias;
    let pin = bias.enter(me).then_some(OwnersPin { place, bias })?;
    still_stands().then_some(pin)
}

/// A place for a new description, to which one entry of the table leads; `None` if there is none left.
pub(crate) fn place(description: Description) -> Option<Pin> {
    end_what_is_left();
    let start = NEXT.fetch_add(1, Relaxed);
    for step in 0..CHUNKS * CHUNK_PLACES {
        // Low places first, so that few chunks are ever made.
        let index = if step < CHUNK_PLACES {
            step
        } else {
            (start + step) % (CHUNKS * CHUNK_PLACES)
        };
        if !is_free(index) {
            continue;
        }
        let pin = Pin::on(index);
        let state = &pin.place.state;
        if state
            .compare_exchange(FREE, CHANGING, AcqRel, Relaxed)
            .is_ok()
        {
            arrive(description.file());
            // SAFETY: the state is ours to change, and who counted himself in meanwhile finds that no entry leads here, and does not look.
            unsafe { *pin.place.description.get() = Some(description) };
            state.store(1, SeqCst);
            return Some(pin);
        }
    }
    None
}

fn is_free(index: usize) -> bool {
    PLACES[index / CHUNK_PLACES]
        .get()
        .is_none_or(|chunk| chunk[index % CHUNK_PLACES].state.load(Relaxed) == FREE)
}

/// An entry of the table that led to this place does not any more.
pub(crate) fn remove_entry(index: usize) {
    let pin = Pin::on(index);
    let _ = pin
        .place
        .state
        .try_update(SeqCst, SeqCst, |state| match state {
            1 => Some(DYING),
            FREE | DYING | CHANGING => None,
            several => Some(several - 1),
        });
}

#[cold]
fn end(place: &Place) {
    // What is dropped may lock what the interrupted thread has locked.
    let Some(_inside) = Inside::enter() else {
        IS_LEFT.store(true, SeqCst);
        return;
    };
    if is_unused(place)
        && place
            .state
            .compare_exchange(DYING, CHANGING, SeqCst, Relaxed)
            .is_ok()
    {
        // SAFETY: no entry leads here and each counter was at zero since: nobody has a reference, and the state is ours to change.
        let description = unsafe { (*place.description.get()).take() };
        for readers in &place.readers {
            readers.turns.store(0, Relaxed);
            readers.bias.free();
        }
        place.state.store(FREE, SeqCst);
        if let Some(description) = description {
            depart(&description);
        }
    }
}

/// Whether nobody reads a place that is dying.
fn is_unused(place: &Place) -> bool {
    let has_owner = place
        .readers
        .iter()
        .fold(false, |any, readers| any | readers.bias.take_back());
    if has_owner && !heavy_fence() {
        // Nobody can tell, now; perhaps later.
        IS_LEFT.store(true, SeqCst);
        return false;
    }
    let is_read = |readers: &Readers| readers.count.load(SeqCst) != 0 || readers.bias.is_inside();
    !place.readers.iter().any(is_read)
}

fn end_what_is_left() {
    if IS_LEFT.swap(false, SeqCst) {
        for place in PLACES.iter().filter_map(Leaked::get).flatten() {
            if place.state.load(SeqCst) == DYING {
                end(place);
            }
        }
    }
}

/// In a child of `fork`, whose only thread this is: all places are free, and what was in them is the parent's and not dropped.
pub(crate) fn forget() {
    // Interrupted inside: the thread goes on with what it has pinned.
    if thread::is_inside() {
        return;
    }
    for place in PLACES.iter().filter_map(Leaked::get).flatten() {
        for readers in &place.readers {
            readers.count.store(0, Relaxed);
            readers.turns.store(0, Relaxed);
            readers.bias.forget();
        }
        // SAFETY: there is no other thread, and this one has nothing pinned.
        unsafe { place.description.get().write(None) };
        place.state.store(FREE, SeqCst);
    }
}
