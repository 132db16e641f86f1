//! The baseline against a plain model: random operations, power cuts at every fence, threads; and PMFS's policies.

mod crash;
mod model;
mod policies;
mod threads;
mod tree;
