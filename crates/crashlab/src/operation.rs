//! One operation, done to a file system and to its model.
//!
//! * `live`: what it does to the file system.
//! * `modelled`: what it does to the model.

mod live;
mod modelled;

pub use crate::content::pattern;
pub use live::{Live, Refusal};

use fs::{AllocateOptions, FileType, RenameOptions, XattrMode};
use std::fmt;

/// A call that a program could make. Paths are absolute without the first slash; `byte` seeds what is written.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(
    missing_docs,
    reason = "each variant is the call of its name, each field its argument"
)]
pub enum Operation {
    Create {
        path: String,
        mode: u32,
    },
    MakeNode {
        path: String,
        file_type: FileType,
    },
    MakeDirectory {
        path: String,
        mode: u32,
    },
    MakeSymlink {
        path: String,
        target_bytes: usize,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        options: RenameOptions,
    },
    Write {
        path: String,
        offset: u64,
        bytes: usize,
        byte: u8,
    },
    Append {
        path: String,
        bytes: usize,
        byte: u8,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Allocate {
        path: String,
        offset: u64,
        bytes: u64,
        options: AllocateOptions,
    },
    SetMode {
        path: String,
        mode: u32,
    },
    SetOwner {
        path: String,
        uid: u32,
        gid: u32,
    },
    SetTimes {
        path: String,
        seconds: i64,
    },
    SetXattr {
        path: String,
        name: String,
        bytes: usize,
        byte: u8,
        mode: XattrMode,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    /// Opens an inode: it survives the loss of its names until [`Operation::Release`].
    Hold {
        path: String,
    },
    /// `O_TMPFILE`, held.
    CreateUnnamed {
        mode: u32,
    },
    WriteHeld {
        offset: u64,
        bytes: usize,
        byte: u8,
    },
    LinkHeld {
        path: String,
    },
    /// A process leases a file; the lease that it had ends. If it `is_stopped`, it does not answer
    /// a revocation. If it `is_in_place`, it overwrites in place where it can.
    Lease {
        path: String,
        is_stopped: bool,
        is_in_place: bool,
    },
    /// It writes the file by itself.
    WriteLeased {
        offset: u64,
        bytes: usize,
        byte: u8,
    },
    /// The file system applies its records.
    FoldLease,
    /// It gives the lease back.
    EndLease,
    /// Blocks of a file move to the device.
    Sink {
        path: String,
        first: u64,
        blocks: u64,
    },
    /// They move back to memory.
    Raise {
        path: String,
        first: u64,
        blocks: u64,
    },
    /// Everything that only the memory has is copied to the device.
    CopyDown,
    /// Blocks that the device has as well leave the memory.
    Evict,
    /// A process gets all segments of a user, and changes any byte in them from here on.
    GiveSegments {
        user: u32,
    },
    Release,
    Checkpoint,
    /// Later operations go through this journal, as if another thread did them.
    UseJournal {
        index: usize,
    },
    /// A clean unmount and a mount.
    Remount,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}
