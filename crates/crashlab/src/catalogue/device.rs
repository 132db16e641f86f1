//! Operations that move content to the device and back.

use super::{operations, path};
use crate::operation::Operation;

fn sink(name: &str, first: u64, blocks: u64) -> Operation {
    Operation::Sink {
        path: path(name),
        first,
        blocks,
    }
}

fn raise(name: &str, first: u64, blocks: u64) -> Operation {
    Operation::Raise {
        path: path(name),
        first,
        blocks,
    }
}

/// The operations that move all content of the start tree to the device.
pub fn sinks() -> Vec<Operation> {
    ["a", "b", "h", "d/f"].map(|name| sink(name, 0, 16)).into()
}

/// The operations of workloads with data on a device: all others, and moves.
pub fn on_device() -> Vec<Operation> {
    let mut operations = operations();
    operations.extend(sinks());
    operations.extend([
        sink("a", 1, 1),
        sink("h", 1, 2),
        raise("a", 0, 16),
        raise("a", 2, 1),
        raise("b", 0, 16),
        raise("h", 0, 16),
        raise("d/f", 1, 1),
        Operation::CopyDown,
        Operation::Evict,
    ]);
    operations
}
