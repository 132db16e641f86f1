//! `perdure stat`: what a pool holds, mounted or not.

mod direct;
mod header;
mod log;
mod read_cache;
mod report;
mod tier;
mod wear;

use crate::arguments::Stat;
use crate::failure::{Failure, Status};
use crate::{mounts, output};
use direct::Clients;
use header::Header;
use perdure::PoolOptions;
use read_cache::CachedFiles;
use report::{Quota, Report};
use server::control::{AskError, Status as ServerStatus};
use std::io::Write;
use std::path::{Path, PathBuf};
use txn::{OpenError, PoolState};

pub(crate) fn run(arguments: &Stat) -> Result<Status, Failure> {
    let pool = pool_of(&arguments.place)?;
    let mut report = match mounts::ask(&pool) {
        Ok(status) => mounted_pool(&pool, status)?,
        Err(denied @ AskError::Denied { .. }) if arguments.cached_files || arguments.clients => {
            return Err(Failure::failed(denied));
        }
        Err(reason) => {
            tracing::info!(%reason, "no server tells of the pool");
            unserved_pool(&pool)?
        }
    };
    if let Some(file) = &arguments.svg {
        let map = wear::map(&report.pool, &report.wear_by_segment)?;
        let written =
            output::report_file(file, false).and_then(|mut to| to.write_all(map.svg().as_bytes()));
        written.map_err(Failure::io("write the map", file))?;
    }
    if arguments.cached_files {
        let what = "has files with copies in DRAM";
        require_server(&report, what, "--cached-files")?;
        let files = mounts::ask_for_cached_files(&pool).map_err(Failure::failed)?;
        report.read_cache_files = Some(CachedFiles::new(files, arguments.all));
    }
    if arguments.clients {
        let what = "has processes that use files directly";
        require_server(&report, what, "--clients")?;
        let clients = mounts::ask_for_clients(&pool).map_err(Failure::failed)?;
        report.clients = Some(Clients::new(clients, arguments.all));
    }
    match arguments.wear {
        true => report.show_segments(arguments.all),
        false => report.hide_segments(),
    }
    match arguments.json {
        true => output::print_json(&report)?,
        false => {
            report.make_visible();
            output::print(report)?;
        }
    }
    Ok(Status::Success)
}

/// The pool itself, or the pool that is mounted at `place`.
fn pool_of(place: &Path) -> Result<PathBuf, Failure> {
    if perdure::is_pool(place) {
        return Ok(place.to_owned());
    }
    match server::pool_mounted_at(place) {
        Ok(Some(pool)) => Ok(pool),
        Ok(None) => Ok(place.to_owned()),
        // Opening the pool gives the better message.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(place.to_owned()),
        Err(error) => Err(Failure::io("look at it", place)(error)),
    }
}

/// Nobody changes the pool: everything can be read from a private mapping.
fn closed_pool(path: &Path, pool: &perdure::Pool) -> Report {
    let store = pool.filesystem().store();
    let superblock = *store.superblock();
    let segment_blocks = superblock.geometry().segment_blocks;
    let used: Vec<u64> = store
        .allocator()
        .usage()
        .iter()
        .map(|segment| segment_blocks - u64::from(segment.free_blocks))
        .collect();
    let entries = (0..superblock.segments)
        .map(|segment| store.domains().entry(segment))
        .collect();
    let mut report = Report::new(
        path,
        &Header {
            superblock,
            entries,
        },
    );
    let (newest, retired) = store.sequences();
    report.state = "closed";
    report.losses = pool.losses();
    report.clean = Some(pool.was_clean() || super::is_new(store));
    report.journals.unretired_records = Some(pool.recovered_records());
    report.journals.newest_record = Some(newest);
    report.journals.checkpoint = Some(retired);
    report.quotas = Some(pool.filesystem().quotas().iter().map(Quota::new).collect());
    let space = pool.statistics();
    report.set_space(
        space.block_bytes,
        space.free_blocks,
        space.inodes,
        space.free_inodes,
    );
    report.available_bytes = Some(space.available_blocks * u64::from(space.block_bytes));
    report.set_used(&used);
    report
}

/// Refuses an option about what only the server of a mount knows.
fn require_server(report: &Report, what: &str, option: &str) -> Result<(), Failure> {
    match &report.server {
        Some(_) => Ok(()),
        None => Err(Failure::failed(format_args!(
            "{}: only a mounted pool {what}; mount it, or leave out {option}",
            report.pool
        ))),
    }
}

/// A server has the pool open: the header is read from the files, the rest is what the server says.
fn mounted_pool(path: &Path, mut status: ServerStatus) -> Result<Report, Failure> {
    let mut report = Report::new(path, &Header::read(path)?);
    let written = std::mem::take(&mut status.segment_wear);
    report.set_wear(&written, &std::mem::take(&mut status.segment_used));
    report.state = "mounted";
    report.losses = std::mem::take(&mut status.losses);
    report.process = Some(status.process);
    report.class.clone_from(&status.class);
    report.mountpoint = Some(status.mountpoint.clone());
    let space = status.space;
    report.set_space(
        space.block_bytes,
        space.free_blocks,
        space.inodes,
        space.free_inodes,
    );
    // The server answered a moment ago, so its mount does too.
    let mounted = rustix::fs::statvfs(status.mountpoint.as_str()).ok();
    report.available_bytes = mounted.map(|space| space.f_bavail * space.f_frsize);
    report.server = Some(status);
    Ok(report)
}

/// No server answers: the pool is closed, or open in a program, or a mount of it cannot be asked.
fn unserved_pool(path: &Path) -> Result<Report, Failure> {
    let opened = PoolOptions::new()
        .read_only(true)
        .volatile(true)
        .read_cache(super::UNCACHED)
        .open(path);
    let mut report = match opened {
        Ok(open) => closed_pool(path, &open),
        Err(perdure::Error::Open {
            source: OpenError::InUse { owner, .. },
            ..
        }) => {
            let mut report = Report::new(path, &Header::read(path)?);
            report.state = "in use";
            report.process = owner;
            report
        }
        Err(error) => return Err(error.into()),
    };
    let mount = path
        .canonicalize()
        .and_then(|pool| server::mounts_of(&pool));
    if let Some(mount) = mount.ok().and_then(|mounts| mounts.into_iter().next()) {
        report.state = "mounted";
        report.mountpoint = Some(mount.mountpoint.display().to_string());
    }
    Ok(report)
}
