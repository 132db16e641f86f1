//! Where the descriptions of this process live: [places](Place) that are never unmapped, made as they are needed.

use crate::client::{arrive, depart};
use crate::description::Description;
use crate::leaked::Leaked;
use crate::thread::{self, Inside};
use descriptors::{Ended, Line, Visit};
use locks::Thread;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};

const COUNTERS: usize = 8;
const CHUNK_PLACES: usize = 64;
const CHUNKS: usize = 1024;

type Place = descriptors::Place<Description, COUNTERS>;

static PLACES: [Leaked<[Place; CHUNK_PLACES]>; CHUNKS] = [const { Leaked::new() }; CHUNKS];
/// Where the search for a free place begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Some place is dying and nobody could end it: the thread was inside, or the kernel had no fence.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// A description that does not go away while this lives.
pub(crate) struct Pin {
    place: &'static Place,
    visit: Visit<'static>,
    index: usize,
}

/// Made one by one where they stay: all of them together are more than many a thread has of stack.
fn no_places() -> Box<[Place; CHUNK_PLACES]> {
    let places: Box<[Place]> = (0..CHUNK_PLACES).map(|_| Place::default()).collect();
    places
        .try_into()
        .unwrap_or_else(|_| unreachable!("there are as many as were made"))
}

impl Pin {
    #[inline(always)]
    fn on(index: usize) -> Pin {
        let chunk = PLACES[index / CHUNK_PLACES].get_or_box(no_places);
        let place = &chunk[index % CHUNK_PLACES];
        Pin {
            place,
            visit: place.enter(Thread::current()),
            index,
        }
    }

    /// Index of the place.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// One number more leads to it; false if none does any more, and none may.
    pub(crate) fn add_number(&self) -> bool {
        self.place.add_number()
    }
}

impl Deref for Pin {
    type Target = Description;

    #[inline]
    fn deref(&self) -> &Description {
        // SAFETY: only who went in while a number led here has a pin, or who has filled the place.
        let description = unsafe { self.place.value() };
        description.expect("a place that is pinned holds a description")
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        self.place.leave(&self.visit);
        if self.place.is_dying() {
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
    line: &'static Line,
}

impl OwnersPin {
    /// What is there.
    #[inline(always)]
    pub(crate) fn description(&self) -> Option<&Description> {
        // SAFETY: as for any pin.
        unsafe { self.place.value() }
    }
}

impl Drop for OwnersPin {
    #[inline(always)]
    fn drop(&mut self) {
        self.line.leave_as_owner();
        if self.place.is_dying() {
            end(self.place);
        }
    }
}

/// As [`pin`], if this thread is the owner of its line: then it takes no locked instruction.
#[inline(always)]
pub(crate) fn pin_as_owner(index: usize, still_stands: impl FnOnce() -> bool) -> Option<OwnersPin> {
    let chunk = PLACES.get(index / CHUNK_PLACES)?.get()?;
    let place = &chunk[index % CHUNK_PLACES];
    let line = place.enter_as_owner(Thread::current())?;
    let pin = OwnersPin { place, line };
    still_stands().then_some(pin)
}

/// A place for a new description, to which one number leads; `None` if there is none left.
pub(crate) fn place(description: Description) -> Option<Pin> {
    end_what_is_left();
    let start = NEXT.fetch_add(1, Relaxed);
    let mut description = Some(description);
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
        let is_filled = pin.place.fill(|| {
            let description = description.take().expect("it is put in once");
            arrive(description.file());
            description
        });
        if is_filled {
            return Some(pin);
        }
    }
    None
}

fn is_free(index: usize) -> bool {
    PLACES[index / CHUNK_PLACES]
        .get()
        .is_none_or(|chunk| chunk[index % CHUNK_PLACES].is_free())
}

/// A number that led to this place does not any more.
pub(crate) fn remove_number(index: usize) {
    Pin::on(index).place.remove_number();
}

#[cold]
fn end(place: &Place) {
    // What is dropped may lock what the interrupted thread has locked.
    let Some(_inside) = Inside::enter() else {
        IS_LEFT.store(true, SeqCst);
        return;
    };
    match place.end() {
        Ended::Free(description) => {
            if let Some(description) = description {
                depart(&description);
            }
        }
        Ended::Used => {}
        Ended::Unknown => IS_LEFT.store(true, SeqCst),
    }
}

fn end_what_is_left() {
    if IS_LEFT.swap(false, SeqCst) {
        for place in PLACES.iter().filter_map(Leaked::get).flatten() {
            if place.is_dying() {
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
        // SAFETY: there is no other thread, and this one has nothing pinned.
        unsafe { place.forget() };
    }
}
