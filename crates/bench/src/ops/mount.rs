//! Rows about the mount, against a FUSE server that only moves the bytes.
//!
//! The files are opened with `O_DIRECT`: every read and write is one request to the server, none is answered by the kernel's page
//! cache. Caller and servers stay on one processor, because whether the scheduler puts them on one or on two makes more
//! difference than what is to be measured.

use super::bed::FILE;
use super::{OpsOptions, bed, times};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, Places, Stopwatch, alternate, latencies};
use crate::memory::{Page, prepare};
use fs::{FileSystem, MountOptions};
use pmem::BLOCK_BYTES;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{pread, pwrite};
use server::Mounting;
use server::null_server::NullServer;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::path::Path;
use txn::PmemStore;

/// Rows that need the mount.
pub(super) const ROWS: [&str; 2] = ["fuse_read_4k", "fuse_write_4k"];

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The null server's file is memory of this process.
const FILE_BYTES_MAX: u64 = 256 << 20;
const SERVER_THREADS: usize = 1;

/// Mounts both servers in `place` and measures.
pub(super) fn measure(
    collector: &mut Collector,
    options: &OpsOptions,
    place: &Path,
    pool: &Path,
) -> Result<(), BenchError> {
    collector.tell("mount");
    let _pin = Pinned::anywhere();
    let (mountpoint, null_mountpoint) = (place.join("mount"), place.join("null"));
    for directory in [&mountpoint, &null_mountpoint] {
        std::fs::create_dir(directory).map_err(BenchError::io("make", directory))?;
    }
    let bytes = bed::file_bytes(options).min(FILE_BYTES_MAX);
    let null = NullServer::mount(&null_mountpoint, bytes as usize, SERVER_THREADS)?;
    let store = PmemStore::open(pool, txn::Mode::ReadWrite, true)?;
    collector.hash = collector
        .hash
        .wrapping_add(prepare(store.region(), &options.media));
    let files = FileSystem::mount(store, MountOptions::default())?;
    let mounting = Mounting {
        threads: SERVER_THREADS,
        ..Mounting::new(pool, &mountpoint)
    };
    let running = server::spawn(files, &mounting)?;
    let (ours, theirs) = (
        direct(&running.mountpoint().join(FILE))?,
        direct(&null.file())?,
    );
    // Every page once: reads of the null server would otherwise fault its memory in.
    for file in [&ours, &theirs] {
        write_all(file, bytes)?;
    }
    collector.hashed_row("fuse_read_4k", |hash| {
        read(options, &ours, &theirs, bytes / BLOCK, hash)
    });
    collector.row("fuse_write_4k", || {
        write(options, &ours, &theirs, bytes / BLOCK)
    });
    drop((ours, theirs));
    running.unmount()?;
    Ok(())
}

fn direct(path: &Path) -> Result<OwnedFd, BenchError> {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(BenchError::io("open", path))
}

fn write_all(file: &OwnedFd, bytes: u64) -> Result<(), BenchError> {
    let page = Page::filled();
    for offset in (0..bytes).step_by(BLOCK_BYTES) {
        write_page(file, &page, offset)?;
    }
    Ok(())
}

fn read_page(file: &OwnedFd, page: &mut Page, offset: u64) -> Result<(), BenchError> {
    match pread(file, &mut page.0, offset) {
        Ok(BLOCK_BYTES) => Ok(()),
        Ok(length) => Err(BenchError::WrongData(format!(
            "{length} bytes read at {offset}"
        ))),
        Err(errno) => Err(BenchError::io("read", Path::new("a mounted file"))(errno)),
    }
}

fn write_page(file: &OwnedFd, page: &Page, offset: u64) -> Result<(), BenchError> {
    match pwrite(file, &page.0, offset) {
        Ok(BLOCK_BYTES) => Ok(()),
        Ok(length) => Err(BenchError::WrongData(format!(
            "{length} bytes written at {offset}"
        ))),
        Err(errno) => Err(BenchError::io("write", Path::new("a mounted file"))(errno)),
    }
}

/// Runs one side: the time of the caller and of the server.
fn side(
    count: u64,
    mut operation: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let watch = Stopwatch::of_process();
    for number in 0..count {
        operation(number)?;
    }
    Ok(watch.nanoseconds() / count as f64)
}

fn read(
    options: &OpsOptions,
    ours: &OwnedFd,
    theirs: &OwnedFd,
    blocks: u64,
    hash: &mut u64,
) -> Result<Found, BenchError> {
    let page = std::cell::RefCell::new(Page::filled());
    let sum = std::cell::Cell::new(0_u64);
    let once = |file: &OwnedFd, places: &mut Places| {
        let mut page = page.borrow_mut();
        read_page(file, &mut page, places.below(blocks) * BLOCK)?;
        sum.set(sum.get().wrapping_add(black_box(&page).first_word()));
        Ok(())
    };
    let round_of = |file, round| {
        let mut places = Places::new(round);
        side(options.operations, |_| once(file, &mut places))
    };
    let rounds = alternate(
        options.rounds,
        |round| round_of(ours, round),
        |round| round_of(theirs, round),
    )?;
    let mut measured = times(&rounds);
    if options.verbose {
        let mut places = Places::new(1);
        measured.latencies = Some(latencies(options.operations, |_| once(ours, &mut places))?);
        measured.against_latencies = Some(latencies(options.operations, |_| {
            once(theirs, &mut places)
        })?);
    }
    *hash = hash.wrapping_add(sum.get());
    Ok(measured)
}

fn write(
    options: &OpsOptions,
    ours: &OwnedFd,
    theirs: &OwnedFd,
    blocks: u64,
) -> Result<Found, BenchError> {
    let page = std::cell::RefCell::new(Page::filled());
    let once = |file: &OwnedFd, places: &mut Places, number| {
        let mut page = page.borrow_mut();
        page.number(number);
        write_page(file, &page, places.below(blocks) * BLOCK)
    };
    let round_of = |file, round| {
        let mut places = Places::new(round);
        side(options.operations, |number| once(file, &mut places, number))
    };
    let rounds = alternate(
        options.rounds,
        |round| round_of(ours, round),
        |round| round_of(theirs, round),
    )?;
    let mut measured = times(&rounds);
    if options.verbose {
        let mut places = Places::new(1);
        let ours = latencies(options.operations, |number| once(ours, &mut places, number))?;
        let theirs = latencies(options.operations, |number| {
            once(theirs, &mut places, number)
        })?;
        (measured.latencies, measured.against_latencies) = (Some(ours), Some(theirs));
    }
    Ok(measured)
}
