//! Files in persistent memory, inside your process: no mount, no server, no system call.
//!
//! A [`Pool`] is a whole POSIX file system in memory that keeps its content (Optane, NVDIMM, CXL, or shared memory for
//! tests). The API has the shape of `std::fs`; what differs is the promise:
//!
//! * **Every operation is durable when it returns.** There is no sync to call, and none to forget.
//! * **Every operation is atomic.** After a power cut it happened or it did not. A write of up to 4 MiB counts as
//!   one operation, at any offset.
//! * **An operation costs hundreds of nanoseconds**, not a system call and a flush of a disk.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir_in("/dev/shm")?;
//! # let path = place.path().join("pool");
//! use perdure::{CreateOptions, File, OpenOptions, Pool};
//! use std::io::{Read, Write};
//!
//! // `volatile(true)`: this example lives in shared memory. On persistent memory leave it out, and a pool that would
//! // not survive a power cut is refused instead of trusted.
//! let options = CreateOptions::new().size_bytes(64 << 20).volatile(true);
//! let pool = Pool::create(&path, &options)?;
//! pool.create_dir("inbox")?;
//!
//! let mut mail = File::create(&pool, "inbox/1")?;
//! mail.write_all(b"Dear Ann")?;                     // durable here
//! pool.rename("inbox/1", "inbox/2")?;               // and here
//!
//! let log = OpenOptions::new().append(true).create(true).open(&pool, "log")?;
//! let offset = log.append(b"delivered 2")?;         // a write-ahead log without fsync
//! assert_eq!(offset, 0);
//!
//! let mut text = String::new();
//! File::open(&pool, "inbox/2")?.read_to_string(&mut text)?;
//! assert_eq!(text, "Dear Ann");
//! # drop((mail, log));
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # From `std::fs`
//!
//! | `std::fs` | here |
//! | --- | --- |
//! | `File::open(path)` | [`File::open(&pool, path)`](File::open) |
//! | `OpenOptions::new().append(true).open(path)` | [`.open(&pool, path)`](OpenOptions::open) |
//! | `fs::rename(a, b)` and all other functions | [`pool.rename(a, b)`](Dir::rename) |
//! | `file.sync_data()` | waits in class `log` with [`Durability::Fsync`]; elsewhere not needed |
//! | the working directory | a [`Dir`]: relative paths start there |
//!
//! Errors are of one type, [`Error`], which names the operation and the object and turns into an `io::Error` with the
//! kind that `std::fs` has for the same mistake.
//!
//! # One process owns a pool
//!
//! While a pool is open for writing, a second opener gets an error that says who has it. Threads share a pool freely:
//! everything here is `Send` and `Sync`. Permission bits are stored for programs that use the pool through a mount, but
//! not checked here: whoever may map the pool can read all of it.
//!
//! A process that dies (SIGKILL, power cut) leaves a pool that the next [`Pool::open`] recovers by itself: it
//! applies the journal and rebuilds the free space, about a second for a million files.

mod contents;
mod dir;
mod error;
mod file;
mod loading;
mod metadata;
mod open_options;
mod pool;
mod read_dir;
mod walk;
mod xattr;

pub use dir::Dir;
pub use error::{Cause, Error, MAX_PATH_BYTES, MAX_SYMLINKS, Result};
pub use file::File;
pub use fs::{
    AccessTime, AllocateOptions, FsError, ReadCacheFile, ReadCacheMode, ReadCacheOptions,
    ReadCacheState, ReadCacheStatistics, RenameOptions, SpaceStatistics,
};
pub use home::{AttachError, HomeError};
pub use metadata::{FileTimes, FileType, Metadata};
pub use open_options::OpenOptions;
pub use pmem::DurabilityClass;
pub use pool::{CreateOptions, Pool, PoolOptions};
pub use read_dir::{DirEntry, ReadDir};
pub use std::fs::Permissions;
pub use txn::pool::is_pool;
pub use txn::{DiskLogStatus, Durability, Loading};
