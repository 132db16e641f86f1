//! Loads that are unkind to the medium.

use crate::pool::{BLOCKS, OWNER, Pool};
use perdure_alloc::{BlockNumber, DomainId, Extent, Lifetime};
use std::collections::VecDeque;

/// What happens to the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Half of the pool is written once; then a log of 64 MiB is appended block by block, removed and begun anew.
    HotLog,
    /// 32K files of 64 KiB; then files are replaced by files of one block.
    SingleBlocks,
    /// 32K files of 64 KiB, replaced by such files, written at once.
    WholeFiles,
    /// The same, written block by block.
    AppendedFiles,
}

pub(crate) const LOADS: [Load; 4] = [
    Load::HotLog,
    Load::SingleBlocks,
    Load::WholeFiles,
    Load::AppendedFiles,
];

const FILES: usize = 32_768;
const BLOCKS_PER_FILE: u32 = 16;
const LOG_BLOCKS: usize = 16_384;
/// Metadata blocks that live long.
const LONG_LIVED: usize = 8192;
/// Writes in place to a metadata block before it is placed anew.
const WRITES_PER_PLACE: u64 = 16;

/// The metadata that goes with the data: journals, and blocks that are written in place and placed anew now and then.
pub(crate) struct Metadata {
    /// Blocks of metadata written for each block of data.
    factor: f64,
    journals: VecDeque<Vec<Extent>>,
    long_lived: Vec<(BlockNumber, u64)>,
}

impl Metadata {
    pub(crate) fn new(factor: f64) -> Self {
        Self {
            factor,
            journals: VecDeque::new(),
            long_lived: Vec::new(),
        }
    }

    /// Writes metadata until it has its share: three quarters of it journals.
    pub(crate) fn keep_up(&mut self, pool: &mut Pool) {
        let owed = |pool: &Pool| {
            pool.written_data() as f64 * self.factor - (pool.written() - pool.written_data()) as f64
        };
        let mut owed_now = owed(pool);
        while owed_now >= 32.0 {
            let mut half = Vec::new();
            let blocks = 16 + pool.chance.below(17) as u32;
            pool.write(DomainId::METADATA, blocks, Lifetime::Brief, &mut half);
            for extent in &half {
                let written = u64::from(extent.blocks);
                pool.allocator.charge(extent.start, written);
            }
            self.journals.push_back(half);
            if self.journals.len() > 4 {
                let mut oldest = self.journals.pop_front().expect("five halves");
                pool.free(&mut oldest);
            }
            for _ in 0..blocks / 3 {
                self.touch(pool);
            }
            owed_now -= f64::from(blocks) * 4.0 / 3.0;
        }
    }

    /// Writes one long-lived block, hot ones more often than others.
    fn touch(&mut self, pool: &mut Pool) {
        let pick = pool
            .chance
            .below(LONG_LIVED)
            .min(pool.chance.below(LONG_LIVED));
        let pick = if pool.chance.below(2) == 0 {
            pick / 64
        } else {
            pick
        };
        if pick >= self.long_lived.len() {
            let mut new = Vec::new();
            pool.write(DomainId::METADATA, 1, Lifetime::Unknown, &mut new);
            self.long_lived.push((new[0].start, 0));
            return;
        }
        let (block, writes) = self.long_lived[pick];
        if writes < WRITES_PER_PLACE {
            pool.overwrite(block);
            self.long_lived[pick].1 += 1;
            return;
        }
        let mut new = Vec::new();
        pool.allocator.charge(block, writes);
        pool.write(DomainId::METADATA, 1, Lifetime::Unknown, &mut new);
        pool.free(&mut vec![Extent {
            start: block,
            blocks: 1,
        }]);
        self.long_lived[pick] = (new[0].start, 0);
    }
}

fn write_file(pool: &mut Pool, metadata: &mut Metadata, blocks: u32, at_once: bool) -> Vec<Extent> {
    let mut file = Vec::new();
    if at_once {
        pool.write(OWNER, blocks, Lifetime::Unknown, &mut file);
    } else {
        for _ in 0..blocks {
            pool.write(OWNER, 1, Lifetime::Unknown, &mut file);
        }
    }
    metadata.keep_up(pool);
    file
}

/// Writes data of `passes` times the pool's capacity, after filling half of it.
pub(crate) fn run(pool: &mut Pool, load: Load, metadata_factor: f64, passes: u64) {
    let mut metadata = Metadata::new(metadata_factor);
    let mut files = Vec::new();
    let at_once = load != Load::AppendedFiles;
    while files.len() < FILES {
        let file = write_file(pool, &mut metadata, BLOCKS_PER_FILE, at_once);
        files.push(file);
    }
    let mut log = VecDeque::new();
    while pool.written_data() < passes * BLOCKS {
        if load == Load::HotLog {
            let blocks = write_file(pool, &mut metadata, 1, false);
            log.push_back(blocks);
            if log.len() == LOG_BLOCKS {
                log.drain(..).for_each(|mut blocks| pool.free(&mut blocks));
            }
            continue;
        }
        let blocks = if load == Load::SingleBlocks {
            1
        } else {
            BLOCKS_PER_FILE
        };
        let victim = pool.chance.below(FILES);
        pool.free(&mut files[victim]);
        files[victim] = write_file(pool, &mut metadata, blocks, at_once);
    }
}
