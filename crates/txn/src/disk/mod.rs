//! Class `log`: memory that a log on an ordinary disk follows (docs/LOG.md has the design and the
//! invariants L1–L7).
//!
//! | module | idea |
//! | --- | --- |
//! | `policy` | when a call is durable |
//! | `answers` | the changes that answers depend on |
//! | `reader` | the records that journals in memory have and the log does not |
//! | `batch` | records and the data that they publish become a batch of the log |
//! | `dirty` | the blocks that batches changed and the image does not have |
//! | `image` | the pool's files on the disk, as one range of bytes |
//! | `logger` | threads that write batches, and threads that wait for them |
//! | `waiters` | each thread that waits is woken alone |
//! | `bound` | calls wait if the log is late |
//! | `checkpoint` | the image catches up, and the log is trimmed |
//! | `memory` | the memory's files, which outlive a killed server |
//! | `open` | mkfs and recovery |
//! | `salvage` | a damaged pool, for checks and repairs |
//! | `given` | the same on disks that the caller has |

mod answers;
mod batch;
mod bound;
mod checkpoint;
mod dirty;
mod given;
mod image;
mod logger;
mod memory;
pub(crate) mod open;
mod policy;
mod reader;
pub(crate) mod salvage;
mod status;
mod waiters;

pub use given::Disks;
pub use logger::{LogFailed, Logger};
pub use open::LOG_FILE;
pub use policy::{Durability, ParseDurabilityError};
pub use status::DiskLogStatus;
