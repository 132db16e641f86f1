//! Room for the descriptors of a pool's files.
//!
//! A pool has up to 4,096 segments, each a file that is open until all are mapped; many systems start a process with a limit of 1,024 files, which it may raise
//! itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that a process has open anyway, generously.
const OTHERS: u64 = 256;

/// Keeps the limit of open files raised as long as it lives.
#[derive(Debug)]
pub(crate) struct DescriptorRoom {
    before: Option<Rlimit>,
}

impl DescriptorRoom {
    /// Room for `files` at once, if the system allows it; if not, opening them will say so.
    pub(crate) fn new(files: u32) -> DescriptorRoom {
        let before = getrlimit(Resource::Nofile);
        let wanted = u64::from(files) + OTHERS;
        if before.current.is_none_or(|current| current >= wanted) {
            return DescriptorRoom { before: None };
        }
        let raised = Rlimit {
            current: Some(before.maximum.map_or(wanted, |maximum| maximum.min(wanted))),
            maximum: before.maximum,
        };
        let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
        DescriptorRoom {
            before: is_raised.then_some(before),
        }
    }
}

impl Drop for DescriptorRoom {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A limit below what is open harms nobody: it only counts for the next file.
            let _ = setrlimit(Resource::Nofile, *before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_comes_back() {
        let before = getrlimit(Resource::Nofile);
        let Some(current) = before.current else {
            return;
        };
        let wanted = current + 1 - OTHERS;
        let allowed = before.maximum.is_none_or(|maximum| maximum > current);
        let room = DescriptorRoom::new(wanted as u32);
        let raised = getrlimit(Resource::Nofile).current;
        assert_eq!(raised, Some(current + u64::from(allowed)));
        drop(room);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(current));
    }
}
