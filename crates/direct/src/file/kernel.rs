//! The kernel learns of a file that it is going to use by itself.

use super::File;
use crate::layout::Counter;
use crate::policy::Purpose;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::os::fd::BorrowedFd;

/// Has the kernel ask the server where a file ends, if the kernel may be wrong. To be called before
/// an append, because the kernel places an append by the end that it knows.
///
/// The server has the kernel drop the attributes of a file when a lease begins, and keep none
/// while it lasts. So the kernel asks for any attribute of a leased file, and learns the size as
/// well. Of another file it knows the mode, whatever it has written, and asks nobody.
pub fn refresh_end(descriptor: BorrowedFd<'_>) {
    // If the call fails, the append tells what is wrong.
    let _ = statx(descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::MODE);
}

impl File {
    /// Lets the file go until [`close`](Self::close): the kernel is going to use it in a way that
    /// nobody else sees (it is being mapped). Tells the kernel how long the file is, because a load
    /// behind the end that it knows would end the process.
    pub fn leave_to_kernel(&self, descriptor: BorrowedFd<'_>) {
        if let Some(_inside) = self.enter()
            && let Some(mut state) = self.exclusive_to_leave()
        {
            self.leave_mappings(&state);
            self.let_go(&mut state);
            state.policy.give_up(Purpose::Reading);
            state.policy.give_up(Purpose::Writing);
            drop(state);
            self.connection.count(Counter::NotOffered, 1);
        }
        self.tell_kernel_size(descriptor);
    }

    /// Tells the kernel how long the file is, before it appends.
    pub fn tell_kernel_end(&self, descriptor: BorrowedFd<'_>) {
        if !self.connection.reads_only() {
            refresh_end(descriptor);
        }
    }

    /// Tells the kernel how long the file is, before it reads without a question to the server
    /// (`sendfile`).
    pub fn tell_kernel_size(&self, descriptor: BorrowedFd<'_>) {
        // If no process writes directly, the kernel knows each length.
        if self.connection.reads_only() {
            return;
        }
        // If the call fails, the kernel asks again by itself.
        let _ = statx(
            descriptor,
            c"",
            AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC,
            StatxFlags::SIZE,
        );
    }
}
