//! Experiments: what an operation costs, beside the raw limit or a peer, in one run.
