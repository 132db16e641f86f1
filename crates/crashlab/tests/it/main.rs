//! The crash explorer's tests that use it from outside. One program for all, because each more costs a link.

mod damage;
mod hostile;
#[cfg(feature = "deliberate-bugs")]
mod in_place;
mod model;
