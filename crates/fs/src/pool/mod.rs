//! The pool as a whole: making, mounting and recovering it, and how full it is.

mod mkfs;
mod mount;
mod recover;
pub(crate) mod saved;
mod space;

pub use mkfs::{mkfs, mkfs_region, mkfs_with_progress};
