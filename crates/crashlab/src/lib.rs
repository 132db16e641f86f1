//! Cuts the power at every fence of every short sequence of operations, and looks at what is left.
//!
//! A [`workload`] runs on an emulated medium beside a [`model`]. At every fence the [`watcher`] enumerates what the
//! medium may hold after a power cut, recovers each image, and demands that the tree is that before or that after the
//! operation in flight, that every operation which returned is there, that blocks add up, and that the file system can be
//! used. See `docs/DESIGN.md`, "Crash exploration".

pub mod campaign;
pub mod catalogue;
pub mod clock;
pub mod content;
pub mod disk;
pub mod hostile;
pub mod lab;
pub mod lessee;
pub mod mapped;
pub mod model;
pub mod mutation;
pub mod on_device;
pub mod operation;
#[cfg(feature = "deliberate-bugs")]
pub mod proof;
pub mod random;
pub mod recovery;
pub mod seeds;
pub mod snapshot;
pub mod state_id;
pub mod tally;
pub mod watcher;
pub mod workload;
