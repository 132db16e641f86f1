//! Changes of one inode that operations are made of.

pub(crate) mod handover;
