//! The command's integration tests: one program, because each further one costs a link.

mod bad_input;
mod check;
mod clients;
mod common;
mod copy;
mod damage;
mod home;
mod loading;
mod log;
mod mount;
mod planted;
mod read_cache;
mod run;
mod shapes;
mod users_pool;
mod wear;
