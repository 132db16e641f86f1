//! Changes of one inode that operations are made of.

pub(crate) mod device;
pub(crate) mod handover;
pub(crate) mod life;
pub(crate) mod relocate;
pub(crate) mod roam;
pub(crate) mod tail;
