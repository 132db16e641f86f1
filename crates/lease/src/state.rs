//! How a lease is taken back from a holder who executes no locked instruction for it.
//!
//! Two words in memory that both sides see. The server writes the *state*: live, sealed, forced. The holder writes what he is *busy* with: nothing, his spare blocks, or the
//! last block of the file. He says that he is busy, then looks at the state; the server seals, then looks whether he is busy. So either the holder sees the seal and leaves the
//! file alone, or the server sees that he is busy and waits.
//!
//! Stores and loads pass each other in a processor, so both sides need a fence between their two steps. The holder does this for every write and the server hardly ever, so the server's
//! fence (`membarrier`) is executed on the holder's processors too, and the holder's is one that only the compiler heeds.
//!
//! Who is busy for too long (stopped, or in a debugger) is not waited for: the lease is *forced* from him. The server then takes what is in the ring by then. When he goes on, he
//! looks at the state after his record's fence, and asks the server whether it took the record. He may still store into his spare blocks, which nobody gets before he has answered or is dead,
//! and into the block that he said he was busy with, which the server replaces. So a write of several blocks in place says each of them in turn, when the one before is fenced.
//!
//! A holder who is done with a file says so in a third word, for ever: from him a lease is taken back without the server's fence, which interrupts every processor that he ran on.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word that both sides see; abstract, so that the orderings can be checked exhaustively.
pub trait Word {
    /// Loads it.
    fn load(&self, ordering: Ordering) -> u64;
    /// Stores it.
    fn store(&self, word: u64, ordering: Ordering);
    /// The holder's fence: heeded by the compiler, and by the processor when the server executes its own.
    fn light_fence();
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    #[inline]
    fn store(&self, word: u64, ordering: Ordering) {
        AtomicU64::store(self, word, ordering);
    }

    #[inline]
    fn light_fence() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

const LIVE: u64 = 0;
const SEALED: u64 = 1;
const FORCED: u64 = 2;

const IDLE: u64 = 0;
const IN_SPARE_BLOCKS: u64 = 1;
const FIRST_BLOCK: u64 = 2;

/// What a holder is busy with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Busy {
    /// Nothing.
    Idle,
    /// A write that stores into spare blocks only.
    SpareBlocks,
    /// A write that stores into this block of the file: behind its end, or, in place, anywhere.
    Block(u64),
}

impl Busy {
    fn word(self) -> u64 {
        match self {
            Busy::Idle => IDLE,
            Busy::SpareBlocks => IN_SPARE_BLOCKS,
            Busy::Block(index) => index.saturating_add(FIRST_BLOCK),
        }
    }

    fn of(word: u64) -> Busy {
        match word {
            IDLE => Busy::Idle,
            IN_SPARE_BLOCKS => Busy::SpareBlocks,
            word => Busy::Block(word - FIRST_BLOCK),
        }
    }
}

/// Says, by `word`, that the holder has left what the server calls `number` and begins no write there any more.
pub fn leave(word: &impl Word, number: u32) {
    // Release: who hears of it sees all that was written.
    word.store(u64::from(number), Ordering::Release);
}

/// Whether the holder has left `number`, which is not 0. Then all that he wrote is visible and durable, and a [`seal`](State::seal) needs no fence on his processors.
#[must_use]
pub fn has_left(word: &impl Word, number: u32) -> bool {
    word.load(Ordering::Acquire) == u64::from(number)
}

/// The server's side of the two words.
#[derive(Debug)]
pub struct State<'w, W = AtomicU64> {
    /// The server's word; the holder can only load it.
    pub state: &'w W,
    /// The holder's.
    pub busy: &'w W,
}

impl<W: Word> State<'_, W> {
    /// From here on the holder begins no write. `heavy_fence` is a full fence on every processor that runs a thread of the holder.
    pub fn seal(&self, heavy_fence: impl FnOnce()) {
        self.state.store(SEALED, Ordering::Relaxed);
        heavy_fence();
    }

    /// What the holder is busy with, after [`seal`](Self::seal). Once he is idle, he stays so, and all that he wrote is visible and durable.
    pub fn busy(&self) -> Busy {
        Busy::of(self.busy.load(Ordering::Acquire))
    }

    /// Takes the lease from a holder who is busy for too long. What he has written down by then counts; of what comes later he learns that it does not.
    pub fn force(&self, heavy_fence: impl FnOnce()) {
        self.state.store(FORCED, Ordering::Relaxed);
        heavy_fence();
    }
}

/// The holder's side of the two words.
#[derive(Debug)]
pub struct Holding<'w, W = AtomicU64> {
    /// The server's word.
    pub state: &'w W,
    /// The holder's; one thread at a time stores to it.
    pub busy: &'w W,
}

impl<W: Word> Holding<'_, W> {
    /// Begins a write, or its next block: what was stored before must be fenced. `false` if the lease has ended: then nothing may be stored.
    #[inline]
    #[must_use = "without the lease nothing may be stored"]
    pub fn begin(&self, with: Busy) -> bool {
        // Release: who hears of the next block knows that nothing comes into the one before.
        self.busy.store(with.word(), Ordering::Release);
        W::light_fence();
        let is_live = self.state.load(Ordering::Acquire) == LIVE;
        if !is_live {
            self.busy.store(IDLE, Ordering::Release);
        }
        is_live
    }

    /// Ends a write whose record is fenced. `false` if the lease was forced from the holder meanwhile: then only the server knows whether the record counts.
    #[inline]
    #[must_use = "the record may not count"]
    pub fn end(&self) -> bool {
        W::light_fence();
        let counts = self.state.load(Ordering::Relaxed) != FORCED;
        self.busy.store(IDLE, Ordering::Release);
        counts
    }

    /// Ends a write that wrote no record.
    #[inline]
    pub fn abandon(&self) {
        self.busy.store(IDLE, Ordering::Release);
    }

    /// Whether the lease has not ended: what was read from the file's blocks before this look is true.
    #[inline]
    pub fn is_live(&self) -> bool {
        std::sync::atomic::fence(Ordering::Acquire);
        self.state.load(Ordering::Relaxed) == LIVE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64 as Model, fence};

    impl Word for Model {
        fn load(&self, ordering: Ordering) -> u64 {
            Model::load(self, ordering)
        }

        fn store(&self, word: u64, ordering: Ordering) {
            Model::store(self, word, ordering);
        }

        // Together with the server's it acts as a full one.
        fn light_fence() {
            fence(Ordering::SeqCst);
        }
    }

    #[derive(Default)]
    struct Shared {
        state: Model,
        busy: Model,
        record: Model,
    }

    fn holding(shared: &Shared) -> Holding<'_, Model> {
        Holding {
            state: &shared.state,
            busy: &shared.busy,
        }
    }

    /// A holder writes one record; the server takes the lease back. `has_counted` is what the server took, `believes` what the holder was told.
    fn explore(heavy: fn(), is_forced: bool) {
        loom::model(move || {
            let shared = Arc::new(Shared::default());
            let theirs = Arc::clone(&shared);
            let holder = loom::thread::spawn(move || {
                let holding = holding(&theirs);
                if !holding.begin(Busy::SpareBlocks) {
                    return None;
                }
                theirs.record.store(1, Ordering::Relaxed);
                Some(holding.end())
            });
            let server = State {
                state: &shared.state,
                busy: &shared.busy,
            };
            server.seal(heavy);
            let is_idle = server.busy() == Busy::Idle;
            let was_forced = is_forced && !is_idle;
            if was_forced {
                server.force(heavy);
            }
            let counted = (is_idle || was_forced).then(|| shared.record.load(Ordering::Relaxed));
            let told = holder.join().expect("the holder ends");
            match (counted, told) {
                (Some(record), Some(true)) => assert_eq!(record, 1, "acknowledged and not counted"),
                (Some(record), None) => assert_eq!(record, 0, "refused and counted"),
                _ => {}
            }
            if is_idle {
                // Nothing may come later.
                assert_eq!(
                    counted,
                    Some(shared.record.load(Ordering::Relaxed)),
                    "written after the seal"
                );
            }
        });
    }

    #[test]
    fn what_is_acknowledged_is_counted_when_the_holder_is_waited_for() {
        explore(|| fence(Ordering::SeqCst), false);
    }

    #[test]
    fn what_is_acknowledged_is_counted_when_the_lease_is_forced() {
        explore(|| fence(Ordering::SeqCst), true);
    }

    #[test]
    #[should_panic(expected = "counted")]
    fn a_server_without_its_fence_is_caught() {
        explore(|| {}, true);
    }

    /// A holder writes one record and leaves the file; the server takes the lease back without its fence if `may_go` says so of the holder's word.
    fn explore_leaving(may_go: fn(&Model) -> bool) {
        loom::model(move || {
            let shared = Arc::new((Shared::default(), Model::new(0)));
            let theirs = Arc::clone(&shared);
            let holder = loom::thread::spawn(move || {
                let holding = holding(&theirs.0);
                if holding.begin(Busy::SpareBlocks) {
                    theirs.0.record.store(1, Ordering::Relaxed);
                    assert!(holding.end(), "nobody forces it");
                }
                leave(&theirs.1, 7);
            });
            let server = State {
                state: &shared.0.state,
                busy: &shared.0.busy,
            };
            let counted = may_go(&shared.1).then(|| {
                server.seal(|| {});
                (server.busy(), shared.0.record.load(Ordering::Relaxed))
            });
            holder.join().expect("the holder ends");
            if let Some(counted) = counted {
                let record = shared.0.record.load(Ordering::Relaxed);
                assert_eq!(counted, (Busy::Idle, record), "written after he left");
            }
        });
    }

    #[test]
    fn what_was_written_before_the_holder_left_is_counted_without_a_fence() {
        explore_leaving(|word| has_left(word, 7));
    }

    #[test]
    #[should_panic(expected = "written after he left")]
    fn a_server_that_takes_what_another_attachment_left_for_this_one_is_caught() {
        explore_leaving(|word| has_left(word, 0));
    }

    /// A holder overwrites two blocks in place; the server takes the lease back, and forces it if he is busy. What is stored later goes into the block that the server then has to replace.
    fn explore_in_place(says_each: bool) {
        loom::model(move || {
            let shared = Arc::new((Shared::default(), [Model::new(0), Model::new(0)]));
            let theirs = Arc::clone(&shared);
            let holder = loom::thread::spawn(move || {
                let holding = holding(&theirs.0);
                for (index, block) in (0..).zip(&theirs.1) {
                    let says = says_each || index == 0;
                    if says && !holding.begin(Busy::Block(index)) {
                        return false;
                    }
                    block.store(1, Ordering::Relaxed);
                }
                holding.end()
            });
            let server = State {
                state: &shared.0.state,
                busy: &shared.0.busy,
            };
            let heavy = || fence(Ordering::SeqCst);
            server.seal(heavy);
            let before = server.busy();
            let mut replaced = Busy::Idle;
            if before != Busy::Idle {
                server.force(heavy);
                replaced = match server.busy() {
                    Busy::Block(index) => Busy::Block(index),
                    _ => before,
                };
            }
            let look = || shared.1.iter().map(|block| block.load(Ordering::Relaxed));
            let seen: Vec<u64> = look().collect();
            let told = holder.join().expect("the holder ends");
            for ((index, seen), later) in (0..).zip(seen).zip(look()) {
                let is_replaced = replaced == Busy::Block(index);
                assert!(
                    is_replaced || seen == later,
                    "stored into block {index}, which is not replaced"
                );
                assert!(!told || seen == 1, "acknowledged and not there");
            }
        });
    }

    #[test]
    fn a_holder_who_overwrites_in_place_says_where() {
        explore_in_place(true);
    }

    #[test]
    #[should_panic(expected = "which is not replaced")]
    fn a_holder_who_says_only_where_he_begins_is_caught() {
        explore_in_place(false);
    }

    #[test]
    fn what_a_holder_says_is_what_the_server_hears() {
        for busy in [
            Busy::Idle,
            Busy::SpareBlocks,
            Busy::Block(0),
            Busy::Block(9),
        ] {
            assert_eq!(Busy::of(busy.word()), busy);
        }
    }
}
