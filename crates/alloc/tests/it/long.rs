//! Millions of random operations, with clean and crashed remounts between, against a plain table of who has which block.

use parking_lot::Mutex;
use perdure_alloc::{
    Allocator, BlockNumber, DomainId, Extent, Geometry, Lifetime, Options, Policy, Purpose,
    Rebuild, Request, SegmentLedger, SegmentNumber, Unit,
};
use std::sync::Arc;

const FIRST: u64 = 11;
const OPERATIONS: usize = 1_000_000;
const REMOUNT_EVERY: usize = 100_000;
const RESERVE: u64 = 700;

/// The segment table.
#[derive(Clone)]
struct Table(Arc<Mutex<Vec<Option<DomainId>>>>);

impl SegmentLedger for Table {
    fn assign(&self, segment: SegmentNumber, domain: DomainId) {
        self.0.lock()[segment.0 as usize] = Some(domain);
    }

    fn release(&self, segment: SegmentNumber) {
        let before = self.0.lock()[segment.0 as usize].take();
        assert!(before.is_some(), "released a free segment");
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) as usize * bound) >> 32
    }
}

struct Checked {
    geometry: Geometry,
    options: Options,
    allocator: Allocator,
    table: Table,
    chance: Chance,
    in_use: Vec<bool>,
    held: Vec<Extent>,
    used: u64,
    written: u64,
}

impl Checked {
    fn new(policy: Policy, seed: u64) -> Self {
        let geometry = Geometry {
            first_block: BlockNumber::new(FIRST),
            blocks_per_segment: 1024,
            segments: 45,
            groups: 4,
        };
        let options = Options {
            policy,
            seed,
            reserve_blocks: RESERVE,
        };
        let table = Table(Arc::new(Mutex::new(vec![None; geometry.segments as usize])));
        Self {
            geometry,
            options,
            allocator: Allocator::new(geometry, options, Box::new(table.clone())),
            table,
            chance: Chance(seed),
            in_use: vec![false; geometry.blocks() as usize],
            held: Vec::new(),
            used: 0,
            written: 0,
        }
    }

    fn mark(&mut self, extent: Extent, in_use: bool) {
        let first = (extent.start.get() - FIRST) as usize;
        for block in first..first + extent.blocks as usize {
            assert_ne!(
                self.in_use[block], in_use,
                "block {block} was handed out or freed twice"
            );
            self.in_use[block] = in_use;
        }
    }

    fn allocate(&mut self) {
        let blocks = match self.chance.below(100) {
            0..60 => 1,
            60..90 => 1 + self.chance.below(40) as u32,
            90..99 => 1 + self.chance.below(600) as u32,
            _ => 1 + self.chance.below(3000) as u32,
        };
        let purpose = [Purpose::Ordinary, Purpose::Overwrite][self.chance.below(8) / 7];
        let lifetime = [Lifetime::Unknown, Lifetime::Brief][self.chance.below(6) / 5];
        let request = Request {
            domain: DomainId([0, 2, 2, 2, 3, 1, 4][self.chance.below(7)]),
            blocks,
            unit: [Unit::Block4K, Unit::Huge2M][self.chance.below(50) / 49],
            purpose,
            home: self.chance.below(5),
        };
        let kept = if purpose == Purpose::Overwrite {
            0
        } else {
            RESERVE
        };
        match self.allocator.allocate_with(&request, lifetime) {
            Ok(extents) => {
                for extent in extents {
                    self.mark(extent, true);
                    self.used += u64::from(extent.blocks);
                    let mut written = u64::from(extent.blocks);
                    if lifetime == Lifetime::Brief {
                        // Counts only when its owner says so.
                        written /= 2;
                        self.allocator.charge(extent.start, written);
                    }
                    self.written += written;
                    self.held.push(extent);
                }
            }
            Err(error) => {
                let free = self.geometry.blocks() - self.used;
                assert_eq!(error.free, free);
                assert!(
                    free < kept + u64::from(blocks) || request.unit != Unit::Block4K,
                    "refused {request:?} with {free} free"
                );
            }
        }
    }

    fn free(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let pick = self.chance.below(self.held.len());
        let mut extent = self.held.swap_remove(pick);
        if self.chance.below(8) == 0 && extent.blocks > 1 {
            let kept = 1 + self.chance.below(extent.blocks as usize - 1) as u32;
            self.held.push(Extent {
                start: extent.start,
                blocks: kept,
            });
            extent.start = extent.start + u64::from(kept);
            extent.blocks -= kept;
        }
        self.mark(extent, false);
        self.used -= u64::from(extent.blocks);
        if self.chance.below(2) == 0 {
            self.allocator.free(extent).expect("ours");
        } else {
            self.allocator
                .free_all(&[extent], |extent, error| panic!("{extent:?}: {error}"));
        }
    }

    fn charge(&mut self) {
        let block = FIRST + self.chance.below(self.in_use.len()) as u64;
        self.allocator.charge(BlockNumber::new(block), 3);
        self.written += 3;
    }

    fn remount(&mut self, clean: bool) {
        let (image, wear) = (self.allocator.save(), self.allocator.wear());
        let domains = self.table.0.lock().clone();
        let mut rebuild = Rebuild::new(self.geometry, &domains, &wear);
        if clean {
            rebuild.mark_word_image(&image).expect("our own image");
        } else {
            for &extent in &self.held {
                rebuild.mark(extent).expect("extents are disjoint");
            }
        }
        self.allocator = rebuild.finish(self.options, Box::new(self.table.clone()));
        assert_eq!(self.allocator.save(), image);
    }

    fn check(&self) {
        self.allocator.verify().expect("books are right");
        assert_eq!(
            self.allocator.free_blocks(),
            self.geometry.blocks() - self.used
        );
        assert_eq!(self.allocator.wear().iter().sum::<u64>(), self.written);
        let image = self.allocator.save();
        for (block, &in_use) in self.in_use.iter().enumerate() {
            assert_eq!(image[block / 64] >> (block % 64) & 1 == 1, in_use);
        }
        let free_leaves = self.in_use.chunks_exact(512);
        let free_leaves = free_leaves.filter(|leaf| leaf.iter().all(|&in_use| !in_use));
        assert_eq!(
            self.allocator.free_in_huge_runs(),
            512 * free_leaves.count() as u64
        );
    }

    fn run(&mut self) {
        for operation in 0..OPERATIONS {
            // The fill swings between a third and full.
            let swing = (operation / 20_000) % 2 == 0;
            match self.chance.below(20) {
                0 => self.charge(),
                1..=9 => self.allocate(),
                10..=12 if swing => self.allocate(),
                10..=12 => self.free(),
                _ => self.free(),
            }
            if self.used * 3 < self.geometry.blocks() {
                self.allocate();
            }
            if operation % REMOUNT_EVERY == REMOUNT_EVERY - 1 {
                self.check();
                self.remount(self.chance.0.is_multiple_of(2));
                self.check();
            } else if operation % (REMOUNT_EVERY / 20) == 0 {
                self.check();
            }
        }
    }
}

#[test]
fn no_block_twice_and_none_lost_steered() {
    for seed in [1, 2] {
        Checked::new(Policy::Steered, seed).run();
    }
}

#[test]
fn no_block_twice_and_none_lost_published() {
    Checked::new(Policy::Published, 3).run();
}

#[test]
fn no_block_twice_and_none_lost_first_fit() {
    Checked::new(Policy::FirstFit, 4).run();
}
