//! The mounted file system: what all operations share.

pub(crate) mod file_system;
pub(crate) mod kept;
pub(crate) mod operation;
pub(crate) mod quotas;
pub(crate) mod roaming;
