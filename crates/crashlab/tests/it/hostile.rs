//! A hostile holder of a lease, and damaged leases: the same code as the fuzz target `lease`, with chance instead of coverage.

use perdure_crashlab::hostile::{MUTATION_BYTES, Sample};
use perdure_crashlab::random::Random;
use perdure_crashlab::recovery::caught;
use std::time::{Duration, Instant};

fn seconds() -> Duration {
    let seconds = std::env::var("DAMAGE_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(15))
}

/// A mode, and up to forty mutations.
fn input(random: &mut Random) -> Vec<u8> {
    let mutations = 1 + random.below(40) as usize;
    (0..1 + mutations * MUTATION_BYTES)
        .map(|_| random.next_number() as u8)
        .collect()
}

fn hex(input: &[u8]) -> String {
    input.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tries inputs until one fails or time is up: how many, and what failed.
fn search(sample: &Sample, time: Duration) -> (u64, Option<String>) {
    let (begin, mut random) = (Instant::now(), Random::new(3));
    let mut tried = 0;
    while begin.elapsed() < time {
        let input = input(&mut random);
        let one = Instant::now();
        tried += 1;
        if let Err(reason) = caught(|| sample.examine(&input)) {
            return (tried, Some(format!("{}: {reason}", hex(&input))));
        }
        assert!(
            one.elapsed() < Duration::from_secs(5),
            "{}: took {:?}",
            hex(&input),
            one.elapsed()
        );
    }
    (tried, None)
}

#[test]
fn a_hostile_holder_harms_only_his_file() {
    let sample = Sample::new();
    for mode in 0..=u8::MAX {
        assert_eq!(sample.examine(&[mode]), Ok(()), "untouched, mode {mode}");
    }
    let (tried, failed) = search(&sample, seconds());
    println!("{tried} inputs");
    assert_eq!(failed, None);
    assert!(tried > 100, "{tried} inputs");
}

#[test]
#[cfg(feature = "deliberate-bugs")]
fn a_server_that_believes_a_holder_is_noticed() {
    use pmem::deliberate::{self, Bug};
    let sample = Sample::new();
    for bug in [Bug::BelieveHoldersBlock, Bug::BelieveHoldersSize] {
        deliberate::set(Some(bug));
        let begin = Instant::now();
        let (tried, failed) = search(&sample, seconds());
        deliberate::set(None);
        println!("{bug:?}: {tried} inputs, {:?}: {failed:?}", begin.elapsed());
        assert!(failed.is_some(), "{bug:?} was not noticed");
    }
}
