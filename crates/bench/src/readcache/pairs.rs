//! Two file systems that differ in nothing but the read cache, and rows about them.

use super::ReadCacheOptions;
use super::bed::{Bed, System};
use crate::error::BenchError;
use crate::evaluation::Found;
use crate::measure::{Pinned, Rounds, processors};
use crate::memory::Page;
use fs::{Node, ReadCacheMode};
use pmem::MediaModel;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};

/// A file system and the file that is measured.
pub(super) struct Side {
    pub(super) bed: Bed,
    pub(super) file: Node,
    /// Where the reader wants the bytes; writers take theirs from here.
    pub(super) page: RefCell<Box<Page>>,
    /// Hits and misses before counting began.
    counted_before: Cell<(u64, u64)>,
}

/// What kind of pair.
#[derive(Clone, Copy)]
pub(super) struct Kind<'k> {
    pub(super) media: &'k MediaModel,
    /// Of our side; the other one has no read cache.
    pub(super) mode: ReadCacheMode,
    /// Blocks of the file.
    pub(super) blocks: u32,
}

/// Ours with the read cache, and the same without it.
pub(super) struct Pair {
    pub(super) ours: Side,
    pub(super) theirs: Side,
}

impl Side {
    fn new(
        options: &ReadCacheOptions,
        kind: Kind<'_>,
        mode: ReadCacheMode,
    ) -> Result<Side, BenchError> {
        let bed = Bed::new(options, kind.media, options.cache(mode))?;
        let file = bed.fill("file", kind.blocks)?;
        let page = RefCell::new(Page::filled());
        Ok(Side {
            bed,
            file,
            page,
            counted_before: Cell::default(),
        })
    }

    /// What comes from here on is counted for [`describe_cache`](Self::describe_cache)'s hit ratio, and nothing before.
    pub(super) fn begin_counting(&self) {
        self.counted_before.set(self.bed.hits_and_misses());
    }

    /// The hit ratio since counting began, and all counts since the mount.
    pub(super) fn describe_cache(&self) -> Value {
        let ((hits, misses), before) = (self.bed.hits_and_misses(), self.counted_before.get());
        let (hits, reads) = (hits - before.0, hits + misses - before.0 - before.1);
        let hit_ratio = (reads > 0).then(|| hits as f64 / reads as f64);
        let statistics = self.bed.files.read_cache_statistics();
        json!({"hit_ratio": hit_ratio, "statistics_since_mount": statistics})
    }

    /// Reads these blocks: nanoseconds of each.
    pub(super) fn read(&self, blocks: &[u32]) -> Result<f64, BenchError> {
        let page = &mut self.page.borrow_mut();
        super::slices::read(blocks, page, |offset, into| {
            self.bed.read(&self.file, offset, into)
        })
    }

    /// Overwrites these blocks: nanoseconds of each.
    pub(super) fn overwrite(&self, blocks: &[u32]) -> Result<f64, BenchError> {
        let page = &mut self.page.borrow_mut();
        super::slices::write(blocks, page, |offset, data| {
            self.bed.write(&self.file, offset, data)
        })
    }

    /// Appends these blocks: nanoseconds of each.
    pub(super) fn append(&self, blocks: &[u32]) -> Result<f64, BenchError> {
        let page = &mut self.page.borrow_mut();
        super::slices::write(blocks, page, |_, data| self.bed.append(&self.file, data))
    }

    /// Reads the file until all of it comes from DRAM, if there is a read cache; once otherwise.
    pub(super) fn warm(&self, blocks: u32) -> Result<(), BenchError> {
        self.bed.warm(&self.file, blocks)
    }
}

impl Pair {
    /// `number` decides which side is made first, because the one made later has other memory.
    fn new(options: &ReadCacheOptions, kind: Kind<'_>, number: usize) -> Result<Pair, BenchError> {
        let ours = || Side::new(options, kind, kind.mode);
        let theirs = || Side::new(options, kind, ReadCacheMode::Off);
        let (ours, theirs) = if number.is_multiple_of(2) {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        };
        Ok(Pair { ours, theirs })
    }
}

/// What some measurements of pairs gave.
pub(super) struct Pairs {
    /// The rounds of all pairs.
    pub(super) rounds: Vec<Rounds>,
    /// The medians of each pair: how much the ratio owes to where its two pools happen to lie in memory.
    medians: Vec<Vec<f64>>,
    /// The last pair.
    last: Option<Pair>,
}

impl Pairs {
    /// What the first measurement gave; for rows about time.
    pub(super) fn time(&self) -> Found {
        let found = Found::of(&self.rounds[0]);
        found.noted(format!("pair by pair: {}", self.by_pair(0)))
    }

    /// Of the last pair, what its read cache did.
    pub(super) fn describe_cache(&self) -> Option<Value> {
        self.last.as_ref().map(|pair| pair.ours.describe_cache())
    }

    /// The ratios of a measurement, pair by pair.
    pub(super) fn by_pair(&self, measurement: usize) -> String {
        let of_pair = |medians: &Vec<f64>| format!("{:.3}", medians[measurement]);
        let ratios: Vec<String> = self.medians.iter().map(of_pair).collect();
        ratios.join(", ")
    }
}

/// Takes some measurements of several pairs. The measuring thread stays on one processor; another one with each pair.
pub(super) fn over_pairs(
    options: &ReadCacheOptions,
    kind: Kind<'_>,
    mut measure: impl FnMut(&Pair) -> Result<Vec<Rounds>, BenchError>,
) -> Result<Pairs, BenchError> {
    let mut all = Pairs {
        rounds: Vec::new(),
        medians: Vec::new(),
        last: None,
    };
    let processors = processors();
    for number in 0..options.pairs.max(1) {
        // The last pair's memory first.
        all.last = None;
        let pair = Pair::new(options, kind, number)?;
        let rounds = {
            // After the pair is made: its background thread goes where it likes.
            let _pin = Pinned::to(processors[number % processors.len()]);
            measure(&pair)?
        };
        let medians = rounds.iter().map(|rounds| rounds.ratios()[1]);
        all.medians.push(medians.collect());
        if all.rounds.is_empty() {
            all.rounds = rounds;
        } else {
            let both = all.rounds.iter_mut().zip(rounds);
            both.for_each(|(all, more)| all.join(more));
        }
        all.last = Some(pair);
    }
    Ok(all)
}
