//! What the policies do to an aged pool: 2 GiB, 75 % full, ten times its capacity turned over by files of 4 KiB to 4 MiB
//! (log-uniform: most files are small, most bytes are in large ones), every eighth operation a rewrite of single blocks.
//! `cargo run --release -p perdure-alloc --example aged`.

use perdure_alloc::{
    Allocator, BLOCKS_PER_2M, BlockNumber, DomainId, Extent, Extents, Geometry, NoLedger, Options,
    Policy, Purpose, Request, Unit,
};

const OWNER: DomainId = DomainId(2);

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

fn write_file(allocator: &Allocator, chance: &mut Chance) -> Extents {
    let octave = chance.below(10);
    let blocks = (1 << octave) + chance.below(1 << octave) as u32;
    let request = Request {
        domain: OWNER,
        blocks,
        unit: Unit::Block4K,
        purpose: Purpose::Ordinary,
        home: chance.below(2),
    };
    allocator.allocate(&request).expect("a quarter is free")
}

fn rewrite_blocks(allocator: &Allocator, file: &mut Extents, chance: &mut Chance) {
    for _ in 0..8 {
        let extent = file.swap_remove(chance.below(file.len()));
        let at = chance.below(extent.blocks as usize) as u32;
        let new = allocator
            .allocate_one(OWNER, Purpose::Overwrite, chance.below(2))
            .expect("a quarter is free");
        allocator
            .free(Extent {
                start: extent.start + u64::from(at),
                blocks: 1,
            })
            .expect("ours");
        file.push(Extent {
            start: new,
            blocks: 1,
        });
        let parts = [(0, at), (at + 1, extent.blocks - at - 1)];
        let parts = parts.into_iter().filter(|&(_, blocks)| blocks > 0);
        file.extend(parts.map(|(from, blocks)| Extent {
            start: extent.start + u64::from(from),
            blocks,
        }));
    }
}

fn free_in_2m_runs(allocator: &Allocator) -> f64 {
    let clean = allocator
        .save()
        .chunks_exact(BLOCKS_PER_2M as usize / 64)
        .filter(|leaf| leaf.iter().all(|&word| word == 0))
        .count();
    100.0 * clean as f64 * f64::from(BLOCKS_PER_2M) / allocator.free_blocks() as f64
}

fn main() {
    println!(
        "{:<12}{:>12}{:>12}{:>14}{:>16}{:>18}",
        "policy", "peak/mean", "least/mean", "extents/file", "blocks/extent", "free in 2 MiB (%)"
    );
    for (policy, cold) in [Policy::Published, Policy::Steered, Policy::FirstFit]
        .into_iter()
        .flat_map(|policy| [(policy, false), (policy, true)])
    {
        let geometry = Geometry {
            first_block: BlockNumber::new(512),
            blocks_per_segment: 4096,
            segments: 128,
            groups: 2,
        };
        let allocator = Allocator::new(
            geometry,
            Options {
                policy,
                seed: 3,
                reserve_blocks: 5000,
            },
            Box::new(NoLedger),
        );
        let mut chance = Chance(17);
        let (mut files, mut written) = (Vec::new(), 0);
        let full = geometry.blocks() * 3 / 4;
        // With `cold`, the first half of the pool is written once and never again.
        let mut frozen = Vec::new();
        while cold && geometry.blocks() - allocator.free_blocks() < geometry.blocks() / 2 {
            frozen.push(write_file(&allocator, &mut chance));
        }
        while written < 10 * geometry.blocks() {
            while geometry.blocks() - allocator.free_blocks() > full {
                let file: Extents = files.swap_remove(chance.below(files.len()));
                file.into_iter()
                    .for_each(|extent| allocator.free(extent).expect("ours"));
            }
            let file = write_file(&allocator, &mut chance);
            written += u64::from(file.iter().map(|extent| extent.blocks).sum::<u32>());
            files.push(file);
            let pick = chance.below(files.len());
            if chance.below(8) == 0 {
                rewrite_blocks(&allocator, &mut files[pick], &mut chance);
            }
        }
        let wear = allocator.wear();
        let mean = wear.iter().sum::<u64>() as f64 / wear.len() as f64;
        let extents = files.iter().map(|file| file.len()).sum::<usize>() as f64;
        let blocks: u64 = files
            .iter()
            .flatten()
            .map(|extent| u64::from(extent.blocks))
            .sum();
        println!(
            "{:<12}{:>12.2}{:>12.2}{:>14.2}{:>16.1}{:>18.1}{}",
            format!("{policy:?}"),
            *wear.iter().max().expect("segments") as f64 / mean,
            *wear.iter().min().expect("segments") as f64 / mean,
            extents / files.len() as f64,
            blocks as f64 / extents,
            free_in_2m_runs(&allocator),
            if cold {
                "   half of the pool is cold"
            } else {
                ""
            }
        );
    }
}
