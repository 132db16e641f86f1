//! What can be wrong with a log.

use std::io;
use std::sync::Arc;

/// Why a log cannot be made, opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A read failed.
    #[error(
        "{disk}: reading {bytes} bytes of the log at byte {at} failed: {error}; check the disk, then mount again"
    )]
    Read {
        /// The device.
        disk: String,
        /// Place of the first byte.
        at: u64,
        /// Number of bytes.
        bytes: usize,
        /// The device's error.
        error: Arc<io::Error>,
    },
    /// A write failed.
    #[error(
        "{disk}: writing {bytes} bytes of the log at byte {at} failed: {error}; check the disk, then mount again"
    )]
    Write {
        /// The device.
        disk: String,
        /// Place of the first byte.
        at: u64,
        /// Number of bytes.
        bytes: usize,
        /// The device's error.
        error: Arc<io::Error>,
    },
    /// A flush failed.
    #[error("{disk}: flushing the log failed: {error}; check the disk, then mount again")]
    Flush {
        /// The device.
        disk: String,
        /// The device's error.
        error: Arc<io::Error>,
    },
    /// The file has no room for a ring.
    #[error("{disk}: a log of {bytes} bytes is too small; it needs {least} bytes or more")]
    TooSmall {
        /// The device.
        disk: String,
        /// Its bytes.
        bytes: u64,
        /// The smallest log.
        least: u64,
    },
    /// Neither root is valid.
    #[error("{disk}: the log has no valid root ({reason}); restore the pool from a backup")]
    NoRoot {
        /// The device.
        disk: String,
        /// The reason.
        reason: String,
    },
    /// The log belongs to another pool.
    #[error("{disk}: the log belongs to another pool; put the pool's own file `log` back")]
    Identity {
        /// The device.
        disk: String,
    },
    /// The log has a format that this version does not read.
    #[error(
        "{disk}: the log has format {version}, this program reads format {known}; use a program of the version that made it"
    )]
    Version {
        /// The device.
        disk: String,
        /// The log's format.
        version: u32,
        /// The format that this program reads.
        known: u32,
    },
    /// The file has another length than when it was made.
    #[error(
        "{disk}: the log has a ring of {found} bytes, its root says {expected}; the file was cut or extended: restore its length"
    )]
    Length {
        /// The device.
        disk: String,
        /// Bytes of the ring by the root.
        expected: u64,
        /// Bytes of the ring by the file's length.
        found: u64,
    },
    /// A batch is of a later mount than the root.
    #[error(
        "{disk}: batch {number} of the log is of mount {epoch}, the root of mount {root_epoch}: the file was copied while \
         the pool was mounted, or its newest root is damaged; copy the pool again while it is not mounted"
    )]
    RootIsOlder {
        /// The device.
        disk: String,
        /// The batch.
        number: u64,
        /// The batch's epoch.
        epoch: u64,
        /// The root's epoch.
        root_epoch: u64,
    },
    /// A batch was placed and not written.
    #[error(
        "{disk}: batch {number} of the log was placed and never written, so no later one counts; mount again"
    )]
    Abandoned {
        /// The device.
        disk: String,
        /// The batch.
        number: u64,
    },
    /// A root would move back, or ahead of the durable batches.
    #[error(
        "{disk}: the root of the log cannot move from byte {from} to {to}: durable batches end at {durable}"
    )]
    RootOrder {
        /// The device.
        disk: String,
        /// Where the root is.
        from: u64,
        /// Where it should be.
        to: u64,
        /// Where the newest durable batch ends.
        durable: u64,
    },
    /// The ring has no free part for a measurement.
    #[error("{disk}: the log has {free} free bytes, too few for a measurement of the disk")]
    NoRoomToMeasure {
        /// The device.
        disk: String,
        /// Free bytes of the ring.
        free: u64,
    },
}

impl LogError {
    /// The device's error, if it is one.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            LogError::Read { error, .. }
            | LogError::Write { error, .. }
            | LogError::Flush { error, .. } => Some(error),
            _ => None,
        }
    }
}
