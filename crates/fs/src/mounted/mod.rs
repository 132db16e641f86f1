//! The mounted file system: state that all operations share, and the transaction of each.

pub(crate) mod faults;
pub(crate) mod file_system;
pub(crate) mod kept;
pub(crate) mod operation;
pub(crate) mod quotas;
pub(crate) mod roaming;
pub(crate) mod tiering;
