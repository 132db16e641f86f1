//! A journal record: any bytes, with and without a check that fits, with and without a data check.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pmem::BLOCK_BYTES;
use txn::Geometry;
use txn::checksum::crc32c;
use txn::record::{HEADER_BYTES, Record, RecordForm};

const GEOMETRY: Geometry = Geometry {
    header_blocks: 4,
    segment_blocks: 16,
    segments: 15,
};

const FORM: RecordForm = RecordForm {
    geometry: GEOMETRY,
    salt: 0x5a17_0000,
};

fn judge(bytes: &[u8]) {
    let Some(record) = Record::parse(bytes, &FORM) else {
        return;
    };
    assert!(record.sequence > 0);
    let checked = record.data_check();
    if let Some(data) = checked {
        let (start, end) = (data.at.get(), data.at.get() + data.length as u64);
        assert!(data.length > 0, "no data is checked");
        assert!(
            data.at >= GEOMETRY.first_block().offset() && end <= GEOMETRY.total_bytes(),
            "checked data lies outside the segments"
        );
        assert_eq!(
            start / BLOCK_BYTES as u64,
            (end - 1) / BLOCK_BYTES as u64,
            "checked data crosses a block"
        );
    }
    for (_, entry) in record.entries() {
        let end = entry.at.get() + entry.length as u64;
        assert!(end <= GEOMETRY.total_bytes(), "an entry leaves the pool");
        assert!(entry.at.get() >= 4096, "an entry hits the first superblock");
        let second = GEOMETRY.second_superblock().get();
        assert!(
            end <= second || entry.at.get() >= second + 4096,
            "an entry hits the second superblock"
        );
        if let Some(data) = checked {
            assert!(
                !entry.overlaps(data.at.block().offset(), BLOCK_BYTES),
                "an entry changes the block whose data is checked"
            );
        }
    }
}

/// Gives a record the length and the check that fit.
fn complete(record: &mut [u8]) {
    let length = record.len() as u32;
    record[8..12].copy_from_slice(&length.to_le_bytes());
    record[12..16].fill(0);
    let has_data_check = record.len() >= HEADER_BYTES + 16 && record[HEADER_BYTES + 7] >> 6 == 1;
    let (head, entries) = record.split_at(HEADER_BYTES + if has_data_check { 16 } else { 0 });
    let checksum = crc32c(head).swap_bytes() ^ crc32c(entries) ^ FORM.salt;
    record[12..16].copy_from_slice(&checksum.to_le_bytes());
}

fuzz_target!(|input: &[u8]| {
    judge(input);
    let length = input.len() / 8 * 8;
    if length < HEADER_BYTES {
        return;
    }
    let mut whole = input[..length].to_vec();
    complete(&mut whole);
    judge(&whole);
    // Chance seldom puts the data into a segment and the entries elsewhere.
    if length >= HEADER_BYTES + 16 {
        let at = GEOMETRY.first_block().offset().get() + u64::from(whole[16]);
        let head = at | (1 + u64::from(whole[18])) << 48 | 1 << 62;
        whole[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&head.to_le_bytes());
        complete(&mut whole);
        judge(&whole);
    }
});
