//! Which queues the kernel has: one for each processor that the machine may have.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// So many processors without a user are given a thread each; a machine with more of them is
/// served over the classic queue.
const OFFLINE_MAX: usize = 64;

/// A queue's processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Processor {
    pub(super) number: u16,
    pub(super) is_online: bool,
}

impl Processor {
    /// Binds this thread to the processor. Where the process may not run there, nothing changes.
    pub(super) fn enter(self) {
        if self.is_online {
            let mut here = CpuSet::new();
            here.set(usize::from(self.number));
            let _ = sched_setaffinity(None, &here);
        }
    }
}

/// All queues, in the kernel's order.
pub(super) fn processors() -> io::Result<Vec<Processor>> {
    let read = |name| std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}"));
    let (possible, online) = (read("possible")?, read("online")?);
    from_lists(&possible, &online).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel has too many queues for processors that are not there",
        )
    })
}

fn from_lists(possible: &str, online: &str) -> Option<Vec<Processor>> {
    let online = parse(online)?;
    let all: Vec<Processor> = parse(possible)?
        .into_iter()
        .map(|number| Processor {
            number,
            is_online: online.contains(&number),
        })
        .collect();
    // The kernel numbers its queues from 0 on.
    let is_whole = (0..).zip(&all).all(|(index, one)| index == one.number);
    let offline = all.iter().filter(|one| !one.is_online).count();
    (is_whole && !all.is_empty() && offline <= OFFLINE_MAX).then_some(all)
}

/// A list as the kernel writes it: `0-3,8`.
fn parse(list: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(parse("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse("0"), Some(vec![0]));
        assert_eq!(parse("\n"), None);
        let all = from_lists("0-2", "0,2").expect("three");
        let online: Vec<bool> = all.iter().map(|one| one.is_online).collect();
        assert_eq!(online, [true, false, true]);
        assert_eq!(from_lists("1-2", "1"), None, "a hole in the numbers");
        assert_eq!(
            from_lists("0-999", "0"),
            None,
            "too many that are not there"
        );
    }
}
