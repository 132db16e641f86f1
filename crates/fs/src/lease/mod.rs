//! Files that are leased: their holder writes them without the file system's help (`docs/DIRECT.md`).
//!
//! A lease is an inode without a name that owns the ring of records and the spare blocks. A record says that a block of the file and a spare one change places; *folding* it
//! exchanges the two pointers, in one transaction that also counts the record as folded. So nothing is allocated or freed while the holder
//! writes, blocks always have one owner on the medium, and a lease that the power ended is found by recovery as what it is: an inode without a name.
//!
//! Invariants, beside R1 to R5 (all of them in `docs/DIRECT.md`):
//!
//! * L1 While a file is leased nobody else touches its content: who wants to, ends the lease first, under the inode's lock.
//! * L2 No live journal record names a byte of a leased file's blocks or of spare ones: a checkpoint stands between what came before and the lease. So the
//!   holder, who writes outside the log, does not violate R1.
//! * L3 A record is folded once: its number is in the transaction that folds it.
//! * L4 Blocks that the holder may still be storing into belong to the lease until he has let go or is dead.

mod blocks;
pub(crate) mod change;
mod end;
mod fold;
mod grant;
mod nodes;
mod on_demand;
mod own;
pub(crate) mod recovery;
mod refill;
mod settle;
mod watch;

pub use crate::inode::attached::{Holder, LeaseRemains, TakenBack, Watcher};
pub use blocks::LeaseSize;
pub use grant::Grant;
pub use on_demand::FOLD_PATIENCE;
