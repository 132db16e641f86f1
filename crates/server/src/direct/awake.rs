//! Whether the threads of conversations may wait without sleeping.
//!
//! That is good where a processor has nothing else to do. Where it has, it is bad even for who waits: a thread that was awake all the time gets the processor back later than one that is woken.

use nix::sys::resource::{UsageWho, getrusage};
use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Who gives the processor to another thread and gets it back so late is in the way: no request through the kernel takes as long.
const IN_THE_WAY: Duration = Duration::from_micros(200);

/// Twice within so long, and others want the processor: who computes has it for some milliseconds each time. Once is what a kernel's thread or a program that starts takes of a quiet machine, a few times in a second.
const SOON: Duration = Duration::from_millis(20);

/// For how long nobody waits awake after that: at first, and at most. To find out that others want the processor may take as long as they get it for, twice.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Pause {
    /// When somebody was in the way, if it was once since the last pause.
    last: Option<Instant>,
    length: Duration,
    until: Option<Instant>,
}

/// What all conversations of a mount know.
#[derive(Default)]
pub(super) struct Awake {
    /// Some conversation stays awake between journals: one processor that does is enough.
    is_one_awake: AtomicBool,
    pause: Mutex<Pause>,
}

/// The turn of who stays awake between journals, until it is dropped.
pub(super) struct AwakeForAll(Arc<Awake>);

/// Where the thread of a conversation runs. While it waits awake it keeps clear of the processor of who asks next: between two looks it would have to get back the processor that the other one needs for himself and for who answers his requests to the kernel.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Where else it may run.
    allowed: Option<CpuSet>,
    /// The one that it keeps clear of.
    cleared: Option<u16>,
}

impl Place {
    /// Keeps clear of a processor, if there is another one. The caller is the thread, here and below.
    pub(super) fn clear(&mut self, processor: Option<u16>) {
        if processor == self.cleared {
            return;
        }
        self.return_to_all();
        let known = processor.filter(|number| usize::from(*number) < CpuSet::MAX_CPU);
        let (Some(number), Ok(allowed)) = (known, sched_getaffinity(None)) else {
            return;
        };
        let mut others = allowed;
        others.unset(usize::from(number));
        if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
            self.allowed = Some(allowed);
        }
        self.cleared = processor;
    }

    /// It may run everywhere again.
    pub(super) fn return_to_all(&mut self) {
        self.cleared = None;
        if let Some(allowed) = self.allowed.take() {
            // If it may not any more, it stays where it is.
            let _ = sched_setaffinity(None, &allowed);
        }
    }
}

impl Drop for AwakeForAll {
    fn drop(&mut self) {
        self.0.is_one_awake.store(false, Ordering::Relaxed);
    }
}

impl Awake {
    /// Whether who waits may do so awake.
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        self.pause.lock().until.is_none_or(|until| until <= now)
    }

    /// The turn to stay awake between journals, if nobody has it.
    pub(super) fn stay(self: &Arc<Self>) -> Option<AwakeForAll> {
        let had_it = self.is_one_awake.swap(true, Ordering::Relaxed);
        (!had_it).then(|| AwakeForAll(Arc::clone(self)))
    }

    /// Gives the processor to whoever wants it, perhaps to who is waited for: whether to go on waiting. If others need it for longer, and again, it is theirs.
    pub(super) fn give_way(&self) -> bool {
        let (begin, before) = (Instant::now(), times_others_ran());
        sched_yield();
        let back = Instant::now();
        // The host of a virtual machine may have had the processor too.
        let is_in_the_way = back.duration_since(begin) > IN_THE_WAY && times_others_ran() != before;
        !(is_in_the_way && self.is_unwelcome(back))
    }

    /// Somebody was in the way: whether nobody waits awake for some time.
    pub(super) fn is_unwelcome(&self, back: Instant) -> bool {
        let mut pause = self.pause.lock();
        let last = pause.last.replace(back);
        let is_soon = last.is_some_and(|last| back.duration_since(last) < SOON);
        if is_soon {
            pause.begin(back);
        }
        is_soon
    }
}

impl Pause {
    /// Twice as long each time, unless the last one was long ago.
    fn begin(&mut self, now: Instant) {
        let is_again = self.until.is_some_and(|until| now < until + self.length);
        self.length = match is_again {
            true => (2 * self.length).min(PAUSE_MAX),
            false => PAUSE_MIN,
        };
        self.until = Some(now + self.length);
        self.last = None;
    }
}

/// How often this thread had a processor and another one got it.
fn times_others_ran() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of those that this thread may use.
    struct Processor(CpuSet);

    impl Processor {
        fn of_this_thread() -> Processor {
            let allowed = sched_getaffinity(None).expect("processors");
            let first = (0..CpuSet::MAX_CPU).find(|number| allowed.is_set(*number));
            let mut one = CpuSet::new();
            one.set(first.expect("a processor"));
            Processor(one)
        }

        fn pin(&self) {
            sched_setaffinity(None, &self.0).expect("pinned");
        }
    }

    #[test]
    fn who_is_in_the_way_twice_sleeps_for_longer_and_longer() {
        let (awake, mut now) = (Awake::default(), Instant::now());
        assert!(awake.is_allowed(now));
        for length in [1, 2, 4, 8, 16, 25, 25].map(|times| times * PAUSE_MIN) {
            assert!(!awake.is_unwelcome(now), "once");
            assert!(awake.is_allowed(now), "once");
            assert!(awake.is_unwelcome(now), "twice");
            let end = now + length;
            assert!(!awake.is_allowed(end - PAUSE_MIN / 2), "{length:?}");
            assert!(awake.is_allowed(end), "{length:?}");
            now = end;
        }
        now += PAUSE_MAX;
        assert!(!awake.is_unwelcome(now) && awake.is_unwelcome(now));
        assert!(awake.is_allowed(now + PAUSE_MIN), "that was long ago");
    }

    #[test]
    fn who_is_in_the_way_now_and_then_stays_awake() {
        let (awake, mut now) = (Awake::default(), Instant::now());
        for _ in 0..10 {
            assert!(!awake.is_unwelcome(now));
            now += SOON;
        }
        assert!(awake.is_allowed(now));
    }

    #[test]
    fn who_shares_the_processor_gives_it_up() {
        let awake = Awake::default();
        let processor = Processor::of_this_thread();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                processor.pin();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            processor.pin();
            let begin = Instant::now();
            while awake.give_way() && begin.elapsed() < Duration::from_secs(20) {}
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(!awake.is_allowed(Instant::now()));
    }

    #[test]
    fn a_place_is_another_processor_where_there_is_one() {
        let all = || sched_getaffinity(None).expect("processors");
        let (before, mut place) = (all(), Place::default());
        let is_in = |set: &CpuSet| (0..CpuSet::MAX_CPU).filter(|it| set.is_set(*it)).collect();
        let mine: Vec<usize> = is_in(&before);
        for processor in mine.iter().map(|it| *it as u16).chain([u16::MAX, 1023]) {
            for _ in 0..2 {
                place.clear(Some(processor));
                let others: Vec<usize> = is_in(&all());
                let wanted: Vec<usize> = mine
                    .iter()
                    .copied()
                    .filter(|it| *it != usize::from(processor) || mine.len() == 1)
                    .collect();
                assert_eq!(others, wanted);
            }
        }
        place.clear(None);
        assert_eq!(all(), before);
        place.clear(Some(mine[0] as u16));
        place.return_to_all();
        assert_eq!(all(), before);
    }

    #[test]
    fn one_stays_awake_for_all() {
        let awake = Arc::new(Awake::default());
        let turn = awake.stay();
        assert!(turn.is_some() && awake.stay().is_none());
        drop(turn);
        assert!(awake.stay().is_some());
    }
}
