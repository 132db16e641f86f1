//! Direct access to the files of a mounted pool: a process opens them through the mount, then reads and writes their blocks itself.
//!
//! Policy stays in the server, which says who may map which segments and where blocks are; enforcement is the memory management unit's. Design, invariants and failures:
//! `docs/DIRECT.md`.
//!
//! * [`protocol`]: what a process and the server say to each other over a socket.
//! * [`layout`]: what they see both of, in memory that they share.
//! * [`SharedMemory`]: that memory.
//! * [`mapped`]: mappings of the program that lie on blocks.
//! * [`Client`], [`File`]: the process's side. On any doubt an operation is refused, and the caller asks the kernel.

mod attachment;
mod client;
mod connection;
mod counted;
mod discover;
mod entrance;
mod file;
pub mod layout;
mod leased;
mod line;
pub mod mapped;
mod memory;
mod policy;
mod price;
pub mod protocol;
mod runs;
mod segments;
mod socket;
#[cfg(test)]
mod tests;
pub mod transport;
mod world;

pub use client::Client;
pub use discover::{Server, server_of};
pub use file::{File, Past, refresh_end};
pub use memory::{MemoryError, SharedMemory};
pub use pmem::BLOCK_BYTES;
pub use price::Rule;
