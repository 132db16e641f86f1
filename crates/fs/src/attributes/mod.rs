//! Attributes of inodes: those of `stat`, and extended ones.

mod stat;
mod xattr;
