//! `perdure run`: a program whose reads and writes go past the kernel, on a mount that lives as long as it.

pub(crate) mod library;
mod program;

use super::{mount, umount};
use crate::arguments::Run;
use crate::failure::{Failure, Status};
use crate::mounts;
use crate::output;
use crate::signals::Held;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Tells the program where the pool is mounted.
const PLACE_VARIABLE: &str = "PERDURE_MNT";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// How long what the program left behind may keep the mount in use.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(crate) fn run(arguments: &Run) -> Result<Status, Failure> {
    let library = library::find()?;
    // From here on whoever ends this command ends the program, and the mount goes after it.
    let signals = Held::hold()
        .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
    let mount = Mount::find_or_make(arguments)?;
    if arguments.verbose {
        output::complain(format_args!("run: preloading {}", library.display()));
    }
    let others = std::env::var_os(PRELOAD_VARIABLE);
    let mut command = Command::new(&arguments.program[0]);
    command
        .args(&arguments.program[1..])
        .env(PLACE_VARIABLE, &mount.place)
        .env(
            PRELOAD_VARIABLE,
            library::before_others(&library, others.as_deref()),
        );
    let ended = program::run(command, &signals);
    let left = mount.leave(arguments.verbose);
    match (ended, left) {
        (Ok(Status::Success), Err(failure)) => Err(failure),
        (ended, Err(failure)) => {
            // The program's own failure is the exit code, and this must be known as well.
            failure.report("run");
            ended
        }
        (ended, Ok(())) => ended,
    }
}

/// Where the program finds the pool.
struct Mount {
    place: PathBuf,
    /// Whether it was mounted for the program.
    is_ours: bool,
    /// Whether the directory was made for it.
    is_directory_ours: bool,
}

impl Mount {
    /// The mount that is there, or a new one.
    fn find_or_make(arguments: &Run) -> Result<Mount, Failure> {
        let given = &arguments.pool;
        let pool = given
            .canonicalize()
            .map_err(|error| mount::missing_pool(given, error))?;
        // Whoever has the pool and does not answer is found when it is to be mounted.
        let Ok(status) = mounts::ask(&pool) else {
            return Mount::make(&pool, arguments);
        };
        let place = PathBuf::from(status.mountpoint);
        if let Some(at) = &arguments.at
            && !is_same(at, &place)
        {
            return Err(Failure::new(
                Status::Busy,
                format_args!(
                    "{}: is mounted at {}, not at {}; leave --at out, or unmount it first",
                    pool.display(),
                    place.display(),
                    at.display()
                ),
            ));
        }
        let is_direct = status.direct.is_some();
        let is_in_place = status.direct.is_some_and(|direct| direct.in_place);
        if arguments.in_place && !is_in_place {
            return Err(Failure::new(
                Status::Busy,
                format_args!(
                    "{}: is mounted without --in-place; leave it out, or unmount the pool first",
                    pool.display()
                ),
            ));
        }
        if arguments.verbose {
            output::complain(format_args!(
                "run: {} is mounted at {}{}",
                pool.display(),
                place.display(),
                if is_direct {
                    ""
                } else {
                    ", without direct access: everything goes through the kernel"
                }
            ));
        }
        Ok(Mount {
            place,
            is_ours: false,
            is_directory_ours: false,
        })
    }

    fn make(pool: &Path, arguments: &Run) -> Result<Mount, Failure> {
        let place = match &arguments.at {
            Some(at) => std::path::absolute(at).map_err(Failure::io("look at it", at))?,
            None => make_directory()?,
        };
        let made = Mount {
            place,
            is_ours: true,
            is_directory_ours: arguments.at.is_none(),
        };
        match mount::in_background(pool, &made.place, (arguments.volatile, arguments.in_place)) {
            Ok(line) if arguments.verbose => output::complain(format_args!("run: {}", line.trim())),
            Ok(_) => {}
            Err(failure) => {
                made.remove_directory()?;
                return Err(failure);
            }
        }
        Ok(made)
    }

    /// Takes away what was made for the program.
    fn leave(&self, verbose: bool) -> Result<(), Failure> {
        if !self.is_ours {
            return Ok(());
        }
        let line = self.unmount().inspect_err(|_| {
            let place = self.place.display();
            output::complain(format_args!(
                "run: the pool stays mounted at {place}; `perdure umount {place}` takes it away"
            ));
        })?;
        if verbose {
            output::complain(format_args!("run: {}", line.trim()));
        }
        self.remove_directory()
    }

    /// What the program started may need a moment longer than it.
    fn unmount(&self) -> Result<String, Failure> {
        let start = Instant::now();
        loop {
            match umount::unmount(&self.place) {
                Err(failure)
                    if failure.status == Status::Busy && start.elapsed() < BUSY_PATIENCE =>
                {
                    std::thread::sleep(LOOK_AGAIN)
                }
                other => return other,
            }
        }
    }

    /// Never with what is in it: it could be the pool's files.
    fn remove_directory(&self) -> Result<(), Failure> {
        match self.is_directory_ours {
            true => std::fs::remove_dir(&self.place).map_err(Failure::io("remove it", &self.place)),
            false => Ok(()),
        }
    }
}

fn is_same(asked: &Path, place: &Path) -> bool {
    asked.canonicalize().is_ok_and(|asked| asked == place)
}

/// A directory of this user, where such things belong.
fn make_directory() -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && path.is_dir());
    let parent = runtime.unwrap_or_else(|| PathBuf::from("/tmp"));
    let made = tempfile::Builder::new()
        .prefix("perdure-")
        .tempdir_in(&parent);
    // Kept at once: what removes itself removes what is in it.
    made.map(tempfile::TempDir::keep)
        .map_err(Failure::io("make a directory in it", &parent))
}
