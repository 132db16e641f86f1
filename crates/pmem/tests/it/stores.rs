//! Every kind of store, at all alignments and lengths, against a plain buffer; on a mapped file, on private memory, on an
//! emulated medium, and on all of them watched.

use perdure_pmem::{Counters, Flushed, MediaModel, Offset, Region};
use proptest::prelude::*;

const LENGTH: usize = 8192;

#[derive(Clone, Debug)]
enum Step {
    Store(usize, Vec<u8>),
    StoreWord(usize, u64),
    FillZero(usize, usize),
    Stream(usize, Vec<u8>),
    ZeroStream(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || {
        (
            0..LENGTH,
            prop_oneof![0..20usize, 0..300usize, 0..4200usize],
        )
    };
    let clipped = |(at, length): (usize, usize)| (at, length.min(LENGTH - at));
    let bytes = move || {
        range().prop_map(clipped).prop_flat_map(|(at, length)| {
            (Just(at), proptest::collection::vec(any::<u8>(), length))
        })
    };
    prop_oneof![
        bytes().prop_map(|(at, bytes)| Step::Store(at, bytes)),
        (0..LENGTH / 8, any::<u64>()).prop_map(|(word, value)| Step::StoreWord(word * 8, value)),
        range()
            .prop_map(clipped)
            .prop_map(|(at, length)| Step::FillZero(at, length)),
        bytes().prop_map(|(at, bytes)| Step::Stream(at, bytes)),
        range()
            .prop_map(clipped)
            .prop_map(|(at, length)| Step::ZeroStream(at, length)),
    ]
}

fn apply(region: &Region, model: &mut [u8], step: &Step) -> Flushed {
    match step {
        Step::Store(at, bytes) => {
            model[*at..*at + bytes.len()].copy_from_slice(bytes);
            region.store(Offset::new(*at as u64), bytes).flush()
        }
        Step::StoreWord(at, value) => {
            model[*at..*at + 8].copy_from_slice(&value.to_le_bytes());
            region.store_u64(Offset::new(*at as u64), *value).flush()
        }
        Step::FillZero(at, length) => {
            model[*at..*at + length].fill(0);
            region
                .fill_zero(Offset::new(*at as u64), *length as u64)
                .flush()
        }
        Step::Stream(at, bytes) => {
            model[*at..*at + bytes.len()].copy_from_slice(bytes);
            region.write_streaming(Offset::new(*at as u64), bytes)
        }
        Step::ZeroStream(at, length) => {
            model[*at..*at + length].fill(0);
            region.zero_streaming(Offset::new(*at as u64), *length as u64)
        }
    }
}

fn watched() -> Region {
    let region = Region::anonymous(LENGTH as u64);
    region.record_wear();
    region.set_media(&"read=1,write=1".parse::<MediaModel>().expect("model"));
    region
}

proptest! {
    #[test]
    fn stores_do_what_a_buffer_does(steps in proptest::collection::vec(step(), 1..40), cut in (0..LENGTH, 0..LENGTH)) {
        let length = LENGTH as u64;
        for region in [Region::anonymous(length), Region::emulated(length), watched()] {
            let mut model = vec![0u8; LENGTH];
            let mut batch = Flushed::nothing(&region);
            for step in &steps {
                batch.join(apply(&region, &mut model, step));
            }
            region.fence(batch).assert_of(&region);
            prop_assert_eq!(&region.image(), &model);
            if let Some(emulator) = region.emulator() {
                prop_assert_eq!(&emulator.durable_image(), &model);
                prop_assert_eq!(emulator.pending_lines(), 0);
            }
            let (from, to) = (cut.0.min(cut.1), cut.0.max(cut.1));
            let mut part = vec![0xee; to - from];
            region.read(Offset::new(from as u64), &mut part);
            prop_assert_eq!(&part[..], &model[from..to]);
            prop_assert!(region.equals(Offset::new(from as u64), &part));
            if let Some(last) = part.last_mut() {
                *last ^= 1;
                prop_assert!(!region.equals(Offset::new(from as u64), &part));
            }
        }
    }
}

#[test]
fn loads_take_any_type() {
    let region = Region::anonymous(4096);
    region
        .store(Offset::new(3), &[1, 2, 3, 4, 5, 6, 7, 8])
        .leave_to_checkpoint();
    assert_eq!(region.load::<u16>(Offset::new(3)), 0x0201);
    assert_eq!(region.load::<[u8; 5]>(Offset::new(6)), [4, 5, 6, 7, 8]);
    assert_eq!(region.load::<u64>(Offset::new(3)), 0x0807_0605_0403_0201);
    assert_eq!(region.load_u64(Offset::new(8)), 0x0008_0706);
    let whole: [u8; 300] = region.load(Offset::new(0));
    assert_eq!((whole[3], whole[10], whole[11]), (1, 8, 0));
}

#[test]
fn counters_count_what_was_asked_for() {
    let region = Region::anonymous(8192);
    let begin = Counters::snapshot();
    let mut batch = region.write_streaming(Offset::new(4096), &[1; 4096]);
    batch.join(region.store(Offset::new(60), &[1; 8]).flush());
    region.store_u64(Offset::new(0), 1).leave_to_checkpoint();
    region.fence(batch);
    let counted = Counters::snapshot() - begin;
    assert_eq!(
        counted,
        Counters {
            flushes: 2,
            fences: 1,
            lines: 66,
            bytes: 4112
        }
    );
    assert_eq!(counted + counted - counted, counted);

    let begin = Counters::snapshot();
    region.fence(region.write_streaming(Offset::new(1), &[1; 70]));
    // Bytes 1..8 and 64..71 are parts of words: stored and flushed. Bytes 8..64 are streamed.
    assert_eq!((Counters::snapshot() - begin).flushes, 2);

    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(Counters::snapshot(), Counters::default()));
    });
}

#[test]
fn wear_counts_bytes_per_block() {
    let region = Region::anonymous(3 * 4096);
    assert!(region.wear().is_empty());
    region.record_wear();
    region.fence(region.write_streaming(Offset::new(4096 - 64), &[1; 128]));
    region.store_u64(Offset::new(8192), 1).leave_to_checkpoint();
    region.persist(Offset::new(8192), 65);
    assert_eq!(region.wear(), [64, 64, 128]);
    assert_eq!(region.wear_of(perdure_pmem::BlockNumber::new(1), 2), 192);
}

#[test]
fn images_go_in_and_out() {
    let image: Vec<u8> = (0..8192u32).map(|index| index as u8).collect();
    let mut region = Region::from_image(&image);
    assert_eq!(region.image(), image);
    region.refill(vec![7; 8192]);
    assert_eq!(region.into_image(), vec![7; 8192]);
}

#[test]
#[should_panic(expected = "8 bytes at offset 0x1000 are outside of a region of 0x1000 bytes")]
fn a_load_outside_is_a_bug_of_the_caller() {
    Region::anonymous(4096).load_u64(Offset::new(4096));
}

#[test]
#[should_panic(expected = "outside of a region")]
fn an_offset_that_wraps_is_outside() {
    Region::anonymous(4096).read(Offset::new(u64::MAX - 7), &mut [0; 16]);
}

#[test]
#[should_panic(expected = "an unaligned word is not atomic")]
fn words_are_aligned() {
    Region::anonymous(4096).load_u64(Offset::new(4));
}

#[test]
#[should_panic(expected = "evidence about another region")]
fn evidence_names_its_region() {
    let (one, other) = (Region::anonymous(4096), Region::anonymous(4096));
    one.persist(Offset::new(0), 64).assert_of(&other);
}

#[test]
#[should_panic(expected = "a batch of another region")]
fn a_batch_is_fenced_where_it_was_flushed() {
    let (one, other) = (Region::anonymous(4096), Region::anonymous(4096));
    other.fence(one.store_u64(Offset::new(0), 1).flush());
}

#[test]
fn a_whole_block_is_read_wherever_it_goes() {
    let image: Vec<u8> = (0..LENGTH).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut anonymous = Region::anonymous(LENGTH as u64);
    anonymous.refill(&image);
    let mut buffer = vec![0; LENGTH];
    for region in [anonymous, Region::emulated_from(&image)] {
        for at in [0, 1, 64, 100, 4096] {
            for to in [0, 1, 8, 64, 4032] {
                buffer.fill(0);
                let into = buffer[to..].first_chunk_mut::<4096>().expect("a block");
                region.read_block(Offset::new(at as u64), into);
                assert!(
                    buffer[to..to + 4096] == image[at..at + 4096],
                    "{at} to {to}"
                );
                assert!(
                    buffer[..to]
                        .iter()
                        .chain(&buffer[to + 4096..])
                        .all(|&byte| byte == 0)
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "outside")]
fn a_block_that_is_not_inside_is_not_read() {
    Region::anonymous(LENGTH as u64).read_block(Offset::new(4097), &mut [0; 4096]);
}
