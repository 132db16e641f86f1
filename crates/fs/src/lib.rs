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

mod attributes;
pub mod block_map;
mod changes;
pub mod check;
mod data;
pub mod directory;
pub mod format;
mod inode;
pub mod lease;
mod locks;
mod mounted;
mod names;
mod pool;
#[cfg(test)]
mod testing;
mod values;

pub use data::{ATOMIC_WRITE_BYTES_MAX, Appended, Held, LOGGED_WRITE_BYTES_MAX};
pub use format::{FileType, InodeNumber, Timestamp};
pub use inode::copies::ReadCacheState;
pub use inode::node::Node;
pub use mounted::file_system::FileSystem;
pub use pool::{mkfs, mkfs_region, mkfs_with_progress};
pub use readcache::{FileStatistics as ReadCacheFile, Statistics as ReadCacheStatistics};
pub use values::clock::Clock;
pub use values::error::FsError;
pub use values::quota;
pub use values::types::{
    AccessTime, AllocateOptions, Attributes, DirectoryEntry, KeptSpace, MountOptions, NewInode,
    ReadCacheMode, ReadCacheOptions, RenameOptions, SetAttributes, SpaceStatistics, TimeChange,
    XattrMode,
};
