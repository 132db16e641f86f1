//! The media model keeps the time that it promises.

use std::hint::black_box;
use std::time::{Duration, Instant};

use perdure_pmem::{Counters, MediaModel, Offset, Region};

fn region_with(model: &str) -> Region {
    let region = Region::anonymous(1 << 20);
    region.set_media(&model.parse::<MediaModel>().expect("model"));
    region
}

fn time(run: &mut impl FnMut()) -> Duration {
    let begin = Instant::now();
    run();
    begin.elapsed()
}

/// No run is faster than the model says, and one is not much slower. A busy machine gets many tries for that one.
fn assert_takes(expected_us: u64, mut run: impl FnMut()) {
    let expected = Duration::from_micros(expected_us);
    let begin = Instant::now();
    loop {
        let taken = time(&mut run);
        assert!(
            taken >= expected.mul_f64(0.98),
            "{taken:?} is faster than {expected:?}"
        );
        if taken <= expected.mul_f64(1.5) {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "always much slower than {expected:?}: {taken:?}"
        );
    }
}

/// Some run is faster than this.
fn assert_takes_less(limit_us: u64, mut run: impl FnMut()) {
    let limit = Duration::from_micros(limit_us);
    assert!(
        (0..1000).any(|_| time(&mut run) < limit),
        "never faster than {limit:?}"
    );
}

#[test]
fn reads_of_a_line_and_more_wait_and_smaller_ones_do_not() {
    let region = region_with("read=20000");
    let mut line = [0; 64];
    assert_takes(2000, || {
        (0..100).for_each(|_| region.read(Offset::new(0), &mut line))
    });
    assert_takes(2000, || {
        for _ in 0..100 {
            black_box(region.load::<[u64; 8]>(Offset::new(0)));
        }
    });
    assert_takes_less(1000, || {
        for _ in 0..100 {
            region.read(Offset::new(0), &mut line[..63]);
            black_box(region.load_u64(Offset::new(0)));
        }
    });
}

#[test]
fn the_copy_is_part_of_the_time_and_latency_and_bandwidth_add_up() {
    let mut into = vec![0; 1 << 16];
    // 64 KiB at 64 MB/s.
    let region = region_with("readbw=64e6");
    assert_takes(1024, || region.read(Offset::new(0), &mut into));
    let region = region_with("read=300000,readbw=64e6");
    assert_takes(300 + 1024, || region.read(Offset::new(0), &mut into));
    // A model that asks for less than the copy takes adds nothing to it.
    let plain = region_with("dram");
    let modelled = region_with("read=1");
    let mut least = |region: &Region| {
        let runs = (0..2000).map(|_| time(&mut || region.read(Offset::new(0), &mut into)));
        runs.min().unwrap_or_default()
    };
    let (without, with) = (least(&plain), least(&modelled));
    assert!(
        with <= without.mul_f64(1.2) + Duration::from_nanos(200),
        "{with:?} with a model that is faster than the copy, {without:?} without one"
    );
}

#[test]
fn fences_wait_for_latency_and_for_the_lines_before_them() {
    let region = region_with("write=20000");
    assert_takes(2000, || {
        for _ in 0..100 {
            region.persist(Offset::new(0), 64);
        }
    });

    // 64 MB/s: a line takes a microsecond, whether flushed or streamed.
    let region = region_with("writebw=64e6");
    let bytes = [1; 64 * 1000];
    assert_takes(2000, || {
        let before = Counters::snapshot();
        let mut batch = region.write_streaming(Offset::new(0), &bytes);
        batch.join(region.dirty(Offset::new(0), 64 * 1000).flush());
        region.fence(batch);
        assert_eq!((Counters::snapshot() - before).lines, 2000);
    });
    // Nothing was written since: nothing to wait for.
    assert_takes_less(100, || {
        region.persist(Offset::new(0), 0);
    });
}

#[test]
fn threads_share_the_bandwidth() {
    let region = region_with("readbw=1e9");
    let read = |times: usize| {
        let mut into = vec![0; 1 << 16];
        (0..times).for_each(|_| region.read(Offset::new(0), &mut into));
    };
    assert_takes(2097, || read(32));
    assert_takes(2 * 2097, || {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| read(32));
            }
        });
    });
}

#[test]
fn dram_takes_the_delays_away_again() {
    let region = region_with("read=1000000");
    region.set_media(&MediaModel::dram());
    assert_takes_less(200, || region.read(Offset::new(0), &mut [0; 4096]));
}
