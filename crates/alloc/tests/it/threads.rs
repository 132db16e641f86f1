//! Many threads at once: no block twice, none lost, refusals only when true.

use perdure_alloc::{
    Allocator, BlockNumber, DomainId, Extent, FreeError, Geometry, MarkError, NoLedger, Options,
    Policy, Purpose, Rebuild, Request, Unit,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FIRST: u64 = 100;

fn geometry() -> Geometry {
    Geometry {
        first_block: BlockNumber::new(FIRST),
        blocks_per_segment: 256,
        segments: 37,
        groups: 4,
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) * bound) >> 32
    }
}

/// One thread's work: allocates and frees at random, claims each block in `owners`, and keeps below `limit` blocks.
fn churn(allocator: &Allocator, owners: &[AtomicU32], thread: u32, limit: usize) -> Vec<Extent> {
    let mut chance = Chance(u64::from(thread));
    let mut held: Vec<Extent> = Vec::new();
    let mut blocks_held = 0;
    for _ in 0..60_000 {
        let blocks = if chance.below(3) == 0 {
            1 + chance.below(40) as u32
        } else {
            1
        };
        if blocks_held + blocks as usize > limit || (!held.is_empty() && chance.below(2) == 0) {
            let extent = held.swap_remove(chance.below(held.len() as u64) as usize);
            blocks_held -= extent.blocks as usize;
            for block in extent.start.get()..extent.start.get() + u64::from(extent.blocks) {
                assert_eq!(
                    owners[(block - FIRST) as usize].swap(0, Ordering::Relaxed),
                    thread,
                    "block {block} changed hands"
                );
            }
            allocator.free(extent).expect("ours");
            continue;
        }
        let request = Request {
            domain: DomainId(chance.below(6) as u32),
            blocks,
            unit: Unit::Block4K,
            purpose: if chance.below(4) == 0 {
                Purpose::Overwrite
            } else {
                Purpose::Ordinary
            },
            home: thread as usize,
        };
        for extent in allocator
            .allocate(&request)
            .expect("all limits together leave room")
        {
            for block in extent.start.get()..extent.start.get() + u64::from(extent.blocks) {
                assert_eq!(
                    owners[(block - FIRST) as usize].swap(thread, Ordering::Relaxed),
                    0,
                    "block {block} twice"
                );
            }
            blocks_held += extent.blocks as usize;
            held.push(extent);
        }
    }
    held
}

#[test]
fn threads_share_a_nearly_full_pool() {
    for policy in [Policy::Published, Policy::Steered, Policy::FirstFit] {
        let options = Options {
            policy,
            seed: 5,
            reserve_blocks: 300,
        };
        let allocator = Allocator::new(geometry(), options, Box::new(NoLedger));
        let owners: Vec<AtomicU32> = (0..geometry().blocks())
            .map(|_| AtomicU32::new(0))
            .collect();
        let limit = (geometry().blocks() as usize - 300) / 4 - 41;
        let held: Vec<Extent> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=4)
                .map(|thread| {
                    scope.spawn({
                        let (a, o) = (&allocator, &owners[..]);
                        move || churn(a, o, thread, limit)
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        allocator.verify().expect("books are right");
        let total: u64 = held.iter().map(|extent| u64::from(extent.blocks)).sum();
        assert_eq!(allocator.free_blocks(), geometry().blocks() - total);
        for extent in held {
            allocator.free(extent).expect("held");
        }
        assert_eq!(allocator.free_blocks(), geometry().blocks());
        allocator.verify().expect("books are right");
    }
}

/// Threads that race for the last blocks get exactly those above the reserve.
#[test]
fn racing_threads_stop_at_the_reserve() {
    for seed in 0..20 {
        let allocator = Allocator::new(
            geometry(),
            Options {
                seed,
                reserve_blocks: 1000,
                ..Options::default()
            },
            Box::new(NoLedger),
        );
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (allocator, taken) = (&allocator, &taken);
                scope.spawn(move || {
                    while allocator
                        .allocate_one(DomainId(2 + thread as u32), Purpose::Ordinary, thread)
                        .is_ok()
                    {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), geometry().blocks() - 1000);
        allocator.verify().expect("books are right");
    }
}

/// Marks from several threads give the allocator that was there before; a block with two owners is told once.
#[test]
fn a_parallel_rebuild_equals_the_original() {
    let allocator = Allocator::new(geometry(), Options::default(), Box::new(NoLedger));
    let mut extents = Vec::new();
    for home in 0..200_u32 {
        let request = Request {
            domain: DomainId(home % 5),
            blocks: 1 + home % 37,
            unit: Unit::Block4K,
            purpose: Purpose::Ordinary,
            home: home as usize,
        };
        extents.extend(allocator.allocate(&request).expect("room"));
    }
    let domains: Vec<_> = allocator
        .usage()
        .iter()
        .map(|segment| segment.domain)
        .collect();
    let rebuild = Rebuild::new(geometry(), &domains, &allocator.wear());
    std::thread::scope(|scope| {
        for part in extents.chunks(extents.len() / 4 + 1) {
            let rebuild = &rebuild;
            scope.spawn(move || {
                part.iter()
                    .for_each(|&extent| rebuild.mark(extent).expect("disjoint"))
            });
        }
    });
    let twice = Extent {
        start: extents[7].start,
        blocks: 1,
    };
    assert_eq!(
        rebuild.mark(twice),
        Err(MarkError::AlreadyMarked { block: twice.start })
    );
    let rebuilt = rebuild.finish(Options::default(), Box::new(NoLedger));
    rebuilt.verify().expect("books are right");
    assert_eq!(rebuilt.save(), allocator.save());
    assert_eq!(rebuilt.wear(), allocator.wear());
    let usage = |allocator: &Allocator| allocator.usage();
    for (before, after) in usage(&allocator).iter().zip(usage(&rebuilt)) {
        assert_eq!(before.free_blocks, after.free_blocks);
        assert!(
            after.domain == before.domain || (after.domain.is_none() && before.free_blocks == 256)
        );
    }
}

#[test]
fn impossible_marks_and_frees_are_refused_by_name() {
    let mut domains = vec![None; 37];
    domains[3] = Some(DomainId(9));
    let mut rebuild = Rebuild::new(geometry(), &domains, &[]);
    let at = |block: u64, blocks| Extent {
        start: BlockNumber::new(FIRST + block),
        blocks,
    };
    let error = rebuild.mark(at(5, 1)).expect_err("segment 0 is nobody's");
    assert_eq!(
        error.to_string(),
        "block 105 is in use, but its segment 0 belongs to no domain; run fsck"
    );
    assert!(matches!(
        rebuild.mark(at(37 * 256 - 1, 2)),
        Err(MarkError::OutOfRange { .. })
    ));
    assert!(matches!(
        rebuild.mark(Extent {
            start: BlockNumber::new(u64::MAX),
            blocks: u32::MAX
        }),
        Err(MarkError::OutOfRange { .. })
    ));
    assert!(matches!(
        rebuild.mark_word_image(&[0; 5]),
        Err(MarkError::ImageSize {
            found: 5,
            expected: 148
        })
    ));
    let mut image = vec![0; 148];
    image[0] = 4;
    assert!(matches!(
        rebuild.mark_word_image(&image),
        Err(MarkError::Unassigned { .. })
    ));
    rebuild.mark(at(3 * 256 + 10, 20)).expect("assigned");
    let allocator = rebuild.finish(Options::default(), Box::new(NoLedger));
    assert_eq!(allocator.domain_of(at(3 * 256, 1).start), Some(DomainId(9)));
    assert_eq!(
        allocator.free(at(3 * 256 + 25, 6)),
        Err(FreeError::NotAllocated {
            block: at(3 * 256 + 30, 1).start
        })
    );
    assert_eq!(allocator.free(at(3 * 256 + 10, 20)), Ok(()));
    let twice = allocator
        .free(at(3 * 256 + 10, 20))
        .expect_err("freed already");
    assert_eq!(
        twice.to_string(),
        "block 878 was freed twice: it is not allocated; run fsck"
    );
    assert!(matches!(
        allocator.free(Extent {
            start: BlockNumber::new(0),
            blocks: 1
        }),
        Err(FreeError::OutOfRange { .. })
    ));
    assert!(matches!(
        allocator.free(at(37 * 256, 0)),
        Err(FreeError::OutOfRange { .. })
    ));
}

/// A file created and removed over and over moves on to another segment now and then, but does not write the segment table each time.
#[test]
fn an_emptied_segment_does_not_flap() {
    struct Counting(std::sync::Arc<AtomicU32>);
    impl perdure_alloc::SegmentLedger for Counting {
        fn assign(&self, _: perdure_alloc::SegmentNumber, _: DomainId) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn release(&self, _: perdure_alloc::SegmentNumber) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let writes = std::sync::Arc::new(AtomicU32::new(0));
    let allocator = Allocator::new(
        geometry(),
        Options::default(),
        Box::new(Counting(writes.clone())),
    );
    for _ in 0..256 {
        let start = allocator
            .allocate_one(DomainId(4), Purpose::Ordinary, 0)
            .expect("room");
        allocator.free(Extent { start, blocks: 1 }).expect("ours");
    }
    let leaves = 256 / 64;
    let written = writes.load(Ordering::Relaxed);
    assert!(
        written <= 2 * leaves,
        "{written} writes of the segment table"
    );
}
