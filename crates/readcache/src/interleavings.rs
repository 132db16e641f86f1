//! All interleavings of few steps, with all that the memory model allows: the transitions of an entry beside each other.
//!
//! A block of two words on the medium, and copies of it in frames of two words. Version v of the block is (v, v), so whoever reads two different words has
//! read a torn block, and whoever reads a smaller number than the file's sequence says has read a stale one.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use crate::atomic::Atomic;
use crate::entry::{ENTRY_WORDS, Entry};
use crate::ring::Ring;
use crate::word::{Frame, State, Word};

const BLOCK: u64 = 5;
const OTHER_BLOCK: u64 = 9;

/// The word of an entry that is prepared for a block, and the block's home.
type Prepared = (Word, u64);

/// Two words that are copied one after the other.
struct Pair([AtomicU64; 2]);

impl Pair {
    fn new(version: u64) -> Pair {
        Pair([AtomicU64::new(version), AtomicU64::new(version)])
    }

    fn read(&self) -> (u64, u64) {
        let [left, right] = &self.0;
        (left.load(Ordering::Relaxed), right.load(Ordering::Relaxed))
    }

    fn write(&self, (left, right): (u64, u64)) {
        self.0[0].store(left, Ordering::Relaxed);
        self.0[1].store(right, Ordering::Relaxed);
    }
}

/// A file of one block, with a cache of two entries and two frames.
struct Scene {
    /// As in `fs::locks::view`: odd while the file changes, twice its version otherwise.
    sequence: AtomicU64,
    /// Where the block lies: one of the homes.
    pointer: AtomicU64,
    homes: [Pair; 2],
    entries: [[AtomicU64; ENTRY_WORDS]; 2],
    frames: [Pair; 2],
}

impl Scene {
    fn new() -> Scene {
        Scene {
            sequence: AtomicU64::new(0),
            pointer: AtomicU64::new(0),
            homes: [Pair::new(0), Pair::new(99)],
            entries: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            frames: [Pair::new(77), Pair::new(77)],
        }
    }

    fn entry(&self, index: usize) -> Entry<'_, AtomicU64> {
        Entry(&self.entries[index])
    }

    /// A copy of the present version in frame 0 of entry 0.
    fn with_copy() -> Scene {
        let scene = Scene::new();
        let prepared = scene.prepare(0, BLOCK).expect("free");
        scene.fill(0, (prepared, 0), Frame(0));
        assert_eq!(scene.entry(0).word().state(), State::Ready);
        scene
    }

    fn prepare(&self, entry: usize, block: u64) -> Option<Word> {
        let entry = self.entry(entry);
        entry.prepare(entry.claim(block)?)
    }

    /// What the background thread does with an entry that is prepared. The frame, if it stayed with the filler.
    fn fill(&self, index: usize, (prepared, home): Prepared, frame: Frame) -> Option<Frame> {
        let entry = self.entry(index);
        let Some(copying) = entry.begin_copy(prepared, Some(frame)) else {
            return Some(frame);
        };
        let home = &self.homes[home as usize];
        self.frames[copying.frame().expect("copying").0 as usize].write(home.read());
        match entry.publish(copying, 1) {
            true => None,
            false => copying.frame(),
        }
    }

    /// A miss: reads the pointer, leaves an entry that points there. What is left to be filled.
    fn point(&self, index: usize) -> Option<Prepared> {
        let sequence = self.sequence.load(Ordering::Acquire);
        if sequence % 2 == 1 {
            return None;
        }
        let home = self.pointer.load(Ordering::Relaxed);
        let entry = self.entry(index);
        let claimed = entry.claim(BLOCK)?;
        loom::sync::atomic::fence(Ordering::Acquire);
        if self.sequence.load(Ordering::Relaxed) == sequence {
            return Some((entry.prepare(claimed)?, home));
        }
        entry.release();
        None
    }

    /// A write in place, or to the other home, whose old one gets other content.
    fn write(&self, version: u64, moves: bool) {
        self.sequence.store(2 * version - 1, Ordering::Relaxed);
        loom::sync::atomic::fence(Ordering::Release);
        if moves {
            self.homes[1].write((version, version));
            self.pointer.store(1, Ordering::Relaxed);
            self.homes[0].write((55, 55));
        } else {
            self.homes[0].write((version, version));
        }
        AtomicU64::fence(Ordering::SeqCst);
        for index in 0..2 {
            self.entry(index).invalidate(BLOCK);
        }
        self.sequence.store(2 * version, Ordering::Release);
    }

    /// A read that believes what it finds, or finds nothing.
    fn read(&self, index: usize) {
        let sequence = self.sequence.load(Ordering::Acquire);
        let entry = self.entry(index);
        let word = entry.word();
        if sequence % 2 == 1 || !word.is_readable() || entry.block() != BLOCK {
            return;
        }
        let frame = word.frame().expect("readable");
        let found = self.frames[frame.0 as usize].read();
        if !entry.is_alive(word) {
            return;
        }
        entry.touch(BLOCK, 2);
        loom::sync::atomic::fence(Ordering::Acquire);
        if self.sequence.load(Ordering::Relaxed) == sequence {
            let version = sequence / 2;
            assert_eq!(found, (version, version), "stale or torn");
        }
    }
}

/// Runs each of these beside the others, then looks at the scene again.
fn explore(scene: fn() -> Scene, threads: &'static [fn(&Scene)], afterwards: fn(&Scene)) {
    let mut model = loom::model::Builder::new();
    // Two threads are explored with more switches than three, which would take minutes.
    model.preemption_bound = Some(if threads.len() == 2 { 4 } else { 2 });
    model.check(move || {
        let scene = Arc::new(scene());
        let (first, others) = threads.split_first().expect("some threads");
        let others: Vec<_> = others
            .iter()
            .map(|work| {
                let scene = Arc::clone(&scene);
                thread::spawn(move || work(&scene))
            })
            .collect();
        first(&scene);
        for other in others {
            other.join().expect("it ends");
        }
        scene.read(0);
        scene.read(1);
        afterwards(&scene);
    });
}

fn nothing(_: &Scene) {}

fn holds(scene: &Scene) {
    let entry = scene.entry(0);
    let word = entry.word();
    if word.is_readable() && entry.pin(word) {
        let version = word.version();
        assert_eq!(
            scene.frames[0].read(),
            (version, version),
            "it stands still"
        );
        entry.unpin();
    }
}

/// Readers who hold a page, and one who does not.
fn readers_beside_readers() {
    explore(
        Scene::with_copy,
        &[holds, holds, |scene| scene.read(0)],
        |scene| {
            let word = scene.entry(0).word();
            assert_eq!((word.state(), word.readers()), (State::Ready, 0));
        },
    );
}

fn readers_beside_a_writer() {
    explore(
        Scene::with_copy,
        &[
            |scene| scene.write(1, false),
            |scene| {
                scene.read(0);
                scene.read(0);
            },
        ],
        |scene| assert_eq!(scene.entry(0).word().state(), State::Invalid),
    );
}

/// The page that somebody holds stands still although it is written, and its frame is had by one at the end.
fn a_holder_beside_a_writer() {
    explore(
        Scene::with_copy,
        &[
            |scene| {
                scene.write(1, false);
                if let Some(frame) = scene.entry(0).evict() {
                    scene.frames[frame.0 as usize].write((33, 33));
                }
            },
            |scene| {
                let entry = scene.entry(0);
                let word = entry.word();
                if word.is_readable() && entry.pin(word) {
                    assert_eq!(scene.frames[0].read(), (0, 0), "it stands still");
                    if let Some(frame) = entry.unpin() {
                        scene.frames[frame.0 as usize].write((44, 44));
                    }
                }
            },
        ],
        |scene| {
            let entry = scene.entry(0);
            assert_eq!(entry.word().readers(), 0);
            assert_eq!(entry.evict(), None, "the frame was taken once");
        },
    );
}

/// The block is written and pointed to again: the page that somebody holds is not the one that is filled.
fn a_holder_beside_a_refill() {
    explore(
        Scene::with_copy,
        &[
            |scene| {
                scene.write(1, false);
                if let Some(prepared) = scene.point(0) {
                    scene.fill(0, prepared, Frame(1));
                }
            },
            holds,
        ],
        nothing,
    );
}

/// Who copies when the block is written keeps his frame, and the next one to copy has another.
fn a_filler_beside_another() {
    explore(
        Scene::new,
        &[
            |scene| {
                if let Some(prepared) = scene.point(0) {
                    scene.fill(0, prepared, Frame(0));
                }
            },
            |scene| {
                scene.write(1, false);
                if let Some(prepared) = scene.point(0) {
                    scene.fill(0, prepared, Frame(1));
                }
                scene.read(0);
            },
        ],
        nothing,
    );
}

/// A claim is made worthless, and the entry taken for another block: what the first claimant still writes down must not be found there.
fn a_claim_beside_another_for_another_block() {
    explore(
        Scene::new,
        &[
            |scene| {
                let _ = scene.point(0);
            },
            |scene| {
                scene.write(1, false);
                let entry = scene.entry(0);
                if let Some(claimed) = entry.claim(OTHER_BLOCK)
                    && let Some(prepared) = entry.prepare(claimed)
                {
                    scene.fill(0, (prepared, 1), Frame(0));
                }
            },
        ],
        |scene| {
            let entry = scene.entry(0);
            if entry.word().state() == State::Ready {
                assert_eq!(entry.block(), OTHER_BLOCK);
                assert_eq!(scene.frames[0].read(), (99, 99));
            }
        },
    );
}

/// Who has read a page says so while it is evicted and its entry taken for another block.
fn a_late_touch_beside_a_claim() {
    explore(
        Scene::with_copy,
        &[
            |scene| {
                if scene.entry(0).evict().is_some() {
                    let _ = scene.prepare(0, OTHER_BLOCK);
                }
            },
            |scene| scene.read(0),
        ],
        |scene| {
            if scene.entry(0).word().state() == State::Prep {
                assert_eq!(scene.entry(0).block(), OTHER_BLOCK);
            }
        },
    );
}

fn a_filler_beside_a_writer() {
    explore(
        Scene::new,
        &[
            |scene| {
                if let Some(prepared) = scene.point(0) {
                    scene.fill(0, prepared, Frame(0));
                }
            },
            |scene| scene.write(1, false),
            |scene| scene.read(0),
        ],
        nothing,
    );
}

/// The block moves, and its old home gets other content.
fn a_pointer_beside_a_move() {
    explore(
        Scene::new,
        &[
            |scene| {
                if let Some(prepared) = scene.point(0) {
                    scene.fill(0, prepared, Frame(0));
                }
            },
            |scene| scene.write(1, true),
        ],
        |scene| {
            let prepared = scene.point(1).expect("nobody changes the file");
            assert_eq!(scene.fill(1, prepared, Frame(1)), None);
        },
    );
}

/// A page is evicted, and its frame filled with another block, while somebody reads it.
fn a_reader_beside_an_evictor() {
    explore(
        Scene::with_copy,
        &[
            |scene| {
                let prepared = scene.prepare(1, OTHER_BLOCK).expect("free");
                if let Some(frame) = scene.entry(0).evict() {
                    let entry = scene.entry(1);
                    let copying = entry.begin_copy(prepared, Some(frame)).expect("ours");
                    scene.frames[frame.0 as usize].write((66, 66));
                    assert!(entry.publish(copying, 1));
                }
            },
            |scene| {
                scene.read(0);
                scene.read(0);
            },
        ],
        nothing,
    );
}

/// One fills entry 0 while another evicts whatever can be evicted: no frame is lost, none is had twice.
fn a_filler_beside_an_evictor() {
    explore(
        Scene::new,
        &[
            |scene| {
                let prepared = scene.prepare(0, BLOCK).expect("free");
                assert_eq!(scene.fill(0, (prepared, 0), Frame(0)), None, "no writer");
            },
            |scene| {
                if let Some(frame) = scene.entry(0).evict() {
                    assert_eq!(frame, Frame(0));
                    scene.frames[0].write((33, 33));
                    let prepared = scene.prepare(1, OTHER_BLOCK).expect("free");
                    let entry = scene.entry(1);
                    let copying = entry.begin_copy(prepared, Some(frame)).expect("ours");
                    assert!(entry.publish(copying, 1));
                }
            },
        ],
        |scene| {
            let frames: Vec<Frame> = (0..2)
                .filter_map(|index| scene.entry(index).evict())
                .collect();
            assert_eq!(
                frames,
                [Frame(0)],
                "taken apart, each frame comes back once"
            );
        },
    );
}

/// Two threads that missed take the same entry.
fn claims_beside_claims() {
    explore(
        Scene::new,
        &[
            |scene| {
                let _ = scene.point(0);
            },
            |scene| {
                let _ = scene.point(0);
            },
        ],
        |scene| {
            let word = scene.entry(0).word();
            assert_eq!(
                (word.state(), word.version()),
                (State::Prep, 0),
                "one of them has it"
            );
        },
    );
}

/// The copy moves to an entry of a larger table, while the block is written (M1 in `file`).
fn a_move_beside_a_writer() {
    explore(
        Scene::with_copy,
        &[
            |scene| {
                let (old, new) = (scene.entry(0), scene.entry(1));
                let word = old.word();
                if word.state() != State::Ready {
                    return;
                }
                let claimed = new.claim(BLOCK).expect("free");
                let Some(prepared) = new.prepare(claimed) else {
                    return;
                };
                match old.evict_from(word) {
                    None => new.abandon(prepared),
                    Some(frame) => {
                        if let Some(copying) = new.begin_copy(prepared, Some(frame)) {
                            new.publish(copying, 1);
                        }
                    }
                }
            },
            // Looks into the old table first.
            |scene| scene.write(1, false),
        ],
        |scene| {
            for index in 0..2 {
                assert!(
                    !scene.entry(index).word().is_readable(),
                    "entry {index} is stale"
                );
            }
        },
    );
}

/// Three messages through a ring of two places.
fn a_sender_beside_a_receiver() {
    let model = loom::model::Builder::new();
    model.check(|| {
        let ring = Arc::new(Ring::new(|| AtomicU64::new(0), 2));
        let receiver = Arc::clone(&ring);
        let receiver = thread::spawn(move || {
            let mut next = 1;
            for _ in 0..3 {
                if let Some(message) = receiver.take() {
                    assert_eq!(message, [next, next + 10], "in order, and whole");
                    next += 1;
                }
            }
            next
        });
        let sent = (1..=3).take_while(|&number| ring.send([number, number + 10]));
        let sent = sent.count() as u64;
        let mut next = receiver.join().expect("it ends");
        while let Some(message) = ring.take() {
            assert_eq!(message, [next, next + 10]);
            next += 1;
        }
        assert_eq!(next, sent + 1, "none is lost");
    });
}

macro_rules! explorations {
    ($($name:ident),* $(,)?) => {
        $(
            mod $name {
                #[test]
                fn is_sound() {
                    super::$name();
                }
            }
        )*
    };
}

explorations!(
    readers_beside_readers,
    readers_beside_a_writer,
    a_holder_beside_a_writer,
    a_holder_beside_a_refill,
    a_filler_beside_another,
    a_claim_beside_another_for_another_block,
    a_late_touch_beside_a_claim,
    a_filler_beside_a_writer,
    a_pointer_beside_a_move,
    a_reader_beside_an_evictor,
    a_filler_beside_an_evictor,
    claims_beside_claims,
    a_move_beside_a_writer,
    a_sender_beside_a_receiver,
);

/// Each bug is noticed. The process has one switch, so the bugs take turns.
#[cfg(feature = "deliberate-bugs")]
#[test]
fn bites() {
    use pmem::deliberate::{Bug, set};
    let cases: [(Bug, fn()); 3] = [
        (Bug::SkipVersionCheck, a_reader_beside_an_evictor),
        (Bug::PublishBeforeCopy, a_filler_beside_a_writer),
        (Bug::ForgetInvalidation, readers_beside_a_writer),
    ];
    for (bug, exploration) in cases {
        set(Some(bug));
        let outcome = std::panic::catch_unwind(exploration);
        set(None);
        assert!(outcome.is_err(), "{bug:?} was not noticed");
    }
}
