//! The server for the one store that programs use, compiled in this crate: below `opt-level = 2`
//! the compiler shares generic code, so a program of the tests' build need not compile it again.

use crate::serve::{Mounting, Running, ServeError, spawn};
use fs::FileSystem;
use txn::PmemStore;

/// [`spawn`] for a pool's store.
#[doc(hidden)]
pub static SPAWN: Spawn = spawn::<PmemStore>;

type Spawn = fn(FileSystem<PmemStore>, &Mounting) -> Result<Running<PmemStore>, ServeError>;
