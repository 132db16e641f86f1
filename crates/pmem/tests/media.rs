//! The media model keeps the time that it promises. Only lower bounds are exact: a busy machine can be slower.

use std::time::{Duration, Instant};

use perdure_pmem::{Counters, MediaModel, Offset, Region};

fn region_with(model: &str) -> Region {
    let region = Region::anonymous(1 << 20);
    region.set_media(&model.parse::<MediaModel>().expect("model"));
    region
}

/// The fastest of five runs: what the model costs when nobody disturbs.
fn fastest(mut run: impl FnMut()) -> Duration {
    let time = |()| {
        let begin = Instant::now();
        run();
        begin.elapsed()
    };
    [(); 5].map(time).into_iter().min().unwrap_or_default()
}

fn assert_about(found: Duration, expected_us: u64) {
    let expected = Duration::from_micros(expected_us);
    assert!(
        found >= expected.mul_f64(0.98),
        "{found:?} is faster than {expected:?}"
    );
    assert!(
        found <= expected.mul_f64(1.5) + Duration::from_micros(200),
        "{found:?} is much slower than {expected:?}"
    );
}

#[test]
fn reads_of_a_line_and_more_wait_and_smaller_ones_do_not() {
    let region = region_with("read=20000");
    let mut line = [0; 64];
    assert_about(
        fastest(|| (0..100).for_each(|_| region.read(Offset::new(0), &mut line))),
        2000,
    );
    assert_about(
        fastest(|| {
            for _ in 0..100 {
                std::hint::black_box(region.load::<[u64; 8]>(Offset::new(0)));
            }
        }),
        2000,
    );
    let small = fastest(|| {
        for _ in 0..100 {
            region.read(Offset::new(0), &mut line[..63]);
            region.load_u64(Offset::new(0));
        }
    });
    assert!(small < Duration::from_millis(1), "{small:?}");
}

#[test]
fn fences_wait_for_latency_and_for_the_lines_before_them() {
    let region = region_with("write=20000");
    assert_about(
        fastest(|| {
            for _ in 0..100 {
                region.persist(Offset::new(0), 64);
            }
        }),
        2000,
    );

    // 64 MB/s: a line takes a microsecond, whether flushed or streamed.
    let region = region_with("writebw=64e6");
    let before = Counters::snapshot();
    let taken = fastest(|| {
        let mut batch = region.write_streaming(Offset::new(0), &[1; 64 * 1000]);
        batch.join(region.dirty(Offset::new(0), 64 * 1000).flush());
        region.fence(batch);
    });
    assert_eq!((Counters::snapshot() - before).lines, 5 * 2000);
    assert_about(taken, 2000);
    // Nothing was written since: nothing to wait for.
    let idle = fastest(|| {
        region.persist(Offset::new(0), 0);
    });
    assert!(idle < Duration::from_micros(100), "{idle:?}");
}

#[test]
fn threads_share_the_bandwidth() {
    let region = region_with("readbw=1e9");
    let read = |times: usize| {
        let mut into = vec![0; 1 << 16];
        (0..times).for_each(|_| region.read(Offset::new(0), &mut into));
    };
    assert_about(fastest(|| read(32)), 2097);
    let together = fastest(|| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| read(32));
            }
        });
    });
    assert_about(together, 2 * 2097);
}

#[test]
fn dram_takes_the_delays_away_again() {
    let region = region_with("read=1000000");
    region.set_media(&MediaModel::dram());
    let taken = fastest(|| region.read(Offset::new(0), &mut [0; 4096]));
    assert!(taken < Duration::from_micros(200), "{taken:?}");
}
