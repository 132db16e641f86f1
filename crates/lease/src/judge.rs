//! What a holder's records are worth. The holder can write anything into his ring, at any moment.

use crate::positions::{Free, POSITIONS_MAX, Positions};
use crate::record::{NO_SLOT, Record, Salt};
use crate::ring::{Medium, Ring};
use crate::window::Window;
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber, crc32c};
use smallvec::SmallVec;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most records that belong together: a write of 1 MiB that begins inside a block.
pub const GROUP_RECORDS_MAX: u64 = (1 << 20) / BLOCK + 1;

/// Most records that are judged at a time, but for those that belong to the last one.
pub const RECORDS_AT_ONCE_MAX: u64 = POSITIONS_MAX as u64 - GROUP_RECORDS_MAX;

/// What the server knows of a lease when it judges.
#[derive(Debug)]
pub struct Terms<'l> {
    /// Where the records lie.
    pub ring: &'l Ring,
    /// The lease's salt.
    pub salt: Salt,
    /// Number of the first record that was not folded yet.
    pub next: u64,
    /// The spare blocks as they were after the record before; `None` where one has gone into the file.
    pub spares: &'l [Option<BlockNumber>],
    /// Size of the file then.
    pub size_bytes: u64,
    /// Largest size that the file may get.
    pub size_bytes_max: u64,
    /// Most records that are folded at a time, and no more than [`RECORDS_AT_ONCE_MAX`].
    pub records_max: u64,
}

impl Terms<'_> {
    /// Records that are judged at most, but for those that belong to the last one: no honest holder is further ahead than a round of his ring.
    fn most(&self) -> u64 {
        let most = self.records_max.min(RECORDS_AT_ONCE_MAX);
        most.min(self.ring.records())
    }
}

/// How far the newest record is to be believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trust {
    /// The holder may be writing: the newest record, and the data that shares its fence, may not be durable yet. It waits for the next time.
    AllButNewest,
    /// The holder is idle: all that he wrote is durable.
    All,
    /// The holder is dead, was stopped in the middle, or the power went: the newest record counts if its data fits.
    IfDataFits,
}

/// A record that an honest holder would not have written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The slot does not exist or has no block.
    #[error("record {sequence} exchanges spare block {slot}, which the lease does not have")]
    NoSuchSpare {
        /// Number of the record.
        sequence: u64,
        /// The slot.
        slot: u32,
    },
    /// The block is neither one of the file's nor the next one behind them.
    #[error("record {sequence} changes block {index}, which the file does not have")]
    NoSuchBlock {
        /// Number of the record.
        sequence: u64,
        /// Block of the file.
        index: u64,
    },
    /// The block lies where the holder may not go: he cannot have written there, nor known what is in it.
    #[error("record {sequence} changes block {index}, which lies outside of the holder's segments")]
    NotHolders {
        /// Number of the record.
        sequence: u64,
        /// Block of the file.
        index: u64,
    },
    /// The size shrinks, or does not end in the record's block, or is too large.
    #[error("record {sequence} gives the file the impossible size {size_bytes}")]
    Size {
        /// Number of the record.
        sequence: u64,
        /// The size.
        size_bytes: u64,
    },
    /// The data lies outside its block.
    #[error("record {sequence} has its data outside of the block")]
    Data {
        /// Number of the record.
        sequence: u64,
    },
}

/// What records do to the file and to the spare blocks, taken together.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Effects {
    /// New blocks of the file, each index once, in the order in which the records name them first.
    pub placed: Vec<(u64, BlockNumber)>,
    /// What the slots hold now, of those that changed, in ascending order.
    pub slots: Vec<(u32, Option<BlockNumber>)>,
    /// Size of the file.
    pub size_bytes: u64,
    /// Time of the last of them, nanoseconds since the epoch; `None` if there is none.
    pub modified: Option<i64>,
    /// Number of the first record that is not among them.
    pub next: u64,
    /// Why the one after them was refused, if it was not just missing.
    pub fault: Option<Fault>,
}

/// Where the blocks of the file were after the record before the first one that is judged.
pub trait Blocks<E> {
    /// Where block `index` was; `None` is a hole.
    ///
    /// # Errors
    ///
    /// The file system's.
    fn block(&mut self, index: u64) -> Result<Option<BlockNumber>, E>;

    /// Whether a block of the file lies where its holder may go.
    fn is_holders(&mut self, _block: BlockNumber) -> bool {
        true
    }

    /// Block `index`, if there is such a one, will be asked for soon.
    fn prepare(&mut self, _index: u64) {}
}

impl<E, F: FnMut(u64) -> Result<Option<BlockNumber>, E>> Blocks<E> for F {
    fn block(&mut self, index: u64) -> Result<Option<BlockNumber>, E> {
        self(index)
    }
}

/// Reads the records from `terms.next` on, up to the first one that is not there, not whole, not believable or not allowed; and adds up what they do. Records
/// that belong together count together. Nothing is changed.
///
/// # Errors
///
/// The first one of `blocks`.
pub fn judge<E>(
    medium: &impl Medium,
    terms: &Terms<'_>,
    trust: Trust,
    mut blocks: impl Blocks<E>,
) -> Result<Effects, E> {
    let end = terms.next + terms.most();
    let mut window = Window::new(medium, terms.ring, terms.salt, terms.next..end);
    let mut exchanges = Exchanges::new(terms);
    let (mut next, mut modified, mut fault) = (terms.next, None, None);
    while next < end {
        let group = window.group(|record| blocks.prepare(record.index));
        let Some((records, is_newest)) = group else {
            break;
        };
        if is_newest && trust == Trust::AllButNewest {
            break;
        }
        let size_bytes = exchanges.size_bytes;
        let must_fit = is_newest && trust == Trust::IfDataFits;
        // One record alone is refused before it has changed anything.
        exchanges.begin_group(records.len() > 1 || must_fit);
        let mut add = |record| exchanges.add(terms, record, &mut blocks);
        let is_good = match records.iter().try_for_each(&mut add) {
            Err(Stop::Lookup(error)) => return Err(error),
            Err(Stop::Fault(found)) => {
                fault = Some(found);
                false
            }
            Ok(()) => true,
        };
        let [.., last] = records else { break };
        if !is_good || (must_fit && !exchanges.have_data(medium, last)) {
            exchanges.undo_group(size_bytes);
            break;
        }
        modified = Some(last.modified);
        next += records.len() as u64;
    }
    Ok(Effects {
        slots: exchanges.changed_slots(),
        placed: exchanges.placed,
        size_bytes: exchanges.size_bytes,
        modified,
        next,
        fault,
    })
}

enum Stop<E> {
    Lookup(E),
    Fault(Fault),
}

/// What the records so far change. In flat tables: a holder writes millions of records a second.
struct Exchanges {
    placed: Vec<(u64, BlockNumber)>,
    /// Positions in `placed`, by index.
    positions: Positions,
    spares: Vec<Option<BlockNumber>>,
    /// Which slots were exchanged.
    changed: Vec<bool>,
    size_bytes: u64,
    /// Where the data of the last record is.
    data_in: Option<BlockNumber>,
    /// What the last records did that belong together, if it may have to be undone.
    group: SmallVec<[Exchange; 4]>,
    may_undo: bool,
}

/// An exchange that may have to be undone.
struct Exchange {
    slot: u32,
    position: u16,
    /// The block that went into the slot, unless it is where the file had it before.
    placed_before: Option<BlockNumber>,
}

impl Exchanges {
    fn new(terms: &Terms<'_>) -> Exchanges {
        let most = (terms.most() + GROUP_RECORDS_MAX) as usize;
        Exchanges {
            placed: Vec::with_capacity(most),
            positions: Positions::new(most),
            spares: terms.spares.to_vec(),
            changed: vec![false; terms.spares.len()],
            size_bytes: terms.size_bytes,
            data_in: None,
            group: SmallVec::new(),
            may_undo: false,
        }
    }

    /// What is added from here on belongs together.
    #[inline]
    fn begin_group(&mut self, may_undo: bool) {
        self.group.clear();
        self.may_undo = may_undo;
    }

    /// Adds what a record does, if it is allowed to.
    #[inline]
    fn add<E>(
        &mut self,
        terms: &Terms<'_>,
        record: &Record,
        blocks: &mut impl Blocks<E>,
    ) -> Result<(), Stop<E>> {
        let is_at = |position: u16| self.placed[position as usize].0 == record.index;
        let known = self.positions.find(record.index, is_at);
        let placed_before = known.map_or(None, |position| Some(self.placed[position as usize].1));
        let before = match placed_before {
            Some(block) => Some(block),
            None => blocks.block(record.index).map_err(Stop::Lookup)?,
        };
        // What the records have placed was a spare block.
        if placed_before.is_none() && before.is_some_and(|block| !blocks.is_holders(block)) {
            return Err(Stop::Fault(Fault::NotHolders {
                sequence: record.sequence,
                index: record.index,
            }));
        }
        check(terms, self.size_bytes, record, before).map_err(Stop::Fault)?;
        self.data_in = before;
        if record.slot != NO_SLOT {
            let spare = self.take_spare(record, before).map_err(Stop::Fault)?;
            self.data_in = Some(spare);
            let position = self.place(record.index, known, spare);
            if self.may_undo {
                self.group.push(Exchange {
                    slot: record.slot,
                    position,
                    placed_before,
                });
            }
        }
        self.size_bytes = record.size;
        Ok(())
    }

    /// The block of the record's slot, which gets `before`.
    #[inline]
    fn take_spare(
        &mut self,
        record: &Record,
        before: Option<BlockNumber>,
    ) -> Result<BlockNumber, Fault> {
        let slot = record.slot as usize;
        let none = Fault::NoSuchSpare {
            sequence: record.sequence,
            slot: record.slot,
        };
        let held = self.spares.get_mut(slot).ok_or(none)?;
        let spare = held.ok_or(none)?;
        *held = before;
        self.changed[slot] = true;
        Ok(spare)
    }

    /// Block `index` of the file, which is `known` or not, is `block` now.
    #[inline]
    fn place(&mut self, index: u64, known: Result<u16, Free>, block: BlockNumber) -> u16 {
        match known {
            Ok(position) => {
                self.placed[position as usize].1 = block;
                position
            }
            Err(free) => {
                let position = self.placed.len() as u16;
                self.placed.push((index, block));
                self.positions.put(free, position);
                position
            }
        }
    }

    /// Undoes what the last records did that belong together; before them the file had `size_bytes`. Nothing can be added afterwards.
    fn undo_group(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
        while let Some(exchange) = self.group.pop() {
            let placed = &mut self.placed[exchange.position as usize];
            self.spares[exchange.slot as usize] = Some(placed.1);
            match exchange.placed_before {
                Some(block) => placed.1 = block,
                // New positions are the last ones.
                None => drop(self.placed.pop()),
            }
        }
    }

    /// Whether the data that shares the last record's fence is there.
    fn have_data(&self, medium: &impl Medium, last: &Record) -> bool {
        if last.data_bytes == 0 || deliberate::is(Bug::SkipLeaseDataCheck) {
            return true;
        }
        let Some(block) = self.data_in else {
            return false;
        };
        let mut data = [0; BLOCK_BYTES];
        let data = &mut data[..last.data_bytes as usize];
        medium.read(block.offset() + u64::from(last.data_at), data);
        crc32c(data) == last.data_checksum
    }

    fn changed_slots(&self) -> Vec<(u32, Option<BlockNumber>)> {
        let slots = (0..).zip(&self.spares).zip(&self.changed);
        let changed = slots.filter(|(_, is_changed)| **is_changed);
        changed.map(|((slot, block), _)| (slot, *block)).collect()
    }
}

/// Whether an honest holder writes such a record, of a block that was `before`, for a file of `size_bytes`.
#[inline]
fn check(
    terms: &Terms<'_>,
    size_bytes: u64,
    record: &Record,
    before: Option<BlockNumber>,
) -> Result<(), Fault> {
    let Record {
        sequence, index, ..
    } = *record;
    if !record.has_possible_data() {
        return Err(Fault::Data { sequence });
    }
    let behind_end = size_bytes.div_ceil(BLOCK);
    // Without an exchange the file cannot get a block; that it grows in its last block only is looked at below.
    let is_next = record.slot != NO_SLOT && index == behind_end;
    let is_known = is_next || (index < behind_end && before.is_some());
    if !is_known && !deliberate::is(Bug::BelieveHoldersBlock) {
        return Err(Fault::NoSuchBlock { sequence, index });
    }
    let grows_in_its_block = record.size.div_ceil(BLOCK) == index + 1;
    let is_possible = record.size == size_bytes
        || (record.size > size_bytes && record.size <= terms.size_bytes_max && grows_in_its_block);
    let is_possible = is_possible || deliberate::is(Bug::BelieveHoldersSize);
    if !is_possible || (index == behind_end && record.size == size_bytes) {
        return Err(Fault::Size {
            sequence,
            size_bytes: record.size,
        });
    }
    Ok(())
}
