//! The command's tests that use it from outside. One program for all, because each more costs a link.

mod bad_input;
mod check;
mod clients;
mod common;
mod copy;
mod mount;
mod read_cache;
mod run;
mod shapes;
mod wear;
