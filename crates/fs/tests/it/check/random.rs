//! Any damage: no panic, no hang, no write without repair, and repair ends with a sound pool.
//!
//! `CHECK_SECONDS` and `CHECK_SEED` make it longer and different.

use super::OPTIONS;
use super::tree::{self, Snapshot};
use perdure_fs::check::{CheckOptions, FaultKind, check};
use pmem::Region;
use std::time::{Duration, Instant};

/// A generator of numbers that look random; the seed is the whole state.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        txn::checksum::mix64(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Overwrites some stretches: random bytes, zeros, copies of other stretches.
fn damage(image: &mut [u8], random: &mut Random) {
    let used: Vec<u64> = (0..image.len() as u64 / 4096)
        .filter(|block| {
            image[*block as usize * 4096..][..4096]
                .iter()
                .any(|&byte| byte != 0)
        })
        .collect();
    for _ in 0..=random.below(5) {
        let block = used[random.below(used.len() as u64) as usize] * 4096;
        let whole = random.below(6) == 0;
        let length = if whole { 4096 } else { 1 + random.below(64) };
        let at = (if whole {
            block
        } else {
            block + random.below(4096 - length)
        }) as usize;
        let length = length as usize;
        match random.below(4) {
            0 => image[at..at + length].fill(0),
            1 => {
                let from =
                    used[random.below(used.len() as u64) as usize] as usize * 4096 + at % 4096;
                image.copy_within(from..from + length.min(4096 - at % 4096), at);
            }
            _ => image[at..at + length]
                .iter_mut()
                .for_each(|byte| *byte = random.next() as u8),
        }
    }
}

/// What no repair can mend.
fn is_hopeless(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::TableLost | FaultKind::SuperblocksLost)
}

fn survive(base: &[u8], seed: u64) -> bool {
    let mut image = base.to_vec();
    damage(&mut image, &mut Random(seed));
    let region = Region::from_image(&image);
    let report = check(&region, &OPTIONS);
    assert_eq!(region.image(), image, "seed {seed}: a check wrote");
    let parallel = check(
        &region,
        &CheckOptions {
            threads: 3,
            progress: None,
        },
    );
    assert_eq!(report, parallel, "seed {seed}: threads matter");
    if let Ok(files) = tree::mount(region) {
        let _ = Snapshot::try_of(&files);
    }
    let (region, repaired) = tree::repaired(&image);
    if repaired
        .left
        .faults
        .iter()
        .any(|fault| is_hopeless(fault.kind))
    {
        return false;
    }
    assert!(
        repaired.left.is_clean(),
        "seed {seed}: found {:#?}, left {:#?}",
        repaired.found,
        repaired.left
    );
    assert!(
        repaired.passes < 20,
        "seed {seed}: {} passes",
        repaired.passes
    );
    let image = region.image();
    let files = tree::mount(region).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    Snapshot::try_of(&files).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    // Running it again changes nothing.
    let (again, repeated) = tree::repaired(&image);
    assert_eq!(
        (repeated.passes, again.image() == image),
        (0, true),
        "seed {seed}"
    );
    true
}

#[test]
fn any_damage_is_repaired_or_called_hopeless() {
    let bases = [tree::crashed(), tree::unmounted(tree::populated())];
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let seconds = number("CHECK_SECONDS").unwrap_or(15);
    let first_seed = number("CHECK_SEED").unwrap_or(0);
    let started = Instant::now();
    let (mut pools, mut saved) = (0, 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        let seed = first_seed + pools;
        saved += u64::from(survive(&bases[(seed % 2) as usize], seed));
        pools += 1;
    }
    println!("{pools} damaged pools, {saved} repaired, the rest lost superblock or inode table");
    assert!(saved * 10 > pools * 8, "{saved} of {pools}");
}
