//! What a process knows of its descriptor numbers, and the open files that they lead to.
//!
//! Programs open, close and duplicate descriptors on all threads at once and in signal handlers, so
//! nothing here takes a lock or memory. A number's word and a place's state are what `close`,
//! `dup2` and a read on another thread meet at.
//!
//! * [`Meaning`]: one word, what a number is known to be, and by which change.
//! * [`Numbers`]: the table of these words. What the numbers lead to and what the kernel says of
//!   them it asks its [`Descriptions`].
//! * [`Duplication`]: `dup` and its like, which learn their number from the kernel.
//! * [`Place`]: where a description lives while somebody uses it, however the number that led to it
//!   has changed meanwhile.
//! * [`Position`]: where a description is read and written next, if that is the library's and not
//!   the kernel's. Its user keeps the steps of two threads apart by a
//!   [`PassableLock`](locks::PassableLock).
//!
//! Invariants:
//!
//! * N1 A number that is open for file A never leads to file B: its word changes before the kernel
//!   can give the number to another file, and what was seen of a number counts only if its word did
//!   not change meanwhile.
//! * N2 A description goes when no number leads to it and nobody uses it, once.
//! * N3 A position is the library's or the kernel's, and taken over only if no call that uses the
//!   kernel's is under way.
//!
//! They are checked in all interleavings of few steps (`interleavings`), with a kernel of three
//! numbers.

mod duplicate;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod looks;
mod meaning;
mod numbers;
mod place;
mod position;
mod under_way;

pub use duplicate::{Duplication, Target};
pub use meaning::{Meaning, NAMES};
pub use numbers::{Descriptions, Found, Lead, Looked, Numbers, Opening};
pub use place::{Ended, Line, Place, Visit};
pub use position::{KernelsPosition, Position, Step};
