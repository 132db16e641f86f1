//! Attributes of inodes.

pub(crate) mod xattr;
