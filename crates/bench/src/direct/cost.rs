//! The cost of software, in the shape of the papers on Moneta and memory drives: what 4 KiB at a random place take on each way to
//! them, and how much of it is not the medium.
//!
//! | part | what it is |
//! | --- | --- |
//! | medium | the same access to bare memory of the same run: a streaming copy and its fence, or a copy from it |
//! | copying | copies beyond that one; the requests of FUSE carry the data between the caller and the server |
//! | crossing | system calls that do nothing, where one is made; for FUSE the way to a server that does nothing and back, less the copies |
//! | file system | the rest |
//!
//! FUSE and ext4 are measured past the page cache, so that every access is one; writes to ext4 are durable when they return (`O_DSYNC`).

use super::bed::{Bed, Program, Side, fill};
use super::loops::{raw_read, raw_write};
use super::program::{Operation, Order};
use super::{DirectOptions, first_processor};
use crate::aging::in_turn;
use crate::aging::loop_device::{LoopDisk, LoopKind};
use crate::collector::Collector;
use crate::error::BenchError;
use crate::evaluation::{Figure, Series, Shape};
use crate::measure::{Pinned, Places, median, nanoseconds_each};
use crate::memory::{Page, raw_region};
use crate::ops::bed::{create_pool, fill as fill_library};
use perdure::{File, OpenOptions, Pool};
use pmem::{BLOCK_BYTES, DurabilityClass, Region};
use serde_json::{Value, json};
use server::null_server::NullServer;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A way to a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Library,
    Preload,
    Fuse,
    /// Not in the table: the way to a server that does nothing.
    Null,
    Tmpfs,
    Ext4,
}

impl Way {
    const TABLE: [Way; 5] = [Way::Library, Way::Preload, Way::Fuse, Way::Tmpfs, Way::Ext4];

    fn label(self) -> &'static str {
        match self {
            Way::Library => "library",
            Way::Preload => "preload",
            Way::Fuse => "FUSE mount",
            Way::Null => "empty FUSE server",
            Way::Tmpfs => "tmpfs",
            Way::Ext4 => "ext4 on a loop device",
        }
    }
}

/// Nanoseconds of the accesses of one kind.
struct Times {
    ways: Vec<(Way, f64)>,
    medium: f64,
}

/// Nanoseconds of what accesses are made of.
struct Prices {
    copy: f64,
    system_call: f64,
}

/// What an access on one way is made of, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    total: f64,
    medium: f64,
    copying: f64,
    crossing: f64,
}

impl Split {
    /// What is left. Never less than nothing: parts that were measured one by one can take less of their time together.
    fn file_system(&self) -> f64 {
        (self.total - self.medium - self.copying - self.crossing).max(0.0)
    }

    /// Percent of the access that are not the medium.
    fn software_percent(&self) -> f64 {
        (1.0 - self.medium / self.total).max(0.0) * 100.0
    }

    fn json(&self, way: Way) -> Value {
        json!({
            "way": way.label(),
            "total_ns": self.total,
            "medium_ns": self.medium,
            "copying_ns": self.copying,
            "crossing_ns": self.crossing,
            "file_system_ns": self.file_system(),
            "software_percent": self.software_percent(),
        })
    }
}

/// Measures all ways that can be had and pushes the table as figures.
pub(super) fn measure(
    collector: &mut Collector,
    options: &DirectOptions,
    bed: &Bed,
) -> Result<(), BenchError> {
    let mut ways = Ways::open(options, bed)?;
    if let Some(reason) = ways.absent.take() {
        let topic = "absent: ext4 on a loop device".to_owned();
        collector.details.insert(topic, Value::String(reason));
    }
    let prices = prices()?;
    let mut shares = Vec::new();
    let mut details = serde_json::Map::new();
    for (name, operation) in [("write", Operation::Overwrite), ("read", Operation::Read)] {
        let splits = splits(&ways.times(options, operation)?, &prices);
        if !splits.iter().any(|(way, _)| *way == Way::Preload) {
            let topic = format!("absent: {name} by preload");
            let reason = Value::String(BenchError::NoDirectAccess.to_string());
            collector.details.insert(topic, reason);
        }
        let rows = splits.iter().map(|(way, split)| split.json(*way));
        details.insert(name.to_owned(), rows.collect());
        collector.figures.push(parts(name, &splits));
        shares.push((name, splits));
    }
    collector.figures.push(software(&shares));
    collector
        .details
        .insert("software_cost".to_owned(), Value::Object(details));
    Ok(())
}

/// The ways, open; what they are on, behind them.
struct Ways<'b> {
    bed: &'b Bed,
    library: File,
    _pool: Pool,
    null: NullServer,
    ext4: Option<LoopDisk>,
    /// Why there is no ext4.
    absent: Option<String>,
    raw: Region,
}

impl Ways<'_> {
    fn open<'b>(options: &DirectOptions, bed: &'b Bed) -> Result<Ways<'b>, BenchError> {
        let bytes = options.file_bytes;
        let pool = create_pool(&bed.place().join("library"), 4 * bytes.max(16 << 20))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .open(&pool, "file")?;
        fill_library(&file, bytes)?;
        let null = bed.place().join("null");
        std::fs::create_dir(&null).map_err(BenchError::io("make", &null))?;
        let ext4 = LoopDisk::mount(bed.place(), LoopKind::Ext4, 2 * bytes.max(32 << 20), false);
        let (ext4, absent) = match ext4 {
            Ok(ext4) => (Some(ext4), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Ways {
            bed,
            library: file,
            _pool: pool,
            null: NullServer::mount(&null, bytes as usize, 0)?,
            ext4,
            absent,
            raw: raw_region(&options.directory, bytes, DurabilityClass::Volatile)?,
        })
    }

    /// The loop of a way that goes by system calls or what takes their place; `None` if it cannot be had.
    fn start(
        &self,
        way: Way,
        options: &DirectOptions,
        operation: Operation,
    ) -> Result<Option<Program>, BenchError> {
        let flags = match (way, operation) {
            (Way::Ext4, Operation::Overwrite) => libc::O_DIRECT | libc::O_DSYNC,
            (Way::Ext4 | Way::Fuse | Way::Null, _) => libc::O_DIRECT,
            _ => 0,
        };
        let order = Order {
            operation,
            bytes: BLOCK_BYTES,
            file_bytes: options.file_bytes,
            processor: first_processor(),
            warm_up: options.warm_up,
            flags,
        };
        let name = format!("cost-{operation:?}");
        let plain = |path: &Path| {
            let command = self.bed.command(Side::Fuse, Path::new("/proc/self/exe"));
            fill(path, order.file_bytes)?;
            started(command, path, &order)
        };
        match way {
            Way::Library => Ok(None),
            Way::Preload => self.bed.start(Side::Direct, &name, &order).map(Some),
            Way::Fuse => self.bed.start(Side::Fuse, &name, &order).map(Some),
            Way::Tmpfs => self.bed.start(Side::Tmpfs, &name, &order).map(Some),
            Way::Null => {
                let command = self.bed.command(Side::Fuse, Path::new("/proc/self/exe"));
                started(command, &self.null.file(), &order)
            }
            Way::Ext4 => match &self.ext4 {
                Some(ext4) => plain(&ext4.mountpoint().join("file")),
                None => Ok(None),
            },
        }
    }

    /// Times of all ways in turn; not of the preload library if the program goes to the kernel all the same.
    fn times(
        &mut self,
        options: &DirectOptions,
        operation: Operation,
    ) -> Result<Times, BenchError> {
        let all = [Way::Preload, Way::Fuse, Way::Null, Way::Tmpfs, Way::Ext4];
        let mut programs = Vec::new();
        for way in all {
            let program = self.start(way, options, operation)?;
            let is_meant = |program: &Program| way != Way::Preload || program.warm.is_direct();
            if let Some(program) = program.filter(is_meant) {
                programs.push((way, program));
            }
        }
        let slice = options.slice_seconds(programs.len() + 2);
        let count = |(_, program): &mut (Way, Program)| program.count_for(slice);
        let counts: Vec<u64> = programs.iter_mut().map(count).collect::<Result<_, _>>()?;
        let _pin = Pinned::to(first_processor());
        let mut page = Page::filled();
        let few = programs.len();
        let times = in_turn(options.rounds, few + 2, |side, round| {
            if side >= few {
                // Some hundred nanoseconds each.
                let count = (slice * 1e9 / 500.0).max(50.0) as u64;
                return self.inside(side == few, operation, &mut page, round, count);
            }
            let (_, program) = &mut programs[side];
            let answer = program.run(counts[side])?;
            Ok(answer.nanoseconds)
        })?;
        let mut medians = times.iter().map(|times| median(times));
        let mut ways: Vec<(Way, f64)> = programs
            .iter()
            .zip(&mut medians)
            .map(|((way, _), time)| (*way, time))
            .collect();
        let mut inside = || medians.next().unwrap_or(f64::NAN);
        ways.push((Way::Library, inside()));
        let medium = inside();
        Ok(Times { ways, medium })
    }

    /// A round in this process: of the library, or of bare memory.
    fn inside(
        &self,
        is_library: bool,
        operation: Operation,
        page: &mut Page,
        round: u64,
        count: u64,
    ) -> Result<f64, BenchError> {
        if !is_library {
            return match operation {
                Operation::Read => raw_read(&self.raw, page, round, count),
                _ => raw_write(&self.raw, page, round, count),
            };
        }
        let file = &self.library;
        let blocks = self.raw.length() / BLOCK;
        let mut places = Places::new(round);
        nanoseconds_each(count, |number| {
            let offset = places.below(blocks) * BLOCK;
            match operation {
                Operation::Read => {
                    file.read_at(&mut page.0, offset)?;
                }
                _ => {
                    page.number(number);
                    file.write_at(&page.0, offset)?;
                }
            }
            Ok(())
        })
    }
}

fn started(command: Command, path: &Path, order: &Order) -> Result<Option<Program>, BenchError> {
    Program::start(command, path, order).map(Some)
}

/// A copy of a block that is in the processor's cache, and a system call that does nothing.
fn prices() -> Result<Prices, BenchError> {
    const COUNT: u64 = 100_000;
    let _pin = Pinned::to(first_processor());
    let (from, mut to) = (Page::filled(), Page::filled());
    let copy = nanoseconds_each(COUNT, |_| {
        to.0.copy_from_slice(black_box(&from.0));
        black_box(&to.0);
        Ok(())
    })?;
    let system_call = nanoseconds_each(COUNT, |_| {
        black_box(rustix::process::getppid());
        Ok(())
    })?;
    Ok(Prices { copy, system_call })
}

/// The table: each way's time in its parts.
fn splits(times: &Times, prices: &Prices) -> Vec<(Way, Split)> {
    let time_of = |wanted| {
        let mut found = times.ways.iter().filter(|(way, _)| *way == wanted);
        found.next().map(|(_, time)| *time)
    };
    // The request of a server that does nothing carries the data as well, and copies it once more into or out of the file.
    let round_trip = time_of(Way::Null).map_or(0.0, |time| (time - 2.0 * prices.copy).max(0.0));
    let split = |way: Way| {
        let total = time_of(way)?;
        let (copying, crossing) = match way {
            Way::Library | Way::Preload | Way::Null => (0.0, 0.0),
            Way::Fuse => (prices.copy, round_trip),
            Way::Tmpfs | Way::Ext4 => (0.0, prices.system_call),
        };
        let split = Split {
            total,
            medium: times.medium,
            copying,
            crossing,
        };
        Some((way, split))
    };
    Way::TABLE.into_iter().filter_map(split).collect()
}

fn places(splits: &[(Way, Split)]) -> Vec<String> {
    let labels = splits.iter().map(|(way, _)| way.label().to_owned());
    labels.collect()
}

fn parts(name: &str, splits: &[(Way, Split)]) -> Figure {
    let series = |label: &str, part: fn(&Split) -> f64| Series {
        label: label.to_owned(),
        values: splits.iter().map(|(_, split)| Some(part(split))).collect(),
    };
    Figure {
        name: format!("cost_{name}"),
        title: format!("4 KiB random {name}: where the time goes"),
        shape: Shape::Bars,
        x_label: "way to the file",
        places: places(splits),
        y_label: "ns",
        series: vec![
            series("medium", |split| split.medium),
            series("copying", |split| split.copying),
            series("crossing", |split| split.crossing),
            series("file system", Split::file_system),
            series("all", |split| split.total),
        ],
    }
}

fn software(shares: &[(&str, Vec<(Way, Split)>)]) -> Figure {
    let series = shares.iter().map(|(name, splits)| {
        let values = splits
            .iter()
            .map(|(_, split)| Some(split.software_percent()));
        Series {
            label: (*name).to_owned(),
            values: values.collect(),
        }
    });
    let first = shares.first();
    Figure {
        name: "software".to_owned(),
        title: "Software's share of the time of an access to 4 KiB".to_owned(),
        shape: Shape::Bars,
        x_label: "way to the file",
        places: first.map_or_else(Vec::new, |(_, splits)| places(splits)),
        y_label: "%",
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_software_is_what_is_not_the_medium() {
        let times = Times {
            medium: 250.0,
            ways: vec![
                (Way::Preload, 400.0),
                (Way::Fuse, 9000.0),
                (Way::Null, 7000.0),
                (Way::Tmpfs, 1250.0),
                (Way::Library, 500.0),
            ],
        };
        let prices = Prices {
            copy: 50.0,
            system_call: 100.0,
        };
        let table = splits(&times, &prices);
        let ways: Vec<Way> = table.iter().map(|(way, _)| *way).collect();
        assert_eq!(ways, [Way::Library, Way::Preload, Way::Fuse, Way::Tmpfs]);
        let split = |wanted: usize| table[wanted].1;
        assert_eq!(split(0).software_percent(), 50.0);
        assert_eq!(split(1).file_system(), 150.0);
        let fuse = split(2);
        assert_eq!((fuse.copying, fuse.crossing), (50.0, 6900.0));
        assert_eq!(fuse.file_system(), 1800.0);
        assert_eq!(split(3).file_system(), 900.0);
        assert_eq!(split(3).software_percent(), 80.0);
    }
}
