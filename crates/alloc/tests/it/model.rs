//! Random operations against a plain model: a set of allocated blocks and the segment table.

use parking_lot::Mutex;
use perdure_alloc::{
    Allocator, BlockNumber, DomainId, Extent, FreeError, Geometry, Options, Policy, Purpose,
    Rebuild, Request, SegmentLedger, SegmentNumber, Unit,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const FIRST: u64 = 7;

/// The segment table as a caller would persist it, and who wrote each block last; complains about changes that make no sense.
#[derive(Clone)]
struct Table {
    domains: Arc<Mutex<BTreeMap<u32, DomainId>>>,
    writers: Arc<Mutex<BTreeMap<u64, DomainId>>>,
    cleared: Arc<Mutex<u64>>,
    geometry: Geometry,
}

impl SegmentLedger for Table {
    fn assign(&self, segment: SegmentNumber, domain: DomainId) {
        self.domains.lock().insert(segment.0, domain);
    }

    fn release(&self, segment: SegmentNumber) {
        assert!(
            self.domains.lock().remove(&segment.0).is_some(),
            "released a free segment"
        );
    }

    fn has_residue(&self, segment: SegmentNumber) -> bool {
        self.foreign_blocks(segment.0) > 0
    }

    fn clear(&self, extent: Extent) -> u32 {
        let first = extent.start.get() - FIRST;
        let mut writers = self.writers.lock();
        let blocks = first..first + u64::from(extent.blocks);
        let written = blocks.filter(|block| writers.remove(block).is_some());
        let written = written.count() as u32;
        *self.cleared.lock() += u64::from(written);
        written
    }

    fn cleared(&self, segment: SegmentNumber) {
        assert_eq!(self.foreign_blocks(segment.0), 0);
    }
}

impl Table {
    fn new(geometry: Geometry) -> Self {
        Self {
            domains: Arc::default(),
            writers: Arc::default(),
            cleared: Arc::default(),
            geometry,
        }
    }

    /// Blocks of a segment that somebody else has written than the owner who may map it.
    fn foreign_blocks(&self, segment: u32) -> usize {
        let owner = self.domains.lock().get(&segment).copied();
        let Some(owner) = owner.filter(|owner| !owner.is_server_only()) else {
            return 0;
        };
        let first = u64::from(segment) * self.geometry.blocks_per_segment;
        let writers = self.writers.lock();
        let blocks = writers.range(first..first + self.geometry.blocks_per_segment);
        blocks.filter(|(_, writer)| **writer != owner).count()
    }

    /// A block is about to be written: its owner sees nothing of others in it until then.
    fn write(&self, block: u64, domain: DomainId) {
        let before = self.writers.lock().insert(block, domain);
        assert!(
            domain.is_server_only() || before.is_none_or(|writer| writer == domain),
            "block {block} of {domain:?} holds what {before:?} wrote"
        );
    }

    fn domains(&self, geometry: &Geometry) -> Vec<Option<DomainId>> {
        let table = self.domains.lock();
        (0..geometry.segments)
            .map(|segment| table.get(&segment).copied())
            .collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Allocate {
        domain: u32,
        blocks: u32,
        unit: Unit,
        purpose: Purpose,
        home: usize,
    },
    AllocateOne {
        domain: u32,
        purpose: Purpose,
        home: usize,
    },
    /// Frees part of the nth extent.
    Free {
        pick: usize,
        from: u32,
        blocks: u32,
    },
    /// Frees what may not be allocated, anywhere.
    FreeAnything {
        start: u64,
        blocks: u32,
    },
    /// Somebody maps a segment.
    Map {
        segment: u32,
        patience: u64,
    },
    RemountClean,
    RemountCrashed,
}

fn purposes() -> impl Strategy<Value = Purpose> {
    prop_oneof![4 => Just(Purpose::Ordinary), 1 => Just(Purpose::Overwrite)]
}

fn steps(blocks: u64) -> impl Strategy<Value = Step> {
    let sizes = prop_oneof![6 => 1..6_u32, 4 => 1..80_u32, 1 => 0..(blocks as u32 + 3)];
    let units = prop_oneof![9 => Just(Unit::Block4K), 1 => Just(Unit::Huge2M)];
    prop_oneof![
        8 => (0..5_u32, sizes, units, purposes(), 0..9_usize).prop_map(|(domain, blocks, unit, purpose, home)| Step::Allocate {
            domain, blocks, unit, purpose, home
        }),
        8 => (0..5_u32, purposes(), 0..9_usize).prop_map(|(domain, purpose, home)| Step::AllocateOne { domain, purpose, home }),
        12 => (any::<usize>(), 0..40_u32, 1..90_u32).prop_map(|(pick, from, blocks)| Step::Free { pick, from, blocks }),
        1 => (0..blocks + 20, 0..200_u32).prop_map(|(start, blocks)| Step::FreeAnything { start, blocks }),
        1 => (0..13_u32, 1..600_u64).prop_map(|(segment, patience)| Step::Map { segment, patience }),
        1 => Just(Step::RemountClean),
        1 => Just(Step::RemountCrashed),
    ]
}

fn pools() -> impl Strategy<Value = (Geometry, Options)> {
    let sizes = prop_oneof![
        Just(16_u64),
        Just(64),
        Just(128),
        Just(256),
        Just(1024),
        Just(4096)
    ];
    let policies = prop_oneof![1 => Just(Policy::Published), 3 => Just(Policy::Steered), 1 => Just(Policy::FirstFit)];
    (sizes, 1..13_u32, 1..5_u32, policies, any::<u64>(), 0..8_u64).prop_map(
        |(blocks_per_segment, segments, groups, policy, seed, eighths)| {
            let geometry = Geometry {
                first_block: BlockNumber::new(FIRST),
                blocks_per_segment,
                segments,
                groups,
            };
            (
                geometry,
                Options {
                    policy,
                    seed,
                    reserve_blocks: geometry.blocks() * eighths / 64,
                },
            )
        },
    )
}

struct Checked {
    geometry: Geometry,
    options: Options,
    allocator: Allocator,
    table: Table,
    allocated: BTreeSet<u64>,
    extents: Vec<Extent>,
    handed_out: u64,
}

impl Checked {
    fn new(geometry: Geometry, options: Options) -> Self {
        let table = Table::new(geometry);
        let allocator = Allocator::new(geometry, options, Box::new(table.clone()));
        Self {
            geometry,
            options,
            allocator,
            table,
            allocated: BTreeSet::new(),
            extents: Vec::new(),
            handed_out: 0,
        }
    }

    fn free_blocks(&self) -> u64 {
        self.geometry.blocks() - self.allocated.len() as u64
    }

    /// Books what was handed out; everything about it must be in order.
    fn receive(&mut self, request: &Request, extents: &[Extent]) {
        let unit = request.unit.blocks();
        let total: u32 = extents.iter().map(|extent| extent.blocks).sum();
        assert_eq!(total, request.blocks.next_multiple_of(unit));
        for &extent in extents {
            let first = extent.start.get() - FIRST;
            let segment = first / self.geometry.blocks_per_segment;
            assert_eq!(
                segment,
                (first + u64::from(extent.blocks) - 1) / self.geometry.blocks_per_segment,
                "crosses a segment"
            );
            assert_eq!(
                first % self.geometry.blocks_per_segment % u64::from(unit),
                0,
                "unit not aligned"
            );
            assert_eq!(extent.blocks % unit, 0);
            let domain = self.table.domains.lock().get(&(segment as u32)).copied();
            let allowed = [
                Some(request.domain),
                Some(DomainId::MIXED),
                Some(DomainId::METADATA),
            ];
            assert!(
                allowed.contains(&domain),
                "{:?} was given blocks of {domain:?}",
                request.domain
            );
            for block in first..first + u64::from(extent.blocks) {
                assert!(
                    self.allocated.insert(block),
                    "block {block} was handed out twice"
                );
                self.table.write(block, domain.expect("it has an owner"));
            }
            self.handed_out += u64::from(extent.blocks);
            self.extents.push(extent);
        }
    }

    /// A refusal must be true: not enough blocks beyond the reserve, or no unit of that size.
    fn refuse(&self, request: &Request) {
        let kept = if request.purpose == Purpose::Overwrite {
            0
        } else {
            self.options.reserve_blocks
        };
        let lacking = self.free_blocks() < kept + u64::from(request.blocks);
        assert!(
            lacking || request.unit != Unit::Block4K,
            "refused {request:?} with {} free and a reserve of {kept}",
            self.free_blocks()
        );
    }

    fn allocate(&mut self, request: Request) {
        let before = self.free_blocks();
        let table = self.table.domains.lock().clone();
        match self.allocator.allocate(&request) {
            Ok(extents) => {
                self.receive(&request, &extents);
                if request.purpose == Purpose::Ordinary && request.blocks > 0 {
                    assert!(
                        self.free_blocks() >= self.options.reserve_blocks,
                        "dug into the reserve"
                    );
                }
                self.one_extent_if_a_run_exists(&request, &table, extents.len());
            }
            Err(error) => {
                self.refuse(&request);
                assert_eq!(error.free, before);
            }
        }
    }

    /// Several extents are only right if the segments that were the domain's hold no run of that length.
    fn one_extent_if_a_run_exists(
        &self,
        request: &Request,
        table: &BTreeMap<u32, DomainId>,
        extents: usize,
    ) {
        if extents < 2
            || request.unit != Unit::Block4K
            || u64::from(request.blocks) > self.geometry.blocks_per_segment
        {
            return;
        }
        for (&segment, &domain) in table {
            if domain != request.domain {
                continue;
            }
            let start = u64::from(segment) * self.geometry.blocks_per_segment;
            let mut run = 0;
            for block in start..start + self.geometry.blocks_per_segment {
                run = if self.allocated.contains(&block) {
                    0
                } else {
                    run + 1
                };
                assert!(
                    run < request.blocks,
                    "{extents} extents for {request:?}, a run was there"
                );
            }
        }
    }

    fn free(&mut self, start: u64, blocks: u32) {
        let extent = Extent {
            start: BlockNumber::new(FIRST + start),
            blocks,
        };
        let range = start..start + u64::from(blocks);
        let result = self.allocator.free(extent);
        if range.end > self.geometry.blocks() || (blocks == 0 && start >= self.geometry.blocks()) {
            assert_eq!(
                result,
                Err(FreeError::OutOfRange {
                    block: extent.start,
                    blocks
                })
            );
        } else if let Some(block) = range.clone().find(|block| !self.allocated.contains(block)) {
            assert_eq!(
                result,
                Err(FreeError::NotAllocated {
                    block: BlockNumber::new(FIRST + block)
                })
            );
        } else {
            assert_eq!(result, Ok(()));
            range.for_each(|block| assert!(self.allocated.remove(&block)));
        }
    }

    fn free_part(&mut self, pick: usize, from: u32, blocks: u32) {
        if self.extents.is_empty() {
            return;
        }
        let pick = pick % self.extents.len();
        let extent = self.extents.swap_remove(pick);
        let from = if from < extent.blocks { from } else { 0 };
        let blocks = blocks.min(extent.blocks - from);
        self.free(extent.start.get() - FIRST + u64::from(from), blocks);
        let rest = [(0, from), (from + blocks, extent.blocks - from - blocks)];
        let rest = rest.into_iter().filter(|&(_, blocks)| blocks > 0);
        self.extents.extend(rest.map(|(from, blocks)| Extent {
            start: extent.start + u64::from(from),
            blocks,
        }));
    }

    /// Clears a segment step by step, in as many as its blocks take.
    fn map(&mut self, segment: u32, patience: u64) {
        for _ in 0..=self.geometry.blocks_per_segment {
            let number = SegmentNumber(segment);
            let (is_clear, looked_at) = self.allocator.clear(number, patience);
            assert!(looked_at < patience + 512);
            if is_clear {
                assert_eq!(self.table.foreign_blocks(segment), 0);
                assert_eq!(self.allocator.clear(number, patience), (true, 0));
                return;
            }
            assert!(looked_at >= patience);
        }
        panic!("it does not come to an end");
    }

    fn remount(&mut self, clean: bool) {
        let (image, wear) = (self.allocator.save(), self.allocator.wear());
        let mut rebuild = Rebuild::new(self.geometry, &self.table.domains(&self.geometry), &wear);
        if clean {
            rebuild.mark_word_image(&image).expect("our own image");
        } else {
            for &extent in &self.extents {
                rebuild.mark(extent).expect("extents are disjoint");
            }
        }
        self.allocator = rebuild.finish(self.options, Box::new(self.table.clone()));
        assert_eq!(self.allocator.save(), image);
        assert_eq!(self.allocator.wear(), wear);
    }

    fn check(&self) {
        self.allocator.verify().expect("books are right");
        assert_eq!(self.allocator.free_blocks(), self.free_blocks());
        let written = self.handed_out + *self.table.cleared.lock();
        assert_eq!(self.allocator.wear().iter().sum::<u64>(), written);
        for (segment, usage) in self.allocator.usage().iter().enumerate() {
            assert_eq!(
                usage.domain,
                self.table.domains.lock().get(&(segment as u32)).copied(),
                "segment {segment}"
            );
        }
        for block in 0..self.geometry.blocks().min(600) {
            let number = BlockNumber::new(FIRST + block);
            assert_eq!(
                self.allocator.is_allocated(number),
                self.allocated.contains(&block)
            );
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Allocate {
                domain,
                blocks,
                unit,
                purpose,
                home,
            } => {
                self.allocate(Request {
                    domain: DomainId(domain),
                    blocks,
                    unit,
                    purpose,
                    home,
                });
            }
            Step::AllocateOne {
                domain,
                purpose,
                home,
            } => {
                let request = Request {
                    domain: DomainId(domain),
                    blocks: 1,
                    unit: Unit::Block4K,
                    purpose,
                    home,
                };
                match self.allocator.allocate_one(request.domain, purpose, home) {
                    Ok(start) => self.receive(&request, &[Extent { start, blocks: 1 }]),
                    Err(_) => self.refuse(&request),
                }
            }
            Step::Free { pick, from, blocks } => self.free_part(pick, from, blocks),
            Step::FreeAnything { start, blocks } => {
                let refused = (start..start + u64::from(blocks))
                    .any(|block| !self.allocated.contains(&block));
                if refused || blocks == 0 {
                    self.free(start, blocks);
                }
            }
            Step::Map { segment, patience } => self.map(segment, patience),
            Step::RemountClean => self.remount(true),
            Step::RemountCrashed => self.remount(false),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 700, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_set_of_blocks(
        ((geometry, options), steps) in pools()
            .prop_flat_map(|pool| (Just(pool), prop::collection::vec(steps(pool.0.blocks()), 1..120)))
    ) {
        let mut checked = Checked::new(geometry, options);
        for step in steps {
            checked.run(step);
            checked.check();
        }
    }
}

/// Whatever the order in which a pool fills, the last block beyond the reserve can be had, then the reserve, then nothing.
#[test]
fn no_space_is_said_only_when_it_is_true() {
    for policy in [Policy::Published, Policy::Steered, Policy::FirstFit] {
        for seed in 0..16 {
            let geometry = Geometry {
                first_block: BlockNumber::new(FIRST),
                blocks_per_segment: 64,
                segments: 11,
                groups: 3,
            };
            let mut checked = Checked::new(
                geometry,
                Options {
                    policy,
                    seed,
                    reserve_blocks: 33,
                },
            );
            for round in 0..geometry.blocks() * 2 {
                let domain = DomainId((round * (seed + 1) % 7) as u32);
                let blocks = 1 + (round * 13 % 9) as u32;
                let request = Request {
                    domain,
                    blocks,
                    unit: Unit::Block4K,
                    purpose: Purpose::Ordinary,
                    home: round as usize,
                };
                checked.allocate(request);
                checked.check();
                checked.allocate(Request {
                    blocks: 1,
                    ..request
                });
            }
            assert_eq!(checked.free_blocks(), 33);
            let request = Request {
                domain: DomainId(3),
                blocks: 30,
                unit: Unit::Block4K,
                purpose: Purpose::Overwrite,
                home: 0,
            };
            checked.allocate(request);
            checked.allocate(Request {
                blocks: 3,
                ..request
            });
            assert_eq!(checked.free_blocks(), 0);
            checked.allocate(Request {
                blocks: 1,
                ..request
            });
            checked.free(100, 50);
            checked.allocate(Request {
                blocks: 17,
                purpose: Purpose::Ordinary,
                ..request
            });
            assert_eq!(checked.free_blocks(), 33);
            checked.check();
        }
    }
}
