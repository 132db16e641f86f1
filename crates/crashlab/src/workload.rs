//! Sequences of operations, by name: a failing state's id begins with this name.

use crate::catalogue;
use crate::disk::sequence::Sequence;
use crate::on_device::OnDevice;
use crate::operation::Operation;
use crate::random::Random;
use device::faulty::Fault;
use std::fmt;
use std::str::FromStr;
use txn::FormatOptions;

/// Which pool a workload runs on.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pool {
    /// 1 MiB: a crash state costs microseconds.
    Tiny,
    /// The same with two journals.
    TwoJournals,
    /// 6 MiB: room for writes of 1 MiB.
    Large,
    /// Tiny, with a device, on which all content lies.
    OnDevice,
}

/// Blocks of the device.
pub const DEVICE_BLOCKS: u32 = 40;

impl Pool {
    /// How the pool is made.
    pub fn options(self) -> FormatOptions {
        match self {
            Pool::Tiny => FormatOptions::tiny(),
            Pool::TwoJournals => FormatOptions {
                journals: 2,
                ..FormatOptions::tiny()
            },
            Pool::Large => FormatOptions {
                size_bytes: 6 << 20,
                ..FormatOptions::tiny()
            },
            Pool::OnDevice => FormatOptions {
                device_blocks: DEVICE_BLOCKS,
                ..FormatOptions::tiny()
            },
        }
    }
}

/// A sequence of operations on the start tree. The name is the sequence: it is the same in every run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Workload {
    /// One operation of the catalogue.
    One(u32),
    /// Two of them.
    Two(u32, u32),
    /// Two operations on the content of files, through one journal each, as two threads do them.
    Across(u32, u32),
    /// Operations with large writes, all of them up to this one.
    Large(u32),
    /// Two operations after a process has leased one of the [files](catalogue::leases).
    Leased(u32, u32, u32),
    /// 20 to 60 operations by chance.
    Long(u64),
    /// The same while a process leases files and writes them by itself, half of the time.
    LongLeased(u64),
    /// The same through two journals while a process has segments, in which it changes what it likes.
    LongMapped(u64),
    /// On a pool of class `log`.
    Disk(Sequence),
    /// On a pool with a device.
    OnDevice(OnDevice),
}

/// Long workloads of each seed.
pub const LONGS: usize = 5;

impl Workload {
    /// Every workload of one or two operations, and the large ones: short ones first.
    pub fn all_short() -> Vec<Workload> {
        let count = catalogue::operations().len() as u32;
        let large = catalogue::large_operations().len() as u32;
        let contents = catalogue::contents().len() as u32;
        let leases = catalogue::leases().len() as u32;
        let leased = catalogue::leased().len() as u32;
        let ones = (0..count).map(Workload::One);
        ones.chain((0..large).map(Workload::Large))
            .chain(Sequence::all_short().map(Workload::Disk))
            .chain(OnDevice::all_short().map(Workload::OnDevice))
            .chain(pairs(contents).map(|(first, second)| Workload::Across(first, second)))
            .chain((0..leases).flat_map(|lease| {
                pairs(leased).map(move |(first, second)| Workload::Leased(lease, first, second))
            }))
            .chain(pairs(count).map(|(first, second)| Workload::Two(first, second)))
            .chain(Sequence::all_pairs().map(Workload::Disk))
            .chain(OnDevice::all_pairs().map(Workload::OnDevice))
            .collect()
    }

    /// Whether these are two operations of a catalogue, of which there are many thousands.
    pub fn is_pair(self) -> bool {
        match self {
            Workload::Two(..) | Workload::Across(..) | Workload::Leased(..) => true,
            Workload::Disk(sequence) => sequence.is_pair(),
            Workload::OnDevice(sequence) => sequence.is_pair(),
            _ => false,
        }
    }

    /// The long ones of a seed.
    pub fn all_long(seed: u64) -> [Workload; LONGS] {
        [
            Workload::Disk(Sequence::Long(2 * seed)),
            Workload::Disk(Sequence::Long(2 * seed + 1)),
            Workload::Long(seed),
            Workload::LongLeased(seed),
            Workload::LongMapped(seed),
        ]
    }

    /// The operations.
    pub fn operations(self) -> Vec<Operation> {
        let catalogue = catalogue::operations();
        let at = |index: u32| catalogue[index as usize].clone();
        match self {
            Workload::One(index) => vec![at(index)],
            Workload::Two(first, second) => vec![at(first), at(second)],
            Workload::Across(first, second) => {
                let contents = catalogue::contents();
                vec![
                    contents[first as usize].clone(),
                    Operation::UseJournal { index: 1 },
                    contents[second as usize].clone(),
                ]
            }
            Workload::Large(last) => catalogue::large_operations()[..=last as usize].to_vec(),
            Workload::Leased(lease, first, second) => {
                let leased = catalogue::leased();
                vec![
                    catalogue::leases()[lease as usize].clone(),
                    leased[first as usize].clone(),
                    leased[second as usize].clone(),
                ]
            }
            Workload::Long(seed) => {
                let mut random = Random::new(seed);
                let length = 20 + random.below(41);
                (0..length)
                    .map(|_| catalogue::random_operation(&mut random))
                    .collect()
            }
            Workload::LongLeased(seed) => {
                let mut random = Random::new(seed);
                let length = 20 + random.below(41);
                (0..length)
                    .map(|_| match random.below(2) {
                        0 => catalogue::random_operation(&mut random),
                        _ => catalogue::random_leased(&mut random),
                    })
                    .collect()
            }
            Workload::LongMapped(seed) => {
                let mut random = Random::new(seed);
                let length = 20 + random.below(41);
                (0..length)
                    .map(|_| match random.below(4) {
                        0 => catalogue::random_mapped(&mut random),
                        _ => catalogue::random_operation(&mut random),
                    })
                    .collect()
            }
            // Not only of operations.
            Workload::Disk(_) => Vec::new(),
            Workload::OnDevice(sequence) => sequence.operations(),
        }
    }

    /// Returns the steps, a line for each.
    pub fn lines(self) -> Vec<String> {
        match self {
            Workload::Disk(sequence) => sequence.steps().iter().map(ToString::to_string).collect(),
            other => other.operations().iter().map(ToString::to_string).collect(),
        }
    }

    /// Steps before this one were looked at as the last step of a shorter workload.
    pub fn first_new_step(self) -> usize {
        match self {
            Workload::One(_)
            | Workload::Long(_)
            | Workload::LongLeased(_)
            | Workload::LongMapped(_)
            | Workload::Disk(_) => 0,
            Workload::OnDevice(sequence) => sequence.first_new_step(),
            // The lease itself is looked at once, and its next use once.
            Workload::Leased(_, 0, 0) => 0,
            Workload::Leased(_, _, 0) => 1,
            Workload::Two(..) => 1,
            Workload::Leased(..) => 2,
            Workload::Across(..) => 2,
            Workload::Large(last) => last as usize,
        }
    }

    /// How often the clock is looked at between two of its ticks. In half of the sequences the operations fall into one.
    pub fn calls_per_tick(self) -> u32 {
        const NEVER: u32 = 1 << 20;
        match self {
            Workload::One(_) | Workload::Large(_) => 1,
            Workload::Two(first, second) | Workload::Across(first, second) => {
                [1, NEVER][(first + second) as usize % 2]
            }
            Workload::Leased(_, first, second) => [1, NEVER][(first + second) as usize % 2],
            Workload::Long(seed) | Workload::LongLeased(seed) | Workload::LongMapped(seed) => {
                [1, 5][seed as usize % 2]
            }
            Workload::Disk(sequence) => [1, NEVER][sequence.number() as usize % 2],
            Workload::OnDevice(sequence) => [1, NEVER][sequence.number() as usize % 2],
        }
    }

    /// After how many changes in place a block moves: in half of the sequences after each, or each second, else hardly ever.
    pub fn roam_after(self) -> u32 {
        const NEVER: u32 = 1 << 20;
        match self {
            Workload::One(_) => 1,
            Workload::Large(_) => NEVER,
            Workload::Two(first, second) | Workload::Across(first, second) => {
                [NEVER, 1][(first / 2 + second) as usize % 2]
            }
            Workload::Leased(_, first, second) => [NEVER, 1][(first / 2 + second) as usize % 2],
            Workload::Long(seed) | Workload::LongLeased(seed) | Workload::LongMapped(seed) => {
                [2, NEVER][(seed / 2) as usize % 2]
            }
            Workload::Disk(sequence) => [NEVER, 1][(sequence.number() / 2) as usize % 2],
            Workload::OnDevice(sequence) => [NEVER, 1][(sequence.number() / 2) as usize % 2],
        }
    }

    /// The fault that a request to the device meets in the last step, behind so many good ones.
    pub fn fault(self) -> Option<(Fault, u64)> {
        match self {
            Workload::OnDevice(sequence) => sequence.fault(),
            _ => None,
        }
    }

    /// Whether what is read is copied to DRAM, until it changes: in the long sequences, where what is changed has been read before.
    pub fn has_read_cache(self) -> bool {
        matches!(
            self,
            Workload::Long(_)
                | Workload::LongLeased(_)
                | Workload::LongMapped(_)
                | Workload::OnDevice(OnDevice::Failing(..) | OnDevice::AroundFailing(..))
        )
    }

    /// The pool that it runs on.
    pub fn pool(self) -> Pool {
        match self {
            Workload::Large(_) => Pool::Large,
            Workload::Across(..) | Workload::LongMapped(_) => Pool::TwoJournals,
            Workload::OnDevice(_) => Pool::OnDevice,
            _ => Pool::Tiny,
        }
    }

    fn exists(self) -> bool {
        let count = catalogue::operations().len() as u32;
        match self {
            Workload::One(index) => index < count,
            Workload::Two(first, second) => first < count && second < count,
            Workload::Across(first, second) => {
                first.max(second) < catalogue::contents().len() as u32
            }
            Workload::Large(last) => last < catalogue::large_operations().len() as u32,
            Workload::Leased(lease, first, second) => {
                lease < catalogue::leases().len() as u32
                    && first.max(second) < catalogue::leased().len() as u32
            }
            Workload::Long(_) | Workload::LongLeased(_) | Workload::LongMapped(_) => true,
            Workload::Disk(sequence) => sequence.exists(),
            Workload::OnDevice(sequence) => sequence.exists(),
        }
    }
}

pub(crate) fn pairs(count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..count).flat_map(move |first| (0..count).map(move |second| (first, second)))
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::One(index) => write!(formatter, "one-{index}"),
            Workload::Two(first, second) => write!(formatter, "two-{first}-{second}"),
            Workload::Across(first, second) => write!(formatter, "across-{first}-{second}"),
            Workload::Large(last) => write!(formatter, "large-{last}"),
            Workload::Leased(lease, first, second) => {
                write!(formatter, "leased-{lease}-{first}-{second}")
            }
            Workload::Long(seed) => write!(formatter, "long-{seed}"),
            Workload::LongLeased(seed) => write!(formatter, "longleased-{seed}"),
            Workload::LongMapped(seed) => write!(formatter, "longmapped-{seed}"),
            Workload::Disk(sequence) => write!(formatter, "{sequence}"),
            Workload::OnDevice(sequence) => write!(formatter, "{sequence}"),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let refused = || {
            format!(
                "{text} is no workload; expected one-N, two-N-M, across-N-M, large-N, leased-N-M-L, long-SEED, longleased-SEED, longmapped-SEED, diskone-V-N, disktwo-V-N-M, diskbeside-N-M, disklong-SEED, deviceone-N, devicefailing-N-F or devicetwo-N-M"
            )
        };
        let parts: Vec<&str> = text.split('-').collect();
        let number = |index: usize| {
            parts
                .get(index)
                .and_then(|part| part.parse::<u64>().ok())
                .ok_or_else(refused)
        };
        let small =
            |index: usize| number(index).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let workload = match (parts[0], parts.len()) {
            ("one", 2) => Workload::One(small(1)?),
            ("two", 3) => Workload::Two(small(1)?, small(2)?),
            ("across", 3) => Workload::Across(small(1)?, small(2)?),
            ("large", 2) => Workload::Large(small(1)?),
            ("leased", 4) => Workload::Leased(small(1)?, small(2)?, small(3)?),
            ("long", 2) => Workload::Long(number(1)?),
            ("longleased", 2) => Workload::LongLeased(number(1)?),
            ("longmapped", 2) => Workload::LongMapped(number(1)?),
            (name, count) => {
                let numbers = (1..count).map(number).collect::<Result<Vec<_>, _>>()?;
                let on_disk = Sequence::from_parts(name, &numbers).map(Workload::Disk);
                let on_device = || OnDevice::from_parts(name, &numbers).map(Workload::OnDevice);
                on_disk.or_else(on_device).ok_or_else(refused)?
            }
        };
        if workload.exists() {
            Ok(workload)
        } else {
            Err(format!("{text}: there is no such operation"))
        }
    }
}
