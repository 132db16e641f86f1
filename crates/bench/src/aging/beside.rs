//! The personalities on our library, our mount, tmpfs and ext4 on a loop device, whatever it says; or in any one directory.

use super::loop_device::{LoopDisk, LoopKind};
use super::throughput::{rate_of, series};
use super::{AgingOptions, Bed, library, short};
use crate::collector::Collector;
use crate::collector::guarded;
use crate::error::BenchError;
use crate::evaluation::{Figure, Shape};
use crate::memory::prepare;
use crate::ops::bed::{create_pool, on_tmpfs, work_directory};
use crate::personality::Personality;
use crate::target::{Directory, Target};
use fs::{FileSystem, MountOptions};
use serde_json::{Map, Value};
use server::Mounting;
use std::path::Path;
use std::time::Duration;
use txn::PmemStore;

/// The mounts take many times as long as the library, so they get an eighth of the files, and of the pool; the library too.
const SHARE: usize = 8;
/// How long wearing a set in may take at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// How one side is made and measured.
type Measure = fn(&AgingOptions, &Path, Personality) -> Result<f64, BenchError>;

const SIDES: [(&str, Measure); 4] = [
    ("library", on_library),
    ("FUSE mount", on_mount),
    ("tmpfs", on_tmpfs_directory),
    ("ext4 on a loop device", on_ext4),
];

/// Measures all sides, one after the other; those that cannot be had are absent, with the reason.
pub(super) fn measure(collector: &mut Collector, options: &AgingOptions) {
    let personalities = &options.personalities;
    let mut absent = Map::new();
    let mut all = Vec::new();
    for (label, side) in SIDES {
        let mut values = Vec::new();
        for &personality in personalities {
            collector.tell(&format!("{personality} on {label}"));
            let rate = guarded(|| {
                let place = work_directory(&options.directory)?;
                side(options, place.path(), personality)
            });
            if let Err(error) = &rate {
                let topic = format!("{personality} on {label}");
                absent.insert(topic, Value::String(error.to_string()));
            }
            values.push(rate.ok());
        }
        all.push(series(label, values));
    }
    for (topic, reason) in &absent {
        let topic = format!("absent: {topic}");
        collector.details.insert(topic, reason.clone());
    }
    push(collector, options, "beside", all);
}

/// Measures the personalities in a directory of any file system.
pub(super) fn measure_target(
    collector: &mut Collector,
    options: &AgingOptions,
    directory: &Path,
) -> Result<(), BenchError> {
    let mut values = Vec::new();
    for &personality in &options.personalities {
        collector.tell(&format!("{personality} in {}", directory.display()));
        let place = work_directory(directory)?;
        values.push(Some(in_directory(options, place.path(), personality)?));
    }
    let label = directory.display().to_string();
    push(collector, options, "target", vec![series(&label, values)]);
    Ok(())
}

fn push(
    collector: &mut Collector,
    options: &AgingOptions,
    name: &str,
    series: Vec<crate::evaluation::Series>,
) {
    collector.figures.push(Figure {
        name: name.to_owned(),
        title: format!(
            "Side by side: {} files, {} threads",
            short(files(options)),
            options.threads_max()
        ),
        shape: Shape::Bars,
        x_label: "personality",
        places: options
            .personalities
            .iter()
            .map(Personality::to_string)
            .collect(),
        y_label: "operations/s",
        series,
    });
}

fn files(options: &AgingOptions) -> usize {
    let least = options.files.iter().min().copied().unwrap_or(SHARE);
    (least / SHARE).max(1)
}

/// A small pool still needs room for journals and tables.
fn pool_bytes(options: &AgingOptions) -> u64 {
    (options.pool_bytes / SHARE as u64).max(64 << 20)
}

fn rate<T: Target>(
    options: &AgingOptions,
    target: T,
    personality: Personality,
) -> Result<f64, BenchError> {
    let mean_bytes = AgingOptions::mean_bytes(options.pool_bytes / SHARE as u64, files(options));
    let bed = Bed::make(target, personality, files(options), mean_bytes, PATIENCE)?;
    rate_of(&bed, options)
}

fn in_directory(
    options: &AgingOptions,
    place: &Path,
    personality: Personality,
) -> Result<f64, BenchError> {
    rate(options, Directory::new(place, "directory"), personality)
}

fn on_library(
    options: &AgingOptions,
    place: &Path,
    personality: Personality,
) -> Result<f64, BenchError> {
    let target = library(place, pool_bytes(options), &options.media)?;
    rate(options, target, personality)
}

fn on_mount(
    options: &AgingOptions,
    place: &Path,
    personality: Personality,
) -> Result<f64, BenchError> {
    let (pool, mountpoint) = (place.join("pool"), place.join("mount"));
    create_pool(&pool, pool_bytes(options))?.close()?;
    std::fs::create_dir(&mountpoint).map_err(BenchError::io("make", &mountpoint))?;
    let store = PmemStore::open(&pool, txn::Mode::ReadWrite, true)?;
    prepare(store.region(), &options.media);
    let files = FileSystem::mount(store, MountOptions::default())?;
    let running = server::spawn(files, &Mounting::new(&pool, &mountpoint))?;
    let rate = in_directory(options, running.mountpoint(), personality);
    running.unmount()?;
    rate
}

fn on_tmpfs_directory(
    options: &AgingOptions,
    _place: &Path,
    personality: Personality,
) -> Result<f64, BenchError> {
    let place = work_directory(&on_tmpfs(&options.directory))?;
    in_directory(options, place.path(), personality)
}

fn on_ext4(
    options: &AgingOptions,
    place: &Path,
    personality: Personality,
) -> Result<f64, BenchError> {
    let ext4 = LoopDisk::mount(place, LoopKind::Ext4, pool_bytes(options), false)?;
    in_directory(options, ext4.mountpoint(), personality)
}
