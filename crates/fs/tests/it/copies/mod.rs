//! DRAM copies never show anything but what the file holds.

#[cfg(feature = "deliberate-bugs")]
mod bites;
mod load;
mod memory;
mod model;
mod pool;
