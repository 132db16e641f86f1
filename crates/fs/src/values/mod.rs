//! The values that operations take and return.

pub(crate) mod clock;
pub(crate) mod error;
pub mod quota;
pub(crate) mod types;
