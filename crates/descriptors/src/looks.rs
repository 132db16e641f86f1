//! After how many calls a descriptor is looked at.

use crate::numbers::{Descriptions, Found, Looked, Numbers};
use std::os::fd::RawFd;

/// Descriptors that are all the kernel's.
struct Looks {
    may_readers_wait: bool,
}

impl Descriptions for Looks {
    type Pin<'a> = ();

    fn pin(&self, _: usize, _: impl FnOnce() -> bool) -> Option<()> {
        None
    }

    fn add_number(&self, (): &()) -> bool {
        false
    }

    fn remove_number(&self, _: usize) {}

    fn give_up_position(&self, (): &(), _: RawFd) {}

    fn look(&self, _: RawFd, _: Option<u64>, _: impl FnOnce(usize) -> Option<bool>) -> Looked {
        Looked::Kernels
    }

    fn is_inside(&self) -> bool {
        false
    }

    fn is_expected(&self, _: u64) -> bool {
        false
    }

    fn may_readers_wait(&self) -> bool {
        self.may_readers_wait
    }

    fn is_off(&self) -> bool {
        false
    }

    fn settle(&self) {}
}

/// Calls until a fresh number is looked at.
fn calls_before_look(may_readers_wait: bool, reads: bool) -> usize {
    let numbers: Numbers<_, 8> = Numbers::new(Looks { may_readers_wait });
    numbers.opened(5, numbers.opening());
    (0..)
        .take_while(|_| {
            let found = match reads {
                true => numbers.find_to_read(5, true),
                false => numbers.find(5, true),
            };
            match found {
                Found::Counted(then) => numbers.landed(5, then),
                Found::Kernel => return false,
                Found::Ours(()) => unreachable!("all are the kernel's"),
            }
            true
        })
        .count()
}

#[test]
fn a_descriptor_that_is_only_read_may_be_looked_at_later() {
    assert_eq!(calls_before_look(true, true), 31);
    assert_eq!(calls_before_look(true, false), 2);
    assert_eq!(calls_before_look(false, true), 2);
}
