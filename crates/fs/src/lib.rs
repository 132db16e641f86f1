//! The file system: inodes, block maps, files, directories, recovery, checking.
//!
//! Written against the seam [`txn::Store`]; every mutating operation is one transaction, durable when it
//! returns, all or nothing after a power cut. See `docs/DESIGN.md` for the reasons and `docs/FORMAT.md` for the bytes.
//!
//! The folders, from the bottom up; each uses only those above it in this table:
//!
//! | folder | holds |
//! | --- | --- |
//! | `format` | the bytes on the medium: inodes, pointers, leases, extended attributes |
//! | `values` | the arguments and results of operations: options, attributes, errors, limits |
//! | `locks` | waiting for a lock, and reading without one |
//! | `block_map` | block maps, and changes of them |
//! | `directory` | a directory as pure code: bytes in, edits out |
//! | `inode` | the inode table, the cache of inodes in use, and the state of each of them |
//! | `mounted` | the mounted file system: its state, quotas, lots of hot blocks, transactions |
//! | `changes` | changes of one inode that operations are made of |
//! | `lease` | files that are written without the help of the file system |
//! | `tier` | data that moves between memory and the device below it, by age and by need |
//! | `attributes` | `stat`, and extended attributes |
//! | `data` | the content of files: reading, writing, allocating |
//! | `names` | looking names up, making, moving and removing them |
//! | `pool` | making, mounting and recovering a pool |
//! | `check` | checking and repairing a pool |
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
mod tier;
mod values;

pub use data::{ATOMIC_WRITE_BYTES_MAX, Appended, Held, LOGGED_WRITE_BYTES_MAX};
pub use format::{FileType, InodeNumber, Timestamp};
pub use inode::copies::ReadCacheState;
pub use inode::node::Node;
pub use mounted::file_system::FileSystem;
pub use pool::{mkfs, mkfs_region, mkfs_with_progress};
pub use readcache::{FileStatistics as ReadCacheFile, Statistics as ReadCacheStatistics};
pub use tier::{TierState, TierStatus};
pub use values::clock::Clock;
pub use values::error::FsError;
pub use values::quota;
pub use values::types::{
    AccessTime, AllocateOptions, Attributes, DirectoryEntry, KeptSpace, MountOptions, NewInode,
    ReadCacheMode, ReadCacheOptions, RenameOptions, SetAttributes, SpaceStatistics, TierMode,
    TierOptions, TimeChange, XattrMode,
};
