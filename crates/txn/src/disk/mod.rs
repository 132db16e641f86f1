//! Class `log`: memory that a log on an ordinary disk follows (docs/LOG.md has the design and the
//! invariants L1–L11).
//!
//! | module | idea |
//! | --- | --- |
//! | `policy` | when a call is durable |
//! | `answers` | the changes that answers depend on |
//! | `reader` | the records that journals in memory have and the log does not |
//! | `cut` | records up to some number become the next batch |
//! | `batch` | records and the data that they publish become a batch of the log |
//! | `dirty` | the blocks that batches changed and the image does not have |
//! | `image` | the pool's files on the disk, as one range of bytes |
//! | `stamp` | log and image belong together |
//! | `files` | the files of a pool differ from copies |
//! | `logger` | threads that write batches, and threads that wait for them |
//! | `waiters` | each thread that waits is woken alone |
//! | `bound` | calls wait if the log is late |
//! | `backlog` | the bytes that records in memory still want to have in the log |
//! | `placed_data` | large data goes straight to its place in the image |
//! | `checkpoint` | the image catches up, and the log is trimmed |
//! | `loader` | memory is used while the image is read into it |
//! | `memory` | the memory's files, which outlive a killed server |
//! | `open` | mkfs and recovery |
//! | `tail` | the records that only a killed server's memory has |
//! | `salvage` | a damaged pool, for checks and repairs |
//! | `given` | the same on disks that the caller has |

mod answers;
mod backlog;
mod batch;
mod bound;
mod checkpoint;
mod cut;
mod dirty;
mod early;
mod files;
mod given;
mod image;
mod loader;
mod logger;
mod memory;
pub(crate) mod open;
mod placed_data;
mod policy;
mod reader;
mod replay;
pub(crate) mod salvage;
mod stamp;
mod status;
mod tail;
mod waiters;
mod waits;

use crate::layout::Geometry;
use pmem::{BLOCK_BYTES, Offset};

pub use backlog::{RESERVED_BYTES_MIN, Room};
pub use given::Disks;
pub use loader::{Loading, ParseLoadingError};
pub use logger::{LogFailed, Logger};
pub use policy::{Durability, LogOptions, ParseDurabilityError};
pub use stamp::Mixture;
#[doc(hidden)]
pub use stamp::{ImageStamp, STAMP_AT};
pub use status::DiskLogStatus;
pub use waits::Waits;
pub(crate) use waits::Watch;

/// Name of the log's file in the pool's directory.
pub const LOG_FILE: &str = "log";
/// In the log's root: the image is whole and the pool was unmounted cleanly.
const CLEAN: u64 = 1;

/// Whether a batch may change these bytes: those of a segment, and the header without superblocks.
fn is_inside(geometry: &Geometry, at: Offset, length: usize) -> bool {
    let Some(end) = at.get().checked_add(length as u64) else {
        return false;
    };
    let second = geometry.second_superblock();
    let is_header = at.get() >= BLOCK_BYTES as u64 && end <= second.get();
    let is_segment = at >= geometry.first_block().offset() && end <= geometry.total_bytes();
    is_header || is_segment
}
