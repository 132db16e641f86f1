//! Block maps: from a file's block index to the block that holds it.

mod editor;
mod map;

pub use editor::MapEditor;
pub(crate) use map::read_block;
pub use map::{BlockMap, DamagedAt, Slot};
