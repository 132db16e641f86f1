//! An emulated medium: a live image, a durable image, and the stores between them.
//!
//! It follows the failure model of `docs/DESIGN.md`, nothing stronger and nothing weaker:
//!
//! 1. Ordinary stores may persist at any moment, flushed or not: they stay *pending* until a fence settles them, and a crash
//!    image may or may not hold them.
//! 2. Lines persist independently: every line has its own list of pending writes.
//! 3. Within a line, a crash image holds a prefix of the ordinary stores, in units of aligned words.
//! 4. Words written by non-temporal stores are free: a crash image holds any subset of them.
//! 5. A flush marks the ordinary stores that its line holds at that moment; the next fence of the *same thread* settles
//!    the marked ones and the thread's non-temporal words: they move to the durable image.
//!
//! Where several pending writes name one word, the newest of those that a crash image holds wins; a settled write
//! ends all older ones of its word.

mod choices;
mod crash;
mod pending;
mod scratch;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::copy::Content;
use crate::{LINE_BYTES, Offset, Region, WORD_BYTES};

pub use choices::Choices;
pub use crash::{Choice, CrashPoint, Moment, PendingKind, PendingLine, PendingWrite};
pub use scratch::Scratch;

pub(crate) use pending::Origin;
use pending::{InFlight, Line, Lines, Write};

/// The emulated medium of a region. Safe to use from several threads; every store and fence takes one lock.
pub struct Emulator {
    state: Mutex<State>,
    observer: Mutex<Option<Observer>>,
}

type Observer = Box<dyn FnMut(&mut Fence<'_>) + Send>;

/// What a fence observer is shown: the state of the medium just before or just after a fence takes effect.
pub struct Fence<'a> {
    state: &'a State,
    number: u64,
    moment: Moment,
}

impl Fence<'_> {
    /// Number of the fence since the region was made or refilled, beginning with 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Before or after it takes effect.
    pub fn moment(&self) -> Moment {
        self.moment
    }

    /// Everything that a power cut at this moment may leave. Costs as much as there are pending writes.
    pub fn crash_point(&self) -> CrashPoint<'_> {
        self.state.crash_point(self.number, self.moment)
    }
}

pub(crate) struct State {
    durable: Vec<u64>,
    /// [`crash::image_hash`] of the durable image; kept only once somebody asked for crash points.
    hash: Option<u64>,
    lines: Lines,
    spare: Vec<Line>,
    threads: HashMap<u32, InFlight>,
    /// Thread and line of the newest non-temporal word: its neighbours need no second entry in `threads`.
    last_streamed: Option<(u32, u64)>,
    next_sequence: u64,
    fences: u64,
    generation: u64,
    settled: SettledLog,
}

/// The words that fences have made durable, newest last, so that scratch images can follow without copying.
#[derive(Default)]
struct SettledLog {
    words: Vec<(u64, u64)>,
    /// How many words were logged before the first that is still in `words`.
    forgotten: u64,
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Emulator")
            .field("fences", &state.fences)
            .field("pending_lines", &state.lines.len())
            .finish_non_exhaustive()
    }
}

impl Emulator {
    pub(crate) fn new(image: &[u8]) -> Emulator {
        Emulator {
            state: Mutex::new(State::new(image)),
            observer: Mutex::new(None),
        }
    }

    pub(crate) fn zeroed(length: u64) -> Emulator {
        let state = State {
            durable: vec![0; length as usize / WORD_BYTES],
            ..State::new(&[])
        };
        Emulator {
            state: Mutex::new(state),
            observer: Mutex::new(None),
        }
    }

    /// Starts anew from an image; the observer stays.
    pub(crate) fn refill(&mut self, image: &[u8]) {
        let observed = self.observer.get_mut().is_some();
        let state = self.state.get_mut();
        *state = State::new(image);
        if observed {
            state.begin_crash_points();
        }
    }

    /// Calls `observer` twice at every fence: just before it takes effect and just after. It runs in the fencing thread,
    /// under the emulator's lock, and must not touch the region itself. It replaces any observer before it.
    pub fn on_fence(&self, observer: impl FnMut(&mut Fence<'_>) + Send + 'static) {
        self.state.lock().begin_crash_points();
        *self.observer.lock() = Some(Box::new(observer));
    }

    /// Ends the observation.
    pub fn ignore_fences(&self) {
        *self.observer.lock() = None;
    }

    /// Shows what a power cut right now may leave. `look` must not touch the region.
    pub fn crash_now<R>(&self, look: impl FnOnce(&CrashPoint<'_>) -> R) -> R {
        let mut state = self.state.lock();
        state.begin_crash_points();
        look(&state.crash_point(state.fences, Moment::Between))
    }

    /// A copy of the durable image: what survives if nothing that is pending does.
    pub fn durable_image(&self) -> Vec<u8> {
        self.state.lock().durable.as_bytes().to_vec()
    }

    /// Fences since the region was made or refilled.
    pub fn fences(&self) -> u64 {
        self.state.lock().fences
    }

    /// Lines with writes that no fence has settled.
    pub fn pending_lines(&self) -> usize {
        self.state.lock().lines.len()
    }

    /// Writes that no fence has settled.
    pub fn pending_writes(&self) -> usize {
        self.state
            .lock()
            .lines
            .values()
            .map(|line| line.writes().len())
            .sum()
    }

    /// Stores into the live image, word by word in ascending order, and remembers what is pending.
    pub(crate) fn store(&self, region: &Region, at: Offset, content: Content<'_>, origin: Origin) {
        let mut state = self.state.lock();
        content.words(at.get(), |address, keep, new| {
            let live = region.peek_word(address);
            let word = live & keep | new;
            region.poke_word(address, word);
            state.record(address, live, word, origin);
        });
    }

    pub(crate) fn flush(&self, at: Offset, lines: u64) {
        let mut state = self.state.lock();
        let mark = state.next_sequence;
        let first = at.get() / LINE_BYTES as u64;
        let State {
            lines: pending,
            threads,
            ..
        } = &mut *state;
        let in_flight = threads.entry(thread_number()).or_default();
        for line in first..first + lines {
            if pending.contains_key(&line) {
                in_flight.flushed.push((line, mark));
            }
        }
    }

    pub(crate) fn fence(&self) {
        let mut state = self.state.lock();
        let mut observer = self.observer.lock();
        let number = state.fences;
        if let Some(observer) = observer.as_mut() {
            observer(&mut Fence {
                state: &state,
                number,
                moment: Moment::Before,
            });
        }
        state.settle(thread_number());
        state.fences += 1;
        if let Some(observer) = observer.as_mut() {
            observer(&mut Fence {
                state: &state,
                number,
                moment: Moment::After,
            });
        }
    }
}

impl State {
    fn new(image: &[u8]) -> State {
        static NEXT_GENERATION: AtomicU64 = AtomicU64::new(0);
        let mut durable = vec![0; image.len() / WORD_BYTES];
        durable.as_mut_bytes().copy_from_slice(image);
        State {
            durable,
            hash: None,
            lines: Lines::default(),
            spare: Vec::new(),
            threads: HashMap::new(),
            last_streamed: None,
            next_sequence: 0,
            fences: 0,
            generation: NEXT_GENERATION.fetch_add(1, Ordering::Relaxed),
            settled: SettledLog::default(),
        }
    }

    fn begin_crash_points(&mut self) {
        if self.hash.is_none() {
            self.hash = Some(crash::image_hash(&self.durable));
        }
    }

    /// Remembers one word write; `live` is what the word held before it.
    fn record(&mut self, address: u64, live: u64, value: u64, origin: Origin) {
        let number = address / LINE_BYTES as u64;
        let word = (address % LINE_BYTES as u64) as u8 / WORD_BYTES as u8;
        // A write of what is there already adds no crash image, unless a word of unknown fate lies in between.
        let unchanged = live == value;
        let line = match self.lines.get_mut(&number) {
            Some(line) => line,
            None if unchanged => return,
            None => self
                .lines
                .entry(number)
                .or_insert(self.spare.pop().unwrap_or_default()),
        };
        if unchanged && line.may_skip(word, origin) {
            return;
        }
        line.push(Write {
            sequence: self.next_sequence,
            value,
            word,
            origin,
        });
        self.next_sequence += 1;
        if let Origin::Streaming { thread } = origin
            && self.last_streamed != Some((thread, number))
        {
            self.threads
                .entry(thread)
                .or_default()
                .streamed
                .push(number);
            self.last_streamed = Some((thread, number));
        }
    }

    /// The fence: what this thread has flushed and streamed becomes durable.
    fn settle(&mut self, thread: u32) {
        self.last_streamed = None;
        let Some(mut in_flight) = self.threads.remove(&thread) else {
            return;
        };
        for (line, mark) in in_flight.flushed.drain(..) {
            self.settle_line(line, |write| {
                write.origin == Origin::Cached && write.sequence < mark
            });
        }
        for line in in_flight.streamed.drain(..) {
            self.settle_line(line, |write| write.origin == Origin::Streaming { thread });
        }
        self.threads.insert(thread, in_flight);
        if self.settled.words.len() > self.durable.len() {
            self.settled.forgotten += self.settled.words.len() as u64;
            self.settled.words.clear();
        }
    }

    fn settle_line(&mut self, number: u64, is_settled: impl Fn(&Write) -> bool) {
        let Some(line) = self.lines.get_mut(&number) else {
            return;
        };
        let first_word = number * (LINE_BYTES / WORD_BYTES) as u64;
        let (durable, hash, log) = (&mut self.durable, &mut self.hash, &mut self.settled);
        line.settle(is_settled, |word, value| {
            let index = first_word + u64::from(word);
            let old = std::mem::replace(&mut durable[index as usize], value);
            if let Some(hash) = hash {
                *hash ^= crash::word_hash(index, old) ^ crash::word_hash(index, value);
                log.words.push((index, value));
            }
        });
        if line.writes().is_empty()
            && let Some(line) = self.lines.remove(&number)
        {
            self.spare.push(line);
        }
    }

    fn crash_point(&self, fence: u64, moment: Moment) -> CrashPoint<'_> {
        CrashPoint {
            fence,
            moment,
            durable: self.durable.as_bytes(),
            durable_hash: self
                .hash
                .unwrap_or_else(|| crash::image_hash(&self.durable)),
            pending: crash::pending_lines(&self.lines),
            generation: self.generation,
            settled: &self.settled.words,
            settled_before: self.settled.forgotten,
        }
    }
}

/// A number for this thread, never used again for another.
pub(crate) fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
