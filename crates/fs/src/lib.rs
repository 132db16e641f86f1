//! The file system: inodes, block maps, files, directories, recovery, checking.
//!
//! Written against the seam [`txn::Store`]; every mutating operation is one transaction, durable when it
//! returns, all or nothing after a power cut. See `docs/DESIGN.md` for the reasons and `docs/FORMAT.md` for the bytes.
//!
//! ```
//! use fs::{FileSystem, MountOptions, NewInode};
//! # use perdure_fs as fs;
//! use txn::{FormatOptions, Mode, PmemStore};
//!
//! let region = fs::mkfs_region(pmem::Region::anonymous(1 << 20), &FormatOptions::tiny(), (0, 0))?;
//! let store = PmemStore::open_region(region, Mode::ReadWrite)?;
//! let files = FileSystem::mount(store, MountOptions::default())?;
//! let node = files.create(&files.root(), b"greeting", &NewInode::file(0o644))?;
//! files.write(&node, 0, b"hello")?; // durable here
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod block_map;
pub mod check;
mod clock;
mod copies;
pub mod directory;
mod error;
pub mod file;
mod file_system;
pub mod format;
mod handover;
mod inode_cache;
mod inode_table;
mod kept;
pub mod lease;
mod lookup;
mod mkfs;
mod names;
mod namespace;
mod node;
mod operation;
pub mod quota;
mod recover;
mod rename;
mod rights;
mod roam;
mod space;
mod spin;
#[cfg(test)]
mod testing;
mod trail;
mod types;
mod view;
pub mod write;
pub mod xattr;

pub use clock::Clock;
pub use copies::{Held, ReadCacheState};
pub use error::FsError;
pub use file_system::FileSystem;
pub use format::{FileType, InodeNumber, Timestamp};
pub use kept::KeptSpace;
pub use mkfs::{mkfs, mkfs_region, mkfs_with_progress};
pub use node::Node;
pub use readcache::{FileStatistics as ReadCacheFile, Statistics as ReadCacheStatistics};
pub use types::{
    AccessTime, AllocateOptions, Attributes, DirectoryEntry, MountOptions, NewInode, ReadCacheMode,
    ReadCacheOptions, RenameOptions, SetAttributes, SpaceStatistics, TimeChange, XattrMode,
};
pub use write::Appended;
