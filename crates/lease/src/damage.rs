//! Records of a ring that the medium has changed.
//!
//! The last record of a write is stored when all before it are durable. So a whole one that ends a
//! write, behind a record that is not whole, proves that the latter was durable once. A write that
//! the power or a killed holder has torn has no such witness.

use crate::record::{RECORD_BYTES, Record, Salt};
use crate::ring::{Medium, Ring};
use pmem::deliberate::{self, Bug};
use zerocopy::IntoBytes;

/// A record that is damaged, with those behind it that do not count therefore.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gap {
    /// Number of the damaged record.
    pub damaged: u64,
    /// Whole records behind it.
    pub records: u64,
}

impl std::fmt::Display for Gap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Gap { damaged, records } = self;
        write!(
            formatter,
            "record {damaged} of its direct writes is damaged, and {records} whole ones follow"
        )
    }
}

/// Damage of a ring at rest.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inspection {
    /// Records that are whole again with one bit flipped back.
    pub corrected: Vec<Record>,
    /// The first damage that stays.
    pub gap: Option<Gap>,
}

/// Looks for damage among the records from number `next` on. Nobody writes the ring meanwhile.
pub fn inspect(medium: &impl Medium, ring: &Ring, salt: Salt, next: u64) -> Inspection {
    let end = next + ring.records();
    let mut inspection = Inspection::default();
    for number in next..end {
        let mut record = ring.load(medium, number);
        if record.is_whole(number, salt) {
            continue;
        }
        if correct(&mut record, number, salt) {
            inspection.corrected.push(record);
            continue;
        }
        inspection.gap = gap(medium, ring, salt, number..end);
        break;
    }
    inspection
}

/// Flips one bit, so that the record is whole. Also right for one that the power has torn: with all
/// its words it would have counted.
fn correct(record: &mut Record, number: u64, salt: Salt) -> bool {
    (0..RECORD_BYTES * 8).any(|bit| {
        let mask = 1 << (bit % 8);
        record.as_mut_bytes()[bit / 8] ^= mask;
        let is_whole = record.is_whole(number, salt);
        if !is_whole {
            record.as_mut_bytes()[bit / 8] ^= mask;
        }
        is_whole
    })
}

/// The first of `numbers` is not whole. Damaged, if a later one ends a write.
fn gap(
    medium: &impl Medium,
    ring: &Ring,
    salt: Salt,
    numbers: std::ops::Range<u64>,
) -> Option<Gap> {
    let damaged = numbers.start;
    let (mut records, mut has_end) = (0, false);
    if deliberate::is(Bug::DropDamagedRecords) {
        return None;
    }
    for number in damaged + 1..numbers.end {
        let record = ring.load(medium, number);
        if record.is_whole(number, salt) {
            records += 1;
            has_end |= record.continues == 0;
        }
    }
    has_end.then_some(Gap { damaged, records })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::NO_SLOT;
    use pmem::{BlockNumber, Region};

    const SALT: Salt = Salt(5);
    const FIRST: u64 = 1000;

    /// A ring of two blocks with records from number 1000 on; some belong together with the next.
    fn scene(count: u64, continue_: &[u64]) -> (Region, Ring) {
        let region = Region::anonymous(1 << 20);
        let ring = Ring::new(vec![BlockNumber::new(3), BlockNumber::new(9)]);
        for sequence in FIRST..FIRST + count {
            let record = Record {
                sequence,
                index: sequence % 7,
                size: 40_000,
                modified: sequence as i64,
                slot: NO_SLOT,
                continues: u32::from(continue_.contains(&sequence)),
                data_at: 0,
                data_bytes: 0,
                data_checksum: 0,
                checksum: 0,
                reserved: 0,
            };
            let sealed = record.sealed(SALT);
            region
                .store(ring.place(sequence), sealed.as_bytes())
                .leave_to_checkpoint();
        }
        (region, ring)
    }

    fn flip(region: &Region, ring: &Ring, number: u64, mask: u64) {
        let at = ring.place(number) + 24;
        let word = region.load_u64(at);
        region.store_u64(at, word ^ mask).leave_to_checkpoint();
    }

    #[test]
    fn a_flipped_byte_before_the_newest_write_is_a_gap() {
        for behind in 1..100 {
            let (region, ring) = scene(100, &[]);
            assert_eq!(inspect(&region, &ring, SALT, FIRST), Inspection::default());
            let damaged = FIRST + 99 - behind;
            flip(&region, &ring, damaged, 0xff);
            let found = inspect(&region, &ring, SALT, FIRST);
            assert_eq!(
                found.gap,
                Some(Gap {
                    damaged,
                    records: behind
                })
            );
            // Records that are folded do not count.
            assert_eq!(inspect(&region, &ring, SALT, damaged + 1).gap, None);
        }
    }

    #[test]
    fn a_flipped_bit_is_corrected_wherever_it_is() {
        for (number, bit) in [(0, 0), (50, 17), (99, 63)] {
            let (region, ring) = scene(100, &[]);
            let before = ring.load(&region, FIRST + number);
            flip(&region, &ring, FIRST + number, 1 << bit);
            let found = inspect(&region, &ring, SALT, FIRST);
            assert_eq!((found.corrected, found.gap), (vec![before], None));
        }
    }

    #[test]
    fn a_write_that_was_torn_is_no_damage() {
        // The newest record; and one of a write of three records, whose last one came to nothing.
        let (region, ring) = scene(100, &[FIRST + 97, FIRST + 98]);
        flip(&region, &ring, FIRST + 99, 0xff);
        assert_eq!(inspect(&region, &ring, SALT, FIRST).gap, None);
        flip(&region, &ring, FIRST + 97, 0xff);
        assert_eq!(inspect(&region, &ring, SALT, FIRST).gap, None);
    }
}
