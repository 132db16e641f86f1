//! Errors of making and opening pools.

use crate::directory::Foreign;
use crate::layout::SuperblockFault;
use std::path::PathBuf;

/// Metadata on the medium that does not make sense. Neither the caller's mistake nor a bug: the medium's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{object} is damaged: {detail}; run `perdure fsck`")]
pub struct Corruption {
    /// What is damaged, with its number or place.
    pub object: String,
    /// What is wrong with it.
    pub detail: String,
}

impl Corruption {
    /// Names a damaged object.
    pub fn new(object: impl Into<String>, detail: impl Into<String>) -> Corruption {
        Corruption {
            object: object.into(),
            detail: detail.into(),
        }
    }
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The size is below the minimum for the chosen segments and journals.
    #[error(
        "{size_bytes} bytes are too few for a pool: at least {minimum_bytes} are needed (--size), or smaller segments (--segment-size)"
    )]
    TooSmall {
        /// Size asked for.
        size_bytes: u64,
        /// Least size that works with these segments.
        minimum_bytes: u64,
    },
    /// The size is above what any segments can hold.
    #[error("{size_bytes} bytes are too many for a pool: at most {maximum_bytes} (--size)")]
    TooLarge {
        /// Size asked for.
        size_bytes: u64,
        /// Largest size of a pool.
        maximum_bytes: u64,
    },
    /// The size needs more segments than a pool can have.
    #[error(
        "{size_bytes} bytes in segments of {segment_bytes} are more than {} segments; use --segment-size {suggested_segment_bytes}",
        crate::layout::SEGMENTS_MAX
    )]
    TooManySegments {
        /// Size asked for.
        size_bytes: u64,
        /// Segment size asked for.
        segment_bytes: u64,
        /// A segment size that works.
        suggested_segment_bytes: u64,
    },
    /// A parameter is outside its range.
    #[error("{name} {value} is out of range: {expected}")]
    Parameter {
        /// Name of the parameter.
        name: &'static str,
        /// Value given.
        value: u64,
        /// What is accepted.
        expected: &'static str,
    },
    /// The disk has not enough free space.
    #[error(
        "{path}: {size_bytes} bytes do not fit, {free_bytes} are free there; choose a smaller --size"
    )]
    NoSpace {
        /// Pool.
        path: PathBuf,
        /// Bytes needed.
        size_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
    },
    /// The pool needs more memory than it may have.
    #[error(
        "{path}: a pool of this size needs {needed_bytes} bytes of memory while it is mounted, because all of it is kept there, and {memory_bytes} are allowed; choose a smaller --size, or --memory {needed_bytes}"
    )]
    Memory {
        /// Pool.
        path: PathBuf,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes allowed.
        memory_bytes: u64,
    },
    /// Something is there already.
    #[error("{path} exists already; remove it first or choose another name")]
    Exists {
        /// Pool.
        path: PathBuf,
    },
    /// The memory does not keep its content.
    #[error(transparent)]
    Map(#[from] pmem::MapError),
    /// An operation on a file of the pool failed.
    #[error("{path}: {action}: {source}")]
    Io {
        /// File.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The initial file system could not be written.
    #[error("the new pool could not be initialised: {0}")]
    Initialise(String),
}

/// Why a pool could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing is there.
    #[error("{path}: no such pool; `perdure mkfs` makes one")]
    Missing {
        /// Pool.
        path: PathBuf,
    },
    /// Something is there, but not a pool.
    #[error("{path} is not a Perdure pool: {reason}")]
    NotAPool {
        /// Path.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The pool's format has another version.
    #[error(
        "{path}: format version {found}, this program reads versions up to {supported}; use the matching release of Perdure"
    )]
    OtherVersion {
        /// Pool.
        path: PathBuf,
        /// Version of the pool.
        found: u32,
        /// Version of this program.
        supported: u32,
    },
    /// Both superblocks are unusable.
    #[error(
        "{path}: both superblocks are damaged ({first}; {second}); restore the pool from a copy"
    )]
    Superblocks {
        /// Pool.
        path: PathBuf,
        /// Fault of the first copy.
        first: SuperblockFault,
        /// Fault of the second copy.
        second: SuperblockFault,
    },
    /// A name of the pool leads to something else than a file of the pool.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// A segment file is missing.
    #[error("{path}: segment file is missing; restore it, or the files in it are lost")]
    MissingSegment {
        /// Segment file.
        path: PathBuf,
    },
    /// A file of the pool is shorter than the superblock says.
    #[error("{path}: truncated: {found} bytes instead of {expected}; restore the file from a copy")]
    Truncated {
        /// File.
        path: PathBuf,
        /// Bytes that it should have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Another process has the pool open.
    #[error("{path} is in use{}; unmount it or end that process first", owner.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    InUse {
        /// Pool.
        path: PathBuf,
        /// Process that has it, if known.
        owner: Option<u32>,
    },
    /// Processes of a former server have segments, into which a repair could put metadata.
    #[error(
        "{path}: somebody still has {count} of its segments open or mapped, and a repair could put what is others' into them; end {processes}, then try again"
    )]
    SegmentsHad {
        /// Pool.
        path: PathBuf,
        /// How many.
        count: usize,
        /// Who has the first of them.
        processes: String,
    },
    /// The memory does not keep its content, and nobody said `--volatile`.
    #[error(transparent)]
    Map(#[from] pmem::MapError),
    /// The memory of a pool of class `log` does not fit.
    #[error(
        "{path}: the pool needs {needed_bytes} bytes of memory, and {free_bytes} are free there; free some (`df {path}`), or make /dev/shm larger: mount -o remount,size=BYTES /dev/shm"
    )]
    NoMemory {
        /// Where the memory would be.
        path: PathBuf,
        /// Bytes of the pool.
        needed_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
    },
    /// The log of the pool cannot be used.
    #[error("{path}: {error}")]
    Log {
        /// The log.
        path: PathBuf,
        /// Why not.
        error: wal::LogError,
    },
    /// The files of a pool of class `log` are a copy of files in use.
    #[error(
        "{path}: the files were copied before the pool was unmounted, so they may be of different moments; unmount the original and copy it again; if all are of one moment (a snapshot of the disk, or a copy after a crash), open them with `perdure mount --force-recovery` or `perdure fsck --repair`"
    )]
    Copied {
        /// The pool.
        path: PathBuf,
    },
    /// The log of a pool is not that of the image.
    #[error(
        "{path}: log and image do not belong together: {mixture}; put all files of one copy of the pool there, or have `perdure fsck --repair` make a sound pool of these, which may lose changes and mix old and new data"
    )]
    Mixed {
        /// The log.
        path: PathBuf,
        /// Why not.
        mixture: crate::disk::Mixture,
    },
    /// Records of a killed server that the log has no room for.
    #[error(
        "{path}: {bytes} bytes of changes that only memory has do not fit the log; `perdure fsck --repair` saves them in the image"
    )]
    TailTooLarge {
        /// The log.
        path: PathBuf,
        /// Bytes of one batch.
        bytes: usize,
    },
    /// The memory of a pool of class `log` is in use.
    #[error(
        "{path}: a server has this memory, because a copy of the pool is mounted; unmount the copy first"
    )]
    MemoryInUse {
        /// The memory.
        path: PathBuf,
    },
    /// The device that was given is not the pool's.
    #[error(
        "{device}: has {found_blocks} blocks, and the pool uses {expected_blocks} of its device; give the device that the pool was made with"
    )]
    Device {
        /// The device.
        device: String,
        /// Blocks that it has.
        found_blocks: u64,
        /// Blocks of the pool's; 0 if the pool has none.
        expected_blocks: u64,
    },
    /// Metadata is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// Durable records of a journal could not be applied. Nothing was written.
    #[error(
        "{path}: {first}; mounting the pool for writing would lose them: copy the pool, look at it read-only and with `perdure fsck`, then drop them with `perdure fsck --repair` or `perdure mount --force-recovery`"
    )]
    RecordsLost {
        /// The pool.
        path: PathBuf,
        /// The first of the journals that are damaged.
        first: crate::lost::LostRecords,
    },
    /// An operation on a file of the pool failed.
    #[error("{path}: {action}: {source}")]
    Io {
        /// File.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}
