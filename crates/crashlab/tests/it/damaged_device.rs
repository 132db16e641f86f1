//! Damaged pools with content on a device, which fails: the same code as the fuzz target
//! `device_pool`, with chance instead of coverage.

use perdure_crashlab::mutation::MUTATION_BYTES;
use perdure_crashlab::mutation::on_device::DeviceSample;
use perdure_crashlab::random::Random;
use perdure_crashlab::recovery::caught;
use perdure_crashlab::workload::DEVICE_BLOCKS;
use std::time::{Duration, Instant};

/// The flags of an input whose damage leaves the region alone.
const IS_SOUND: u8 = 2;

/// Flags, and one to sixteen pieces.
fn input(random: &mut Random) -> Vec<u8> {
    let pieces = 1 + random.below(16) as usize;
    (0..1 + pieces * MUTATION_BYTES)
        .map(|_| random.next_number() as u8)
        .collect()
}

fn hex(input: &[u8]) -> String {
    input.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tries inputs until one fails or time is up. Returns the number of inputs, the number of pools
/// that were mounted, and the failure.
fn search(sample: &DeviceSample, time: Duration) -> (u64, u64, Option<String>) {
    let (begin, mut random) = (Instant::now(), Random::new(4));
    let (mut tried, mut mounted) = (0, 0);
    while begin.elapsed() < time {
        let input = input(&mut random);
        let one = Instant::now();
        tried += 1;
        match caught(|| sample.examine(&input)) {
            Ok(is_mounted) => mounted += u64::from(is_mounted),
            Err(reason) => return (tried, mounted, Some(format!("{}: {reason}", hex(&input)))),
        }
        let taken = one.elapsed();
        assert!(taken < Duration::from_secs(5), "{}: {taken:?}", hex(&input));
    }
    (tried, mounted, None)
}

fn seconds() -> Duration {
    let seconds = std::env::var("DAMAGE_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(15))
}

#[test]
fn damaged_pools_with_a_device_are_refused_or_served() {
    let sample = DeviceSample::new();
    for flags in 0..32 {
        assert_eq!(
            sample.examine(&[flags]),
            Ok(true),
            "untouched, flags {flags}"
        );
    }
    let (tried, mounted, failed) = search(&sample, seconds());
    println!("{tried} damaged pools, {mounted} of them could be mounted");
    assert_eq!(failed, None);
    assert!(
        mounted > 0 && mounted < tried,
        "{mounted} of {tried} mounted"
    );
}

/// Pieces that flip a bit of each block of the device.
fn flipped(flags: u8) -> Vec<u8> {
    let kind = if flags & IS_SOUND == 0 { 14 } else { 0 };
    let pieces = (0..DEVICE_BLOCKS as u8).flat_map(|block| {
        let mut piece = [0; MUTATION_BYTES];
        (piece[0], piece[2]) = (kind, block);
        piece
    });
    std::iter::once(flags).chain(pieces).collect()
}

#[test]
fn flipped_bits_on_the_device_are_not_served() {
    let sample = DeviceSample::new();
    for flags in 0..32 {
        assert_eq!(sample.examine(&flipped(flags)), Ok(true), "flags {flags}");
    }
}

/// Pieces that bring file `a` in, and move it to the device, which fails to write.
#[cfg(feature = "deliberate-bugs")]
fn failing_write() -> Vec<u8> {
    use device::faulty::Fault;
    use perdure_crashlab::catalogue;
    use perdure_crashlab::operation::Operation;
    let operations = catalogue::on_device();
    let place = |is_it: fn(&Operation) -> bool| operations.iter().position(is_it);
    let raise = place(|one| matches!(one, Operation::Raise { path, .. } if path == "a"));
    let sink = place(|one| matches!(one, Operation::Sink { path, .. } if path == "a"));
    let fault = Fault::ALL.iter().position(|&fault| fault == Fault::Wait);
    let pieces = [(5, raise), (4, fault), (5, sink)];
    let pieces = pieces.into_iter().flat_map(|(kind, place)| {
        let mut piece = [0; MUTATION_BYTES];
        (piece[0], piece[2]) = (kind, place.expect("there is one") as u8);
        piece
    });
    std::iter::once(IS_SOUND).chain(pieces).collect()
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn a_device_that_is_trusted_is_noticed() {
    use pmem::deliberate::{self, Bug};
    let sample = DeviceSample::new();
    let bugs = [
        (Bug::TrustDevice, flipped(0), "was sealed with"),
        (Bug::TrustDevice, flipped(IS_SOUND), "was sealed with"),
        (
            Bug::SwallowDeviceError,
            failing_write(),
            "than were written",
        ),
    ];
    for (bug, input, reason) in bugs {
        assert_eq!(sample.examine(&input), Ok(true));
        deliberate::set(Some(bug));
        let outcome = sample.examine(&input);
        deliberate::set(None);
        let found = outcome.expect_err("the bug shows");
        assert!(found.contains(reason), "{bug:?}: {found}");
    }
}
