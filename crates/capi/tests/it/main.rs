//! The C library's tests that use it from outside. One program for all, because each more costs a link.

mod client;
mod common;
mod documentation;
mod embedded;
mod header;
