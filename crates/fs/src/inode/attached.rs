//! The two who have a file attached: the holder of its lease, and a watcher of its blocks.

use lease::{Spare, Trust};
use std::fmt::Debug;
use std::sync::Arc;

/// What a holder has to answer when his lease is taken back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TakenBack {
    /// How far his newest record is to be believed.
    pub trust: Trust,
    /// The block of the file that he may be storing into: it is replaced.
    pub busy_block: Option<u64>,
}

/// The other end of a lease. Called while the file is locked: it must not use the file system.
pub trait Holder: Send + Sync {
    /// Whether he is between two writes: then all that was in the ring before this was called is durable.
    fn is_idle(&self) -> bool;
    /// From here on no record counts that is not there when this returns. Takes a bounded time, whatever the holder does.
    fn take_back(&self) -> TakenBack;
    /// All records before `next` are folded, and these slots have a block again. He may be writing meanwhile.
    fn folded(&self, next: u64, refilled: &[Spare]);
    /// The lease has ended: all records before `next` count. `remains` is dropped when the holder can no longer store into its blocks.
    fn ended(&self, remains: LeaseRemains, next: u64);
    /// Somebody has changed what `stat` tells of the file, and not by folding. Called before anybody can see it.
    fn attributes_changed(&self);
}

/// The blocks of a lease that has ended. Dropping it frees them.
#[derive(Debug)]
pub struct LeaseRemains {
    /// The state of the lease's inode, of which only the end matters here.
    _lease: Arc<dyn Debug + Send + Sync>,
}

impl LeaseRemains {
    pub(crate) fn new(lease: Arc<dyn Debug + Send + Sync>) -> LeaseRemains {
        LeaseRemains { _lease: lease }
    }
}

/// Who reads a file's blocks without asking. Called while the file is locked: it must not use the file system.
pub trait Watcher: Send + Sync {
    /// The file's content is going to change, or be leased. When this returns, nobody believes what he reads from here on. The watcher is forgotten.
    fn ended(&self);
    /// As [`Holder::attributes_changed`].
    fn attributes_changed(&self);
}
