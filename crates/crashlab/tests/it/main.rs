//! The crash explorer's integration tests: one program, because each further one costs a link.

mod damage;
mod damaged_device;
mod disk;
mod hostile;
#[cfg(feature = "deliberate-bugs")]
mod in_place;
mod model;
