//! Names: looking them up, making, moving and removing them.

pub(crate) mod dentries;
pub(crate) mod lookup;
pub(crate) mod namespace;
pub(crate) mod rename;
pub(crate) mod trail;
