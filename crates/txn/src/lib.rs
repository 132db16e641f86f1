//! Transactions on persistent memory.
//!
//! Every operation of the file system is one transaction: bulk data goes to fresh blocks, changes of
//! metadata are gathered as byte ranges, and one self-validating *redo record* makes all of it durable at
//! its fence. See `docs/DESIGN.md`, "Transactions", for the reasons and the invariants R1–R5 that the
//! comments of this crate refer to.
//!
//! * [`directory`]: a pool's directory as a handle, through which everything in it is opened.
//! * [`pool`]: a pool's files, their lock and their mapping.
//! * [`layout`]: the bytes of the header: superblock, state block, segment table.
//! * [`places`]: where the halves of journals lie, and why they move.
//! * [`sharing`]: the defence of segments that are shared with processes.
//! * [`homes`]: metadata blocks that are named by an index and move.
//! * [`disk`]: class `log`, memory that a log on an ordinary disk follows.
//! * [`record`]: the bytes of a journal record.
//! * [`journal`], [`checkpoint`], [`recovery`]: the life of a record.
//! * [`store`]: the seam towards `fs`: [`Store`] and [`Transaction`], and their implementation
//!   on memory, [`PmemStore`].

pub mod alarm;
pub mod checkpoint;
pub mod checksum;
pub mod descriptors;
mod device;
pub mod directory;
pub mod disk;
pub mod domain;
pub mod error;
pub mod format;
pub mod homes;
pub mod journal;
pub mod layout;
mod live;
mod lock;
pub mod lost;
pub mod places;
pub mod pool;
mod read_speed;
pub mod record;
pub mod recovery;
mod removal;
pub mod salvage;
pub mod saved;
pub mod sharing;
pub mod store;
mod superblocks;
pub mod transaction;

pub use device::{DeviceFault, Outgoing, PoolDevice};
pub use directory::PoolDirectory;
pub use disk::{
    DiskLogStatus, Disks, Durability, Loading, LogFailed, LogOptions, Logger, Mixture,
    ParseDurabilityError, ParseLoadingError, RESERVED_BYTES_MIN, Room, Waits,
};
#[doc(hidden)]
pub use disk::{ImageStamp, STAMP_AT};
pub use domain::Domain;
pub use error::{Corruption, FormatError, OpenError};
pub use format::FormatOptions;
pub use homes::{HomeOffset, Homes};
pub use layout::{Geometry, Superblock};
pub use lost::{Damage, LostRecords, lost_records};
pub use pool::Mode;
pub use read_speed::ReadSpeed;
pub use removal::remove;
pub use sharing::Content;
pub use store::{BlockReader, Data, Kept, Metadata, PmemStore, PoolState, Segments, Store};
pub use transaction::{CommitError, PmemTransaction, Transaction};
