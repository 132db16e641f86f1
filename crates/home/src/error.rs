//! What can be wrong with a home.

use std::path::PathBuf;

/// Why a home cannot be made or opened. Each message names the file and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// A system call failed.
    #[error("cannot {action} the home {path}: {source}")]
    Io {
        /// The system call, as a verb.
        action: &'static str,
        /// The home.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is something that is no home.
    #[error(
        "{path} is no home of a pool: its header is missing or damaged; give the file or device that the pool was made with"
    )]
    NotAHome {
        /// The file.
        path: PathBuf,
    },
    /// Another version of the format.
    #[error("{path}: version {found} of a home's format, and this program knows version 1")]
    OtherVersion {
        /// The home.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The home of another pool.
    #[error(
        "{path} is the home of another pool ({found}, and this one is {expected}); give the home that this pool was made with"
    )]
    OtherPool {
        /// The home.
        path: PathBuf,
        /// The pool that it belongs to.
        found: String,
        /// The pool that is being opened.
        expected: String,
    },
    /// Home and memory are of different times.
    #[error(
        "{path} is {older_or_newer} than the pool's memory: the home was mounted {home} times, the memory {memory} times; one of the two is an old copy, and together they have blocks that differ, whose reading fails. Give the ones that belong together, or take these with --force-recovery"
    )]
    OtherTime {
        /// The home.
        path: PathBuf,
        /// Which one is the older.
        older_or_newer: &'static str,
        /// The home's generation.
        home: u64,
        /// The memory's generation.
        memory: u64,
    },
    /// The disk or file has too little room.
    #[error(
        "{path} has {bytes} bytes, and a home needs {least} at least; give a larger one, or a smaller --home-size"
    )]
    TooSmall {
        /// The home.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The least size.
        least: u64,
    },
    /// Nobody said how large a new home shall be.
    #[error("{path} is not there yet; say how large the new home shall be, with --home-size")]
    NeedsSize {
        /// The home.
        path: PathBuf,
    },
    /// More blocks than a pool can name.
    #[error(
        "{path} has {bytes} bytes, and a pool uses less than 16T of its home; give a smaller --home-size"
    )]
    TooLarge {
        /// The home.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Making a home would destroy something.
    #[error(
        "{path} is not empty; if what it holds can go, give --force, else give another file or device"
    )]
    NotEmpty {
        /// The file.
        path: PathBuf,
    },
    /// The home of an ordinary user's pool is what only that user may have wished.
    #[error(
        "{path} belongs to another user's pool and {what}, so it is not opened; mount the pool as that user, or say where its home is with --home"
    )]
    Distrusted {
        /// The home.
        path: PathBuf,
        /// Why it is doubtful.
        what: &'static str,
    },
    /// A process has it.
    #[error("the home {path} is in use; unmount the pool that uses it, or stop the process")]
    InUse {
        /// The home.
        path: PathBuf,
    },
}

impl HomeError {
    /// `map_err` of a system call.
    pub(crate) fn io(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> HomeError {
        let path = path.to_owned();
        move |source| HomeError::Io {
            action,
            path,
            source,
        }
    }
}
