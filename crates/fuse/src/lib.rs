//! The FUSE protocol: requests of the kernel over its classic queue or over io_uring.
//!
//! | module | idea |
//! | --- | --- |
//! | `abi`, `opcode`, `types` | messages in memory, kinds of request, the protocol's terms |
//! | `filesystem` | what answers requests: a method for each kind |
//! | `dispatch` | from a message to a method; nothing in a message is trusted |
//! | `reply`, `answer` | answers by their shapes, and the way they go |
//! | `device` | `/dev/fuse`: requests, answers, messages to the kernel |
//! | `handshake` | INIT |
//! | `session` | a connection from INIT to its end, and its threads |
//! | `ring` | queues over io_uring: stations, their desks, the watch over them |
//!
//! docs/decisions/fuse-transport.md has the options that were measured, the invariants and the
//! failures.

mod abi;
mod answer;
mod device;
mod dispatch;
mod filesystem;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod opcode;
mod reply;
mod ring;
mod session;
mod types;

pub use crate::device::{BackingId, Notifier};
pub use crate::filesystem::{At, Filesystem, Ioctl, Read, Write};
pub use crate::handshake::Config;
pub use crate::opcode::Opcode;
pub use crate::reply::{
    Filled, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Space,
};
pub use crate::ring::{STATIONS_PER_PROCESSOR, begins_to_wait, check_io_uring, ends_waiting};
pub use crate::session::{Options, Session};
pub use crate::types::{
    Changes, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, InitFlags,
    RenameFlags, Request, Time, TimeOrNow, WriteFlags,
};

#[cfg(test)]
mod tests;
