//! Sequences of calls, syncs, checkpoints of the image, kills and power cuts on a pool of class
//! `log`, by name.

use crate::catalogue;
use crate::operation::Operation;
use crate::random::Random;
use std::fmt;
use std::time::Duration;
use txn::Durability;
use txn::checksum::mix64;

/// A step of a sequence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// A call.
    Call(Operation),
    /// `fsync`: every call before it is durable then.
    Sync,
    /// The same, and the call runs in another thread when the batch has its records and not the
    /// data that they publish.
    SyncBeside(Operation),
    /// The image catches up, and the log is trimmed.
    SaveImage,
    /// A clean unmount and a mount.
    Reopen,
    /// The server is killed; the next one has its memory.
    Kill,
    /// The power is cut in or after the step before; the number chooses the moment and the sectors
    /// that survive.
    CutPower(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(operation) => write!(formatter, "{operation}"),
            other => write!(formatter, "{other:?}"),
        }
    }
}

/// Policy, and where the image is saved among the calls.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Variant(pub u32);

/// Number of variants: four of policy `call`, and five of policy `fsync`.
pub const VARIANTS: u32 = 9;

impl Variant {
    /// When calls are durable.
    pub fn durability(self) -> Durability {
        match self.0 / 4 {
            0 => Durability::Call,
            // No thread writes batches here, so nothing is durable before a sync.
            _ => Durability::Fsync(Duration::from_secs(60)),
        }
    }

    /// Calls with syncs and saves between them.
    fn steps(self, first: Operation, second: Option<Operation>) -> Vec<Step> {
        use Step::{Reopen, SaveImage, Sync};
        let cut = Step::Call(Operation::Checkpoint);
        let cuts = [cut.clone(), cut.clone(), Sync];
        let cut = [cut];
        let calls = [Some(first), second].map(|call| call.map(Step::Call));
        let [first, second] = calls.map(|call| call.into_iter().collect::<Vec<_>>());
        let parts: [&[Step]; 5] = match self.0 {
            0 => [&[], &first, &[], &second, &[]],
            1 => [&[SaveImage], &first, &[], &second, &[SaveImage]],
            2 => [&[], &first, &[SaveImage], &second, &[SaveImage]],
            3 => [&[], &first, &[], &second, &[SaveImage, Reopen]],
            4 => [&[], &first, &[], &second, &[Sync]],
            5 => [&[], &first, &[Sync], &second, &[SaveImage, Sync]],
            6 => [&[], &first, &[SaveImage], &second, &[Sync, SaveImage]],
            7 => [&[Sync], &first, &[Sync, SaveImage], &second, &[Reopen]],
            // Journals are cut whose records the log does not have.
            _ => [&[], &first, &cut, &second, &cuts],
        };
        parts.concat()
    }
}

/// A sequence on the start tree. The name is the sequence: it is the same in every run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Sequence {
    /// One call of the catalogue.
    One(Variant, u32),
    /// Two of them.
    Two(Variant, u32, u32),
    /// A call on the content of a file, and another one while the first one's batch is made.
    Beside(u32, u32),
    /// 20 to 50 calls by chance, with reopens, kills and power cuts.
    Long(u64),
}

/// Calls after which a long sequence syncs and saves: the ring is small.
const CALLS_BETWEEN_SAVES: u32 = 3;

impl Sequence {
    /// Every sequence of one call, and those of two calls beside each other.
    pub fn all_short() -> impl Iterator<Item = Sequence> {
        let count = catalogue::operations().len() as u32;
        let variants = (0..VARIANTS).map(Variant);
        variants.flat_map(move |variant| (0..count).map(move |call| Sequence::One(variant, call)))
    }

    /// Every sequence of two calls under both policies, each with the image saved at another place.
    pub fn all_pairs() -> impl Iterator<Item = Sequence> {
        let count = catalogue::operations().len() as u32;
        let contents = catalogue::contents().len() as u32;
        let two = crate::workload::pairs(count).flat_map(|(first, second)| {
            let hash = mix64(u64::from(first) << 32 | u64::from(second)) as u32;
            [hash % 4, 4 + hash % 5].map(|variant| Sequence::Two(Variant(variant), first, second))
        });
        let beside =
            crate::workload::pairs(contents).map(|(first, second)| Sequence::Beside(first, second));
        two.chain(beside)
    }

    /// Whether it is one of many thousands.
    pub fn is_pair(self) -> bool {
        matches!(self, Sequence::Two(..) | Sequence::Beside(..))
    }

    /// Whether all of its numbers lead somewhere.
    pub fn exists(self) -> bool {
        let count = catalogue::operations().len() as u32;
        match self {
            Sequence::One(variant, call) => variant.0 < VARIANTS && call < count,
            Sequence::Two(variant, first, second) => {
                variant.0 < VARIANTS && first.max(second) < count
            }
            Sequence::Beside(first, second) => {
                first.max(second) < catalogue::contents().len() as u32
            }
            Sequence::Long(_) => true,
        }
    }

    /// When calls are durable.
    pub fn durability(self) -> Durability {
        match self {
            Sequence::One(variant, _) | Sequence::Two(variant, ..) => variant.durability(),
            Sequence::Beside(..) => Variant(4).durability(),
            Sequence::Long(seed) => Variant(seed as u32 % 2 * 4).durability(),
        }
    }

    /// A number for the other differences between sequences.
    pub fn number(self) -> u64 {
        match self {
            Sequence::One(variant, call) => u64::from(variant.0 + call),
            Sequence::Two(variant, first, second) => u64::from(variant.0 + first / 2 + second),
            Sequence::Beside(first, second) => u64::from(first / 2 + second),
            Sequence::Long(seed) => seed / 2,
        }
    }

    /// Returns the steps of the sequence.
    pub fn steps(self) -> Vec<Step> {
        let call = |index: u32| catalogue::operations()[index as usize].clone();
        let steps = match self {
            Sequence::One(variant, only) => variant.steps(call(only), None),
            Sequence::Two(variant, first, second) => variant.steps(call(first), Some(call(second))),
            Sequence::Beside(first, second) => {
                let contents = catalogue::contents();
                vec![
                    Step::Call(contents[first as usize].clone()),
                    Step::SyncBeside(contents[second as usize].clone()),
                    Step::Sync,
                ]
            }
            Sequence::Long(seed) => long(seed),
        };
        let as_step = |step| match step {
            Step::Call(Operation::Remount) => Step::Reopen,
            other => other,
        };
        steps.into_iter().map(as_step).collect()
    }
}

fn long(seed: u64) -> Vec<Step> {
    let mut random = Random::new(mix64(seed ^ 0x10_6f));
    let (mut steps, mut calls) = (Vec::new(), 0);
    for _ in 0..20 + random.below(31) {
        let step = match random.below(20) {
            0 => Step::Kill,
            1 | 2 => Step::CutPower(random.next_number()),
            3 => Step::Reopen,
            4 => Step::Sync,
            5 => Step::SaveImage,
            6 => Step::Call(Operation::UseJournal {
                index: random.below(2) as usize,
            }),
            _ => Step::Call(catalogue::random_operation(&mut random)),
        };
        calls += u32::from(matches!(step, Step::Call(_)));
        steps.push(step);
        if calls == CALLS_BETWEEN_SAVES {
            calls = 0;
            steps.extend([Step::Sync, Step::SaveImage]);
        }
    }
    steps
}

impl fmt::Display for Sequence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sequence::One(variant, call) => write!(formatter, "diskone-{}-{call}", variant.0),
            Sequence::Two(variant, first, second) => {
                write!(formatter, "disktwo-{}-{first}-{second}", variant.0)
            }
            Sequence::Beside(first, second) => write!(formatter, "diskbeside-{first}-{second}"),
            Sequence::Long(seed) => write!(formatter, "disklong-{seed}"),
        }
    }
}

impl Sequence {
    /// The sequence of this name, in parts.
    pub fn from_parts(name: &str, numbers: &[u64]) -> Option<Sequence> {
        let small = |index: usize| u32::try_from(numbers[index]).ok();
        let sequence = match (name, numbers.len()) {
            ("diskone", 2) => Sequence::One(Variant(small(0)?), small(1)?),
            ("disktwo", 3) => Sequence::Two(Variant(small(0)?), small(1)?, small(2)?),
            ("diskbeside", 2) => Sequence::Beside(small(0)?, small(1)?),
            ("disklong", 1) => Sequence::Long(numbers[0]),
            _ => return None,
        };
        Some(sequence)
    }
}
