//! Inodes: their table on the medium, and their state in DRAM while they are in use.

pub(crate) mod attached;
pub(crate) mod cache;
pub(crate) mod copies;
pub(crate) mod lease_blocks;
pub(crate) mod leaves;
pub(crate) mod node;
pub(crate) mod rights;
pub(crate) mod table;
pub(crate) mod xattr;
