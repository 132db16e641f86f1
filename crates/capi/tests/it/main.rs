//! The C library's integration tests: one program, because each further one costs a link.

mod client;
mod common;
mod documentation;
mod embedded;
mod header;
