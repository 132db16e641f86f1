//! Data blocks that are not memory.
//!
//! A pool keeps metadata and hot data in its region, where a load cannot fail. Other *data* blocks
//! may lie on a device: a disk below the pool, or nodes on other machines. Reading one takes micro-
//! to milliseconds and can fail. `docs/decisions/device.md` has the options, the design and the
//! invariants D1 to D8 that comments here refer to.
//!
//! * [`Device`]: the six methods that an implementation has.
//! * [`DeviceBlock`], [`Run`]: the names of its blocks.
//! * [`Space`]: which of its blocks are free. It knows nothing of wear, but prefers runs.
//! * [`Readers`]: a freed block is not used anew while a reader may still need it.
//! * [`Residents`]: which blocks of memory have the same content on the device.
//! * [`Flushes`]: after a failed flush no write that was begun before its end counts as durable.
//! * `faulty`: a device in memory that fails in every way, for tests (feature `faulty`).

mod block;
mod device;
#[cfg(any(test, feature = "faulty"))]
pub mod faulty;
mod flushes;
mod readers;
mod residents;
mod space;

pub use block::{DeviceBlock, Run};
pub use device::{Device, DeviceError, ReadRequest, Token, WriteRequest};
pub use flushes::{Flushes, WrittenSince};
pub use readers::{Moment, Pin, Readers};
pub use residents::{Residents, Ticket, Twin};
pub use space::{AlreadyUsed, NotUsed, Rebuild, Runs, Space};
