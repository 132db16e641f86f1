//! DRAM copies of the blocks that are read most, for media that are slower to read than DRAM.
//!
//! The design is RCache's (Tu et al., *RCache: A Read-Intensive Workload-Aware Page Cache for NVM Filesystem*, 2023): reads of hot blocks come from DRAM,
//! all others from the medium; writes go to the medium alone and end the copies of their blocks; copying is done by a thread in
//! the background. Nothing here knows what a file is: its owner keeps a [`FileCache`] with it, names blocks by their index in the file,
//! and says whether what it has read is still true.
//!
//! A read with a copy writes no memory that another thread's read writes: it copies, then looks whether the entry's
//! life went on meanwhile. Where the page has to stand still (an answer that is sent from it) it is counted as the paper counts readers: [`FileCache::hold`].
//!
//! | module | paper |
//! | --- | --- |
//! | `word`, `entry` | Section 3.3, Fig. 3: states and transitions |
//! | `table`, `file` | Section 3.1, Fig. 2: a table for each file |
//! | `background` | Section 3.2: copying apart from reading |
//! | `hotness` | Section 3.4: threshold and time window |

mod atomic;
mod background;
mod cache;
mod entry;
mod file;
mod frames;
mod hotness;
#[cfg(test)]
mod interleavings;
mod memory;
mod page_set;
mod requests;
mod ring;
mod shared;
mod statistics;
#[cfg(test)]
mod stress;
mod table;
mod threads;
mod word;

pub use cache::{BeginError, Options, ReadCache, Source};
pub use file::{FileCache, Page};
pub use memory::Memory;
pub use statistics::{FileStatistics, Statistics};
