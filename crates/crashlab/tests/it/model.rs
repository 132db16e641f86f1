//! The file system against the model: long random sequences with clean remounts and power cuts.

use perdure_crashlab::catalogue::{known_paths, random_operation};
use perdure_crashlab::lab::{agree, compare};
use perdure_crashlab::model::Model;
use perdure_crashlab::operation::{Live, Operation};
use perdure_crashlab::random::Random;
use perdure_crashlab::recovery::add_up;
use perdure_crashlab::snapshot::Summary;
use pmem::Region;
use proptest::prelude::*;
use std::sync::Arc;
use txn::FormatOptions;

const POOL: FormatOptions = FormatOptions {
    size_bytes: 8 << 20,
    segment_bytes: 256 << 10,
    journals: 2,
    journal_bytes: 32 << 10,
    volatile: true,
    log: false,
    log_bytes: 0,
    device_blocks: 0,
};

#[derive(Clone, Debug)]
enum Step {
    /// An operation, by its seed.
    Do(u64),
    /// A clean unmount and a mount.
    Reopen,
    /// The power goes between two operations; the seed chooses what of the pending writes survives.
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => any::<u64>().prop_map(Step::Do),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

fn new_region() -> Arc<Region> {
    let region = fs::mkfs_region(Region::emulated(POOL.size_bytes), &POOL, (0, 0));
    Arc::new(region.expect("mkfs"))
}

/// The region that a power cut leaves.
fn cut(region: &Region, seed: u64) -> Arc<Region> {
    let emulator = region.emulator().expect("emulated");
    let image = emulator.crash_now(|point| {
        let choices: Vec<_> = point.enumerate(64, seed).collect();
        point.image(&choices[seed as usize % choices.len()])
    });
    Arc::new(Region::emulated_from(&image))
}

fn run(steps: &[Step]) -> Result<(), String> {
    let mut region = new_region();
    let (mut live, mut model) = (Live::mount(&region)?, Model::default());
    let absent = known_paths();
    for (index, step) in steps.iter().enumerate() {
        let done = match step {
            Step::Do(seed) => {
                let operation = random_operation(&mut Random::new(*seed));
                agree(&mut live, &mut model, &operation)
                    .map_err(|problem| format!("{operation}: {problem}"))
            }
            Step::Reopen => agree(&mut live, &mut model, &Operation::Remount),
            Step::Crash(seed) => {
                let cut = cut(&region, *seed);
                drop(std::mem::replace(&mut live, Live::mount(&cut)?));
                region = cut;
                model.release();
                Ok(())
            }
        };
        done.and_then(|()| compare(&live, &model, &absent))
            .map_err(|problem| format!("step {index}: {problem}"))?;
    }
    agree(&mut live, &mut model, &Operation::Release)?;
    let summary = Summary::of(live.files()).map_err(|error| error.to_string())?;
    add_up(live.files(), &summary)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_file_system_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..250)) {
        let result = run(&steps);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}
