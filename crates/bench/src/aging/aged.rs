//! An aged pool beside a fresh one that holds the same files.

use super::generator::{Generator, TreeFile};
use super::{AgingOptions, SEED, library};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, Places, alternate, nanoseconds_each};
use crate::memory::{Page, require_room};
use crate::ops::bed::work_directory;
use crate::target::Library;
use perdure::{Dir, File, OpenOptions, Pool};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use txn::PoolState;

const BLOCK_BYTES: u64 = 4096;
const PIECE_BYTES: u64 = 1 << 20;
/// Operations in a round for each second of it: about as many as the operation can do.
const OVERWRITES_PER_SECOND: f64 = 400_000.0;
const READS_PER_SECOND: f64 = 4_000.0;
const CREATES_PER_SECOND: f64 = 400_000.0;

const NAMES: [&str; 4] = [
    "aged_overwrite_4k",
    "aged_read_1m",
    "aged_create",
    "aged_free_2m",
];

/// Makes both pools and measures.
pub(super) fn measure(collector: &mut Collector, options: &AgingOptions) {
    collector.group(&NAMES, |collector| {
        collector.tell("aging a pool");
        require_room(&options.directory, 2 * options.pool_bytes)?;
        let places = [
            work_directory(&options.directory)?,
            work_directory(&options.directory)?,
        ];
        let make = |place: usize| library(places[place].path(), options.pool_bytes, &options.media);
        let (aged, fresh) = (make(0)?, make(1)?);
        let _pin = Pinned::anywhere();
        // What files can take, which is a little less than the pool.
        let capacity_bytes = aged.pool().statistics().available_blocks * BLOCK_BYTES;
        let mut generator = Generator::new(capacity_bytes, SEED);
        generator.fill(&aged)?;
        generator.turn_over(&aged, options.turnovers * capacity_bytes)?;
        collector.row(NAMES[3], || free_runs(&aged, &fresh));
        collector.tell("filling a fresh pool");
        generator.repeat(&fresh)?;
        describe(collector, &generator, &aged);
        {
            let sides = [
                Side::open(&aged, generator.files())?,
                Side::open(&fresh, generator.files())?,
            ];
            collector.row(NAMES[1], || reads(options, &sides));
            collector.row(NAMES[0], || overwrites(options, &sides));
        }
        collector.row(NAMES[2], || creates(options, aged.pool(), fresh.pool()));
        aged.close()?;
        fresh.close()
    });
}

fn describe(collector: &mut Collector, generator: &Generator, aged: &Library) {
    let statistics = aged.pool().statistics();
    let used = 1.0 - statistics.free_blocks as f64 / statistics.blocks as f64;
    let files = generator.files();
    let bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
    let details = json!({
        "files": files.len(),
        "bytes": bytes,
        "blocks_in_use": used,
        "sizes": "lognormal body (9.48, 2.46), Pareto tail: Agrawal et al., FAST 2009 table 2, after FAST 2007",
    });
    collector.details.insert("aged pool".to_owned(), details);
}

/// Free blocks that lie in free aligned runs of 2 MiB.
fn free_runs(aged: &Library, fresh: &Library) -> Result<Found, BenchError> {
    let share = |library: &Library| {
        // Blocks that wait for a checkpoint are free soon.
        library.pool().filesystem().checkpoint();
        let allocator = library.pool().filesystem().store().allocator();
        (
            allocator.free_in_huge_runs() as f64,
            allocator.free_blocks() as f64,
        )
    };
    let (in_runs, free) = share(aged);
    let (empty_runs, empty_free) = share(fresh);
    let note = format!("an empty pool: {:.3}", empty_runs / empty_free);
    Ok(Found {
        value: in_runs,
        against_value: free,
        ratio: in_runs / free,
        ..Found::default()
    }
    .noted(note))
}

/// The files of a pool that are large enough to be read by the MiB.
struct Side {
    files: Vec<File>,
    /// Whole MiB of them: file and offset.
    pieces: Vec<(usize, u64)>,
}

impl Side {
    fn open(library: &Library, files: &[TreeFile]) -> Result<Side, BenchError> {
        let mut side = Side {
            files: Vec::new(),
            pieces: Vec::new(),
        };
        for file in files.iter().filter(|file| file.size_bytes >= PIECE_BYTES) {
            let open = OpenOptions::new()
                .read(true)
                .write(true)
                .open(library.pool(), &file.path)?;
            let number = side.files.len();
            let offsets = (0..file.size_bytes / PIECE_BYTES).map(|piece| piece * PIECE_BYTES);
            side.pieces.extend(offsets.map(|offset| (number, offset)));
            side.files.push(open);
        }
        match side.pieces.is_empty() {
            true => Err(BenchError::Setup(
                "the tree has no file of a MiB".to_owned(),
            )),
            false => Ok(side),
        }
    }
}

fn operations(options: &AgingOptions, per_second: f64) -> u64 {
    (options.seconds * per_second) as u64 + 1
}

fn reads(options: &AgingOptions, sides: &[Side; 2]) -> Result<Found, BenchError> {
    let buffer = RefCell::new(vec![0; PIECE_BYTES as usize]);
    let count = operations(options, READS_PER_SECOND);
    let next = [Cell::new(0), Cell::new(0)];
    let round = |number: usize| {
        let side = &sides[number];
        nanoseconds_each(count, |_| {
            // On from where the last round ended: through all files, again and again.
            let at = next[number].get();
            next[number].set((at + 1) % side.pieces.len());
            let (file, offset) = side.pieces[at];
            let mut buffer = buffer.borrow_mut();
            let read = side.files[file].read_at(&mut buffer, offset)?;
            match black_box(&buffer)[..read].len() as u64 == PIECE_BYTES {
                true => Ok(()),
                false => Err(BenchError::WrongData(format!("{read} bytes of a MiB"))),
            }
        })
    };
    let rounds = alternate(options.rounds, |_| round(0), |_| round(1))?;
    Ok(Found::speed_of(&rounds))
}

fn overwrites(options: &AgingOptions, sides: &[Side; 2]) -> Result<Found, BenchError> {
    let page = RefCell::new(Page::filled());
    let count = operations(options, OVERWRITES_PER_SECOND);
    let measure = |side: &Side, round| {
        let mut places = Places::new(round);
        let blocks = PIECE_BYTES / BLOCK_BYTES;
        nanoseconds_each(count, |number| {
            let place = places.below(side.pieces.len() as u64 * blocks);
            let (file, offset) = side.pieces[(place / blocks) as usize];
            let mut page = page.borrow_mut();
            page.number(number);
            side.files[file].write_at(&page.0, offset + place % blocks * BLOCK_BYTES)?;
            Ok(())
        })
    };
    let rounds = alternate(
        options.rounds,
        |round| measure(&sides[0], round),
        |round| measure(&sides[1], round),
    )?;
    Ok(Found::speed_of(&rounds))
}

fn creates(options: &AgingOptions, aged: &Pool, fresh: &Pool) -> Result<Found, BenchError> {
    let count = operations(options, CREATES_PER_SECOND);
    let names: Vec<String> = (0..count)
        .map(|number| format!("message-{number:07}"))
        .collect();
    let open = |pool: &Pool| -> Result<Dir, BenchError> {
        pool.create_dir("created")?;
        Ok(pool.open_dir("created")?)
    };
    let measure = |directory: &Dir| {
        let nanoseconds = nanoseconds_each(count, |number| {
            drop(File::create_new(directory, &names[number as usize])?);
            Ok(())
        });
        names
            .iter()
            .try_for_each(|name| directory.remove_file(name))?;
        nanoseconds
    };
    let (aged, fresh) = (open(aged)?, open(fresh)?);
    let rounds = alternate(options.rounds, |_| measure(&aged), |_| measure(&fresh))?;
    Ok(Found::speed_of(&rounds))
}
