//! Seeds of the fuzz targets in `fuzz/`.

use crate::hostile;
use crate::mutation::{MUTATION_BYTES, Sample};
use std::path::Path;
use txn::layout::{JOURNALS_AT, STATE_BLOCK};

const BLOCK: usize = pmem::BLOCK_BYTES;

fn write(directory: &Path, target: &str, seeds: &[Vec<u8>]) -> std::io::Result<()> {
    let directory = directory.join(target);
    std::fs::create_dir_all(&directory)?;
    seeds
        .iter()
        .enumerate()
        .try_for_each(|(index, seed)| std::fs::write(directory.join(format!("seed-{index}")), seed))
}

/// One mutation of every kind.
fn mutations() -> Vec<Vec<u8>> {
    (0..11u8)
        .map(|kind| {
            let mut mutation = vec![kind; MUTATION_BYTES];
            mutation[2..].fill(kind.wrapping_mul(37));
            mutation
        })
        .collect()
}

/// Each set of flags of a pool with a device, with a piece of every kind.
fn device_pools() -> Vec<Vec<u8>> {
    let pieces = (0..22u8).map(|kind| {
        let mut piece = [kind.wrapping_mul(37); MUTATION_BYTES];
        piece[0] = kind;
        piece
    });
    let alone = |flags: u8| {
        let pieces = pieces.clone();
        pieces.map(move |piece| [&[flags], &piece[..]].concat())
    };
    let all = pieces.clone().flatten().collect::<Vec<u8>>();
    let together = (0..32u8).map(|flags| [&[flags], &all[..]].concat());
    together.chain((0..4u8).flat_map(alone)).collect()
}

/// One mutation of every kind, for each reader of leases.
fn leases() -> Vec<Vec<u8>> {
    (0..4u8)
        .map(|mode| {
            let kinds = (0..=u8::MAX).step_by(7);
            let mutations = kinds.flat_map(|kind| {
                let mut mutation = [kind.wrapping_mul(37); hostile::MUTATION_BYTES];
                mutation[0] = kind;
                mutation
            });
            std::iter::once(mode).chain(mutations).collect()
        })
        .collect()
}

/// A change of every part of a pool with a log, with every set of checks that fit; and none.
fn images() -> Vec<Vec<u8>> {
    let parts = |flags: u8| {
        let changes = (0..10u8).map(move |part| [part, part.wrapping_mul(29) ^ flags, 0, flags]);
        let alone = changes.map(move |change| [&[flags], &change[..]].concat());
        std::iter::once(vec![flags]).chain(alone)
    };
    // A record's number in both roots that is too large for a seal.
    let sequence = vec![4, 7, 71, 0, 0x10, 8, 71, 0, 0x10];
    (0..16).flat_map(parts).chain([sequence]).collect()
}

/// The records at the start of the first journal, up to the end of its first block.
fn records(image: &[u8]) -> Vec<u8> {
    let at = (STATE_BLOCK.offset() + JOURNALS_AT).get() as usize;
    let word = u64::from_le_bytes(image[at..at + 8].try_into().unwrap_or_default());
    let block = word as u32 as usize;
    image[block * BLOCK..(block + 1) * BLOCK].to_vec()
}

/// Writes the seeds: one folder for each target, under `directory`.
///
/// # Errors
///
/// The error of the folder that cannot be made or of the file that cannot be written.
pub fn write_all(directory: &Path) -> std::io::Result<()> {
    let sample = Sample::new();
    let image = sample.image();
    let flagged = |flags: u8| {
        [
            &[flags],
            &image[..sample.geometry().first_block().offset().get() as usize],
        ]
        .concat()
    };
    write(directory, "superblock", &[flagged(0), flagged(3)])?;
    write(directory, "record", &[records(image)])?;
    // Blocks that look like directories or inode tables: anything that is not empty is a start.
    let used: Vec<Vec<u8>> = image
        .chunks(BLOCK)
        .filter(|block| block.iter().any(|&byte| byte != 0))
        .map(<[u8]>::to_vec)
        .collect();
    write(directory, "dentry", &used)?;
    write(directory, "inode", &mutations())?;
    write(directory, "pool", &mutations())?;
    write(directory, "device_pool", &device_pools())?;
    write(directory, "image", &images())?;
    write(directory, "lease", &leases())
}
