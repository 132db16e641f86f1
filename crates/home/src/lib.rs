//! The disk below a pool: its *home*, where data lies that the memory has no room for.
//!
//! A home is a file on a disk, or a block device. It begins with a [header](HomeHeader), twice,
//! that names the pool; data blocks follow from [`DATA_AT`] on. Nothing of a home says what a block
//! belongs to: the pool's block maps do.
//!
//! * [`FileHome`]: a home that is open, as a [`device::Device`].
//! * [`Home`]: the same, also while it is not there: it is looked for again.
//! * [`create`]: makes one.
//! * [`attach`]: gives an open pool its home.
//!
//! Reads and writes go past the page cache, through `io_uring` where the system has it.

mod attach;
mod batch;
mod create;
mod error;
mod file;
mod header;

pub use attach::{AttachError, Home, attach, inside, link};
pub use create::{Create, blocks_of, create};
pub use error::HomeError;
pub use file::FileHome;
pub use header::{DATA_AT, HOME_MAGIC, HOME_VERSION, HomeHeader};
