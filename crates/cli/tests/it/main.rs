//! The command's integration tests: one program, because each further one costs a link.

mod bad_input;
mod check;
mod clients;
mod common;
mod copy;
mod damage;
mod mount;
mod read_cache;
mod run;
mod shapes;
mod wear;
