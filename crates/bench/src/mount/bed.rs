//! Where rows run: two pools in memory, each mounted by a server process of its own, one over
//! io_uring and one over the kernel's classic queue.

use super::MountOptions;
use super::server::Server;
use crate::aging::{in_turn, pair};
use crate::error::BenchError;
use crate::measure::Rounds;
use crate::memory::require_room;
use crate::ops::bed::{create_pool, on_tmpfs, work_directory};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PRELOAD: &str = "LD_PRELOAD";

/// A mount, by its transport.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    IoUring,
    Classic,
}

impl Side {
    /// In the order of rounds.
    pub(super) const ALL: [Side; 2] = [Side::IoUring, Side::Classic];

    /// As `perdure stat --json` has it.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Side::IoUring => "io_uring",
            Side::Classic => "classic",
        }
    }

    /// Options of `perdure mount`.
    pub(super) fn flags(self) -> &'static [&'static str] {
        match self {
            Side::IoUring => &[],
            Side::Classic => &["--no-uring"],
        }
    }
}

/// Both mounts, at once.
pub(super) struct Bed {
    servers: [Server; 2],
    /// Holds the pools; after the servers, which have them mounted.
    place: TempDir,
}

impl Bed {
    pub(super) fn make(options: &MountOptions) -> Result<Bed, BenchError> {
        let pools = Side::ALL.len() as u64;
        require_room(&options.directory, (pools + 1) * options.pool_bytes)?;
        let place = work_directory(&options.directory)?;
        Ok(Bed {
            servers: [
                serve(options, place.path(), Side::IoUring)?,
                serve(options, place.path(), Side::Classic)?,
            ],
            place,
        })
    }

    /// A directory of no side.
    pub(super) fn place(&self) -> &Path {
        self.place.path()
    }

    pub(super) fn server(&self, side: Side) -> &Server {
        &self.servers[side as usize]
    }

    /// A new directory on this side's mount, removed when dropped.
    pub(super) fn directory(&self, side: Side) -> Result<TempDir, BenchError> {
        work_directory(self.server(side).mountpoint())
    }

    /// A new directory on each mount.
    pub(super) fn directories(&self) -> Result<[TempDir; 2], BenchError> {
        Ok([
            self.directory(Side::IoUring)?,
            self.directory(Side::Classic)?,
        ])
    }
}

/// A mount over io_uring for programs with the preload library and without it. Not one of [`Bed`]:
/// the library changes where files lie, and the mounts that are compared have the same past.
pub(super) struct LibraryBed {
    server: Server,
    library: PathBuf,
    /// Holds the pool; after the server.
    place: TempDir,
}

impl LibraryBed {
    pub(super) fn make(options: &MountOptions) -> Result<LibraryBed, BenchError> {
        require_room(&options.directory, 2 * options.pool_bytes)?;
        let place = work_directory(&options.directory)?;
        Ok(LibraryBed {
            server: serve(options, place.path(), Side::IoUring)?,
            library: options.library.clone(),
            place,
        })
    }

    /// A directory that is not on the mount.
    pub(super) fn place(&self) -> &Path {
        self.place.path()
    }

    /// A new directory on the mount, removed when dropped.
    pub(super) fn directory(&self) -> Result<TempDir, BenchError> {
        work_directory(self.server.mountpoint())
    }

    /// The library, or none.
    pub(super) fn library(&self, is_used: bool) -> Option<&Path> {
        is_used.then_some(&*self.library)
    }

    /// A program, with the library or without it.
    pub(super) fn command(&self, program: &Path, with_library: bool) -> Command {
        command(program, self.library(with_library))
    }
}

/// Makes a pool in a directory of its own, and mounts it over this side's transport.
fn serve(options: &MountOptions, place: &Path, side: Side) -> Result<Server, BenchError> {
    let place = place.join(side.transport());
    let (pool, mountpoint) = (place.join("pool"), place.join("mount"));
    std::fs::create_dir_all(&mountpoint).map_err(BenchError::io("make", &mountpoint))?;
    create_pool(&pool, options.pool_bytes)?.close()?;
    Server::start(&options.program, &pool, &mountpoint, side)
}

/// A program with this preload library, or with none.
pub(super) fn command(program: &Path, library: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env_remove(PRELOAD);
    if let Some(library) = library {
        command.env(PRELOAD, library);
    }
    command
}

/// Rates of both sides in slices that alternate: io_uring, then the classic queue.
pub(super) fn compare(
    rounds: usize,
    mut rate: impl FnMut(Side) -> Result<f64, BenchError>,
) -> Result<Rounds, BenchError> {
    let rates = in_turn(rounds, Side::ALL.len(), |side, _| rate(Side::ALL[side]))?;
    Ok(pair(&rates[0], &rates[1]))
}

/// Operations per second of a loop that takes about so long. Waiting for a processor counts: a
/// server that occupies the caller's processor delays its own answer.
pub(super) fn rate_for(
    seconds: f64,
    mut operation: impl FnMut() -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let (begin, length) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut count = 0;
    while count == 0 || begin.elapsed() < length {
        operation()?;
        count += 1;
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}

/// Lets the kernel forget the names and attributes of all files that are not open, so that the next
/// look asks the server. Nothing is written by that.
pub(super) fn forget_names() -> Result<(), BenchError> {
    const PATH: &str = "/proc/sys/vm/drop_caches";
    /// The servers are told of each file that was forgotten.
    const SETTLING: Duration = Duration::from_millis(20);
    if !rustix::process::geteuid().is_root() {
        let reason = "only root can let the kernel forget names";
        return Err(BenchError::Unavailable(reason.to_owned()));
    }
    std::fs::write(PATH, "2").map_err(BenchError::io("write 2 to", Path::new(PATH)))?;
    std::thread::sleep(SETTLING);
    Ok(())
}

/// A directory on tmpfs of no side, removed when dropped.
pub(super) fn in_memory(options: &MountOptions) -> Result<TempDir, BenchError> {
    work_directory(&on_tmpfs(&options.directory))
}
