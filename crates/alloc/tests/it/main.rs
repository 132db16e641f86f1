//! The allocator's tests that use it from outside. One program for all, because each more costs a link.

#[cfg(feature = "deliberate-bugs")]
mod bites;
mod given;
mod held;
mod long;
mod model;
mod threads;
