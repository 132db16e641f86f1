//! The pool as a whole: making, mounting and recovering it.

pub(crate) mod mkfs;
pub(crate) mod recover;
