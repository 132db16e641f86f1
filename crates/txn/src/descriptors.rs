//! Room for the descriptors of a pool's files.
//!
//! A pool has up to 4,096 segments, each a file; many systems start a process with a limit of 1,024 files, which it may raise itself.

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Keeps the limit of open files raised as long as it lives: the process may open as many others as before.
#[derive(Debug)]
pub struct DescriptorRoom {
    by: u64,
    files: u32,
}

/// The limit is read, then set.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl DescriptorRoom {
    /// Room for `files`, as far as the system allows it; if it does not suffice, opening them will say so.
    pub fn new(files: u32) -> DescriptorRoom {
        let _turn = ONE_AT_A_TIME.lock();
        let before = getrlimit(Resource::Nofile);
        let Some(current) = before.current else {
            return DescriptorRoom { by: 0, files };
        };
        let wanted = current.saturating_add(u64::from(files));
        let allowed = before
            .maximum
            .map_or(wanted, |maximum| maximum.min(wanted).max(current));
        let is_raised = set(before, allowed);
        let (by, limit) = match is_raised {
            true => (allowed - current, allowed),
            false => (0, current),
        };
        let left = limit.saturating_sub(open_files());
        DescriptorRoom {
            by,
            files: u32::try_from(left).map_or(files, |left| left.min(files)),
        }
    }

    /// Of the files that were asked for, those for which there is room: the limit may have been high enough before, or could not be raised.
    pub fn files(&self) -> u32 {
        self.files
    }
}

impl Drop for DescriptorRoom {
    fn drop(&mut self) {
        let _turn = ONE_AT_A_TIME.lock();
        let raised = getrlimit(Resource::Nofile);
        if let Some(current) = raised.current.filter(|_| self.by > 0) {
            // A limit below what is open harms nobody: it only counts for the next file.
            set(raised, current.saturating_sub(self.by));
        }
    }
}

/// Files that this process has open.
fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64)
}

fn set(limit: Rlimit, current: u64) -> bool {
    let limit = Rlimit {
        current: Some(current),
        ..limit
    };
    setrlimit(Resource::Nofile, limit).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_comes_back_in_whatever_order() {
        let limit = || getrlimit(Resource::Nofile).current;
        let (Some(before), maximum) = (limit(), getrlimit(Resource::Nofile).maximum) else {
            return;
        };
        // Where the limit cannot be raised it stays.
        let allowed = |wanted: u64| Some(maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        let first = DescriptorRoom::new(100);
        assert_eq!(limit(), allowed(before + 100));
        assert_eq!(first.files(), 100);
        let second = DescriptorRoom::new(50);
        assert_eq!(limit(), allowed(before + 150));
        drop(first);
        drop(second);
        assert_eq!(limit(), Some(before));
    }
}
