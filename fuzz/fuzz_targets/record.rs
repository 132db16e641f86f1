//! A journal record: any bytes, with and without a checksum that fits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use txn::Geometry;
use txn::checksum::crc32c;
use txn::record::{HEADER_BYTES, Record};

const GEOMETRY: Geometry = Geometry {
    header_blocks: 4,
    segment_blocks: 16,
    segments: 15,
};

fn judge(bytes: &[u8]) {
    let Some(record) = Record::parse(bytes, &GEOMETRY) else {
        return;
    };
    assert!(record.sequence > 0);
    for (_, entry) in record.entries() {
        let end = entry.at.get() + entry.length as u64;
        assert!(end <= GEOMETRY.total_bytes(), "an entry leaves the pool");
        assert!(entry.at.get() >= 4096, "an entry hits the first superblock");
        let second = GEOMETRY.second_superblock().get();
        assert!(
            end <= second || entry.at.get() >= second + 4096,
            "an entry hits the second superblock"
        );
    }
}

fuzz_target!(|input: &[u8]| {
    judge(input);
    let length = input.len() / 8 * 8;
    if length < HEADER_BYTES {
        return;
    }
    let mut whole = input[..length].to_vec();
    whole[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    let checksum = crc32c(&whole[..12]).swap_bytes() ^ crc32c(&whole[HEADER_BYTES..]);
    whole[12..16].copy_from_slice(&checksum.to_le_bytes());
    judge(&whole);
});
