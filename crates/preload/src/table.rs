//! The table of descriptor numbers of this process ([`descriptors`]): what they lead to, and what the kernel says of them.

use crate::client::{after, client, writes_files};
use crate::description::Description;
use crate::habits::Name;
use crate::log::say;
use crate::process;
use crate::slab::{self, OwnersPin, Pin};
use crate::thread::{self, Inside};
use descriptors::{Descriptions, Looked, Numbers};
use rustix::fs::OFlags;
use std::os::fd::{BorrowedFd, RawFd};

/// Numbers that are looked after; higher ones are the kernel's.
const COUNT: usize = 1 << 16;

/// What is known of each number.
pub(crate) static TABLE: Numbers<Process, COUNT> = Numbers::new(Process);

/// What a call that is about to use a descriptor finds.
pub(crate) type Found = descriptors::Found<Pin>;

/// This process's descriptions.
pub(crate) struct Process;

impl Descriptions for Process {
    type Pin<'a> = Pin;

    #[inline(always)]
    fn pin(&self, index: usize, still_stands: impl FnOnce() -> bool) -> Option<Pin> {
        if process::settle() {
            return None;
        }
        slab::pin(index, still_stands)
    }

    fn add_number(&self, pin: &Pin) -> bool {
        pin.add_number()
    }

    fn remove_number(&self, index: usize) {
        slab::remove_number(index);
    }

    fn give_up_position(&self, pin: &Pin, number: RawFd) {
        pin.give_up_position(borrow(number));
    }

    fn look(
        &self,
        number: RawFd,
        name: Option<u64>,
        enter: impl FnOnce(usize) -> Option<bool>,
    ) -> Looked {
        let Some(_inside) = Inside::enter() else {
            return Looked::NotNow;
        };
        let descriptor = borrow(number);
        let name = name.map(Name::from_bits);
        let Some(pin) = describe(descriptor, name).and_then(slab::place) else {
            return Looked::Kernels;
        };
        // Others who find the description wait here until it is known whose the position is.
        let position = pin.lock();
        match enter(pin.index()) {
            None => slab::remove_number(pin.index()),
            Some(may_take) => {
                let is_taken = may_take && position.take(descriptor);
                let whose = match is_taken {
                    true => "the library",
                    false => "the kernel",
                };
                say(format_args!(
                    "descriptor {number} is ours, its position {whose}'s"
                ));
            }
        }
        Looked::Ours
    }

    fn is_inside(&self) -> bool {
        thread::is_inside()
    }

    fn is_expected(&self, name: u64) -> bool {
        Name::from_bits(name).is_used()
    }

    fn may_readers_wait(&self) -> bool {
        // A read by the kernel revokes a lease, and one of this process may be of the same file.
        after() == 0 && !writes_files()
    }

    fn is_off(&self) -> bool {
        process::is_off()
    }

    fn settle(&self) {
        process::settle();
    }
}

/// What a descriptor is, if it is one of a file of ours.
fn describe(descriptor: BorrowedFd<'_>, name: Option<Name>) -> Option<Description> {
    // Not even that is asked if nothing may be looked at: a system call may end the process.
    let flags = match process::may_look() {
        true => rustix::fs::fcntl_getfl(descriptor).ok()?,
        false => return None,
    };
    if flags.contains(OFlags::PATH) {
        return None;
    }
    let file = client().look(descriptor)?;
    if name.is_some_and(Name::is_used) {
        file.expect_use();
    }
    Some(Description::new(file, flags, name))
}

/// A descriptor for the system calls that the library makes itself.
///
/// The number is what the program passed, which answers for its being open, as it does towards the kernel.
#[inline]
pub(crate) fn borrow(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: not -1, because only numbers that the table has get here; nothing is closed through it, and the kernel says so if it is not open.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// What a number leads to, if it is ours and was looked at before, and this thread owns its line of those who use the description.
#[inline(always)]
pub(crate) fn pinned_as_owner(number: RawFd) -> Option<OwnersPin> {
    let lead = TABLE.led_to(number)?;
    if process::settle() {
        return None;
    }
    slab::pin_as_owner(lead.index(), || lead.still_stands())
}

/// Tells the kernel where the position is, and keeps it.
pub(crate) fn push(number: RawFd) {
    if let Some(pin) = TABLE.ours(number) {
        pin.lock().push(borrow(number));
    }
}
