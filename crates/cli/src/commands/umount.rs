//! `perdure umount`: takes the mount away and waits until the pool is saved.

use crate::arguments::Umount;
use crate::failure::{Failure, Status};
use crate::mounts::{self, Process};
use crate::output;
use rustix::fs::StatVfsMountFlags;
use std::path::Path;
use std::time::Duration;

/// Saving the state of a large pool takes seconds; a server that is still there after this long hangs.
const SAVE_PATIENCE: Duration = Duration::from_secs(120);
/// Between saving and the end of the process there is nothing left to do.
const EXIT_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Umount) -> Result<Status, Failure> {
    output::print(unmount(&arguments.mountpoint)?)?;
    Ok(Status::Success)
}

/// Unmounts, and waits until the server has ended. Returns a line that says what became of the pool.
pub(super) fn unmount(mountpoint: &Path) -> Result<String, Failure> {
    let place = mountpoint.display();
    let stale = server::detach_stale(mountpoint).map_err(Failure::failed)?;
    if stale {
        return Ok(format!(
            "unmounted {place}: its server was dead; the next mount recovers the pool\n"
        ));
    }
    let pool =
        server::pool_mounted_at(mountpoint).map_err(Failure::io("look at it", mountpoint))?;
    let pool = pool.ok_or_else(|| not_mounted(mountpoint))?;
    let canonical = mountpoint
        .canonicalize()
        .map_err(Failure::io("look at it", mountpoint))?;
    // Another one may answer: that of another read-only mount.
    let status = mounts::ask(&pool).ok();
    let status = status.filter(|status| Path::new(&status.mountpoint) == canonical);
    let process = status
        .as_ref()
        .and_then(|status| Process::find(status.process));
    let writes_nothing = rustix::fs::statvfs(&canonical)
        .is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY));
    server::unmount(&canonical).map_err(|error| refused(mountpoint, &error))?;
    let hanging = || {
        let remedy = "wait for the server to end, or look at its log";
        Failure::new(
            Status::Busy,
            format_args!("{place}: unmounted, but the pool is still in use; {remedy}"),
        )
    };
    if !mounts::wait_for_release(&pool, SAVE_PATIENCE)
        .map_err(Failure::io("wait for the server", &pool))?
    {
        return Err(hanging());
    }
    if process.is_some_and(|process| !process.wait(EXIT_PATIENCE)) {
        return Err(hanging());
    }
    let outcome = match writes_nothing {
        true => "is as it was",
        false => "is saved",
    };
    Ok(format!("unmounted {place}: {} {outcome}\n", pool.display()))
}

fn not_mounted(place: &Path) -> Failure {
    let pool = place.canonicalize();
    let mounts = pool.and_then(|pool| server::mounts_of(&pool));
    let mounts = mounts.unwrap_or_default();
    let fact = format!("{}: no Perdure pool is mounted there", place.display());
    Failure::failed(match mounts.first() {
        Some(mount) => format!(
            "{fact}; it is a pool that is mounted at {}",
            mount.mountpoint.display()
        ),
        None => format!("{fact}; `findmnt -t fuse.perdure` lists what is"),
    })
}

fn refused(mountpoint: &Path, error: &std::io::Error) -> Failure {
    let place = mountpoint.display();
    match error.kind() {
        std::io::ErrorKind::ResourceBusy => {
            let remedy = "end the programs that use it (fuser -vm shows them)";
            Failure::new(Status::Busy, format_args!("{place}: is in use; {remedy}"))
        }
        std::io::ErrorKind::InvalidInput => Failure::failed(format_args!(
            "{place}: is not a mount point; `findmnt -T {place}` names the one that it is in"
        )),
        _ if rustix::process::geteuid().is_root() => {
            Failure::failed(format_args!("{place}: cannot be unmounted: {error}"))
        }
        _ => Failure::failed(format_args!(
            "{place}: cannot be unmounted: {error}; only root and the user who mounted it may"
        )),
    }
}
