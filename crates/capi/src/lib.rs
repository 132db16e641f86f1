//! The C library: `perdure.h` is generated from the public items of this crate, and what stands over them here is the documentation that C programmers read.
//!
//! Two halves. The *embedded* one is the crate `perdure` for C programs: pools inside the process, no mount, no server. The *client* is the crate `direct`: a program
//! opens files through a mount, and reads and writes their blocks itself.
//!
//! * [`pointers`]: what comes from C and goes there. All that this crate believes of a C caller is believed in that file.
//! * `boundary`: no panic leaves the library, and every failure is remembered for the thread.
//! * [`failure`]: what is remembered, and the functions that tell it.
//! * `born`: a child of `fork` does not touch its parent's pools.
//! * the others: one family of functions each.
//!
//! Invariants:
//!
//! * C1 No panic crosses the boundary. After one, no handle is trusted any more, and no pool is closed as clean: the next opener recovers it.
//! * C2 A function that fails returns -1, and the thread's message, code and `errno` say why; one that succeeds changes neither message nor code.
//! * C3 NULL is refused wherever it has no meaning of its own.
//! * C4 A handle works only in the process that made it: a pool that parent and child both changed would be destroyed.

#![expect(
    non_camel_case_types,
    reason = "types have the names that C programs know them by"
)]

pub mod attributes;
mod born;
mod boundary;
pub mod client;
pub mod directory;
pub mod failure;
pub mod file;
mod kernel;
pub mod links;
pub mod list;
pub mod names;
pub mod pointers;
pub mod pool;
pub mod pool_options;
pub mod version;
pub mod xattr;
