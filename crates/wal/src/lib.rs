//! A log of batches on an ordinary disk. Batches become durable in order; a replay returns them
//! after a power failure.
//!
//! The file has two blocks with roots ([`Root`]), then a ring of batches; `docs/LOG.md` has the
//! design. [`format()`] makes a log, [`OpenLog`] reads it, [`Log`] appends:
//!
//! ```
//! # use perdure_wal::{Disk, OpenLog, format, testing::SimulatedDisk};
//! # use std::sync::Arc;
//! let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1 << 20));
//! format(&*disk, [7; 16], 0, &mut |_, _| ())?;
//! let log = OpenLog::open(Arc::clone(&disk), [7; 16])?.replay(&mut |_| ())?;
//! let mut buffer = log.buffer();
//! buffer.payload().extend_from_slice(b"records 1 and 2");
//! let placed = log.place(buffer, 1, 2, false).expect("an empty ring has room");
//! assert_eq!(log.write(placed)?, 2);
//!
//! OpenLog::open(disk, [7; 16])?.read(&mut |batch| assert_eq!(batch.payload, b"records 1 and 2"))?;
//! # Ok::<(), perdure_wal::LogError>(())
//! ```

mod acknowledge;
mod batch;
mod buffer;
mod device;
mod error;
mod format;
mod header;
mod measure;
mod read_ahead;
mod replay;
mod ring;
mod root;
mod statistics;
#[doc(hidden)]
pub mod testing;
mod writer;

pub use batch::{BatchBuffer, Full, Payload, Placed};
pub use buffer::AlignedBuffer;
pub use device::{Disk, FileDisk};
pub use error::LogError;
pub use format::format;
pub use header::{BatchHeader, HEADER_BYTES};
pub use measure::{DiskSpeed, measure_depth};
pub use replay::{Batch, End, OpenLog, Replayed};
pub use root::{Root, RootBlock};
pub use statistics::LogStatistics;
pub use writer::Log;

/// Unit of all reads and writes of the log.
pub const UNIT_BYTES: usize = 4096;

/// Units in front of the ring: the two roots.
pub(crate) const ROOTS_BYTES: u64 = 2 * UNIT_BYTES as u64;
