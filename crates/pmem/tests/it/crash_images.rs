//! Choosing among crash images: complete when there are few, well spread when there are many, cheap always.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use perdure_pmem::emulator::{Choice, Scratch};
use perdure_pmem::{Emulator, Offset, Region};
use proptest::prelude::*;

fn emulator(region: &Region) -> &Emulator {
    region.emulator().expect("emulated")
}

fn put(region: &Region, at: u64, value: u64) {
    region
        .store_u64(Offset::new(at), value)
        .leave_to_checkpoint();
}

#[test]
fn few_possibilities_are_all_tried_once() {
    let region = Region::emulated(4096);
    for value in 1..=4 {
        put(&region, 0, value);
    }
    put(&region, 64, 1);
    let _unfenced = region.write_streaming(Offset::new(128), &[1; 24]);
    emulator(&region).crash_now(|point| {
        assert_eq!(point.possibilities(), 5 * 2 * 8);
        let choices: Vec<Choice> = point.enumerate(80, 1).collect();
        assert_eq!(choices.len(), 80);
        assert_eq!(choices.iter().collect::<HashSet<_>>().len(), 80);
        assert_eq!(
            choices
                .iter()
                .map(|choice| point.hash(choice))
                .collect::<HashSet<_>>()
                .len(),
            80
        );
        assert_eq!(choices[0], point.none());
        assert_eq!(choices[79], point.all());
        assert_eq!(point.image(&point.none()), point.durable);
    });
    let live = region.image();
    emulator(&region).crash_now(|point| assert_eq!(point.image(&point.all()), live));
}

#[test]
fn many_possibilities_are_tried_where_mistakes_hide() {
    let region = Region::emulated(1 << 20);
    for line in 0..100 {
        put(&region, line * 64, 1);
        put(&region, line * 64 + 8, 2);
    }
    let record = region.write_streaming(Offset::new(65536), &[3; 128]);
    emulator(&region).crash_now(|point| {
        let choices: Vec<Choice> = point.enumerate(1000, 7).collect();
        assert_eq!(choices.len(), 1000);
        assert_eq!(
            choices,
            point.enumerate(1000, 7).collect::<Vec<_>>(),
            "the seed decides"
        );
        assert_ne!(choices, point.enumerate(1000, 8).collect::<Vec<_>>());
        assert_eq!(choices[..2], [point.none(), point.all()]);

        let contains = |wanted: &dyn Fn(&mut Choice)| {
            let mut choice = point.none();
            wanted(&mut choice);
            let mut rest = point.all();
            rest.0
                .iter_mut()
                .zip(&choice.0)
                .for_each(|(all, one)| *all -= one);
            choices.contains(&choice) && choices.contains(&rest)
        };
        // The record is newest: its 16 words are the first slots; each is missing alone and there alone.
        for word in 0..16 {
            assert!(contains(&|choice| choice.0[word] = 1), "word {word}");
        }
        assert!(
            contains(&|choice| choice.0[..8].fill(1)),
            "one of its lines"
        );
        for line in 0..100 {
            assert!(
                contains(&|choice| choice.0[16 + line] = 2),
                "line {line} alone, and lost alone"
            );
        }
        assert!(
            contains(&|choice| choice.0[16] = 1),
            "a prefix of the newest line"
        );
        let distinct: HashSet<u64> = choices.iter().map(|choice| point.hash(choice)).collect();
        assert!(distinct.len() > 900, "{} distinct", distinct.len());
        // A small limit still looks at both extremes, and at some chance.
        assert_eq!(point.enumerate(2, 0).collect::<Vec<_>>(), choices[..2]);
        assert_eq!(
            point.enumerate(100, 7).take(75).collect::<Vec<_>>(),
            choices[..75]
        );
        assert_eq!(point.enumerate(0, 0).count(), 0);
    });
    region.fence(record);
}

#[derive(Clone, Debug)]
enum Step {
    Store(u64, u64),
    Stream(u64, Vec<u8>),
    Flush(u64),
    Fence,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..64u64, any::<u64>()).prop_map(|(word, value)| Step::Store(word * 8, value)),
        1 => (0..64u64, 0..5usize).prop_map(|(word, words)| Step::Stream(word * 8, vec![word as u8 + 1; words * 8])),
        2 => (0..10u64).prop_map(|line| Step::Flush(line * 64)),
        1 => Just(Step::Fence),
    ]
}

proptest! {
    /// The incremental ways to an image and to its hash agree with the plain ones, at every fence of any history, also
    /// after code under test has scribbled over the scratch region.
    #[test]
    fn scratch_images_and_hashes_agree_with_copies(steps in proptest::collection::vec(step(), 1..80), seed in any::<u64>()) {
        let region = Region::emulated_from(&[0x11; 1024]);
        let scratch: Arc<Mutex<Option<Scratch>>> = Arc::default();
        let failures = Arc::new(Mutex::new(Vec::new()));
        let failed = Arc::clone(&failures);
        emulator(&region).on_fence(move |fence| {
            let point = fence.crash_point();
            let mut scratch = scratch.lock().expect("lock");
            let scratch = scratch.get_or_insert_with(|| Scratch::new(&point));
            for choice in point.enumerate(12, seed) {
                let image = point.image(&choice);
                let region = scratch.apply(&point, &choice);
                let hash = Region::emulated_from(&image).emulator().map(|e| e.crash_now(|point| point.durable_hash));
                if region.image() != image || hash != Some(point.hash(&choice)) {
                    failed.lock().expect("lock").push((fence.number(), choice));
                }
                region.fence(region.write_streaming(Offset::new(seed % 512), &[0xee; 400]));
                region.fill_zero(Offset::new(seed % 1000), 20).leave_to_checkpoint();
            }
        });
        for step in &steps {
            match step {
                Step::Store(at, value) => put(&region, *at, *value),
                Step::Stream(at, bytes) => {
 let _unfenced = region.write_streaming(Offset::new(*at), bytes);
 },
                Step::Flush(at) => {
 let _unfenced = region.dirty(Offset::new(*at), 64).flush();
 },
                Step::Fence => {
 region.persist(Offset::new(0), 0);
 }
            }
        }
        region.persist(Offset::new(0), 1024);
        let failures = failures.lock().expect("lock");
        prop_assert!(failures.is_empty(), "{:?}", failures);
        prop_assert_eq!(emulator(&region).durable_image(), region.image());
    }
}

#[test]
fn a_scratch_follows_a_refilled_region_too() {
    let mut region = Region::emulated(4096);
    let mut scratch = emulator(&region).crash_now(Scratch::new);
    region.refill([5; 4096]);
    emulator(&region).crash_now(|point| {
        assert_eq!(scratch.apply(point, &point.none()).image(), [5; 4096]);
    });
}
