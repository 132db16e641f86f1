//! The content of files: reading, writing, allocating.

pub(crate) mod allocate;
pub(crate) mod read;
pub(crate) mod write;

pub use write::{ATOMIC_WRITE_BYTES_MAX, Appended, LOGGED_WRITE_BYTES_MAX};
