//! The tier: data that moves between memory and the device below it (`docs/decisions/tier.md`).
//!
//! * `copy`: dirty blocks are copied to the device, the oldest first, many in one write. They stay
//!   where they are, and are clean.
//! * `evict`: clean blocks that nobody uses give their memory back: one record, no I/O.
//! * `wanted`: blocks of the device that are read again come back.
//! * `room`: writers that find the memory nearly full.
//! * `threads`: the threads that do it.
//! * `status`: the report for users.

mod copy;
mod evict;
mod room;
mod status;
mod threads;
mod wanted;

pub use status::{TierState, TierStatus};
