//! Cost of the allocator's operations on a 2 GiB pool: `cargo run --release -p perdure-alloc --example speed`.

use perdure_alloc::{
    Allocator, BlockNumber, DomainId, Extent, Geometry, NoLedger, Options, Policy, Purpose,
    Rebuild, Request, Unit,
};
use std::hint::black_box;
use std::time::Instant;

const OWNER: DomainId = DomainId(2);
const ROUNDS: u32 = 2_000_000;

fn geometry(groups: u32) -> Geometry {
    Geometry {
        first_block: BlockNumber::new(512),
        blocks_per_segment: 4096,
        segments: 128,
        groups,
    }
}

fn request(blocks: u32) -> Request {
    Request {
        domain: OWNER,
        blocks,
        unit: Unit::Block4K,
        purpose: Purpose::Ordinary,
        home: 0,
    }
}

/// The fastest of many short parts: what the operation costs when nobody else uses the processor.
fn nanoseconds_each(rounds: u32, mut operation: impl FnMut()) -> f64 {
    let part = (rounds / 1000).max(1);
    let parts = (0..rounds / part).map(|_| {
        let start = Instant::now();
        for _ in 0..part {
            operation();
        }
        start.elapsed().as_nanos() as f64 / f64::from(part)
    });
    parts.fold(f64::INFINITY, f64::min)
}

/// A pool filled block by block and thinned out at random to `percent`.
fn filled(policy: Policy, percent: u64, live: &mut Vec<BlockNumber>) -> Allocator {
    let allocator = Allocator::new(
        geometry(2),
        Options {
            policy,
            seed: 1,
            reserve_blocks: 4096,
        },
        Box::new(NoLedger),
    );
    let total = allocator.geometry().blocks();
    let mut chance = 12345_u64;
    while total - allocator.free_blocks() < total * 19 / 20 {
        live.push(
            allocator
                .allocate_one(OWNER, Purpose::Ordinary, 0)
                .expect("room"),
        );
    }
    while total - allocator.free_blocks() > total * percent / 100 {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let block = live.swap_remove((chance >> 33) as usize % live.len());
        allocator
            .free(Extent {
                start: block,
                blocks: 1,
            })
            .expect("allocated");
    }
    allocator
}

fn main() {
    println!(
        "{:<34}{:>12}{:>12}{:>12}",
        "2 GiB pool, 16 MiB segments (ns)", "Published", "Steered", "FirstFit"
    );
    let policies = [Policy::Published, Policy::Steered, Policy::FirstFit];
    let row = |name: &str, measure: &dyn Fn(Policy) -> f64| {
        let [a, b, c] = policies.map(measure);
        println!("{name:<34}{a:>12.1}{b:>12.1}{c:>12.1}");
    };
    row("the floor: lock + unlock, twice", &|_| {
        let lock = parking_lot::Mutex::new(0_u64);
        nanoseconds_each(ROUNDS, || {
            *lock.lock() += 1;
            *black_box(&lock).lock() += 1;
        })
    });
    for percent in [0, 50, 75, 94] {
        row(&format!("allocate + free 1, {percent} % full"), &|policy| {
            let allocator = filled(policy, percent, &mut Vec::new());
            nanoseconds_each(ROUNDS, || {
                let block = allocator
                    .allocate_one(OWNER, Purpose::Ordinary, 0)
                    .expect("room");
                allocator
                    .free(Extent {
                        start: black_box(block),
                        blocks: 1,
                    })
                    .expect("allocated");
            })
        });
        row(
            &format!("replace a random one, {percent} % full"),
            &|policy| {
                let mut live = Vec::new();
                let allocator = filled(policy, percent.max(1), &mut live);
                let mut chance = 99_u64;
                nanoseconds_each(ROUNDS, || {
                    chance = chance
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let victim = (chance >> 33) as usize % live.len();
                    let new = allocator
                        .allocate_one(OWNER, Purpose::Ordinary, 0)
                        .expect("room");
                    let old = std::mem::replace(&mut live[victim], new);
                    allocator
                        .free(Extent {
                            start: old,
                            blocks: 1,
                        })
                        .expect("allocated");
                })
            },
        );
    }
    for (blocks, percent) in [(16, 0), (16, 75), (256, 0), (256, 75), (1024, 0)] {
        row(
            &format!("allocate + free {blocks}, {percent} % full"),
            &|policy| {
                let allocator = filled(policy, percent, &mut Vec::new());
                nanoseconds_each(ROUNDS / 100, || {
                    let extents = allocator.allocate(&request(blocks)).expect("room");
                    for &extent in &extents {
                        allocator.free(black_box(extent)).expect("allocated");
                    }
                })
            },
        );
    }
    let tiny = Geometry {
        first_block: BlockNumber::new(1),
        blocks_per_segment: 64,
        segments: 16,
        groups: 2,
    };
    row("new, 16 segments of 64 blocks", &|policy| {
        nanoseconds_each(100_000, || {
            black_box(Allocator::new(
                tiny,
                Options {
                    policy,
                    ..Options::default()
                },
                Box::new(NoLedger),
            ));
        })
    });
    row("new, 1 TiB", &|policy| {
        let large = Geometry {
            segments: 65_536,
            ..geometry(2)
        };
        nanoseconds_each(20, || {
            black_box(Allocator::new(
                large,
                Options {
                    policy,
                    ..Options::default()
                },
                Box::new(NoLedger),
            ));
        })
    });
    row("rebuild a full 1 TiB (ms)", &|policy| {
        let large = Geometry {
            segments: 65_536,
            ..geometry(2)
        };
        let rebuild = Rebuild::new(large, &vec![Some(OWNER); 65_536], &[]);
        nanoseconds_each(1, || {
            for segment in 0..65_536 {
                let start = BlockNumber::new(512 + segment * 4096);
                rebuild
                    .mark(Extent {
                        start,
                        blocks: 4095,
                    })
                    .expect("unmarked");
            }
        });
        let start = Instant::now();
        black_box(rebuild.finish(
            Options {
                policy,
                ..Options::default()
            },
            Box::new(NoLedger),
        ));
        start.elapsed().as_secs_f64() * 1e3
    });
}
