//! Data in the kernel's page cache that the file system does not know.
//!
//! The page cache is write-through with one exception. A store into a shared mapping dirties a
//! page without a request. The kernel sends such a page at `msync`, `fsync`, at any `close` of the
//! file, or after half a minute. Until then the file system knows neither the data nor the time
//! of the store, and answers about holes, blocks and times would be wrong.
//!
//! * [`PageUse`]: per inode, whether the kernel may have pages, and whether some may be dirty.
//! * [`Questions`]: threads that make the kernel write pages back, or drop them, before an answer.
//! * [`Unsaved`]: dirty pages that came when the pool or the quota was full.
//!
//! docs/DESIGN.md, "The page cache", has the reasons and the limits.

mod kernel;
mod page_use;
mod questions;
mod unsaved;

pub(crate) use kernel::{KeptOpen, Kernel, Otherwise};
pub(crate) use page_use::{Milliseconds, PageUse};
pub(crate) use questions::Questions;
pub(crate) use unsaved::{PAGE_BYTES, Unsaved};
