//! The allocator itself under a scheduler that chooses, at every lock and every shared counter, who goes on: thousands of interleavings of
//! small programs, each of which must end with true books. `cargo test -p perdure-alloc --features interleavings --test interleavings`.

use perdure_alloc::{
    Allocator, BlockNumber, DomainId, Extent, FreeError, Geometry, Lifetime, NoLedger, Options,
    Policy, Purpose, Request, Unit,
};
use shuttle::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const BLOCKS: u64 = 4 * 64;
const SCHEDULES: usize = 500;

fn allocator(reserve_blocks: u64, policy: Policy) -> Arc<Allocator> {
    let geometry = Geometry {
        first_block: BlockNumber::new(0),
        blocks_per_segment: 64,
        segments: 4,
        groups: 2,
    };
    let options = Options {
        policy,
        seed: 9,
        reserve_blocks,
    };
    Arc::new(Allocator::new(geometry, options, Box::new(NoLedger)))
}

fn request(domain: u32, blocks: u32, home: usize) -> Request {
    Request {
        domain: DomainId(domain),
        blocks,
        unit: Unit::Block4K,
        purpose: Purpose::Ordinary,
        home,
    }
}

/// Who has which block, for the test alone: no scheduling happens at these words.
struct Owners(Vec<AtomicU32>);

impl Owners {
    fn swap(&self, extent: Extent, from: u32, to: u32) {
        for block in extent.start.get()..extent.start.get() + u64::from(extent.blocks) {
            let before = self.0[block as usize].swap(to, Ordering::SeqCst);
            assert_eq!(before, from, "block {block} has two owners");
        }
    }
}

fn churn(allocator: &Allocator, owners: &Owners, thread: u32) -> Vec<Extent> {
    let mut held = Vec::new();
    for step in 0..6_u32 {
        let home = (thread + step / 3) as usize;
        let blocks = [1, 17, 1, 70, 1, 5][((thread + step) % 6) as usize];
        let lifetime = [Lifetime::Unknown, Lifetime::Brief][(step % 2) as usize];
        let found = allocator.allocate_with(&request(thread % 3, blocks, home), lifetime);
        for extent in found.into_iter().flatten() {
            owners.swap(extent, 0, thread);
            held.push(extent);
        }
        if step % 2 == 1 && !held.is_empty() {
            let extent = held.remove(0);
            owners.swap(extent, thread, 0);
            if step == 3 {
                allocator.free_all(&[extent], |extent, error| panic!("{extent:?}: {error}"));
            } else {
                allocator.free(extent).expect("ours");
            }
        }
        allocator.charge(BlockNumber::new(u64::from(step) * 40), 2);
    }
    held
}

/// Three threads, two groups, four segments: whatever the order, no block has two owners, none is lost, and the books are true.
fn books_are_true(policy: Policy) {
    shuttle::check_random(
        move || {
            let allocator = allocator(20, policy);
            let owners = Arc::new(Owners((0..BLOCKS).map(|_| AtomicU32::new(0)).collect()));
            let threads: Vec<_> = (1..=3)
                .map(|thread| {
                    let (allocator, owners) = (allocator.clone(), owners.clone());
                    shuttle::thread::spawn(move || churn(&allocator, &owners, thread))
                })
                .collect();
            let held = threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("no panic"))
                .collect::<Vec<_>>();
            allocator.verify().expect("books are right");
            let total: u64 = held.iter().map(|extent| u64::from(extent.blocks)).sum();
            assert_eq!(allocator.free_blocks(), BLOCKS - total);
            for extent in held {
                allocator.free(extent).expect("held");
            }
            assert_eq!(allocator.free_blocks(), BLOCKS);
            allocator.verify().expect("books are right");
        },
        SCHEDULES,
    );
}

#[test]
fn books_are_true_in_every_schedule_steered() {
    books_are_true(Policy::Steered);
}

#[test]
fn books_are_true_in_every_schedule_published() {
    books_are_true(Policy::Published);
}

/// Two who race for the last blocks get together exactly what lies above the reserve.
#[test]
fn the_reserve_holds_in_every_schedule() {
    shuttle::check_random(
        || {
            let allocator = allocator(30, Policy::Steered);
            let threads: Vec<_> = [2, 3]
                .map(|domain| {
                    let allocator = allocator.clone();
                    shuttle::thread::spawn(move || {
                        let request = |blocks| request(domain, blocks, 0);
                        let mut taken = 0;
                        for blocks in [50, 7, 2] {
                            while allocator.allocate(&request(blocks)).is_ok() {
                                taken += u64::from(blocks);
                            }
                        }
                        while allocator.allocate(&request(1)).is_ok() {
                            taken += 1;
                        }
                        taken
                    })
                })
                .into_iter()
                .collect();
            let taken: u64 = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum();
            assert_eq!(taken, BLOCKS - 30);
            allocator.verify().expect("books are right");
        },
        SCHEDULES,
    );
}

/// Of two who free the same block, exactly one is refused.
#[test]
fn of_two_frees_one_is_refused_in_every_schedule() {
    shuttle::check_random(
        || {
            let allocator = allocator(0, Policy::Steered);
            let extent = allocator.allocate(&request(2, 8, 0)).expect("room")[0];
            let threads = [0, 1].map(|_| {
                let allocator = allocator.clone();
                shuttle::thread::spawn(move || allocator.free(extent))
            });
            let results = threads.map(|thread| thread.join().expect("no panic"));
            let refused = Err(FreeError::NotAllocated {
                block: extent.start,
            });
            assert!(
                results == [Ok(()), refused] || results == [refused, Ok(())],
                "{results:?}"
            );
            allocator.verify().expect("books are right");
        },
        SCHEDULES,
    );
}
