//! The library's tests that use it from outside. One program for all, because each more costs a link.

mod common;
mod executors;
mod like_std;
mod pool;
mod read_cache;
