//! Block maps: from a file's block index to the block that holds it.

mod editor;
mod map;

pub use editor::MapEditor;
pub use map::{BlockMap, DamagedAt, Slot};
pub(crate) use map::{free_block, read_block};
