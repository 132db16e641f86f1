//! Why an experiment, or a row of it, could not be measured.

use std::io;
use std::path::{Path, PathBuf};

/// Why an experiment or a row could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An operation of the system failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What.
        path: PathBuf,
        /// What was to be done with it.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Not enough memory or disk where the pool is to lie.
    #[error(
        "{path} has {free_bytes} bytes free and the experiment needs {needed_bytes}: give a smaller size or another directory"
    )]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// What it has.
        free_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// Sizes too small to measure anything.
    #[error(
        "a pool of {pool_bytes} bytes is too small for the experiment: give at least {least_bytes}"
    )]
    TooSmall {
        /// What was asked for.
        pool_bytes: u64,
        /// What is needed.
        least_bytes: u64,
    },
    /// A row that the experiment does not have.
    #[error("there is no row `{row}`; known are {known}")]
    UnknownRow {
        /// What was asked for.
        row: String,
        /// The rows, with commas between them.
        known: String,
    },
    /// The library refused.
    #[error(transparent)]
    Library(#[from] perdure::Error),
    /// The file system refused.
    #[error("file system: {0}")]
    FileSystem(#[from] fs::FsError),
    /// The pool could not be opened.
    #[error(transparent)]
    Open(#[from] txn::OpenError),
    /// The raw side's memory could not be mapped.
    #[error(transparent)]
    Map(#[from] pmem::MapError),
    /// The mount failed.
    #[error(transparent)]
    Serve(#[from] server::ServeError),
    /// The second process did not do what it should.
    #[error("the process that holds the idle pool: {0}")]
    Child(String),
    /// A program that is measured did not do what it should.
    #[error("{program}: {reason}")]
    Program {
        /// Its name.
        program: String,
        /// What it did.
        reason: String,
    },
    /// A program is needed and is not there.
    #[error("{program} is not installed (apt install {package})")]
    NotInstalled {
        /// Its name.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// The other side of a row cannot be had on this machine.
    #[error("{0}")]
    Unavailable(String),
    /// There is nothing to measure yet.
    #[error(
        "the program's reads and writes go through the kernel: there is no direct access to the mount"
    )]
    NoDirectAccess,
    /// Two threads are to run on two processors.
    #[error("two processors are needed; this process may use {0}")]
    Processors(usize),
    /// A result is not what was written.
    #[error("wrong data: {0}")]
    WrongData(String),
    /// What several rows need could not be made.
    #[error("{0}")]
    Setup(String),
    /// A panic while measuring.
    #[error("a panic: {0}")]
    Panic(String),
}

impl BenchError {
    /// Whether something is missing that is no part of the experiment: then nothing failed, and nothing was measured.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(
            self,
            BenchError::NotInstalled { .. }
                | BenchError::NoDirectAccess
                | BenchError::Unavailable(_)
        )
    }

    /// The same, as the result of one more row.
    pub(crate) fn for_another(&self) -> BenchError {
        match self {
            BenchError::NotInstalled { program, package } => {
                BenchError::NotInstalled { program, package }
            }
            BenchError::NoDirectAccess => BenchError::NoDirectAccess,
            BenchError::Unavailable(reason) => BenchError::Unavailable(reason.clone()),
            other => BenchError::Setup(other.to_string()),
        }
    }

    /// `program` did not do what it should.
    pub(crate) fn program(program: &str, reason: impl std::fmt::Display) -> BenchError {
        BenchError::Program {
            program: program.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// `map_err` of system calls on `path`.
    pub(crate) fn io<E: Into<io::Error>>(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> BenchError {
        let path = path.to_owned();
        move |source| BenchError::Io {
            path,
            action,
            source: source.into(),
        }
    }
}
