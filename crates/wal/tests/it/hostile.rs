//! Whatever the bytes, a refusal or a prefix.

use crate::given::{RING, Seen, append, bytes, formatted, open, read, replay};
use perdure_wal::testing::SimulatedDisk;
use perdure_wal::{BatchHeader, HEADER_BYTES, UNIT_BYTES};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use zerocopy::{FromBytes, IntoBytes};

/// A log in its second lap, and its batches.
static SAMPLE: LazyLock<(Vec<u8>, Vec<Seen>)> = LazyLock::new(|| {
    let disk = formatted(24);
    for mount in 0..3_u64 {
        let (_, log) = replay(&disk);
        for batch in 1..=4 {
            let sequence = mount * 4 + batch;
            append(&log, sequence, &bytes(sequence, 3000 * batch as usize)).unwrap();
        }
        if mount < 2 {
            log.advance(log.durable_root()).unwrap();
        }
    }
    let (_, seen, _) = read(&disk).unwrap();
    assert_eq!(seen.len(), 4);
    (disk.image(), seen)
});

/// Reads a damaged log, goes on with it and reads again.
fn judge(image: Vec<u8>, may_be_forged: bool) {
    let disk = Arc::new(SimulatedDisk::from_image(image));
    let Ok((_, seen, _)) = read(&disk) else {
        return;
    };
    if !may_be_forged {
        assert!(
            SAMPLE.1.starts_with(&seen) || seen.is_empty(),
            "{} batches",
            seen.len()
        );
    }
    let Ok(log) = open(&disk).unwrap().replay(&mut |_| ()) else {
        return;
    };
    let mut buffer = log.buffer();
    buffer.payload().extend_from_slice(b"after");
    let Ok(placed) = log.place(buffer, 99, 99, true) else {
        return;
    };
    log.write(placed).unwrap();
    let (_, after, _) = read(&disk).unwrap();
    assert_eq!(after.len(), seen.len() + 1);
    assert_eq!(after[..seen.len()], seen);
}

proptest! {
    #[test]
    fn flipped_bits_leave_a_prefix(flips in prop::collection::vec((0_usize..26 * UNIT_BYTES, 0_u8..8), 1..6)) {
        let mut image = SAMPLE.0.clone();
        for (at, bit) in flips {
            image[at] ^= 1 << bit;
        }
        judge(image, false);
    }

    #[test]
    fn flipped_bits_of_headers_leave_a_prefix(flips in prop::collection::vec((0_usize..26, 0_usize..HEADER_BYTES, 0_u8..8), 1..4)) {
        let mut image = SAMPLE.0.clone();
        for (unit, at, bit) in flips {
            image[unit * UNIT_BYTES + at] ^= 1 << bit;
        }
        judge(image, false);
    }

    #[test]
    fn headers_with_checks_that_fit_are_no_danger(changes in prop::collection::vec((0_usize..24, 8_usize..HEADER_BYTES, any::<u8>()), 1..5)) {
        let mut image = SAMPLE.0.clone();
        for (unit, at, value) in changes {
            let header = &mut image[RING + unit * UNIT_BYTES..][..HEADER_BYTES];
            header[at] = value;
            let sealed = BatchHeader::read_from_bytes(header).unwrap().sealed();
            header.copy_from_slice(sealed.as_bytes());
        }
        judge(image, true);
    }

    #[test]
    fn units_in_another_order_leave_a_prefix(moves in prop::collection::vec((2_usize..26, 2_usize..26), 1..8)) {
        let mut image = SAMPLE.0.clone();
        for (from, to) in moves {
            let unit = image[from * UNIT_BYTES..(from + 1) * UNIT_BYTES].to_vec();
            image[to * UNIT_BYTES..(to + 1) * UNIT_BYTES].copy_from_slice(&unit);
        }
        judge(image, false);
    }
}
