//! What `fstat` tells of a file that is attached, without a system call.
//!
//! The kernel is asked once. From then on its answer, the *base*, changes in three ways. What this process does itself, it knows: a write changes size and times, no more than that unless it fills a hole; then the
//! blocks that the file takes are the server's to count, and the kernel is asked again. What others do to the content, or to owner, mode and times, ends the attachment. What they do to the links or to extended
//! attributes does not, but the server changes a word of the memory that both see before it tells them that it is done.

use super::{File, Holds, State};
use crate::layout::head;
use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, statx};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Acquire;

const NANOSECONDS: i64 = 1_000_000_000;

/// What the kernel said last.
pub(super) struct Base {
    status: Statx,
    /// The word of the memory before it was asked.
    word: u64,
    /// Blocks that this process had put into holes of the file by then.
    placed: u64,
}

impl std::fmt::Debug for Base {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "base of inode {}", self.status.stx_ino)
    }
}

impl File {
    /// What `fstat` tells: everything of `STATX_BASIC_STATS`, and what comes with it. Asks the kernel if it has to; `None` if the file is not attached.
    pub fn status(&self, descriptor: BorrowedFd<'_>) -> Option<Statx> {
        let _inside = self.enter()?;
        if let Some(status) = self.known_status(&*self.shared()?) {
            return Some(status);
        }
        let mut state = self.exclusive()?;
        self.learn_status(&mut state, descriptor)?;
        self.known_status(&state)
    }

    /// The same if nobody has to be asked.
    pub fn status_if_known(&self) -> Option<Statx> {
        let _inside = self.enter()?;
        self.known_status(&*self.shared()?)
    }

    fn known_status(&self, state: &State) -> Option<Statx> {
        let (attachment, size_bytes) = self.held(state)?;
        let base = state.base.as_ref()?;
        let word = attachment.memory().word(head::ATTRIBUTES).load(Acquire);
        if word != base.word || base.placed != placed(state) {
            return None;
        }
        let mut status = base.status;
        status.stx_size = size_bytes;
        if let Holds::Lease(leased) = &state.holds
            && let Some(modified) = leased.modified()
        {
            if !leased.records_times() {
                return None;
            }
            set(&mut status.stx_mtime, modified);
            // As folding does it.
            set(
                &mut status.stx_ctime,
                modified.max(nanoseconds(&base.status.stx_ctime)),
            );
        }
        attachment.is_live(&self.connection).then_some(status)
    }

    fn learn_status(&self, state: &mut State, descriptor: BorrowedFd<'_>) -> Option<()> {
        let (attachment, size_bytes) = self.held(state)?;
        // Whatever changes while the kernel is asked changes the word.
        let word = attachment.memory().word(head::ATTRIBUTES).load(Acquire);
        let status = statx(
            descriptor,
            c"",
            AtFlags::EMPTY_PATH,
            StatxFlags::BASIC_STATS,
        )
        .ok()?;
        if status.stx_ino != self.inode || status.stx_size != size_bytes {
            return None;
        }
        let placed = placed(state);
        state.base = Some(Base {
            status,
            word,
            placed,
        });
        if let Holds::Lease(leased) = &mut state.holds {
            leased.forget_modified();
        }
        Some(())
    }
}

fn placed(state: &State) -> u64 {
    match &state.holds {
        Holds::Lease(leased) => leased.placed(),
        _ => 0,
    }
}

fn nanoseconds(time: &StatxTimestamp) -> i64 {
    time.tv_sec
        .saturating_mul(NANOSECONDS)
        .saturating_add(i64::from(time.tv_nsec))
}

fn set(time: &mut StatxTimestamp, nanoseconds: i64) {
    time.tv_sec = nanoseconds.div_euclid(NANOSECONDS);
    time.tv_nsec = nanoseconds.rem_euclid(NANOSECONDS) as u32;
}
