//! The background thread: copies what readers point to, evicts what was not read for longest, resizes tables, gives memory back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pmem::BLOCK_BYTES;

use crate::cache::Source;
use crate::entry;
use crate::file::FileCache;
use crate::memory::Memory;
use crate::requests::{Fill, Urgent};
use crate::shared::Shared;
use crate::statistics::Event;
use crate::word::State;

/// How long the thread looks for work again and again before it has to be woken up: waking costs the reader who does it a microsecond or two.
const ALERT: Duration = Duration::from_millis(100);
const NAP: Duration = Duration::from_millis(1);
/// How long it works without a look whether others want the medium.
const STINT: Duration = Duration::from_micros(50);
/// How many times as long as a stint it leaves the medium to others, while they read from it and copies are of little use: misses take 1.6 times as
/// long beside a copying thread.
const REST: u32 = 7;
/// Parts of the budget after whose filling it is asked whether copies are of use. Before the first time they are trusted to be.
const JUDGED_PART: u32 = 2;
/// How often memory is looked at while copies are held.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// Parts of the budget that one pass of eviction makes free.
const EVICTED_PART: u32 = 32;
/// Parts of the budget after whose filling the clock moves.
const CLOCK_PART: u32 = 128;
/// The machine is short of memory when less than this part of it is available.
const RESERVE_PART: u64 = 16;
/// Ages that are told apart, in moves of the clock. All that is older is equally old.
const AGES: usize = 1 << 12;

/// The background thread's own state.
pub(crate) struct Background {
    shared: Arc<Shared>,
    source: Source,
    memory: Box<dyn Fn() -> Option<Memory> + Send>,
    window: Duration,
    began: Instant,
    watched: Instant,
    misses_seen: u64,
    fills_since_tick: u32,
    usefulness: Usefulness,
    /// Number of the thread whose request was taken last.
    thread: usize,
}

/// The file that the last request was about, kept while there is work: a reference costs a lock and two lines that other threads may want.
#[derive(Default)]
struct LastFile(Option<(u32, Arc<FileCache>)>);

impl LastFile {
    /// The file at a place; `None` if it is gone.
    fn at(&mut self, place: u32, shared: &Shared) -> Option<&FileCache> {
        if self.0.as_ref().is_none_or(|(last, _)| *last != place) {
            self.0 = Some((place, shared.file(place)?));
        }
        self.0.as_ref().map(|(_, file)| &**file)
    }

    /// This will be filled next: fetches its entry, if it is of this file.
    fn prefetch(&self, fill: Fill) {
        let file = self.0.as_ref().filter(|(place, _)| *place == fill.file);
        let entry = file.and_then(|(_, file)| file.entry(fill.level.into(), fill.index));
        if let Some(entry) = entry {
            pmem::prefetch_for_write(entry.0);
        }
    }
}

/// Whether a copy is read often enough. If so, each one that is made sooner spares a reader more of the medium than making it takes from others; copies of blocks that
/// are written or evicted before anybody comes back are better made slowly.
struct Usefulness {
    /// Hits and copies since the last judgement.
    hits_before: u64,
    fills: u32,
    was_given: bool,
}

impl Usefulness {
    /// Hits for so many copies are enough: one spares more than half of what a copy takes from those who read the medium meanwhile.
    const FILLS_PER_HIT: u64 = 2;

    /// Copies are trusted until they are judged.
    fn new() -> Usefulness {
        Usefulness {
            hits_before: 0,
            fills: 0,
            was_given: true,
        }
    }

    /// One more copy has been made, of `limit` that there may be.
    fn count_fill(&mut self, limit: u32, hits: impl Fn() -> u64) {
        self.fills += 1;
        if self.fills >= (limit / JUDGED_PART).max(1) {
            let hits = hits();
            self.was_given = self.is_enough(hits);
            self.hits_before = hits;
            self.fills = 0;
        }
    }

    fn is_enough(&self, hits: u64) -> bool {
        (hits - self.hits_before) * Self::FILLS_PER_HIT > self.fills.into()
    }

    /// Whether it was given at the last judgement, or would be now.
    fn is_given(&self, hits: impl Fn() -> u64) -> bool {
        self.was_given || self.is_enough(hits())
    }
}

impl Background {
    pub(crate) fn new(
        shared: Arc<Shared>,
        source: Source,
        memory: Box<dyn Fn() -> Option<Memory> + Send>,
        window: Duration,
    ) -> Background {
        let now = Instant::now();
        Background {
            shared,
            source,
            memory,
            window: window.max(Duration::from_millis(1)),
            began: now,
            watched: now,
            misses_seen: 0,
            fills_since_tick: 0,
            usefulness: Usefulness::new(),
            thread: 0,
        }
    }

    /// Works until it is told to end.
    pub(crate) fn run(mut self) {
        let mut worked = Instant::now();
        while !self.shared.must_end.load(Ordering::Acquire) {
            self.tell_time();
            if self.work_off() {
                worked = Instant::now();
            } else if self.is_awaited() && self.shared.frames.make_ready() {
                continue;
            }
            self.watch_memory();
            if worked.elapsed() < ALERT {
                std::thread::park_timeout(NAP);
            } else if self.shared.fall_asleep() {
                self.sleep();
                if self.shared.was_woken() {
                    worked = Instant::now();
                }
            }
        }
    }

    fn sleep(&self) {
        if self.shared.frames.in_use() > 0 {
            std::thread::park_timeout(WATCH_EVERY);
        } else {
            std::thread::park();
        }
    }

    /// Readers do not look at a clock: they are told in which window they are.
    fn tell_time(&self) {
        let windows = self.began.elapsed().as_nanos() / self.window.as_nanos();
        self.shared.hotness.set_window(windows as u64);
    }

    /// Whether somebody has read from the medium since the last look.
    fn has_missed(&mut self) -> bool {
        let misses = self.shared.meter.of_all(Event::Miss);
        misses != std::mem::replace(&mut self.misses_seen, misses)
    }

    /// Whether somebody reads from the medium, so that copies may be wanted soon.
    fn is_awaited(&mut self) -> bool {
        self.has_missed() && self.shared.frames.limit() > 0
    }

    /// Does what was asked for. Whether there was anything.
    fn work_off(&mut self) -> bool {
        let mut has_worked = false;
        let mut begin = Instant::now();
        let shared = Arc::clone(&self.shared);
        let requests = &shared.requests;
        let mut files = LastFile::default();
        // One request ahead, so that its entry comes while the one before is filled.
        let mut next = None;
        loop {
            if let Some(urgent) = requests.take_urgent() {
                self.do_urgently(urgent);
            } else if let Some(fill) = next.take().or_else(|| requests.take(&mut self.thread)) {
                next = requests.take(&mut self.thread);
                if let Some(fill) = next {
                    files.prefetch(fill);
                }
                if let Some(file) = files.at(fill.file, &shared) {
                    self.fill(file, fill);
                }
            } else {
                shared.reuse_places();
                break;
            }
            has_worked = true;
            if self.shared.must_end.load(Ordering::Relaxed) {
                break;
            }
            let stint = begin.elapsed();
            if stint >= STINT {
                self.tell_time();
                self.watch_memory();
                let hits = || shared.meter.of_all(Event::Hit);
                if !self.usefulness.is_given(hits) && self.has_missed() {
                    self.rest(stint * REST);
                }
                begin = Instant::now();
            }
        }
        has_worked
    }

    fn do_urgently(&mut self, request: Urgent) {
        match request {
            Urgent::Room { file, block } => {
                if let Some(file) = self.shared.file(file) {
                    file.make_room(block);
                }
            }
            Urgent::Reclaim => self.evict(),
            #[cfg(test)]
            Urgent::Resize { file, level } => {
                if let Some(file) = self.shared.file(file) {
                    file.resize(level);
                }
            }
        }
    }

    /// Leaves the medium to others for a while.
    fn rest(&self, span: Duration) {
        let end = Instant::now() + span;
        while !self.shared.must_end.load(Ordering::Relaxed) && !self.shared.requests.is_urgent() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left.min(NAP));
        }
    }

    /// Copies a block to where an entry is prepared for it.
    fn fill(&mut self, file: &FileCache, fill: Fill) {
        let Some(entry) = file.entry(fill.level.into(), fill.index) else {
            return;
        };
        let prepared = entry.word();
        // The entry may have had another life since the request.
        if prepared.state() != State::Prep || prepared.version() != fill.life {
            return;
        }
        if prepared.frame().is_none() && self.is_full() && self.shared.frames.limit() > 0 {
            self.evict();
        }
        if !file.fill(entry, prepared, |into| (self.source)(fill.home, into)) {
            entry.abandon(prepared);
        }
        let limit = self.shared.frames.limit();
        let meter = &self.shared.meter;
        self.usefulness
            .count_fill(limit, || meter.of_all(Event::Hit));
        self.fills_since_tick += 1;
        if self.fills_since_tick >= (limit / CLOCK_PART).max(1) {
            self.fills_since_tick = 0;
            self.shared.advance_clock();
        }
    }

    fn is_full(&self) -> bool {
        self.shared.frames.in_use() >= self.shared.frames.limit()
    }

    /// Takes the pages that were not read for longest away from their entries.
    fn evict(&self) {
        let frames = &self.shared.frames;
        let limit = frames.limit();
        let in_use = frames.in_use();
        let wanted = in_use.saturating_sub(limit) + (limit / EVICTED_PART).max(1);
        let now = self.shared.advance_clock();
        let files = self.shared.files();
        let oldest = Oldest::among(&files, now, wanted);
        let mut evicted = 0;
        let mut at_limit = oldest.at_limit;
        for file in &files {
            let mut live = 0;
            for entry in file.current_table().iter() {
                let word = entry.word();
                live += usize::from(word.state() != State::Invalid);
                let is_free = word.state() == State::Invalid;
                let age = age(now, entry.used());
                let goes = if is_free || age > oldest.limit {
                    true
                } else if age == oldest.limit && at_limit > 0 {
                    at_limit -= 1;
                    true
                } else {
                    false
                };
                if goes && let Some(frame) = entry.evict_from(word) {
                    frames.give_back(frame);
                    evicted += u64::from(!is_free);
                    live -= usize::from(!is_free);
                }
            }
            file.note_live(live);
            file.shrink(live);
        }
        self.shared
            .meter
            .evictions
            .fetch_add(evicted, Ordering::Relaxed);
    }

    /// Gives memory back if the machine is short of it, and takes it again when that is over.
    fn watch_memory(&mut self) {
        if self.watched.elapsed() < WATCH_EVERY {
            return;
        }
        self.watched = Instant::now();
        let frames = &self.shared.frames;
        let Some(memory) = (self.memory)() else {
            return;
        };
        let reserve = memory.total_bytes / RESERVE_PART;
        let limit = frames.limit();
        if memory.available_bytes < reserve {
            let missing = (reserve - memory.available_bytes) / BLOCK_BYTES as u64;
            let step = (missing as u32)
                .max(frames.count() / RESERVE_PART as u32)
                .max(1);
            let lower = limit.min(frames.in_use()).saturating_sub(step);
            frames.set_limit(lower);
            self.evict();
            frames.discard_free();
            tracing::debug!(
                pages = lower,
                "the machine is short of memory: the read cache shrinks"
            );
        } else if limit < frames.count() && memory.available_bytes > 2 * reserve {
            let step = (frames.count() / RESERVE_PART as u32).max(1);
            frames.set_limit(limit.saturating_add(step));
        }
    }
}

/// Moves of the clock since an entry was read, as far as they are told apart.
fn age(now: u64, used: u64) -> usize {
    (entry::age(now, used) as usize).min(AGES - 1)
}

/// Which pages go: all that are older than a limit, and some that are just as old.
struct Oldest {
    limit: usize,
    at_limit: u32,
}

impl Oldest {
    /// The oldest pages of these files, `wanted` in all, those that no entry needs included.
    fn among(files: &[Arc<FileCache>], now: u64, wanted: u32) -> Oldest {
        let mut ages = vec![0_u32; AGES];
        let mut wanted = wanted;
        for entry in files.iter().flat_map(|file| file.current_table().iter()) {
            let word = entry.word();
            match word.state() {
                _ if word.evict().is_none() => {}
                State::Invalid => wanted = wanted.saturating_sub(1),
                _ => ages[age(now, entry.used())] += 1,
            }
        }
        for (limit, count) in ages.into_iter().enumerate().rev() {
            if count >= wanted {
                return Oldest {
                    limit,
                    at_limit: wanted,
                };
            }
            wanted -= count;
        }
        // Fewer than wanted: all go.
        Oldest {
            limit: 0,
            at_limit: u32::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_of_use_while_they_are_read() {
        let mut usefulness = Usefulness::new();
        let mut fill = |fills: u32, hits: u64| {
            (0..fills).for_each(|_| usefulness.count_fill(200, || hits));
            usefulness.is_given(|| hits)
        };
        assert!(fill(99, 0), "not judged yet");
        assert!(!fill(1, 0));
        assert!(!fill(100, 50));
        assert!(!fill(99, 99), "too few since the last judgement");
        assert!(fill(0, 100), "at any time enough for what was copied since");
        assert!(fill(1, 101), "judged");
        assert!(fill(99, 101), "not judged again yet");
        assert!(!fill(1, 101));
        (0..3).for_each(|_| usefulness.count_fill(0, || 1000));
        assert!(!usefulness.was_given, "no page may be in use");
    }

    #[test]
    fn ages_never_overflow() {
        assert_eq!((age(5, 3), age(9, 9), age(u64::MAX, 0)), (2, 0, AGES - 1));
        assert_eq!(age(3, (1 << 20) - 2), 5, "the clock has gone round");
    }
}
