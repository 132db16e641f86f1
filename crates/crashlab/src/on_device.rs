//! Workloads on a pool with content on a device, which fails, and which loses unflushed writes at a
//! power cut.

use crate::catalogue;
use crate::operation::Operation;
use crate::workload::pairs;
use device::faulty::Fault;
use std::fmt;

/// Faults that the device reports, and an old block, which does not fit its seal. (Data that is
/// lost silently cannot come back; the tests of `fs` cover that.)
const FAULTS: [Fault; 5] = [
    Fault::Read,
    Fault::Write,
    Fault::Wait,
    Fault::Flush,
    Fault::Stale,
];
/// Requests of each kind that succeed before the fault.
const AFTER: u32 = 3;
/// Numbers of faults.
const FAULT_COUNT: u32 = FAULTS.len() as u32 * AFTER;

/// A sequence.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum OnDevice {
    /// One operation, on a good device.
    One(u32),
    /// One operation, in which a request meets a fault.
    Failing(u32, u32),
    /// Two operations. In the second of every third pair a request meets a fault.
    Two(u32, u32),
    /// Everything is copied to the device, then comes an operation, then clean blocks are evicted.
    Around(u32),
    /// The same. In the operation, and in the eviction, a request meets a fault.
    AroundFailing(u32, u32),
}

impl OnDevice {
    /// All sequences of one operation, alone and between a copy and an eviction.
    pub fn all_short() -> impl Iterator<Item = OnDevice> {
        let count = catalogue::on_device().len() as u32;
        let each =
            (0..count).flat_map(|operation| (0..FAULT_COUNT).map(move |fault| (operation, fault)));
        let failing = each.flat_map(|(operation, fault)| {
            [
                OnDevice::Failing(operation, fault),
                OnDevice::AroundFailing(operation, fault),
            ]
        });
        let alone = (0..count)
            .flat_map(|operation| [OnDevice::One(operation), OnDevice::Around(operation)]);
        alone.chain(failing)
    }

    /// All sequences of two.
    pub fn all_pairs() -> impl Iterator<Item = OnDevice> {
        let count = catalogue::on_device().len() as u32;
        pairs(count).map(|(first, second)| OnDevice::Two(first, second))
    }

    /// Whether these are two operations.
    pub fn is_pair(self) -> bool {
        matches!(self, OnDevice::Two(..))
    }

    /// The first operation whose states no shorter sequence has.
    pub fn first_new_step(self) -> usize {
        match self {
            OnDevice::One(_) | OnDevice::Failing(..) => 0,
            OnDevice::Two(..) | OnDevice::Around(_) | OnDevice::AroundFailing(..) => 1,
        }
    }

    /// The operations.
    pub fn operations(self) -> Vec<Operation> {
        let catalogue = catalogue::on_device();
        let at = |index: u32| catalogue[index as usize].clone();
        match self {
            OnDevice::One(index) | OnDevice::Failing(index, _) => vec![at(index)],
            OnDevice::Two(first, second) => vec![at(first), at(second)],
            OnDevice::Around(index) | OnDevice::AroundFailing(index, _) => {
                vec![Operation::CopyDown, at(index), Operation::Evict]
            }
        }
    }

    /// The fault that a request of the last operation meets, after so many good ones.
    pub fn fault(self) -> Option<(Fault, u64)> {
        let fault = match self {
            OnDevice::One(_) | OnDevice::Around(_) => return None,
            OnDevice::Failing(_, fault) | OnDevice::AroundFailing(_, fault) => fault,
            OnDevice::Two(first, second) => {
                let number = first * 7 + second;
                number
                    .is_multiple_of(3)
                    .then_some(number / 3 % FAULT_COUNT)?
            }
        };
        let kind = FAULTS[(fault % FAULTS.len() as u32) as usize];
        Some((kind, u64::from(fault / FAULTS.len() as u32)))
    }

    /// A number for choices that differ between workloads.
    pub fn number(self) -> u32 {
        match self {
            OnDevice::One(index) | OnDevice::Around(index) => index,
            OnDevice::Failing(first, second)
            | OnDevice::AroundFailing(first, second)
            | OnDevice::Two(first, second) => first + second,
        }
    }

    /// Whether there is such a sequence.
    pub fn exists(self) -> bool {
        let count = catalogue::on_device().len() as u32;
        match self {
            OnDevice::One(index) | OnDevice::Around(index) => index < count,
            OnDevice::Failing(index, fault) | OnDevice::AroundFailing(index, fault) => {
                index < count && fault < FAULT_COUNT
            }
            OnDevice::Two(first, second) => first.max(second) < count,
        }
    }

    /// The sequence of this name.
    pub fn from_parts(name: &str, numbers: &[u64]) -> Option<OnDevice> {
        let small = |index: usize| u32::try_from(*numbers.get(index)?).ok();
        match (name, numbers.len()) {
            ("deviceone", 1) => Some(OnDevice::One(small(0)?)),
            ("devicefailing", 2) => Some(OnDevice::Failing(small(0)?, small(1)?)),
            ("devicearound", 1) => Some(OnDevice::Around(small(0)?)),
            ("devicearoundfailing", 2) => Some(OnDevice::AroundFailing(small(0)?, small(1)?)),
            ("devicetwo", 2) => Some(OnDevice::Two(small(0)?, small(1)?)),
            _ => None,
        }
    }
}

impl fmt::Display for OnDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnDevice::One(index) => write!(formatter, "deviceone-{index}"),
            OnDevice::Failing(index, fault) => write!(formatter, "devicefailing-{index}-{fault}"),
            OnDevice::Two(first, second) => write!(formatter, "devicetwo-{first}-{second}"),
            OnDevice::Around(index) => write!(formatter, "devicearound-{index}"),
            OnDevice::AroundFailing(index, fault) => {
                write!(formatter, "devicearoundfailing-{index}-{fault}")
            }
        }
    }
}
