//! Checking and repairing a pool (`fsck`).
//!
//! [`check`] reads a pool that need not be mountable and names everything that contradicts `docs/FORMAT.md`. It takes any
//! bytes: it never panics, ends after work in proportion to the pool, and writes nothing. [`repair`] does what the faults
//! promise, pass after pass, until a pass finds nothing. [`check_pool`] does all of it to the files of a pool.
//!
//! The parts, in order:
//!
//! | part | looks at |
//! | --- | --- |
//! | `header`, `journals` | superblocks, state block, segment table, journals |
//! | `table`, `inode`, `map`, `attributes` | every inode and every block that one owns (in parallel) |
//! | `leases` | records of direct writes |
//! | `names`, `records` | every name: records, targets, uniqueness |
//! | `links` | link counts, parents, reachability |
//! | `saved` | the volatile state of a clean unmount against all of the above |
//!
//! Repair is not atomic: a power cut in the middle leaves some faults repaired and others not. It is *re-runnable*: each pass
//! derives what to do from what it finds, and a store that was done is not found again.

mod attributes;
mod claims;
mod context;
mod halves;
mod header;
mod inode;
mod journals;
mod kind;
mod leases;
mod links;
mod lost_found;
mod map;
mod names;
mod owners;
mod pass;
mod paths;
mod plan;
mod pool;
mod progress;
mod records;
mod regrow;
mod repair;
mod report;
mod saved;
mod single_bit;
mod table;
mod table_root;
mod target;

pub use kind::{FaultKind, Severity};
pub use pass::check;
pub use pool::{PoolCheck, check_pool};
pub use progress::{CheckOptions, Progress};
pub use repair::{Repaired, repair};
pub use report::{Counts, Fault, LISTED_FAULTS_MAX, Place, Report};
