//! The five rules of the failure model: each has a test that fails if the emulator were stronger (forgot an image that the
//! medium may leave) or weaker (made one up).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use perdure_pmem::emulator::{Moment, PendingKind};
use perdure_pmem::{Emulator, Offset, Region};

/// All values that the given words may have after a power cut right now.
fn outcomes<const N: usize>(region: &Region, words: [u64; N]) -> BTreeSet<[u64; N]> {
    emulator(region).crash_now(|point| {
        assert!(point.possibilities() <= 100_000);
        let word = |image: &[u8], at: u64| {
            u64::from_le_bytes(image[at as usize..][..8].try_into().expect("8"))
        };
        let images = point
            .enumerate(100_000, 0)
            .map(|choice| point.image(&choice));
        images
            .map(|image| words.map(|at| word(&image, at)))
            .collect()
    })
}

fn emulator(region: &Region) -> &Emulator {
    region.emulator().expect("emulated")
}

fn put(region: &Region, at: u64, value: u64) {
    region
        .store_u64(Offset::new(at), value)
        .leave_to_checkpoint();
}

#[test]
fn rule_1_a_stored_line_may_persist_at_any_moment_flushed_or_not() {
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    assert_eq!(outcomes(&region, [0]), [[0], [1]].into());
    // Much later, after many fences for other lines, it is still open.
    for round in 1..50 {
        region.fence(region.store_u64(Offset::new(1024), round).flush());
    }
    assert_eq!(outcomes(&region, [0, 1024]), [[0, 49], [1, 49]].into());
    let flushed = region.dirty(Offset::new(0), 8).flush();
    assert_eq!(
        outcomes(&region, [0]),
        [[0], [1]].into(),
        "flushed is not durable"
    );
    region.fence(flushed);
    assert_eq!(outcomes(&region, [0]), [[1]].into());
}

#[test]
fn rule_2_lines_persist_independently_in_any_order() {
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    put(&region, 64, 2);
    assert_eq!(
        outcomes(&region, [0, 64]),
        [[0, 0], [1, 0], [0, 2], [1, 2]].into()
    );
}

#[test]
fn rule_3_within_a_line_a_prefix_in_whole_words_survives() {
    let region = Region::emulated(4096);
    put(&region, 8, 1);
    put(&region, 0, 2);
    put(&region, 8, 3);
    assert_eq!(
        outcomes(&region, [0, 8]),
        [[0, 0], [0, 1], [2, 1], [2, 3]].into()
    );

    // A store of bytes is one step per aligned word, ascending, also where it covers a word in part.
    let region = Region::emulated(4096);
    region
        .store(Offset::new(6), &[0xff; 12])
        .leave_to_checkpoint();
    let (first, second, third) = (0xffff_0000_0000_0000, u64::MAX, 0xffff);
    let expected = [
        [0, 0, 0],
        [first, 0, 0],
        [first, second, 0],
        [first, second, third],
    ];
    assert_eq!(outcomes(&region, [0, 8, 16]), expected.into());
}

#[test]
fn rule_4_streamed_words_survive_in_any_subset_until_the_fence() {
    let region = Region::emulated(4096);
    let mut bytes = [0; 24];
    (bytes[0], bytes[8], bytes[16]) = (1, 2, 3);
    let batch = region.write_streaming(Offset::new(56), &bytes);
    let subsets: BTreeSet<_> = (0..8u64)
        .map(|bits| [bits & 1, (bits >> 1 & 1) * 2, (bits >> 2) * 3])
        .collect();
    assert_eq!(outcomes(&region, [56, 64, 72]), subsets);
    region.fence(batch);
    assert_eq!(outcomes(&region, [56, 64, 72]), [[1, 2, 3]].into());
}

#[test]
fn rule_5_a_flush_covers_what_its_line_held_at_that_moment() {
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    let batch = region.dirty(Offset::new(0), 8).flush();
    put(&region, 8, 2);
    region.fence(batch);
    assert_eq!(outcomes(&region, [0, 8]), [[1, 0], [1, 2]].into());

    // It covers the whole line, whoever stored to it, and no other.
    let region = Region::emulated(4096);
    std::thread::scope(|scope| {
        scope.spawn(|| put(&region, 56, 1));
    });
    put(&region, 64, 2);
    region.persist(Offset::new(0), 8);
    assert_eq!(outcomes(&region, [56, 64]), [[1, 0], [1, 2]].into());
}

#[test]
fn rule_5_a_fence_is_for_its_own_thread() {
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    let flushed = region.dirty(Offset::new(0), 8).flush();
    let streamed = region.write_streaming(Offset::new(64), &2u64.to_le_bytes());
    std::thread::scope(|scope| {
        scope.spawn(|| region.persist(Offset::new(128), 8));
    });
    assert_eq!(
        outcomes(&region, [0, 64]),
        [[0, 0], [1, 0], [0, 2], [1, 2]].into()
    );
    let mut batch = flushed;
    batch.join(streamed);
    region.fence(batch);
    assert_eq!(outcomes(&region, [0, 64]), [[1, 2]].into());
}

#[test]
fn rule_5_two_threads_may_stream_into_one_line() {
    let region = Region::emulated(4096);
    let ours = region.write_streaming(Offset::new(0), &1u64.to_le_bytes());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            region.fence(region.write_streaming(Offset::new(8), &2u64.to_le_bytes()));
        });
    });
    assert_eq!(outcomes(&region, [0, 8]), [[0, 2], [1, 2]].into());
    region.fence(ours);
    assert_eq!(outcomes(&region, [0, 8]), [[1, 2]].into());
}

#[test]
fn a_fence_without_a_flush_settles_nothing() {
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    region.fence(region.dirty(Offset::new(64), 64).flush());
    assert_eq!(outcomes(&region, [0]), [[0], [1]].into());
}

#[test]
fn a_settled_word_never_goes_back() {
    // An ordinary store that nobody flushed, then a streamed one to the same word, fenced.
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    put(&region, 8, 2);
    let batch = region.write_streaming(Offset::new(0), &3u64.to_le_bytes());
    let before = [[0, 0], [1, 0], [1, 2], [3, 0], [3, 2]];
    assert_eq!(outcomes(&region, [0, 8]), before.into());
    region.fence(batch);
    assert_eq!(outcomes(&region, [0, 8]), [[3, 0], [3, 2]].into());

    // The other way round: streamed by a thread that never fences, then stored, flushed and fenced by another.
    let region = Region::emulated(4096);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _unfenced = region.write_streaming(Offset::new(0), &1u64.to_le_bytes());
        });
    });
    region.fence(region.store_u64(Offset::new(0), 2).flush());
    assert_eq!(outcomes(&region, [0]), [[2]].into());
}

#[test]
fn storing_what_is_there_already_is_no_new_outcome_but_can_be_flushed() {
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    put(&region, 0, 1);
    put(&region, 8, 0);
    assert_eq!(emulator(&region).pending_writes(), 1);
    // Streamed by a thread that never fences: the same value, stored and flushed here, is durable all the same.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _unfenced = region.write_streaming(Offset::new(64), &5u64.to_le_bytes());
        });
    });
    region.fence(region.store_u64(Offset::new(64), 5).flush());
    assert_eq!(outcomes(&region, [0, 64]), [[0, 5], [1, 5]].into());
    // A streamed word of the present value settles that word and not the rest of its line.
    put(&region, 16, 7);
    region.fence(region.write_streaming(Offset::new(16), &7u64.to_le_bytes()));
    assert_eq!(outcomes(&region, [0, 16]), [[0, 7], [1, 7]].into());
}

#[test]
fn loads_see_what_is_not_durable_yet() {
    let region = Region::emulated(4096);
    put(&region, 0, 1);
    assert_eq!(region.load_u64(Offset::new(0)), 1);
    assert_eq!(emulator(&region).durable_image()[0], 0);
}

#[test]
fn an_observer_sees_each_fence_before_and_after() {
    let region = Region::emulated_from(&[0; 4096]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    emulator(&region).on_fence(move |fence| {
        let point = fence.crash_point();
        let kinds: Vec<_> = point
            .pending
            .iter()
            .map(|line| (line.line, line.writes().len()))
            .collect();
        record.lock().expect("lock").push((
            fence.number(),
            fence.moment(),
            kinds,
            point.durable[0],
        ));
    });
    put(&region, 64, 1);
    region.fence(region.write_streaming(Offset::new(0), &[1; 16]));
    region.persist(Offset::new(64), 8);
    emulator(&region).ignore_fences();
    region.persist(Offset::new(0), 8);
    let expected = vec![
        (0, Moment::Before, vec![(0, 2), (1, 1)], 0),
        (0, Moment::After, vec![(1, 1)], 1),
        (1, Moment::Before, vec![(1, 1)], 1),
        (1, Moment::After, vec![], 1),
    ];
    assert_eq!(*seen.lock().expect("lock"), expected);
    assert_eq!(emulator(&region).fences(), 3);
}

#[test]
fn pending_lines_tell_their_kind_newest_first() {
    let region = Region::emulated(4096);
    let _unfenced = region.write_streaming(Offset::new(0), &[1; 8]);
    put(&region, 128, 1);
    put(&region, 8, 1);
    emulator(&region).crash_now(|point| {
        let kinds: Vec<_> = point
            .pending
            .iter()
            .map(|line| (line.line, matches!(line.kind, PendingKind::Cached { .. })))
            .collect();
        assert_eq!(kinds, [(0, true), (0, false), (2, true)]);
        assert_eq!(point.possibilities(), 8);
    });
}

#[test]
fn a_refilled_region_begins_anew() {
    let mut region = Region::emulated(4096);
    put(&region, 0, 1);
    region.refill([9; 4096]);
    assert_eq!(emulator(&region).pending_lines(), 0);
    assert_eq!(emulator(&region).durable_image(), [9; 4096]);
    put(&region, 0, 2);
    assert_eq!(
        outcomes(&region, [0]),
        [[0x0909_0909_0909_0909], [2]].into()
    );
}

#[test]
fn threads_may_store_and_fence_at_once() {
    let region = Region::emulated(64 * 4096);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..500u64 {
                    let at = Offset::new((thread * 16 + round % 16) * 4096);
                    let mut batch = region.write_streaming(at, &[round as u8; 128]);
                    batch.join(region.store_u64(at + 1024, round).flush());
                    region.fence(batch);
                    region.store_u64(at + 2048, round).leave_to_checkpoint();
                }
            });
        }
    });
    assert_eq!(emulator(&region).fences(), 2000);
    region.persist(Offset::new(0), region.length());
    assert_eq!(emulator(&region).durable_image(), region.image());
    assert_eq!(emulator(&region).pending_lines(), 0);
}
