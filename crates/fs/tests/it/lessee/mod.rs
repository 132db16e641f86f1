//! Leased files when room, limits or their holders are not as they should be.

mod damaged;
mod foreign;
mod process;
mod room;
mod taken_back;
