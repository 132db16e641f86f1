//! Attributes of inodes.

pub mod xattr;
