//! `perdure cp`: files and trees in and out of a pool that is not mounted.

mod local;
mod place;
mod pooled;
mod transfer;

use crate::arguments::Cp;
use crate::failure::{Failure, Status};
use crate::mounts;
use crate::output::{self, Bytes};
use local::LocalSide;
use perdure::{Pool, PoolOptions};
use place::{Kind, Side};
use pooled::PoolSide;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;
use transfer::{Options, Transfer};

pub(crate) fn run(arguments: &Cp) -> Result<Status, Failure> {
    let (from, to) = (
        Location::parse(&arguments.source),
        Location::parse(&arguments.target),
    );
    if from.pool.is_none() && to.pool.is_none() {
        let remedy = "name one side POOL:/path, or use cp(1)";
        return Err(Failure::new(
            Status::Usage,
            format_args!("neither side is in a pool; {remedy}"),
        ));
    }
    let mut pools = OpenPools {
        volatile: arguments.volatile,
        open: Vec::new(),
    };
    // The target first: if both are the same pool, it is opened once, for writing.
    let target = pools.side(&to, false)?;
    let source = pools.side(&from, true)?;
    let options = Options {
        recursive: arguments.recursive,
        verify: !arguments.no_verify,
    };
    let outcome = copy(&*source, &from.path, &*target, &to.path, options);
    drop((source, target));
    pools.close()?;
    outcome
}

fn copy(
    source: &dyn Side,
    from: &Path,
    target: &dyn Side,
    to: &Path,
    options: Options,
) -> Result<Status, Failure> {
    let from = if options.recursive {
        from.to_owned()
    } else {
        source.canonicalize(from)?
    };
    let entry = source.entry(&from)?.ok_or_else(|| {
        Failure::failed(format_args!(
            "{}: no such file or directory",
            source.describe(&from)
        ))
    })?;
    if entry.kind == Kind::Directory && !options.recursive {
        let place = source.describe(&from);
        return Err(Failure::new(
            Status::Usage,
            format_args!("{place}: is a directory; say -r to copy it"),
        ));
    }
    let to = final_target(&from, target, to)?;
    if entry.kind == Kind::Directory && source.identity() == target.identity() {
        refuse_into_itself(source, &from, target, &to)?;
    }
    let start = Instant::now();
    let mut transfer = Transfer::new(source, target, options);
    transfer.run(&from, &to)?;
    let counts = transfer.finish();
    let seconds = start.elapsed().as_secs_f64();
    let rate = Bytes((counts.bytes as f64 / seconds.max(1e-9)) as u64);
    output::print(format_args!(
        "copied {} files, {} directories, {} links: {} ({rate}/s), {} bytes verified\n",
        counts.files,
        counts.directories,
        counts.links,
        Bytes(counts.bytes),
        counts.verified_bytes,
    ))?;
    match counts.failed {
        0 => Ok(Status::Success),
        failed => Err(Failure::failed(format_args!(
            "{failed} objects were not copied; the messages above say why"
        ))),
    }
}

/// A directory as target means: into it, under the old name.
fn final_target(from: &Path, target: &dyn Side, to: &Path) -> Result<PathBuf, Failure> {
    match from.file_name() {
        Some(name) if target.is_directory(to)? => Ok(to.join(name)),
        _ => Ok(to.to_owned()),
    }
}

fn refuse_into_itself(
    source: &dyn Side,
    from: &Path,
    target: &dyn Side,
    to: &Path,
) -> Result<(), Failure> {
    let from = source.canonicalize(from)?;
    // The target need not exist; its parent has to.
    let parent = to
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if target.canonicalize(parent)?.starts_with(&from) {
        let (from, to) = (source.describe(&from), target.describe(to));
        return Err(Failure::new(
            Status::Usage,
            format_args!("{from}: cannot be copied into itself, {to}"),
        ));
    }
    Ok(())
}

/// A side of the copy as typed.
#[derive(Debug, PartialEq, Eq)]
struct Location {
    /// The pool; `None` for a local path.
    pool: Option<PathBuf>,
    path: PathBuf,
}

impl Location {
    /// `POOL:/path` is a place in a pool, unless a local file has exactly that name.
    fn parse(text: &OsStr) -> Location {
        let bytes = text.as_bytes();
        let colon = bytes
            .windows(2)
            .position(|pair| pair == b":/")
            .filter(|at| *at > 0);
        match colon {
            Some(at) if Path::new(text).symlink_metadata().is_err() => {
                let (pool, path) = (
                    OsStr::from_bytes(&bytes[..at]),
                    OsStr::from_bytes(&bytes[at + 1..]),
                );
                Location {
                    pool: Some(pool.into()),
                    path: path.into(),
                }
            }
            _ => Location {
                pool: None,
                path: text.into(),
            },
        }
    }
}

fn reason_of_open(error: &perdure::Error) -> Option<&txn::OpenError> {
    match error {
        perdure::Error::Open { source, .. } => Some(source),
        _ => None,
    }
}

/// The pools of a copy; one that stands on both sides is opened once.
struct OpenPools {
    volatile: bool,
    open: Vec<(PathBuf, Rc<Pool>)>,
}

impl OpenPools {
    fn side(&mut self, location: &Location, read_only: bool) -> Result<Box<dyn Side>, Failure> {
        let Some(path) = &location.pool else {
            return Ok(Box::new(LocalSide));
        };
        let key = path.canonicalize().unwrap_or_else(|_| path.clone());
        if let Some((_, pool)) = self.open.iter().find(|(open, _)| *open == key) {
            return Ok(Box::new(PoolSide::new(Rc::clone(pool))));
        }
        let options = || {
            // Closing the pool makes all of the copy durable.
            PoolOptions::new()
                .durability(perdure::Durability::default())
                .read_only(read_only)
                .volatile(self.volatile)
                .umask(0)
                .read_cache(super::UNCACHED)
        };
        let pool = mounts::open_once_saved(path, || options().open(path), reason_of_open)?;
        for loss in pool.losses() {
            crate::output::complain(format_args!("cp: {}: {loss}", path.display()));
        }
        let pool = Rc::new(pool);
        self.open.push((key, Rc::clone(&pool)));
        Ok(Box::new(PoolSide::new(pool)))
    }

    fn close(self) -> Result<(), Failure> {
        for (_, pool) in self.open {
            if let Some(pool) = Rc::into_inner(pool) {
                pool.close()?;
            }
        }
        Ok(())
    }
}

/// A path as people type it, `POOL:` in front for a pool.
fn describe(pool: Option<&Path>, path: &Path) -> String {
    let mut text = OsString::new();
    if let Some(pool) = pool {
        text.push(pool);
        text.push(":");
    }
    text.push(path);
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_told_apart() {
        let pool = |pool: &str, path: &str| Location {
            pool: Some(pool.into()),
            path: path.into(),
        };
        let local = |path: &str| Location {
            pool: None,
            path: path.into(),
        };
        assert_eq!(
            Location::parse(OsStr::new("/dev/shm/p:/a/b")),
            pool("/dev/shm/p", "/a/b")
        );
        assert_eq!(Location::parse(OsStr::new("p:/")), pool("p", "/"));
        assert_eq!(Location::parse(OsStr::new("p:/a:/b")), pool("p", "/a:/b"));
        assert_eq!(Location::parse(OsStr::new("/tmp/a")), local("/tmp/a"));
        assert_eq!(Location::parse(OsStr::new("p:a")), local("p:a"));
        assert_eq!(Location::parse(OsStr::new(":/a")), local(":/a"));
    }
}
