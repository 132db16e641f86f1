//! `perdure mount`: a server in the background (or here), and the line that says what was mounted.

mod daemon;
mod options;
mod remount;
mod transport;

use crate::arguments::Mount;
use crate::arguments::background::Background;
use crate::failure::{Failure, Status, failure_of_open};
use crate::mounts;
use crate::output::{self, Bytes};
use fs::FileSystem;
use options::Options;
use rustix::mount::MountFlags;
use server::ServeError;
use server::control::Temporary;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::Instant;
use txn::{
    Damage, DiskLogStatus, Durability, LogOptions, Logger, Mode, OpenError, PmemStore, PoolState,
    Segments,
};

pub(crate) fn run(arguments: &Mount) -> Result<Status, Failure> {
    let options = Options::parse(arguments)?;
    let pool = arguments
        .pool
        .canonicalize()
        .map_err(|error| missing_pool(&arguments.pool, error))?;
    let mountpoint = std::path::absolute(&arguments.mountpoint);
    let mountpoint = mountpoint.map_err(Failure::io("look at it", &arguments.mountpoint))?;
    if options.fake {
        return Ok(Status::Success);
    }
    if options.remount {
        let line = remount::run(&pool, &mountpoint, &options)?;
        return print_unless_quiet(&options, &line);
    }
    if options.foreground || arguments.background.is_some() {
        return serve(&pool, &mountpoint, &options, arguments.background);
    }
    let words = options.to_arguments()?;
    let background = Background::default();
    let line = daemon::start(&pool, &mountpoint, words, background)?;
    print_unless_quiet(&options, &line)
}

fn print_unless_quiet(options: &Options, line: &str) -> Result<Status, Failure> {
    if !options.quiet {
        output::print(line)?;
    }
    Ok(Status::Success)
}

/// Mounts for a program, with the options that a mount has by itself. Returns the server's line.
pub(super) fn for_program(
    pool: &Path,
    mountpoint: &Path,
    temporary: Temporary,
    (volatile, in_place): (bool, bool),
) -> Result<String, Failure> {
    let flags = [(volatile, "--volatile"), (in_place, "--in-place")];
    let options = flags.iter().filter(|(set, _)| *set);
    let options = options.map(|(_, name)| OsString::from(name)).collect();
    let background = Background {
        temporary: Some(temporary),
    };
    daemon::start(pool, mountpoint, options, background)
}

/// Why the path of a pool cannot be followed.
pub(super) fn missing_pool(pool: &Path, error: std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound => failure_of_open(
            pool,
            OpenError::Missing {
                path: pool.to_owned(),
            },
        ),
        _ => Failure::io("look at it", pool)(error),
    }
}

/// Mounts, says so, and serves until the mount is gone.
fn serve(
    pool: &Path,
    mountpoint: &Path,
    options: &Options,
    background: Option<Background>,
) -> Result<Status, Failure> {
    if background.is_some() {
        daemon::leave_session()?;
    }
    let log = options.log.as_deref().map(daemon::open_log).transpose()?;
    // First, so that a server that was killed is gone before its pool is opened again.
    server::detach_stale(mountpoint).map_err(Failure::failed)?;
    let start = Instant::now();
    let filesystem = open(pool, options)?;
    let store = filesystem.store();
    let (class, records) = (store.class(), store.recovered_records());
    let was_clean = store.was_clean() || super::is_new(store);
    let owner = store.directory().map_or(0, |directory| directory.owner());
    for loss in filesystem.losses() {
        output::complain(format_args!("mount: {}: {loss}", pool.display()));
    }
    let cache = filesystem.read_cache_state();
    let milliseconds = start.elapsed().as_millis();
    transport::enable_if(options.enable_uring)?;
    let mut mounting = options.mounting(pool, mountpoint);
    mounting.class = class.to_string();
    let disk_log = store.logger().map(Logger::status);
    mounting.waiting_threads = disk_log.as_ref().map_or(0, |_| server::WAITING_THREADS);
    mounting.temporary = background.and_then(|background| background.temporary);
    let history = match was_clean {
        true => format!("clean, ready in {milliseconds} ms"),
        false => format!("recovered {records} journal records in {milliseconds} ms"),
    };
    let distrust = distrust(
        owner,
        mounting.restrictions_of(owner) - options.restrictions,
    );
    let line = format!(
        "mounted {} at {}: {}, {history}, {cache}{distrust}",
        pool.display(),
        mountpoint.display(),
        match disk_log {
            Some(disk_log) => log_line(&disk_log),
            None => super::class_line(class, options.volatile),
        },
    );
    let mut announced = Ok(());
    let served = server::serve(filesystem, &mounting, |transport| {
        let line = format!("{line}, {transport}\n");
        announced = match background {
            Some(_) => daemon::report_ready(&line, log),
            None => announce(&line, log, options),
        }
    });
    announced?;
    match served {
        Ok(()) => Ok(Status::Success),
        Err(error) => Err(Failure::new(status_of_serving(&error), error)),
    }
}

/// The class, the policy, and the measured time of a durable write.
fn log_line(log: &DiskLogStatus) -> String {
    let policy = match log.durability {
        Durability::Call => "durable when the call returns".to_owned(),
        Durability::Fsync(bound) => {
            format!("durable at fsync or after {} ms", bound.as_secs_f64() * 1e3)
        }
    };
    let disk = log
        .measured_sync_us
        .map(|time| format!(", a sync in {time:.0} us"));
    let loading = match log.unloaded_bytes {
        0 => String::new(),
        bytes => format!(", {} of memory not loaded yet", Bytes(bytes)),
    };
    format!("class log ({policy}{}){loading}", disk.unwrap_or_default())
}

/// The part of the server's line about what an ordinary user's pool is not trusted with.
fn distrust(owner: u32, restrictions: MountFlags) -> String {
    let all = [(MountFlags::NOSUID, "nosuid"), (MountFlags::NODEV, "nodev")];
    let names = all.iter().filter(|(flag, _)| restrictions.contains(*flag));
    match names.map(|(_, name)| *name).collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        names => format!(", {} because user {owner} owns the pool", names.join(",")),
    }
}

/// Opens and recovers the pool.
fn open(pool: &Path, options: &Options) -> Result<FileSystem, Failure> {
    let mode = match options.read_only {
        true => Mode::ReadOnly,
        false => Mode::ReadWrite,
    };
    let damage = match options.force_recovery {
        true => Damage::Drop,
        false => Damage::Refuse,
    };
    let failed = |error: OpenError| failure_of_open(pool, error);
    let volatile = options.volatile;
    let log = LogOptions {
        durability: options.durability,
        loading: options.loading,
    };
    let open = || PmemStore::open_with(pool, mode, volatile, damage, log);
    let store = mounts::open_once_saved(pool, open, |error| Some(error)).map_err(failed)?;
    let store = home::attach(store, pool, options.home.as_deref(), options.force_recovery)
        .map_err(|source| {
            Failure::from(perdure::Error::Home {
                pool: pool.to_owned(),
                source,
            })
        })?;
    let mount_options = fs::MountOptions {
        tier: options.tier,
        read_only: options.read_only,
        force_recovery: options.force_recovery,
        threads: options.threads,
        access_time: options.access_time,
        read_cache: options.read_cache,
        ..fs::MountOptions::default()
    };
    FileSystem::mount(store, mount_options).map_err(failed)
}

/// The mount can be used: says so, and begins the log.
fn announce(line: &str, log: Option<File>, options: &Options) -> Result<(), Failure> {
    // A closed pipe is no reason to end a mount.
    let _ = print_unless_quiet(options, line);
    log.map_or(Ok(()), |log| daemon::log_to(&log))
}

fn status_of_serving(error: &ServeError) -> Status {
    match error {
        ServeError::TooManyThreads { .. } => Status::Usage,
        ServeError::Mountpoint(server::MountpointError::Busy { .. }) | ServeError::StillBusy(_) => {
            Status::Busy
        }
        _ => Status::Failed,
    }
}
