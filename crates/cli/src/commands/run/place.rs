//! Where the program finds the pool: a mount that is there, or one that is made for it.

use super::companions::{Companions, Turn};
use crate::arguments::Run;
use crate::commands::{mount, umount};
use crate::failure::{Failure, Status};
use crate::mounts;
use crate::output::{self, quoted};
use server::PoolMount;
use server::control::{Status as ServerStatus, Temporary};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long what the program left behind may keep the mount in use.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const DIRECTORY_PREFIX: &str = "perdure-";

/// Where the program finds the pool.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pool: PathBuf,
    companions: Companions,
    /// Keeps the mount of somebody else until the program has ended.
    held: Option<OwnedFd>,
    /// What was made for the program.
    made: Option<Temporary>,
}

impl Place {
    /// The mount that is there, or a new one.
    pub(super) fn find_or_make(arguments: &Run) -> Result<Place, Failure> {
        let pool = pool_of(&arguments.pool)?;
        let companions = Companions::of(&pool);
        let turn = take_turn(&companions, &pool)?;
        let found = find(&pool, arguments.at.as_deref())?;
        let (path, held, made) = match found {
            Some((place, root)) => {
                look_at_options(&pool, &place, arguments)?;
                (place, Some(root), None)
            }
            None => {
                let at = arguments.at.as_deref();
                // Who names a mount whose server is dead wants the pool there again.
                let given = Some(&*arguments.pool).filter(|_| !perdure::is_pool(&arguments.pool));
                let (place, temporary) = make(&pool, at.or(given), arguments)?;
                (place, None, Some(temporary))
            }
        };
        turn.enter().map_err(Failure::io("lock it", &pool))?;
        drop(turn);
        Ok(Place {
            path,
            pool,
            companions,
            held,
            made,
        })
    }

    /// Takes away what was made for programs, after the last of them.
    pub(super) fn leave(mut self, verbose: bool) -> Result<(), Failure> {
        drop(self.held.take());
        let turn = take_turn(&self.companions, &self.pool)?;
        let is_last = turn.leave().map_err(Failure::io("unlock it", &self.pool))?;
        let temporary = match (is_last, self.made) {
            (true, Some(made)) => Some(made),
            (true, None) => self.left_to_us(),
            (false, _) => None,
        };
        match temporary {
            Some(temporary) => self.take_away(temporary, verbose),
            None => Ok(()),
        }
    }

    /// What another `perdure run` made that has ended before this one.
    fn left_to_us(&self) -> Option<Temporary> {
        let status = mounts::ask(&self.pool).ok()?;
        status
            .temporary
            .filter(|_| Path::new(&status.mountpoint) == self.path)
    }

    fn take_away(&self, temporary: Temporary, verbose: bool) -> Result<(), Failure> {
        // The program may have unmounted it.
        if self.is_mounted()? {
            let line = self.unmount().inspect_err(|_| self.say_what_stays())?;
            if verbose {
                output::complain(format_args!("run: {}", line.trim()));
            }
        }
        remove_directory(&self.path, temporary)
    }

    fn is_mounted(&self) -> Result<bool, Failure> {
        let mounts = server::mounts_of(&self.pool);
        let mounts = mounts.map_err(Failure::io("look for its mounts", &self.pool))?;
        Ok(mounts.iter().any(|mount| mount.mountpoint == self.path))
    }

    fn say_what_stays(&self) {
        if self.is_mounted().unwrap_or(true) {
            let place = quoted(&self.path);
            output::complain(format_args!(
                "run: the pool stays mounted at {place}; `perdure umount {place}` takes it away"
            ));
        }
    }

    /// What the program started may need a moment longer than it.
    fn unmount(&self) -> Result<String, Failure> {
        let start = Instant::now();
        loop {
            match umount::unmount(&self.path) {
                Err(failure)
                    if failure.status == Status::Busy && start.elapsed() < BUSY_PATIENCE =>
                {
                    std::thread::sleep(LOOK_AGAIN)
                }
                other => return other,
            }
        }
    }
}

fn take_turn<'a>(companions: &'a Companions, pool: &Path) -> Result<Turn<'a>, Failure> {
    companions.turn().map_err(Failure::io("lock it", pool))
}

/// The pool itself, or the pool that is mounted at `given`, which may be a mount whose server is dead.
fn pool_of(given: &Path) -> Result<PathBuf, Failure> {
    match server::pool_mounted_at(given) {
        Ok(Some(pool)) if !perdure::is_pool(given) => Ok(pool),
        _ => given
            .canonicalize()
            .map_err(|error| mount::missing_pool(given, error)),
    }
}

/// A mount that the program can use: what the mount table says and the path leads to, whatever a server says.
fn find(pool: &Path, at: Option<&Path>) -> Result<Option<(PathBuf, OwnedFd)>, Failure> {
    let mut mounts = server::mounts_of(pool).map_err(Failure::io("look for its mounts", pool))?;
    let is_asked = |place: &Path| at.is_none_or(|at| is_same(at, place));
    mounts.sort_by_key(|mount| !is_asked(&mount.mountpoint));
    for mount in mounts {
        if let Some(root) = hold(pool, &mount)? {
            return match is_asked(&mount.mountpoint) {
                true => Ok(Some((mount.mountpoint, root))),
                false => Err(mounted_elsewhere(pool, &mount.mountpoint, at)),
            };
        }
    }
    // Whoever has the pool and does not answer is found when it is to be mounted.
    match mounts::ask(pool) {
        Ok(status) if !status.read_only => Err(not_to_be_seen(pool, &status)),
        _ => Ok(None),
    }
}

fn hold(pool: &Path, mount: &PoolMount) -> Result<Option<OwnedFd>, Failure> {
    match mount.hold() {
        Ok(root) => Ok(root),
        // Its server is dead, or is just dying.
        Err(error) if server::is_dead_mount(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let (pool, place) = (pool.display(), mount.mountpoint.display());
            let remedy = "mount it with `-o allow_other`, at a place that everybody can reach";
            Err(Failure::new(
                Status::Busy,
                format_args!("{pool}: is mounted at {place}, where this user may not go; {remedy}"),
            ))
        }
        Err(error) => Err(Failure::io("use the mount", &mount.mountpoint)(error)),
    }
}

fn mounted_elsewhere(pool: &Path, place: &Path, at: Option<&Path>) -> Failure {
    Failure::new(
        Status::Busy,
        format_args!(
            "{}: is mounted at {}, not at {}; leave --at out, or unmount it first",
            pool.display(),
            place.display(),
            at.unwrap_or(place).display()
        ),
    )
}

fn not_to_be_seen(pool: &Path, status: &ServerStatus) -> Failure {
    Failure::new(
        Status::Busy,
        format_args!(
            "{}: process {} has it mounted at {}, but that cannot be seen from here: the mount was taken out of the tree while it was in use, \
             something else is mounted over it, or it belongs to another mount namespace; undo that, or end the process",
            pool.display(),
            status.process,
            status.mountpoint
        ),
    )
}

fn is_same(asked: &Path, place: &Path) -> bool {
    asked.canonicalize().is_ok_and(|asked| asked == place)
}

/// Whether the mount that is there is as wanted. Only its user and root can ask; others need to only for --in-place.
fn look_at_options(pool: &Path, place: &Path, arguments: &Run) -> Result<(), Failure> {
    if !arguments.in_place && !arguments.verbose {
        return Ok(());
    }
    let asked = mounts::ask(pool);
    if arguments.in_place {
        let pool = pool.display();
        let otherwise = "leave --in-place out, or unmount the pool first";
        let refusal = match &asked {
            Err(reason) => format!("cannot tell whether it is mounted with --in-place: {reason}"),
            Ok(status) => match status.direct {
                Some(direct) if direct.in_place => String::new(),
                Some(_) => format!("is mounted without --in-place; {otherwise}"),
                None => format!(
                    "is mounted without direct access (read-only, or with --no-direct), so nothing is overwritten in place; {otherwise}"
                ),
            },
        };
        if !refusal.is_empty() {
            return Err(Failure::new(
                Status::Busy,
                format_args!("{pool}: {refusal}"),
            ));
        }
    }
    if arguments.verbose {
        let is_indirect = asked.is_ok_and(|status| status.direct.is_none());
        output::complain(format_args!(
            "run: {} is mounted at {}{}",
            pool.display(),
            place.display(),
            match is_indirect {
                true => ", without direct access: everything goes through the kernel",
                false => "",
            }
        ));
    }
    Ok(())
}

/// Mounts the pool for the program, `at` a place or at one that is made.
fn make(pool: &Path, at: Option<&Path>, arguments: &Run) -> Result<(PathBuf, Temporary), Failure> {
    let place = match at {
        Some(at) => std::path::absolute(at).map_err(Failure::io("look at it", at))?,
        None => make_directory()?,
    };
    let temporary = Temporary {
        directory: at.is_none(),
    };
    let options = (arguments.volatile, arguments.in_place);
    match mount::for_program(pool, &place, temporary, options) {
        Ok(line) if arguments.verbose => output::complain(format_args!("run: {}", line.trim())),
        Ok(_) => {}
        Err(failure) => {
            remove_directory(&place, temporary)?;
            return Err(failure);
        }
    }
    // As the mount table has it.
    let place = place.canonicalize().unwrap_or(place);
    Ok((place, temporary))
}

/// Never with what is in it: it could be the pool's files.
fn remove_directory(place: &Path, temporary: Temporary) -> Result<(), Failure> {
    match temporary.directory {
        true => std::fs::remove_dir(place).map_err(Failure::io("remove it", place)),
        false => Ok(()),
    }
}

/// A directory of this user, where such things belong if that can be written.
fn make_directory() -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && path.is_dir());
    let make_in = |parent: &Path| {
        let made = tempfile::Builder::new()
            .prefix(DIRECTORY_PREFIX)
            .tempdir_in(parent);
        // Kept at once: what removes itself removes what is in it.
        made.map(tempfile::TempDir::keep)
    };
    if let Some(made) = runtime.and_then(|runtime| make_in(&runtime).ok()) {
        return Ok(made);
    }
    let parent = Path::new("/tmp");
    make_in(parent).map_err(Failure::io("make a directory in it", parent))
}
