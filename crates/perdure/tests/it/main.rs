//! The library's integration tests: one program, because each further one costs a link.

mod common;
mod executors;
mod like_std;
mod pool;
mod read_cache;
