//! The values that operations take and return.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod types;
