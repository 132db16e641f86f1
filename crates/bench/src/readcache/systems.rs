//! The three systems of the figures.

use super::ReadCacheOptions;
use super::bed::{BLOCK, Bed, System};
use super::page_cache::{CachedFile, PageCache};
use crate::error::BenchError;
use crate::evaluation::Series;
use fs::{Node, ReadCacheMode};

/// What they are called, in the order of the figures.
const LABELS: [&str; 3] = ["direct", "page cache", "read cache"];

/// Series for a figure: of each system its numbers.
pub(super) fn series(values: [Vec<Option<f64>>; 3]) -> Vec<Series> {
    let all = LABELS.iter().zip(values);
    all.map(|(label, values)| Series {
        label: (*label).to_owned(),
        values,
    })
    .collect()
}

/// Our file system without and with the read cache, and a page cache over it, each with as many files.
pub(super) struct Systems {
    pub(super) direct: (Bed, Vec<Node>),
    pub(super) page_cache: (PageCache, Vec<CachedFile>),
    pub(super) read_cache: (Bed, Vec<Node>),
}

impl Systems {
    /// With this many files of so many blocks, and as much DRAM as all of them need and a half more, but what the options say at least.
    pub(super) fn new(
        options: &ReadCacheOptions,
        files: usize,
        blocks: u32,
    ) -> Result<Systems, BenchError> {
        let file_bytes = u64::from(blocks) * BLOCK;
        let needed_bytes = file_bytes * files as u64;
        let budget_bytes = options.budget_bytes.max(needed_bytes * 3 / 2);
        let cache = |mode| fs::ReadCacheOptions {
            budget_bytes,
            ..options.cache(mode)
        };
        let bed = |mode| Bed::new(options, &options.media, cache(mode));
        let share = budget_bytes / files.max(1) as u64;
        Ok(Systems {
            direct: with_files(bed(ReadCacheMode::Off)?, files, blocks)?,
            page_cache: with_files(
                PageCache::new(bed(ReadCacheMode::Off)?, share),
                files,
                blocks,
            )?,
            read_cache: with_files(bed(ReadCacheMode::On)?, files, blocks)?,
        })
    }

    /// Makes the first `blocks` blocks of all files hot.
    pub(super) fn warm(&self, blocks: u32) -> Result<(), BenchError> {
        let (bed, files) = &self.read_cache;
        files.iter().try_for_each(|file| bed.warm(file, blocks))
    }
}

fn with_files<S: System>(
    system: S,
    files: usize,
    blocks: u32,
) -> Result<(S, Vec<S::File>), BenchError> {
    let files = (0..files).map(|file| system.fill(&format!("file{file}"), blocks));
    let files = files.collect::<Result<_, _>>()?;
    Ok((system, files))
}
