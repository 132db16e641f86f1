//! How threads wait for a lock, and how they read without one.

pub(crate) mod spin;
pub(crate) mod view;
