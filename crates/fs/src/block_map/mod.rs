//! Block maps: from a file's block index to the block that holds it.

mod map;

pub use map::{BlockMap, DamagedAt, FANOUT, FANOUT_BITS, HEIGHT_MAX, MapEditor, Slot, capacity};
