//! The command line.

pub(crate) mod background;
#[cfg(feature = "bench")]
pub(crate) mod bench;

use crate::lease_timeout::LeaseTimeout;
use crate::read_cache::{ReadCacheChoice, parse_threshold, parse_window};
use crate::size::parse_bytes;
use crate::tier::{DirtyAge, Percent};
use background::Background;
#[cfg(feature = "bench")]
use bench::Bench;
use clap::{ArgGroup, Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed
  2  the command line makes no sense (16 for fsck)
  3  the pool is missing, not a pool, of another version, damaged, or has foreign files
  4  the pool or the mount point is in use
  141  whoever read the output went away
  run: those of its program, 128 + N if signal N ended it, 126 and 127 if it cannot be run

Environment:
  RUST_LOG  which lines are logged, for example RUST_LOG=debug; they go to stderr,
            those of a server in the background to the file of mount --log only
  NO_COLOR  no colour, even on a terminal

Example:
  perdure mkfs /dev/shm/pool --size 4G --volatile
  perdure mount /dev/shm/pool /mnt";

/// A file system for memory that keeps its content
#[derive(Debug, Parser)]
#[command(name = "perdure", version, propagate_version = true, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a pool
    Mkfs(Mkfs),
    /// Mount a pool
    Mount(Mount),
    /// Unmount a pool, and wait until its server has saved and ended
    Umount(Umount),
    /// Run a program whose reads and writes of a pool go past the kernel
    Run(Run),
    /// Check a pool, and repair it
    Fsck(Fsck),
    /// Show what is in a pool: class, space, segments, journals, wear
    Stat(Stat),
    /// Manage the disk below a pool
    Tier(Tier),
    /// Copy files in and out of a pool that is not mounted
    Cp(Cp),
    /// Measure
    #[cfg(feature = "bench")]
    Bench(Bench),
    /// Print the completions for a shell
    Completions(Completions),
    /// Write the manual pages into a directory
    Man(Man),
}

impl Command {
    /// The name as typed, for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Mkfs(_) => "mkfs",
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Run(_) => "run",
            Command::Fsck(_) => "fsck",
            Command::Stat(_) => "stat",
            Command::Tier(_) => "tier",
            Command::Cp(_) => "cp",
            #[cfg(feature = "bench")]
            Command::Bench(_) => "bench",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
A pool is a directory of files, or a device-DAX node (/dev/dax0.0). On a file system mounted with -o dax it is persistent memory
itself (class dax). On an ordinary disk it is served from memory, and a log beside it makes it durable (class log). Shared memory
does not survive a power cut, and is refused without --volatile.

Examples:
  perdure mkfs ~/pool --size 8G
  perdure mkfs /mnt/pmem/pool --size 64G
  perdure mkfs /dev/shm/pool --size 4G --volatile")]
pub(crate) struct Mkfs {
    /// Directory to create, or device-DAX node
    pub(crate) pool: PathBuf,
    /// Size of the pool; units K, M, G, T
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Accept memory that a power cut empties, and record that in the pool
    #[arg(long)]
    pub(crate) volatile: bool,
    /// Size of a segment, the unit in which space is given to owners; a power of two, 0 = the least from 2M on that gives 2,048 or fewer
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0")]
    pub(crate) segment_size: u64,
    /// Size of the log of a pool on an ordinary disk; 0 = an eighth of the pool, from 64M to 1G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0")]
    pub(crate) log_size: u64,
    /// A disk below the pool, for data that its memory has no room for: a block device, a file
    /// (made if it is not there), or a directory for one
    #[arg(long, value_name = "PATH")]
    pub(crate) home: Option<PathBuf>,
    /// Bytes of the home that the pool uses; units K, M, G, T. Needed for a new file, else all
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "home")]
    pub(crate) home_size: Option<u64>,
    /// Most memory that the pool needs while it is mounted; a pool on an ordinary disk needs its
    /// size, one on persistent memory none. On an ordinary disk the rest of a larger pool lies in a
    /// file of the pool's directory; any other larger pool is refused
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Number of journals, the most operations that commit at the same moment; 0 = one for each core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) journals: u32,
    /// Replace a pool that is already there; everything in it is lost
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The command returns when the mount can be used; the server goes on in the background. After a crash of the server or of
the machine, the same command recovers the pool and cleans up the dead mount.

Options after -o: remount, ro, noatime, relatime, strictatime, allow_other, volatile, no_uring, enable_uring, no_direct, in_place,
force_recovery, threads=N, log=FILE, durable=WHEN, lease_timeout=SECONDS, home=PATH, dirty_max=PERCENT, dirty_age=TIME, home_rate=BYTES, read_cache=MODE, read_cache_threshold=N, read_cache_window=SECONDS; the usual
ones of mount(8) that have no meaning here are accepted.
Where a comma ends an option, the size of the read cache follows a colon: -o read_cache=on:2G.

Examples:
  perdure mount /mnt/pmem/pool /mnt
  perdure mount /dev/shm/pool /mnt --read-only
  perdure mount /mnt/pmem/pool /mnt --read-cache 8G
  perdure mount /mnt/pmem/pool /mnt --in-place
  perdure mount ~/pool ~/files --durable call
  perdure mount /mnt/pmem/pool /mnt --dirty-max 40% --dirty-age 10s --home-rate 200M
  perdure mount ~/pool ~/files --enable-uring
  perdure mount -o remount,ro /mnt/pmem/pool /mnt
  mount -t fuse.perdure /mnt/pmem/pool /mnt     (with a link /sbin/mount.fuse.perdure to perdure)")]
pub(crate) struct Mount {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Directory to mount it at
    #[arg(value_name = "MNT")]
    pub(crate) mountpoint: PathBuf,
    /// Where the disk below the pool is, if not where the pool's directory says
    #[arg(long, value_name = "PATH")]
    pub(crate) home: Option<PathBuf>,
    /// How much of the memory data may take that the home has not, before it is copied there
    /// whatever its age
    #[arg(long, value_name = "PERCENT", default_value = "60%")]
    pub(crate) dirty_max: Percent,
    /// Age at which changed data is copied to the home
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) dirty_age: DirtyAge,
    /// Most bytes a second that are copied to the home because of their age; 0 = no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0")]
    pub(crate) home_rate: u64,
    /// Stay in the foreground, until unmounted or SIGTERM or SIGINT
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Write nothing, not even the recovery of a crashed pool
    #[arg(long, short)]
    pub(crate) read_only: bool,
    /// If records of acknowledged changes are damaged, mount without these changes, and say so;
    /// else the pool is not mounted for writing, and files with damaged direct writes stay closed
    #[arg(long)]
    pub(crate) force_recovery: bool,
    /// Print nothing if all goes well
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Threads that serve requests; 0 = one for each core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
    /// Accept memory that a power cut empties although the pool was made for persistent memory
    #[arg(long)]
    pub(crate) volatile: bool,
    /// Take requests from the kernel's classic queue, although this system has FUSE over io_uring
    #[arg(long)]
    pub(crate) no_uring: bool,
    /// Switch FUSE over io_uring on in this system first, for all mounts until the next boot; only
    /// root may
    #[arg(long, conflicts_with = "no_uring")]
    pub(crate) enable_uring: bool,
    /// Do not let programs use files directly (`perdure run`): what they get is judged by their user alone, not by security
    /// modules, nor by what of the mount they can see
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) no_direct: bool,
    /// Let programs that write directly (`perdure run`) overwrite in place: cheaper, but after a power cut each aligned
    /// word of 8 bytes of an overwrite is old or new, not the write as a whole; and a block that is overwritten
    /// again and again stays where it is, its wear not counted
    #[arg(long)]
    pub(crate) in_place: bool,
    /// When calls are durable, of a pool on an ordinary disk (class log): call, when they return;
    /// fsync:TIME, at the next fsync, or after that time at the latest, and in order
    #[arg(long, value_name = "WHEN", default_value_t = txn::Durability::default())]
    pub(crate) durable: txn::Durability,
    /// When a pool on an ordinary disk (class log) is read into memory, unless a killed server has
    /// left its memory: background, while it is used; first, before it is used; demand, what is
    /// accessed and nothing else
    #[arg(long, value_name = "WHEN", default_value_t = txn::Loading::default())]
    pub(crate) load: txn::Loading,
    /// After how long without a write a file is taken back from a program that writes it directly and keeps it open, at the
    /// latest after twice that: so that it does not keep room (2.5 MiB a file); 0 = never
    #[arg(long, value_name = "SECONDS", default_value_t = LeaseTimeout(Some(server::LEASE_TIMEOUT)))]
    pub(crate) lease_timeout: LeaseTimeout,
    /// Append the log of the server to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Copy blocks that are read often to DRAM: auto (if the medium is slower to read), on, off, or a size such as 2G, the most DRAM for copies
    /// (auto with that size; on,2G is possible too); without a size, a quarter of the memory that is available at the mount
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(crate) read_cache: ReadCacheChoice,
    /// Reads within the window that make a block worth a copy, 1 to 63
    #[arg(long, value_name = "N", value_parser = parse_threshold, default_value = "2")]
    pub(crate) read_cache_threshold: u32,
    /// How long a read is remembered, at least
    #[arg(long, value_name = "SECONDS", value_parser = parse_window, default_value = "10")]
    pub(crate) read_cache_window: u32,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Set in the server that another `perdure` started in the background.
    #[arg(skip)]
    pub(crate) background: Option<Background>,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  perdure umount /mnt")]
pub(crate) struct Umount {
    /// Where the pool is mounted
    #[arg(value_name = "MNT")]
    pub(crate) mountpoint: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The program is any one that is linked dynamically. What it reads and writes by read, write, pread,
pwrite and the like in files of its user goes straight to the pool's memory; everything else goes
through the mount as ever, to the same files. A write is durable when it returns, either way.

A pool that is mounted is used where it is, whoever mounted it, and stays mounted. Otherwise it is
mounted for the program; the last program that was started on such a mount takes it away when it
ends. The program finds the place in the variable PERDURE_MNT.

Exit codes:
  those of the program; 128 + N if signal N ended it
  126  the program cannot be run
  127  there is no such program
  those of `perdure mount` and `perdure umount`, if these fail

Environment:
  PERDURE_PRELOAD  the library to preload; without it libperdure_preload.so beside perdure, or in
                   ../lib/perdure or ../lib from there

Examples:
  perdure run /mnt/pmem/pool --at /mnt -- sqlite3 /mnt/data.db
  perdure run /dev/shm/pool -- sh -c 'cd $PERDURE_MNT && fio --name=x --rw=randwrite --size=1g'
  perdure run /mnt/pmem/pool --at /mnt --in-place -- ./simulation /mnt/grid")]
pub(crate) struct Run {
    /// A pool, or where one is mounted
    #[arg(value_name = "POOL|MNT")]
    pub(crate) pool: PathBuf,
    /// Directory to mount it at [default: a new one under XDG_RUNTIME_DIR or /tmp, removed afterwards]
    #[arg(long, value_name = "MNT")]
    pub(crate) at: Option<PathBuf>,
    /// Accept memory that a power cut empties although the pool was made for persistent memory
    #[arg(long)]
    pub(crate) volatile: bool,
    /// Overwrite in place, as with `perdure mount --in-place`; a pool that is mounted must be mounted so
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Say on stderr where the pool is mounted, and which library the program gets
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Without --repair nothing is written. The pool must not be mounted.

Exit codes (those of fsck(8)):
   0  no faults
   1  all faults repaired
   4  faults are left
   8  the check could not run (no such pool, in use, no permission)
  16  the command line makes no sense

Examples:
  perdure fsck /mnt/pmem/pool
  perdure fsck /mnt/pmem/pool --repair -y")]
pub(crate) struct Fsck {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Repair what can be repaired; asks first on a terminal
    #[arg(long)]
    pub(crate) repair: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not ask before repairing
    #[arg(short = 'y', long = "yes")]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("tables").args(["wear", "cached_files", "clients"]).multiple(true)))]
#[command(after_help = "\
Wear is counted in blocks written since mkfs; a mounted pool is asked for its live counts. \
`of mean` relates a segment to the mean of all: 1.00 everywhere is even. \
In the map, an even pool has the middle colour everywhere.

Examples:
  perdure stat /mnt/pmem/pool --json
  perdure stat /mnt --wear
  perdure stat /mnt --cached-files
  perdure stat /mnt --clients
  perdure stat /mnt/pmem/pool --wear --all --svg wear.svg")]
pub(crate) struct Stat {
    /// A pool, or where one is mounted
    #[arg(value_name = "POOL|MNT")]
    pub(crate) place: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also print the wear by segment: of many segments, the most and the least worn
    #[arg(long)]
    pub(crate) wear: bool,
    /// Also print the files that the read cache of a mount has copies of, those with most hits first, 20 at most
    #[arg(long)]
    pub(crate) cached_files: bool,
    /// Also print the processes that read and write files of a mount directly, what they have, and why some operations went through the kernel; those that do most first, 20 at most
    #[arg(long)]
    pub(crate) clients: bool,
    /// Print every segment, file and process of these tables, however many there are
    #[arg(long, requires = "tables")]
    pub(crate) all: bool,
    /// Draw the wear as a map into this file
    #[arg(long, value_name = "FILE", requires = "wear")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Tier {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: TierCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TierCommand {
    /// Copy everything that only the memory has to the home, and wait for that
    Flush(TierFlush),
}

#[derive(Args, Debug)]
#[command(after_help = "\
The pool is mounted, and can be used meanwhile. What is written after the command has begun is not waited for. Data stays in memory
as well, and is found there.

Examples:
  perdure tier flush /mnt/pmem/pool
  perdure tier flush /mnt/pmem/pool --deadline 10m")]
pub(crate) struct TierFlush {
    /// A mounted pool
    pub(crate) pool: PathBuf,
    /// Give up waiting after this time; the server goes on
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<DirtyAge>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
One side, or both, is POOL:/path. Modes, owners, times, extended attributes, symbolic links, hard links inside the tree
and holes are kept; what was written is read back and compared. If DST is a directory, the copy goes into it.
A local path with `:/` in it has to exist to be taken for one.

Examples:
  perdure cp -r ~/src /mnt/pmem/pool:/src
  perdure cp /mnt/pmem/pool:/src/notes.txt .")]
pub(crate) struct Cp {
    /// Copy directories with all that is in them
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// What to copy: a local path or POOL:/path
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// Where to: a local path or POOL:/path
    #[arg(value_name = "DST")]
    pub(crate) target: OsString,
    /// Do not read back what was written
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Accept memory that a power cut empties although the pool was made for persistent memory
    #[arg(long)]
    pub(crate) volatile: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  perdure completions bash > /etc/bash_completion.d/perdure")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  perdure man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Directory for the pages; it is created if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Called as `mount.perdure` or `mount.fuse.perdure`, mount(8) gives `POOL MNT [-sfnv] [-o OPTIONS]`: the same as
/// `perdure mount`, but for flags that have no meaning here.
pub(crate) fn translate_mount_helper(words: Vec<OsString>) -> Vec<OsString> {
    let is_helper = words.first().is_some_and(|name| {
        let base = std::path::Path::new(name)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        base == "mount.perdure" || base == "mount.fuse.perdure"
    });
    if !is_helper {
        return words;
    }
    let mut translated = vec![OsString::from("perdure"), OsString::from("mount")];
    let mut rest = words.into_iter().skip(1);
    let mut quiet = true;
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-f") => translated.extend(["-o", "fake"].map(OsString::from)),
            Some("-v") => quiet = false,
            Some("-s" | "-n") => {}
            Some("-t" | "-N") => drop(rest.next()),
            _ => translated.push(word),
        }
    }
    // mount(8) prints nothing by itself.
    if quiet {
        translated.push("--quiet".into());
    }
    translated
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn mount_helpers_are_translated() {
        let words = [
            "/sbin/mount.fuse.perdure",
            "/p",
            "/mnt",
            "-n",
            "-f",
            "-o",
            "rw,noatime",
            "-t",
            "fuse.perdure",
        ];
        let translated = translate_mount_helper(words.map(OsString::from).to_vec());
        assert_eq!(
            translated,
            [
                "perdure",
                "mount",
                "/p",
                "/mnt",
                "-o",
                "fake",
                "-o",
                "rw,noatime",
                "--quiet"
            ]
        );
        let words = ["mount.perdure", "/p", "/mnt", "-v"].map(OsString::from);
        let translated = translate_mount_helper(words.to_vec());
        assert_eq!(translated, ["perdure", "mount", "/p", "/mnt"]);
        let other = vec![OsString::from("perdure"), OsString::from("-n")];
        assert_eq!(translate_mount_helper(other.clone()), other);
    }
}
