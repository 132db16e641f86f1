use super::*;
use proptest::prelude::*;

const GEOMETRY: Geometry = Geometry {
    header_blocks: 4,
    segment_blocks: 16,
    segments: 16,
};
const SALT: u32 = 0x5a17_5a17;
const FORM: RecordForm = RecordForm {
    geometry: GEOMETRY,
    salt: SALT,
};

fn sample() -> RecordBuilder {
    let mut builder = RecordBuilder::new();
    let base = GEOMETRY.first_block().offset();
    builder.store_word(base + 64, 7);
    builder.store(base + 4096, b"hello, record");
    builder.zero(base + 8192, 5000);
    builder
}

#[test]
fn a_record_of_another_use_of_the_place_is_refused() {
    let mut builder = sample();
    builder.close(&Homes::default());
    let bytes = builder.finish(42, SALT).to_vec();
    let other = RecordForm { salt: 0, ..FORM };
    assert!(Record::parse(&bytes, &FORM).is_some());
    assert!(Record::parse(&bytes, &other).is_none());
}

#[test]
fn a_record_reads_back_as_written() {
    let mut builder = sample();
    builder.close(&Homes::default());
    let bytes = builder.finish(42, SALT).to_vec();
    assert_eq!(bytes.len() % LINE_BYTES, 0);
    let record = Record::parse(&bytes, &FORM).expect("whole record");
    assert_eq!(record.sequence, 42);
    let entries: Vec<_> = record.entries().map(|(_, entry)| entry).collect();
    assert_eq!(entries.len(), 4);
    assert_eq!(entries[1].payload, Some(&b"hello, record"[..]));
    assert_eq!(entries[2].length + entries[3].length, 5000);
    assert_eq!(record.padded_bytes(), bytes.len());
}

#[test]
fn a_closed_record_without_its_data_check_is_one_that_never_had_it() {
    for words in 0..20 {
        let mut builders = [sample(), sample()];
        for builder in &mut builders {
            builder.store(GEOMETRY.first_block().offset(), &vec![3; 8 * words + 1]);
        }
        let [mut checked, mut plain] = builders;
        checked.check_data(DataCheck {
            at: GEOMETRY.first_block().offset() + 65_536,
            length: 100,
            checksum: 9,
        });
        assert_eq!(
            checked.checked_block(),
            Some(GEOMETRY.first_block() + 16),
            "where the data is"
        );
        for builder in [&mut checked, &mut plain] {
            builder.close(&Homes::default());
        }
        checked.forget_data_of_closed();
        assert_eq!(checked.checked_block(), None);
        assert_eq!(checked.padded_bytes(), plain.padded_bytes());
        assert_eq!(checked.finish(42, SALT), plain.finish(42, SALT));
    }
}

#[test]
fn the_smallest_overwrite_fits_one_line() {
    let mut builder = RecordBuilder::new();
    let base = GEOMETRY.first_block().offset();
    builder.store_word(base, 1);
    builder.store(base + 4096, &[1; 24]);
    assert_eq!(builder.padded_bytes(), LINE_BYTES);
}

fn assert_flips_are_noticed(bytes: &[u8]) {
    let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    for bit in 0..length * 8 {
        let mut copy = bytes.to_vec();
        copy[bit / 8] ^= 1 << (bit % 8);
        assert!(Record::parse(&copy, &FORM).is_none(), "bit {bit}");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut builder = sample();
    builder.close(&Homes::default());
    let bytes = builder.finish(42, SALT).to_vec();
    assert_flips_are_noticed(&bytes);
}

#[test]
fn an_entry_outside_the_pool_is_refused() {
    for at in [
        0,
        GEOMETRY.second_superblock().get(),
        GEOMETRY.total_bytes(),
    ] {
        let mut builder = RecordBuilder::new();
        builder.store_word(Offset::new(at), 1);
        builder.close(&Homes::default());
        let bytes = builder.finish(1, SALT).to_vec();
        assert!(Record::parse(&bytes, &FORM).is_none(), "offset {at}");
    }
}

fn data_at(at: Offset) -> DataCheck {
    DataCheck {
        at,
        length: 700,
        checksum: 0x1234_5678,
    }
}

/// A block that [`sample`] does not change.
fn data_block() -> Offset {
    GEOMETRY.first_block().offset() + 16 * BLOCK_BYTES as u64
}

fn finished(mut builder: RecordBuilder) -> Vec<u8> {
    builder.close(&Homes::default());
    builder.finish(42, SALT).to_vec()
}

#[test]
fn a_data_check_reads_back_whenever_it_was_added() {
    let data = data_at(data_block() + 96);
    let mut first = RecordBuilder::new();
    first.check_data(data);
    first.store_word(GEOMETRY.first_block().offset(), 7);
    let mut last = RecordBuilder::new();
    last.store_word(GEOMETRY.first_block().offset(), 7);
    last.check_data(data);
    let (first, last) = (finished(first), finished(last));
    assert_eq!(first, last);
    let record = Record::parse(&first, &FORM).expect("whole record");
    assert_eq!(record.data_check(), Some(data));
    assert_eq!(record.entries().count(), 1);
    assert_eq!(first.len(), LINE_BYTES);
}

#[test]
fn a_forgotten_data_check_leaves_no_trace() {
    let mut builder = sample();
    builder.check_data(data_at(data_block()));
    builder.forget_data();
    let bytes = finished(builder);
    assert_eq!(bytes, finished(sample()));
    let record = Record::parse(&bytes, &FORM).expect("whole record");
    assert_eq!(record.data_check(), None);
}

#[test]
fn every_flipped_bit_of_a_record_with_a_data_check_is_noticed() {
    let mut builder = sample();
    builder.check_data(data_at(data_block()));
    let bytes = finished(builder);
    assert!(Record::parse(&bytes, &FORM).is_some());
    assert_flips_are_noticed(&bytes);
}

#[test]
fn a_record_that_changes_the_block_it_checks_is_refused() {
    let block = data_block();
    let end = block + BLOCK_BYTES as u64;
    for (at, length, is_sound) in [
        (block + 8, 8, false),
        (end, 8, true),
        (block + 4088, 8, false),
        (Offset::new(block.get() - 8), 8, true),
        (Offset::new(block.get() - 8), 16, false),
    ] {
        let mut builder = RecordBuilder::new();
        builder.check_data(data_at(block + 96));
        builder.zero(at, length);
        assert_eq!(builder.changes_checked_data(), !is_sound, "at {at:?}");
        let record = Record::parse(&finished(builder), &FORM);
        assert_eq!(record.is_some(), is_sound, "at {at:?}");
    }
}

#[test]
fn data_outside_the_segments_or_of_two_blocks_is_refused() {
    let last = GEOMETRY.total_bytes() - BLOCK_BYTES as u64;
    for (at, is_sound) in [
        (data_block().get(), true),
        (data_block().get() + BLOCK_BYTES as u64 - 700, true),
        (data_block().get() + BLOCK_BYTES as u64 - 699, false),
        (BLOCK_BYTES as u64, false),
        (last, true),
        (GEOMETRY.total_bytes(), false),
    ] {
        let mut builder = RecordBuilder::new();
        builder.check_data(data_at(Offset::new(at)));
        builder.store_word(GEOMETRY.first_block().offset(), 7);
        let record = Record::parse(&finished(builder), &FORM);
        assert_eq!(record.is_some(), is_sound, "data at {at}");
    }
}

#[test]
fn a_data_check_behind_another_entry_is_refused() {
    let mut builder = RecordBuilder::new();
    builder.store_word(GEOMETRY.first_block().offset(), 7);
    builder
        .words
        .extend_from_slice(&[head(data_block(), 700, DATA_FLAG), 0]);
    assert!(Record::parse(&finished(builder), &FORM).is_none());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Record::parse(&bytes, &FORM);
    }
}
