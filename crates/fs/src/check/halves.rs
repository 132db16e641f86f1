//! The halves of journals: their records, and the checkpoint word that follows from these.

use pmem::Region;
use txn::Superblock;
use txn::places::HalfPlace;
use txn::record::{Record, RecordForm};

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
pub(super) struct Half {
    pub(super) bytes: Vec<u8>,
    pub(super) form: RecordForm,
}

impl Half {
    /// Reads the half; an empty one if it does not lie inside the region, which may be cut short.
    pub(super) fn read(region: &Region, superblock: &Superblock, place: HalfPlace) -> Half {
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

    pub(super) fn record_at(&self, position: usize) -> Option<Record> {
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
