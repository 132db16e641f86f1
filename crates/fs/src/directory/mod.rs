//! Directories as published under the name Gather-free (SanGuo, section III.C), as pure code: bytes in, edits out.
//!
//! A directory is a file of 4 KiB blocks, and every block is completely tiled by records: dentries and free ranges, all
//! multiples of 8 bytes, none crossing a block (`record.rs` has the bytes). What an operation needs to know about a
//! directory lives in DRAM, in a [`Directory`]: an index from names to dentries and the free ranges of every block. It is
//! built from the blocks on first use and never written to the medium.
//!
//! A change goes in three steps, so that an operation that fails half-way leaves no trace:
//!
//! 1. [`Directory::plan`] starts a [`Plan`]; each of its calls returns the [`Edit`] that the medium needs.
//! 2. The caller writes all edits, in the order they were returned, in one transaction.
//! 3. After that transaction is durable, [`Directory::commit`] makes the DRAM state follow. Dropping the plan aborts.
//!
//! Names are shared with lookups, which need not hold the directory's lock ([`Names`]); everything else is for who holds it.
//!
//! Dentries never move while they live, so a dentry's offset is a stable readdir cookie.

mod free_map;
mod free_space;
mod name_index;
mod name_tag;
mod names;
mod plan;
mod record;
mod state;

#[cfg(test)]
mod tests;

pub use names::{Candidate, Names, has_name};
pub(crate) use names::{Lookup, MapRoot};
pub use plan::{Edit, Plan};
pub use record::{
    DentryFault, DentryOffset, Entry, FaultKind, FileType, Record, Records, entries, name_is_valid,
    record_bytes, records, write_fresh_block,
};
pub(crate) use record::{decode, free_header, write_dentry};
pub use state::Directory;

/// Bytes of a directory block.
pub const BLOCK_BYTES: usize = 4096;

/// Records start and end at multiples of this.
pub const UNIT_BYTES: usize = 8;

/// Units of a block.
pub const UNITS_PER_BLOCK: usize = BLOCK_BYTES / UNIT_BYTES;

/// Blocks that a directory can have: offsets count units in 32 bits, and the last value means "none".
pub const BLOCKS_MAX: u64 = (1 << 32) / UNITS_PER_BLOCK as u64 - 1;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
