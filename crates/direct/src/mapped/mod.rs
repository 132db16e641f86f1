//! Mappings of a program that lie straight on the blocks of a file (`docs/DIRECT.md`, *Mapped files*).
//!
//! A mapping for reading is made by the kernel first, twice: where the program wants it, and a second time elsewhere, as its *shadow*, which nobody touches. Over the first one the blocks are laid. Giving it back is
//! to move the shadow over the blocks, in one system call: from then on it is the kernel's, as if it had always been. The program sees the same bytes before and after.
//!
//! * `plan`: which blocks go where, asked for before the kernel maps.
//! * `table`: the mappings that there are. Under its lock nobody waits for a server and nobody allocates, so the thread that gives back is never kept from it.
//! * `keeper`: that thread.
//! * `space`: the system calls. The only file here that changes what is mapped.

mod keeper;
mod lock;
mod plan;
mod space;
mod table;

pub use plan::{MapRequest, Plan};
pub use table::{Area, begin_fork, changing, end_fork, forget, leave_to_kernel};

pub(crate) use keeper::{Keeper, Keeping};
pub(crate) use plan::{Wanted, runs_of};
pub(crate) use table::{leave_all_of, tidy, tidy_of};

use crate::connection::Connection;
use crate::layout::head;
use crate::memory::SharedMemory;
use lease::Holding;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize, fence};

/// What the mappings of one attachment have in common.
#[derive(Debug)]
pub(crate) struct Mapped {
    connection: Arc<Connection>,
    /// Which thread gives it back.
    keeper: Arc<Keeper>,
    /// The beginning of the attachment's memory, with its state, once more: it may outlive the attachment.
    head: SharedMemory,
    /// Where the process says that it has mapped blocks of the file.
    slot_at: usize,
    /// Plans and pieces.
    uses: AtomicUsize,
    /// Pieces that lie on blocks. Changes under the table's lock.
    pieces: AtomicUsize,
    /// The kernel has mapped the file: it is left to it.
    is_left: AtomicBool,
}

impl Mapped {
    pub(crate) fn new(
        connection: Arc<Connection>,
        keeper: Arc<Keeper>,
        head: SharedMemory,
        slot_at: usize,
    ) -> Mapped {
        Mapped {
            connection,
            keeper,
            head,
            slot_at,
            uses: AtomicUsize::new(0),
            pieces: AtomicUsize::new(0),
            is_left: AtomicBool::new(false),
        }
    }

    /// Whether blocks are mapped, or about to be: the attachment must stay.
    pub(crate) fn is_in_use(&self) -> bool {
        self.uses.load(Acquire) > 0
    }

    /// Whether the file is the kernel's since a mapping was given back.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Acquire)
    }

    fn is_live(&self) -> bool {
        let state = self.head.word(head::STATE);
        Holding { state, busy: state }.is_live()
            && self.connection.is_current()
            && self.keeper.is_running()
    }

    /// Says that blocks are mapped, then looks whether they may be. Who takes them back does it the other way round: so one of the two sees the other.
    fn begin(&self) -> bool {
        let word = self.connection.process().word(self.slot_at);
        word.store(1, Relaxed);
        fence(SeqCst);
        self.is_live()
    }

    /// If no piece is left, says so.
    fn end(&self) {
        if self.pieces.load(Relaxed) == 0 {
            let word = self.connection.process().word(self.slot_at);
            // Release: nothing of it is mapped any more.
            word.store(0, Release);
        }
    }
}
