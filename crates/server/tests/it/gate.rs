//! Threads of a mount that may wait for a disk: as many read requests as there are cores.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::common::{Mounted, Place};
use crate::kept::await_that;
use crate::logged::{Standstill, mount_as};
use perdure_server::Mounting;
use txn::Durability;

const HOUR: Duration = Duration::from_secs(3600);
/// Threads besides one for each core.
const WAITING: usize = 4;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn mount(place: Place) -> Option<Mounted> {
    let mounting = Mounting {
        threads: 0,
        waiting_threads: WAITING,
        // Over io_uring each processor has threads of its own.
        uring: false,
        ..place.mounting()
    };
    // No change waits for the log before an hour.
    mount_as(place, Durability::Fsync(HOUR), &mounting)
}

/// Requests that the kernel never answers by itself.
fn ask(mountpoint: &Path, count: usize) {
    for _ in 0..count {
        rustix::fs::statfs(mountpoint).expect("statfs");
    }
}

/// How many times each thread that reads requests has slept.
fn sleeps() -> HashMap<String, u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let tasks = tasks.map(|task| task.expect("a thread").path());
    let is_reader = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| {
            let number = name.trim_end().strip_prefix("fuse-");
            number.is_some_and(|number| number.parse::<usize>().is_ok())
        })
    };
    let sleeps = |task: std::path::PathBuf| {
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((task.display().to_string(), line.trim().parse().ok()?))
    };
    tasks.filter(is_reader).filter_map(sleeps).collect()
}

#[test]
fn as_many_threads_answer_as_there_are_cores() {
    let Some(mounted) = Place::new_on_disk().and_then(mount) else {
        return;
    };
    // A new thread has its parent's name for a moment. The mount that hands out segments may have
    // one by then.
    await_that("other threads", || sleeps().len() >= cores() + WAITING);
    await_that("threads beyond the cores go on answering", || {
        ask(&mounted.place.mountpoint(), 100);
        let before = sleeps();
        ask(&mounted.place.mountpoint(), 500);
        let after = sleeps();
        let worked = after
            .iter()
            .filter(|&(task, count)| before.get(task) != Some(count));
        (1..=cores().max(2)).contains(&worked.count())
    });
}

#[test]
fn a_request_is_answered_while_all_other_threads_wait_for_the_disk() {
    let Some(disk) = Standstill::new() else {
        return;
    };
    let Some(mounted) = mount(Place::new_on(&disk.path())) else {
        return;
    };
    let make = |number| File::create(mounted.path(&format!("file-{number}"))).expect("created");
    let files: Vec<File> = (1..cores() + WAITING).map(make).collect();
    ask(&mounted.place.mountpoint(), 500);
    let still = disk.stop();
    std::thread::scope(|scope| {
        for file in &files {
            file.write_all_at(b"x", 0).expect("written");
            scope.spawn(|| file.sync_all().expect("durable"));
        }
        for _ in 0..200 {
            ask(&mounted.place.mountpoint(), 1);
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(still);
    });
    drop(files);
}
