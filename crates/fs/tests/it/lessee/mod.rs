//! Leased files when room, limits or their holders are not as they should be.

mod damaged;
mod foreign;
pub(crate) mod process;
mod ring_damage;
mod room;
mod taken_back;
