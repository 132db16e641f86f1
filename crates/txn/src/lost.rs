//! Whole records behind a damaged one.
//!
//! A crash leaves the last record of a half torn, and nothing behind it. So a whole record with a
//! larger number behind one that is not whole proves that the medium has changed what was durable.
//! The newest record of a half has no such witness: its damage looks like a torn write.

use crate::error::OpenError;
use crate::layout::Superblock;
use crate::places::{HalfName, HalfPlace};
use crate::pool::Mode;
use crate::record::{HEADER_BYTES, Record, RecordForm};
use crate::recovery;
use pmem::deliberate::{self, Bug};
use pmem::{LINE_BYTES, Region};
use std::fmt;
use std::path::Path;

/// How often the bytes of a half are read, at most, in search of records: lengths in it may be any.
const READS_MAX: usize = 16;

/// How a pool is opened for writing if durable records cannot be applied.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Damage {
    /// Refuses; nothing is written.
    #[default]
    Refuse,
    /// Drops the records, and [`lost_records`](crate::PoolState::lost_records) says so.
    Drop,
}

/// Whole records of one half that a damaged record keeps from being applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LostRecords {
    /// The half.
    pub name: HalfName,
    /// Byte of the half at which the damaged record starts.
    pub damaged_at: usize,
    /// Number of the first whole record behind it.
    pub first: u64,
    /// Whole records behind it.
    pub records: u64,
}

impl fmt::Display for LostRecords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "journal {} has a damaged record before {} whole ones, from number {} on",
            self.name.journal, self.records, self.first
        )
    }
}

/// Records that opening the pool will drop; an error if that is not wanted. Nothing is written.
pub(crate) fn before_opening(
    pool: &Path,
    region: &Region,
    superblock: &Superblock,
    mode: Mode,
    damage: Damage,
) -> Result<Vec<LostRecords>, OpenError> {
    let lost = recovery::lost_records(region, superblock)?;
    match lost.first() {
        Some(&first) if mode == Mode::ReadWrite && damage == Damage::Refuse => {
            Err(OpenError::RecordsLost {
                path: pool.to_path_buf(),
                first,
            })
        }
        _ => {
            for lost in &lost {
                tracing::error!(%lost, "records dropped");
            }
            Ok(lost)
        }
    }
}

/// Finds the records of the halves at `places` that a damaged one hides.
pub fn lost_records(
    region: &Region,
    superblock: &Superblock,
    places: &[Option<HalfPlace>],
    checkpoint: u64,
) -> Vec<LostRecords> {
    if deliberate::is(Bug::DropDamagedRecords) {
        return Vec::new();
    }
    let mut half = vec![0; superblock.half_bytes()];
    let names = HalfName::all(superblock.journals).zip(places);
    let lost = names.filter_map(|(name, place)| {
        let place = (*place)?;
        if (place.start.offset() + superblock.half_bytes() as u64).get() > region.length() {
            return None;
        }
        region.read(place.start.offset(), &mut half);
        lost_of_half(&half, &RecordForm::of(superblock, place), name, checkpoint)
    });
    lost.collect()
}

fn lost_of_half(
    half: &[u8],
    form: &RecordForm,
    name: HalfName,
    checkpoint: u64,
) -> Option<LostRecords> {
    let mut newest = checkpoint;
    let mut damaged_at = 0;
    while let Some(record) = half
        .get(damaged_at..)
        .and_then(|rest| Record::parse(rest, form))
    {
        // A half is all older than the checkpoint or all newer.
        if record.sequence <= checkpoint {
            return None;
        }
        if record.sequence <= newest {
            break;
        }
        newest = record.sequence;
        damaged_at += record.padded_bytes();
    }
    let mut lost: Option<LostRecords> = None;
    let mut budget_bytes = READS_MAX * half.len();
    let mut at = damaged_at;
    while let Some(rest) = half.get(at..).filter(|rest| rest.len() >= HEADER_BYTES) {
        let claimed = claimed_bytes(rest);
        budget_bytes = budget_bytes.saturating_sub(claimed);
        if budget_bytes == 0 {
            break;
        }
        match Record::parse(rest, form).filter(|record| record.sequence > newest) {
            Some(record) => {
                newest = record.sequence;
                at += record.padded_bytes();
                let first = record.sequence;
                let lost = lost.get_or_insert(LostRecords {
                    name,
                    damaged_at,
                    first,
                    records: 0,
                });
                lost.records += 1;
            }
            None => at += LINE_BYTES,
        }
    }
    lost
}

/// Bytes that are read to judge whether a record starts here.
fn claimed_bytes(rest: &[u8]) -> usize {
    let length = rest[8..12].first_chunk().copied().map(u32::from_le_bytes);
    let length = length.map_or(0, |length| length as usize);
    if length <= rest.len() { length } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FormatOptions;
    use crate::homes::Homes;
    use crate::record::RecordBuilder;

    const RECORDS: u64 = 20;

    /// The first half of a journal with records 1 to 20, each of one line.
    fn scene() -> (Region, Superblock, Vec<Option<HalfPlace>>) {
        let options = FormatOptions::tiny();
        let superblock = options.superblock().expect("sound options");
        let start = superblock.geometry().first_block();
        let place = HalfPlace {
            start,
            generation: 3,
        };
        let region = Region::anonymous(options.size_bytes);
        let mut at = start.offset();
        for number in 1..=RECORDS {
            let mut record = RecordBuilder::new();
            record.store_word(start.offset(), number);
            record.close(&Homes::default());
            let bytes = record.finish(number, place.salt(superblock.journal_key));
            region.store(at, bytes).leave_to_checkpoint();
            at = at + bytes.len() as u64;
        }
        (region, superblock, vec![Some(place)])
    }

    fn damage(region: &Region, place: HalfPlace, record: u64) {
        let at = place.start.offset() + (record - 1) * LINE_BYTES as u64 + 24;
        let word = region.load_u64(at);
        region.store_u64(at, word ^ 0xff).leave_to_checkpoint();
    }

    #[test]
    fn every_damaged_record_but_the_newest_is_found() {
        for damaged in 1..=RECORDS {
            let (region, superblock, places) = scene();
            damage(&region, places[0].expect("a place"), damaged);
            let lost = lost_records(&region, &superblock, &places, 0);
            let wanted = (damaged < RECORDS).then(|| (damaged + 1, RECORDS - damaged));
            let found = lost.first().map(|lost| (lost.first, lost.records));
            assert_eq!(found, wanted, "record {damaged}");
        }
    }

    #[test]
    fn nothing_is_lost_of_a_sound_journal_nor_of_a_retired_one() {
        let (region, superblock, places) = scene();
        for checkpoint in 0..=RECORDS {
            assert_eq!(lost_records(&region, &superblock, &places, checkpoint), []);
        }
        damage(&region, places[0].expect("a place"), 7);
        assert_eq!(lost_records(&region, &superblock, &places, RECORDS), []);
    }

    #[test]
    fn lengths_that_are_made_up_do_not_hold_the_search_up() {
        let (region, superblock, places) = scene();
        let start = places[0].expect("a place").start.offset();
        // Every line says that a record starts there and fills all that follows.
        let half = superblock.half_bytes() as u64;
        for line in (0..half).step_by(LINE_BYTES) {
            let length = half - line;
            region
                .store_u64(start + line, 1_000 + line)
                .leave_to_checkpoint();
            region
                .store_u64(start + line + 8, length)
                .leave_to_checkpoint();
        }
        assert_eq!(lost_records(&region, &superblock, &places, 0), []);
    }
}
