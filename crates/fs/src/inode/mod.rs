//! Inodes: where they lie, and what is kept of them in DRAM while they are in use.

pub(crate) mod cache;
pub(crate) mod copies;
pub(crate) mod node;
pub(crate) mod rights;
pub(crate) mod table;
pub(crate) mod xattr;
