//! Scatter-alloc: the free space of a pool, in DRAM.
//!
//! The allocator knows blocks, segments and protection domains; it knows nothing of files or persistence. Placement follows SanGuo (section III.B,
//! "Scatter-alloc"): allocation groups, a flexible bitmap segment tree per segment, a random walk. What is different and why stands in
//! docs/DESIGN.md, "Scatter-alloc in detail".

mod allocator;
mod geometry;
mod group;
mod held;
mod place;
mod questions;
mod random;
mod rebuild;
mod request;
mod residue;
mod run;
mod steer;
mod sync;
mod tree;
mod verify;
mod zones;

pub use allocator::Allocator;
pub use geometry::*;
pub use held::Kept;
pub use rebuild::Rebuild;
pub use request::*;
pub use verify::Inconsistency;

pub use pmem::BlockNumber;
