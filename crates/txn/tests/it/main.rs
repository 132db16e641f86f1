//! The journals' tests that use it from outside. One program for all, because each more costs a link.

#[cfg(feature = "deliberate-bugs")]
mod bites;
mod common;
#[cfg(feature = "deliberate-bugs")]
mod held;
mod homes;
mod journals_move;
mod repaired;
mod torn;
