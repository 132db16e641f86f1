//! Journals: records that cannot be applied, and records that were not replayed.

use super::context::Findings;
use super::halves::Half;
use super::header;
use super::kind::FaultKind;
use super::report::Place;
use super::single_bit;
use pmem::{LINE_BYTES, Region};
use txn::Superblock;
use txn::places::{HalfName, HalfPlace};
use txn::record::{HEADER_BYTES, Record};

/// Longest record in which a flipped bit is looked for: each one takes a checksum of all of it.
const MENDED_BYTES_MAX: usize = 8 << 10;

/// Reports whole records that follow a broken one: a crash leaves only the last record of a half broken.
/// A single flipped bit is set right in place. Whether records are left that cannot be applied.
pub(super) fn check_records(
    region: &Region,
    superblock: &Superblock,
    state: &header::State,
    findings: &mut Findings,
) -> bool {
    // Each round mends a record or is the last one; a half has room for so many.
    for _ in 0..superblock.half_bytes() / LINE_BYTES * state.halves.len() {
        let (mut is_mended, mut is_lost) = (false, false);
        for lost in txn::lost_records(region, superblock, &state.halves, state.checkpoint) {
            let place = Place::Journal(lost.name.journal);
            let half = HalfName::all(superblock.journals).position(|name| name == lost.name);
            let half = half.and_then(|index| state.halves[index]);
            let is_corrected =
                half.is_some_and(|half| mend(region, superblock, half, lost.damaged_at));
            is_mended |= is_corrected;
            is_lost |= !is_corrected;
            let detail = match is_corrected {
                true => format!("one bit is flipped; {} records follow", lost.records),
                false => lost.to_string(),
            };
            findings.fault(place, FaultKind::RecordsLost, detail);
        }
        if !is_mended {
            return is_lost;
        }
    }
    false
}

/// Sets right a single flipped bit of the record at byte `at` of a half. Whether there was one.
fn mend(region: &Region, superblock: &Superblock, place: HalfPlace, at: usize) -> bool {
    let half = Half::read(region, superblock, place);
    let Some(bytes) = half.bytes.get(at..) else {
        return false;
    };
    // The length may be what is damaged: then the record is short.
    let length = bytes[8..12]
        .first_chunk()
        .copied()
        .map_or(0, u32::from_le_bytes);
    let reach = match length as usize {
        length if length <= MENDED_BYTES_MAX => length.max(LINE_BYTES),
        _ => HEADER_BYTES,
    };
    let reach = reach.min(bytes.len());
    let mut bytes = bytes.to_vec();
    let is_whole = |bytes: &[u8]| Record::parse(bytes, &half.form).is_some();
    if !single_bit::correct(&mut bytes, reach * 8, is_whole) {
        return false;
    }
    let start = place.start.offset() + at as u64;
    region.fence(region.store(start, &bytes[..reach]).flush());
    true
}

/// Reports live records. After replay there are none.
pub(super) fn check_replayed(
    region: &Region,
    superblock: &Superblock,
    state: &header::State,
    findings: &mut Findings,
) {
    for (name, half) in known_halves(region, superblock, state) {
        let first = half.record_at(0);
        if let Some(record) = first.filter(|record| record.sequence > state.checkpoint) {
            let detail = format!("from record {} on", record.sequence);
            findings.fault(
                Place::Journal(name.journal),
                FaultKind::RecordsNotReplayed,
                detail,
            );
        }
    }
}

/// The halves whose place is known, read one after the other.
fn known_halves(
    region: &Region,
    superblock: &Superblock,
    state: &header::State,
) -> impl Iterator<Item = (HalfName, Half)> {
    HalfName::all(superblock.journals)
        .zip(&state.halves)
        .filter_map(move |(name, place)| Some((name, Half::read(region, superblock, (*place)?))))
}
