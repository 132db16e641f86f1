//! System calls on a mount: files that are synced, and a tree that is not.

use super::bed::{Bed, MountedPool, Sides};
use super::tree::archive;
use super::{LogOptions, rate_for};
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::measure::alternate;
use crate::memory::Page;
use crate::ops::bed::{on_tmpfs, work_directory};
use crate::programs::{find, run};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(super) fn measure(collector: &mut Collector, options: &LogOptions, bed: &Bed) {
    collector.group(&["append_fdatasync", "create_fsync"], |collector| {
        bed.ext4()?;
        let mount = bed.mount(options)?;
        collector.row("append_fdatasync", || append(options, bed, mount));
        collector.row("create_fsync", || create(options, bed, mount));
        Ok(())
    });
    collector.row("untar", || untar(options, bed));
}

/// A block at the end of a file, then `fdatasync`.
fn append(options: &LogOptions, bed: &Bed, mount: &MountedPool) -> Result<Found, BenchError> {
    let sides = Sides::make(bed, mount, "append")?;
    let mut files = Vec::new();
    for directory in &sides.directories {
        let path = directory.join("file");
        files.push(File::create(&path).map_err(BenchError::io("make", &path))?);
    }
    let slice = options.slice_seconds(files.len());
    let mut page = Page::filled();
    let mut count = 0;
    sides.compare(options.rounds, |side, directory| {
        let file = &mut files[side];
        rate_for(slice, || {
            count += 1;
            page.number(count);
            let done = file.write_all(&page.0).and_then(|()| file.sync_data());
            done.map_err(BenchError::io("append to a file in", directory))
        })
    })
}

/// A new file with a block, both durable, and its name, too.
fn create(options: &LogOptions, bed: &Bed, mount: &MountedPool) -> Result<Found, BenchError> {
    let sides = Sides::make(bed, mount, "create")?;
    let slice = options.slice_seconds(sides.directories.len());
    let page = Page::filled();
    let mut count = 0;
    sides.compare(options.rounds, |_, directory| {
        let failed = || BenchError::io("make a file in", directory);
        let opened = File::open(directory).map_err(failed())?;
        rate_for(slice, || {
            count += 1;
            let made = File::create_new(directory.join(format!("file-{count}")));
            let done = made.and_then(|mut file| {
                file.write_all(&page.0)?;
                file.sync_all()?;
                opened.sync_all()
            });
            done.map_err(failed())
        })
    })
}

/// Seconds that `tar` takes to unpack a source tree.
fn untar(options: &LogOptions, bed: &Bed) -> Result<Found, BenchError> {
    let tar = find("tar", "tar")?;
    let place = work_directory(&on_tmpfs(&options.directory))?;
    let archive = archive(place.path(), options.files)?;
    let durable = bed.mount(options)?;
    let volatile = MountedPool::volatile(options)?;
    let unpack = |mount: &MountedPool| {
        let directory = mount.mountpoint();
        let mut command = Command::new(&tar);
        command.arg("-xf").arg(&archive).arg("-C").arg(directory);
        let begin = Instant::now();
        run("tar", &mut command)?;
        let seconds = begin.elapsed().as_secs_f64();
        remove(&directory.join("tree"))?;
        Ok(seconds)
    };
    let rounds = alternate(
        options.program_runs,
        |_| unpack(durable),
        |_| unpack(&volatile),
    )?;
    let note = format!("{} files", options.files);
    Ok(with_spread(&rounds, &note))
}

fn remove(tree: &Path) -> Result<(), BenchError> {
    std::fs::remove_dir_all(tree).map_err(BenchError::io("remove", tree))
}
