//! What a region promises, and how it is opened.

use std::fmt;

/// When a write to a region is durable. Printed by every command that opens a pool.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum DurabilityClass {
    /// A `MAP_SYNC` file on fsdax, or a device-DAX node: durable when its lines are flushed and fenced.
    Dax,
    /// Memory with a log on an ordinary disk: durable when the log is (docs/LOG.md).
    Log,
    /// Shared memory or page cache, asked for by name: never durable. For tests, emulation and replicated pools.
    Volatile,
}

impl fmt::Display for DurabilityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DurabilityClass::Dax => "dax",
            DurabilityClass::Log => "log",
            DurabilityClass::Volatile => "volatile",
        })
    }
}

/// What stores into a mapped region may do to the medium.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Access {
    /// Stores reach the medium.
    ReadWrite,
    /// Stores stay in this process and never reach the medium (`MAP_PRIVATE`): for checking a pool without
    /// repairing it and for read-only mounts, which may have to replay a journal before they can read.
    PrivateCopy,
}

/// What this process may do with a part that is mapped later.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Permission {
    /// Loads only; a store ends the process.
    Read,
    /// Loads, and stores that reach the medium.
    ReadWrite,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_print_as_documented() {
        let names = [
            DurabilityClass::Dax,
            DurabilityClass::Log,
            DurabilityClass::Volatile,
        ]
        .map(|c| c.to_string());
        assert_eq!(names, ["dax", "log", "volatile"]);
    }
}
