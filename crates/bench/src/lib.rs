//! Experiments: what an operation costs, beside the raw limit or a peer, in one run.
//!
//! [`run_ops`] measures single operations. How a figure comes about:
//!
//! * Both sides of a ratio are measured in the same run, in rounds that alternate (ours, theirs, theirs, ours, …); the ratio is the
//!   median of the rounds' ratios. Absolute figures of one machine say little about another one; ratios do.
//! * Both sides have the same kind of memory (files in one directory, mapped alike, pages touched before), the same working set,
//!   the same places in the same order, the same source buffer, the same processor, the same media model.
//! * Time is wall time less the time in which the thread was ready to run but had no processor (the kernel tells it in
//!   `schedstat`). Work of others on the machine does not count against either side; waiting for a lock does. A caller and a FUSE
//!   server share one processor, and their processor time is counted.
//! * Flushes, fences and lines are those of our side, per operation, the operation's share of checkpoints included.

mod aging;
pub mod baseline;
mod child;
mod collector;
mod direct;
mod error;
mod evaluation;
mod log;
mod machine;
mod measure;
mod memory;
mod mount;
mod ops;
mod personality;
mod programs;
mod readcache;
mod report;
mod target;
mod wear;

pub use aging::{AgingOptions, run_aging};
pub use child::serve_child;
pub use direct::{DirectOptions, run_direct};
pub use error::BenchError;
pub use evaluation::{Bar, Evaluation, Figure, Series, Shape};
pub use log::{LogOptions, run_log};
pub use machine::Machine;
pub use mount::{MountOptions, run_mount};
pub use ops::{OpsOptions, run_ops};
pub use personality::Personality;
pub use readcache::{ReadCacheOptions, run_readcache};
pub use report::{Better, Compared, Latencies, Report, Row, Setting};
pub use target::{Directory, Library, Target};
pub use wear::{WearOptions, run_wear};
