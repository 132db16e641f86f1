//! A file that is leased to one process, which then writes it without asking anybody.
//!
//! Whoever holds a lease has a *ring* of records and a set of *spare blocks*, both on the medium and his to write. A write fills a spare block, then writes one
//! record: "block 7 of the file and spare block 3 change places". When the record's fence is over, the write is durable. Block maps and
//! inodes are never his to write: the server *folds* records into them, later, in transactions of its own, and recovery does the same.
//!
//! * [`Record`]: the 64 bytes, and which bytes of the ring are one ([`Ring`]).
//! * [`Writer`]: the holder's side. It decides between an exchange and an append in place, and says when it needs the server. If he wishes it overwrites in place as well,
//!   without a record, and without being all or nothing.
//! * [`judge`]: the server's side. It believes nothing: a record can exchange blocks of the holder's own file and of his own spare ones, and nothing else.
//! * [`State`]: how the server takes the lease back, although the holder executes no locked instruction for it.
//!
//! Design, rejected ways and figures: `docs/DIRECT.md`.

mod damage;
mod judge;
mod positions;
mod record;
mod ring;
mod state;
mod window;
mod writer;

pub use damage::{Gap, Inspection, inspect};
pub use judge::{
    Blocks, Effects, Fault, GROUP_RECORDS_MAX, RECORDS_AT_ONCE_MAX, Terms, Trust, judge,
};
pub use record::{NO_SLOT, RECORD_BYTES, RECORD_NUMBERS, Record, Salt};
pub use ring::{Medium, RECORDS_PER_BLOCK, Ring};
pub use state::{Busy, Holding, State, Word, has_left, leave};
pub use writer::{FileMap, InPlace, Place, Refusal, Spare, WRITE_BLOCKS_MAX, Writer};
