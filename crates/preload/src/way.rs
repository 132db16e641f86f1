//! How a call of the program goes on, and how long the kernel takes for it.

use crate::client::File;
use crate::slab::Pin;
use crate::table::TABLE;
use crate::thread::set_errno;
use descriptors::Meaning;
use libc::ssize_t;
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// How a call goes on.
pub(crate) enum Way {
    /// It is done.
    Done(Result<usize, Errno>),
    /// By the kernel.
    Kernel,
    /// By the kernel, and then the table is told.
    Counted(Meaning),
    /// By the kernel, and then the file is told how long it took, because it refused.
    Timed(Call),
}

/// A call that a file might have done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
}

impl Call {
    /// Tells the file of such a call, which the kernel did.
    fn tell(self, file: &File, bytes: usize, took: Duration) {
        match self {
            Call::Read => file.kernel_read(bytes, took),
            Call::Write => file.kernel_wrote(bytes, took),
        }
    }

    /// Makes such a call, and tells the file.
    pub(crate) fn timed(
        self,
        pin: &Pin,
        call: impl FnOnce() -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let begin = Instant::now();
        let outcome = call();
        if let Ok(bytes) = outcome {
            self.tell(pin.file(), bytes, begin.elapsed());
        }
        outcome
    }
}

impl Way {
    /// Returns the result of the call. Nothing has to be dropped while the real function works,
    /// because it may be cancelled.
    #[inline]
    pub(crate) fn or(self, number: RawFd, real: impl FnOnce() -> ssize_t) -> ssize_t {
        match self {
            Way::Done(Ok(bytes)) => bytes as ssize_t,
            Way::Done(Err(error)) => {
                set_errno(error.raw_os_error());
                -1
            }
            Way::Kernel => real(),
            Way::Counted(then) => {
                let result = real();
                TABLE.landed(number, then);
                result
            }
            Way::Timed(call) => {
                let begin = Instant::now();
                let result = real();
                if let Ok(bytes) = usize::try_from(result)
                    && let Some(pin) = TABLE.pinned(number)
                {
                    call.tell(pin.file(), bytes, begin.elapsed());
                }
                result
            }
        }
    }

    pub(crate) fn of(direct: Option<usize>, call: Call) -> Way {
        direct.map_or(Way::Timed(call), |bytes| Way::Done(Ok(bytes)))
    }
}
