//! The journals' integration tests: one program, because each further one costs a link.

#[cfg(feature = "deliberate-bugs")]
mod bites;
mod common;
mod device;
mod disk;
mod early;
mod format_document;
#[cfg(feature = "deliberate-bugs")]
mod held;
mod homes;
mod journals_move;
mod lazy;
mod mixed;
mod repaired;
mod tail;
mod torn;
mod waits;
