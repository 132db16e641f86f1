//! The content of files: reading, writing, allocating.

mod allocate;
mod append;
mod elsewhere;
mod hold;
mod place;
mod read;
mod reading;
mod write;

pub use append::Appended;
pub use hold::Held;
pub use write::{ATOMIC_WRITE_BYTES_MAX, LOGGED_WRITE_BYTES_MAX};
