//! `LD_PRELOAD` library: unmodified programs read and write the files of a mounted pool without a system call.
//!
//! A program opens files through the mount as always, so every descriptor is a real one, and the kernel and the server have judged the open. This library stands
//! before the C library's functions. Data calls on regular files of our mounts it takes over; on any doubt it calls what it stands before. What goes which way:
//! `docs/PRELOAD.md`; why: `docs/DIRECT.md`.
//!
//! * `table`: what is known of each descriptor number ([`descriptors`]); a number that is not ours costs a load and a branch.
//! * `slab`, `description`: the open files that are ours, and their positions.
//! * `appender`: a file that is open for appending beside a description.
//! * `operate`: reading, writing and seeking them.
//! * `heap`: memory that is not the program's.
//! * `process`: fork, exec and everything else that lets others see a descriptor.
//! * `calls`: the functions that stand before the C library's; `real`: those behind.
//!
//! Invariants:
//!
//! * P1 A descriptor that is open for file A never leads to file B: its entry changes before the number can be given to another file, and a look at a descriptor counts
//!   only if its entry did not change meanwhile.
//! * P2 A position is either the library's or the kernel's. It goes to the kernel before anybody else can see the description, and then for good.
//! * P3 Whoever is interrupted in here by a signal is not entered again: the handler uses the kernel.
//! * P4 A child of `fork` knows nothing of its parent's files.
//! * P5 What succeeds directly leaves `errno` alone.

mod appender;
mod buffers;
mod by_kernel;
mod calls;
mod client;
mod description;
mod habits;
mod heap;
mod leaked;
mod log;
mod operate;
mod process;
mod real;
mod slab;
mod table;
mod thread;
mod way;
