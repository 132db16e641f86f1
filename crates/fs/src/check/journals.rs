//! Journals: what a damaged checkpoint word was, records that nobody can apply, replay.

use super::context::Findings;
use super::header;
use super::kind::FaultKind;
use super::report::Place;
use super::single_bit;
use pmem::{LINE_BYTES, Region};
use txn::Superblock;
use txn::places::{HalfName, HalfPlace};
use txn::record::{HEADER_BYTES, Record, RecordForm};

/// Longest record in which a flipped bit is looked for: each one takes a checksum of all of it.
const MENDED_BYTES_MAX: usize = 8 << 10;

/// Number and length of the whole records that follow one another from the start of a half, numbers growing.
struct Run {
    numbers: Vec<u64>,
    /// Byte behind the last of them.
    end: usize,
}

fn run(half: &Half) -> Run {
    let mut run = Run {
        numbers: Vec::new(),
        end: 0,
    };
    while let Some(record) = half.record_at(run.end) {
        if run
            .numbers
            .last()
            .is_some_and(|&last| record.sequence <= last)
        {
            break;
        }
        run.numbers.push(record.sequence);
        run.end += record.padded_bytes();
    }
    run
}

/// What one half of a journal holds.
struct Half {
    bytes: Vec<u8>,
    form: RecordForm,
}

impl Half {
    /// Reads the half; an empty one if it does not lie inside the region, which may be cut short.
    fn read(region: &Region, superblock: &Superblock, place: HalfPlace) -> Half {
        let end = place.start.offset() + superblock.half_bytes() as u64;
        let mut bytes = Vec::new();
        if end.get() <= region.length() {
            bytes.resize(superblock.half_bytes(), 0);
            region.read(place.start.offset(), &mut bytes);
        }
        Half {
            bytes,
            form: RecordForm::of(superblock, place),
        }
    }

    fn record_at(&self, position: usize) -> Option<Record> {
        Record::parse(self.bytes.get(position..)?, &self.form)
    }
}

/// What the checkpoint word most probably was, from the journals alone.
///
/// Replaying a record that was retired is worse than not replaying a live one: the retired one may overwrite a block
/// that was freed and given to another file since (R1), which nobody would notice, while the effects of a live one are mostly in
/// place already and what is missing is found by the check that follows. So this is the *largest* number that still
/// leaves the newest records alive:
///
/// * All journals switch halves at the same moment, so the live records are in the halves on the side of the newest
///   record, and every number on the other side is retired, unless the power went in the middle of a checkpoint. (A half that was
///   retired has moved or become another use of its place since, and shows no number at all.)
/// * Numbers are used without gaps, but each journal may have lost its last record: counting down from the newest, more
///   gaps than journals mean that the rest is left over from before the half was last reused.
///
/// It depends on nothing but the journals, and replaying them twice is the same as once, so a repair that is interrupted and
/// started again comes to the same result.
pub(super) fn derive_checkpoint(
    region: &Region,
    superblock: &Superblock,
    halves: &[Option<HalfPlace>],
) -> u64 {
    let mut sides = [Vec::new(), Vec::new()];
    for (index, place) in halves.iter().enumerate() {
        if let Some(place) = place {
            sides[index % 2].extend(run(&Half::read(region, superblock, *place)).numbers);
        }
    }
    let newest = |side: &[u64]| side.iter().copied().max().unwrap_or(0);
    let (first, second) = (newest(&sides[0]), newest(&sides[1]));
    let [left, right] = sides;
    let (mut live, retired) = if first >= second {
        (left, second)
    } else {
        (right, first)
    };
    live.retain(|&number| number > retired);
    live.sort_unstable_by(|a, b| b.cmp(a));
    let (mut lowest, mut gaps) = (first.max(second) + 1, 0);
    for number in live {
        gaps += (lowest - 1).saturating_sub(number);
        if gaps > u64::from(superblock.journals) {
            break;
        }
        lowest = number;
    }
    lowest - 1
}

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
