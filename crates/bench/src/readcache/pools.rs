//! One pool, mounted in turn with the read cache and without it, and rows about that.
//!
//! Two pools, one for each side, differ by some percent even if both are mounted the same way: what a request costs depends on where in memory its
//! pool happens to lie. One pool lies where it lies for both sides. There are several, because a side's own tables lie somewhere, too.

use super::ReadCacheOptions;
use super::bed::{Bed, System};
use crate::collector::Found;
use crate::error::BenchError;
use crate::measure::{Pinned, Rounds, processors};
use crate::memory::Page;
use fs::{Node, ReadCacheMode};
use pmem::{MediaModel, Region};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

const NAME: &str = "file";

/// What kind of pool.
#[derive(Clone, Copy)]
pub(super) struct Kind<'k> {
    pub(super) media: &'k MediaModel,
    /// Of our side; the other one has no read cache.
    pub(super) mode: ReadCacheMode,
    /// Blocks of the file.
    pub(super) blocks: u32,
}

/// A pool with one file, not mounted.
pub(super) struct Pool<'o> {
    options: &'o ReadCacheOptions,
    kind: Kind<'o>,
    region: Arc<Region>,
}

/// The pool, mounted, and the file that is measured.
pub(super) struct Side {
    pub(super) bed: Bed,
    pub(super) file: Node,
    /// Where the reader wants the bytes; writers take theirs from here.
    pub(super) page: RefCell<Box<Page>>,
    /// Hits and misses before counting began.
    counted_before: Cell<(u64, u64)>,
}

impl<'o> Pool<'o> {
    fn new(options: &'o ReadCacheOptions, kind: Kind<'o>) -> Result<Pool<'o>, BenchError> {
        let region = Arc::new(super::bed::new_pool(options)?);
        let cache = options.cache(ReadCacheMode::Off);
        let bed = Bed::over(Arc::clone(&region), kind.media, cache)?;
        drop(bed.fill(NAME, kind.blocks)?);
        bed.files.unmount();
        Ok(Pool {
            options,
            kind,
            region,
        })
    }

    /// Mounts the pool, which is mounted nowhere else.
    pub(super) fn mount(&self, mode: ReadCacheMode) -> Result<Side, BenchError> {
        let region = Arc::clone(&self.region);
        let bed = Bed::over(region, self.kind.media, self.options.cache(mode))?;
        let file = bed.files.lookup(&bed.files.root(), NAME.as_bytes())?;
        Ok(Side {
            bed,
            file,
            page: RefCell::new(Page::filled()),
            counted_before: Cell::default(),
        })
    }
}

impl Side {
    pub(super) fn unmount(self) {
        let Side { bed, file, .. } = self;
        drop(file);
        bed.files.unmount();
    }

    /// What comes from here on is counted for [`describe_cache`](Self::describe_cache)'s hit ratio, and nothing before.
    pub(super) fn begin_counting(&self) {
        self.counted_before.set(self.bed.hits_and_misses());
    }

    /// The hit ratio since counting began, and all counts since the mount.
    fn describe_cache(&self) -> Value {
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

/// What measurements of some pools gave.
#[derive(Default)]
pub(super) struct Pools {
    /// The rounds of all pools, of each thing that is measured.
    pub(super) rounds: Vec<Rounds>,
    /// The medians of each pool.
    medians: Vec<Vec<f64>>,
    /// What our read cache did in the last round.
    pub(super) cache: Option<Value>,
}

impl Pools {
    /// What the first thing gave; for rows about time.
    pub(super) fn time(&self) -> Found {
        Found::of(&self.rounds[0]).noted(self.by_pool(0))
    }

    /// The ratios of one thing, pool by pool.
    pub(super) fn by_pool(&self, thing: usize) -> String {
        let of_pool = |medians: &Vec<f64>| format!("{:.3}", medians[thing]);
        let ratios: Vec<String> = self.medians.iter().map(of_pool).collect();
        format!("pool by pool: {}", ratios.join(", "))
    }

    /// Adds what one more pool gave.
    fn add(&mut self, rounds: Vec<Rounds>) {
        let medians = rounds.iter().map(|rounds| rounds.ratios()[1]);
        self.medians.push(medians.collect());
        if self.rounds.is_empty() {
            self.rounds = rounds;
        } else {
            let both = self.rounds.iter_mut().zip(rounds);
            both.for_each(|(all, more)| all.join(more));
        }
    }
}

/// Measures some pools, each of them mounted by `measure`, which gets the processor that its thread belongs on once the pool is mounted: the read cache's
/// thread goes where it likes.
fn over_pools<'o>(
    options: &'o ReadCacheOptions,
    kind: Kind<'o>,
    mut measure: impl FnMut(&Pool<'_>, usize, &mut Pools) -> Result<(), BenchError>,
) -> Result<Pools, BenchError> {
    let mut all = Pools::default();
    let processors = processors();
    for number in 0..options.pools.max(1) {
        let pool = Pool::new(options, kind)?;
        measure(&pool, processors[number % processors.len()], &mut all)?;
    }
    Ok(all)
}

/// Measures some pools with the read cache, each mounted once.
pub(super) fn with_cache<'o>(
    options: &'o ReadCacheOptions,
    kind: Kind<'o>,
    mut measure: impl FnMut(&Side) -> Result<Vec<Rounds>, BenchError>,
) -> Result<Pools, BenchError> {
    over_pools(options, kind, |pool, processor, all| {
        let side = pool.mount(kind.mode)?;
        all.add({
            let _pin = Pinned::to(processor);
            measure(&side)?
        });
        side.unmount();
        Ok(())
    })
}

/// Measures some pools, each mounted in turn with the read cache and without it. `measure` gets the number of the round, so that both sides can go to the same
/// places; the first one does not count, `rounds` do. It returns the same number of figures each time, one for each thing that it measures.
pub(super) fn in_turn<'o>(
    options: &'o ReadCacheOptions,
    kind: Kind<'o>,
    rounds: usize,
    mut measure: impl FnMut(&Side, u64) -> Result<Vec<f64>, BenchError>,
) -> Result<Pools, BenchError> {
    let modes = [kind.mode, ReadCacheMode::Off];
    over_pools(options, kind, |pool, processor, all| {
        let mut figures: [Vec<Vec<f64>>; 2] = Default::default();
        for round in 0..=rounds as u64 {
            let first = (round % 2) as usize;
            for which in [first, 1 - first] {
                let side = pool.mount(modes[which])?;
                let found = {
                    let _pin = Pinned::to(processor);
                    measure(&side, round)?
                };
                if round > 0 {
                    figures[which].push(found);
                }
                if which == 0 {
                    all.cache = Some(side.describe_cache());
                }
                side.unmount();
            }
        }
        let [ours, theirs] = figures;
        let things = 0..ours[0].len();
        let of = |side: &[Vec<f64>], thing: usize| side.iter().map(|found| found[thing]).collect();
        let rounds = things.map(|thing| Rounds::new(of(&ours, thing), of(&theirs, thing)));
        all.add(rounds.collect());
        Ok(())
    })
}
