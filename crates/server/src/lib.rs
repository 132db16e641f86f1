//! The FUSE front end: mounts a Perdure file system where unmodified programs can reach it.
//!
//! | module | idea |
//! | --- | --- |
//! | `serve` | a mount's life: checks, mount, threads, signals, clean unmount |
//! | `mount_table` | what is mounted where |
//! | `mountpoint` | what lies at a mount point now; removal of stale mounts |
//! | `attach` | `mount(2)` or `fusermount3`, and the way back |
//! | `remount` | a mount in use turns read-only and back |
//! | `connection` | what we agree with the kernel when a connection starts |
//! | `handler` | one method for each FUSE request |
//! | `gate` | which threads read requests, if they may wait for a disk |
//! | `nodes` | inodes that the kernel knows, with lookup counts |
//! | `pages` | what the kernel's page cache holds and the file system does not know |
//! | `attributes`, `edge` | conversions between FUSE's terms and the file system's |
//! | `transport` | how requests come to this mount |
//! | `statistics` | counters and latencies, cheap enough for every request |
//! | `direct` | files that processes read and write without asking: sessions, attachments |
//! | `control` | the socket through which `perdure stat MNT` asks a live server |
//! | `answers` | what it answers |
//! | `null_server` | a FUSE file system that only moves bytes: the benches' floor |
//!
//! # Durability
//!
//! Every reply that reports success is sent after the change is durable (within the class of the
//! pool). No state waits in this crate: the kernel's page cache is write-through, and only pages
//! dirtied through a shared mapping stay in the kernel until `msync`, `fsync` or writeback.
//! So `fsync` has nothing to write but such pages; it fails if the server is dead.
//! docs/OPERATIONS.md has the guarantees of each way of access, docs/DESIGN.md, "The FUSE front
//! end", the reasons and the support matrix.

mod answers;
mod attach;
mod attributes;
mod connection;
pub mod control;
mod direct;
mod edge;
mod gate;
mod handler;
#[doc(hidden)]
pub mod instances;
mod mount_table;
mod mountpoint;
mod nodes;
pub mod null_server;
mod pages;
mod remount;
mod serve;
mod statistics;
mod telemetry;
mod transport;

pub use crate::attach::{AttachError, unmount};
pub use crate::mount_table::{
    PoolMount, is_dead_mount, is_mounted_for, mounts_of, pool_mounted_at,
};
pub use crate::mountpoint::{MountpointError, detach_stale};
pub use crate::remount::{Remount, RemountError, remount};
pub use crate::serve::{
    LEASE_TIMEOUT, Mounting, Running, ServeError, WAITING_THREADS, serve, spawn,
};
pub use crate::statistics::{OperationStatistics, StatisticsSummary};
