//! The allocator's integration tests: one program, because each further one costs a link.

#[cfg(feature = "deliberate-bugs")]
mod bites;
mod given;
mod held;
mod long;
mod model;
mod threads;
