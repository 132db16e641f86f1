//! DRAM copies never show anything but what the file holds.

#[cfg(feature = "deliberate-bugs")]
mod bites;
mod load;
#[cfg(not(feature = "deliberate-bugs"))]
mod memory;
mod model;
mod pool;
