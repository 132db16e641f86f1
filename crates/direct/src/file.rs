//! A file of a mount in this process.

mod attaching;
mod kernel;
mod mapping;
mod room;
mod status;
mod waiting;

pub use kernel::refresh_end;
pub(crate) use room::Tours;
use waiting::Waiting;

use crate::attachment::Attachment;
use crate::connection::Connection;
use crate::entrance::{Generation, Inside};
use crate::layout::Counter;
use crate::leased::{Leased, Trouble};
use crate::mapped::{Mapped, tidy};
use crate::policy::{Policy, Purpose};
use crate::socket::WAIT;
use locks::{Changing, Reading, Turns};
use pmem::BLOCK_BYTES;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most bytes that the kernel reads or writes at once; it knows best what to do with more.
const BYTES_MAX: usize = 0x7fff_f000;

/// How long an operation waits for its turn before it is the kernel's, which is right at any time: to the server it is as one of another process. Who has the turn for longer waits for the server, as the kernel would, or stands still:
/// in a signal's handler that suspends threads, for a debugger.
const TURN: Duration = Duration::from_millis(100);

/// What this process has of the file.
#[derive(Debug)]
enum Holds {
    Nothing,
    Reading {
        attachment: Attachment,
        /// The same as long as the attachment is live: whoever changes it ends that.
        size_bytes: u64,
    },
    Lease(Box<Leased>),
}

#[derive(Debug)]
struct State {
    holds: Holds,
    /// What the kernel said of the file since it is attached.
    base: Option<status::Base>,
    policy: Policy,
    /// Of an attachment for reading: what its mappings have in common, once there was one.
    mapped: Option<Arc<Mapped>>,
    /// The program has no descriptor of it any more.
    is_closed: bool,
    /// Time that direct calls have saved since the file was opened, or would have saved.
    worth: u64,
}

impl State {
    /// Whether blocks of the file are mapped: then the attachment stays.
    fn is_mapped(&self) -> bool {
        self.mapped
            .as_ref()
            .is_some_and(|mapped| mapped.is_in_use())
    }
}

/// What came of a read.
enum Read {
    Done(usize),
    NotAttached,
    Ended,
    NoPlace,
}

/// The use of a file from its first operation to its last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Past {
    /// Operations, direct or not.
    pub operations: u64,
    /// The next one that is used like this had better be attached at its first write: it
    /// [is expected](File::expect_use) to be used.
    pub is_journal: bool,
}

/// A file of a mount in this process. Any number of threads may use it at once.
///
/// Each operation is done as a whole, or it returns `None` and did nothing: then the caller asks the kernel. `descriptor` must be one of the file that is open for what the operation does. A write of
/// more than 1 MiB may be cut short, as the kernel's may.
#[derive(Debug)]
pub struct File {
    generation: Generation,
    inode: u64,
    pub(crate) connection: Arc<Connection>,
    waiting: Waiting,
    state: Turns<State>,
}

impl File {
    pub(crate) fn new(connection: Arc<Connection>, inode: u64) -> File {
        File {
            generation: Generation::current(),
            inode,
            waiting: Waiting::new(connection.price().is_measured()),
            connection,
            state: Turns::new(State {
                holds: Holds::Nothing,
                base: None,
                policy: Policy::default(),
                mapped: None,
                is_closed: false,
                worth: 0,
            }),
        }
    }

    /// Reads as `preadv`: bytes read, 0 at the end of the file. If it returns `None`, the buffers may hold anything.
    #[inline]
    pub fn read_at(
        &self,
        descriptor: BorrowedFd<'_>,
        into: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Option<usize> {
        let _inside = self.enter()?;
        if self.is_left_to_kernel(Purpose::Reading) {
            return None;
        }
        // The lock is given back before anything else is done.
        let read = self.read_held(&*self.shared()?, into, offset);
        match read {
            Read::Done(bytes) => Some(bytes),
            Read::NoPlace => self.refuse(Counter::NoPlace),
            Read::NotAttached | Read::Ended => self.attach_and_read(descriptor, into, offset),
        }
    }

    /// Writes as `pwritev`, durable at return: bytes written.
    #[inline]
    pub fn write_at(
        &self,
        descriptor: BorrowedFd<'_>,
        data: &[IoSlice<'_>],
        offset: u64,
    ) -> Option<usize> {
        let written = self.write(descriptor, data, Some(offset));
        written.map(|(bytes, _)| bytes)
    }

    /// Overwrites a whole block, if this thread writes the file alone and nothing is in the way: `true` if it did, durable at return. It executes no locked instruction, and few stores; else it did nothing, and
    /// [`write_at`](Self::write_at) does what is to be done.
    #[inline(always)]
    pub fn overwrite_block(&self, block: &[u8; BLOCK_BYTES], offset: u64) -> bool {
        let Some(_inside) = self.enter() else {
            return false;
        };
        let Some(mut state) = self.state.as_owner() else {
            return false;
        };
        match &mut state.holds {
            Holds::Lease(leased) => leased.overwrite_block(&self.connection, block, offset),
            _ => false,
        }
    }

    /// Reads a whole block, if this thread uses the file alone and nothing is in the way: `true` if it did. Otherwise the buffer may hold anything, and [`read_at`](Self::read_at) does what is to be done.
    ///
    /// While a processor waits for the lines of one block, it is at the next one, if that begins within its window of instructions (docs/DIRECT.md, *The next copy begins while the last one waits*). So this is all in one piece, takes no lock, and
    /// does not even say that the thread is inside: it calls nothing that waits, and who comes back to this file by a signal's handler is turned away by the lock.
    #[inline(always)]
    pub fn read_block(&self, into: &mut [u8; BLOCK_BYTES], offset: u64) -> bool {
        let Some(state) = self.state.as_owner() else {
            return false;
        };
        let (attachment, size_bytes) = match &state.holds {
            Holds::Reading {
                attachment,
                size_bytes,
            } => (attachment, *size_bytes),
            Holds::Lease(leased) => (leased.attachment(), leased.size_bytes()),
            Holds::Nothing => return false,
        };
        let is_inside = offset.is_multiple_of(BLOCK)
            && size_bytes >= BLOCK
            && offset <= size_bytes - BLOCK
            && self.generation == Generation::current();
        let Some(link) = self.connection.live_link().filter(|_| is_inside) else {
            return false;
        };
        let is_read = attachment.read_block(link, into, offset / BLOCK);
        if is_read {
            attachment.count(&self.connection, Purpose::Reading, BLOCK_BYTES);
        }
        is_read
    }

    /// Runs of blocks that are known to be in one piece.
    #[cfg(test)]
    pub(crate) fn known_runs(&self) -> usize {
        let state = self.exclusive().expect("a turn");
        let held = self.held(&state);
        held.map_or(0, |(attachment, _)| attachment.known_runs())
    }

    /// Reads into one buffer, if this thread uses the file alone and nothing is in the way: bytes read, as by [`read_at`](Self::read_at). Otherwise the buffer may hold anything.
    #[inline]
    pub fn read_as_owner(&self, into: &mut [u8], offset: u64) -> Option<usize> {
        let _inside = self.enter()?;
        let state = self.state.as_owner()?;
        let (attachment, size_bytes) = self.held(&state)?;
        if offset >= size_bytes {
            return None;
        }
        let bytes = (into.len() as u64).min(size_bytes - offset) as usize;
        let is_read = attachment.read_known(&self.connection, &mut into[..bytes], offset);
        if !is_read || !attachment.is_live(&self.connection) {
            return None;
        }
        attachment.count(&self.connection, Purpose::Reading, bytes);
        Some(bytes)
    }

    /// Writes at the end of the file, wherever that is: bytes written, and the end of the file behind them.
    #[inline]
    pub fn append(&self, descriptor: BorrowedFd<'_>, data: &[IoSlice<'_>]) -> Option<(usize, u64)> {
        self.write(descriptor, data, None)
    }

    /// Bytes of the file, if this process knows.
    pub fn size_bytes(&self) -> Option<u64> {
        let _inside = self.enter()?;
        let state = self.shared()?;
        let (attachment, size_bytes) = self.held(&state)?;
        attachment.is_live(&self.connection).then_some(size_bytes)
    }

    /// Whether all that this process has written to the file is durable without asking anybody, and nobody else can have written: `fsync` has nothing left to do.
    pub fn is_durable(&self) -> bool {
        let Some(_inside) = self.enter() else {
            return false;
        };
        let is_durable = self.shared().is_some_and(|state| {
            let held = self.held(&state).map(|(attachment, _)| attachment);
            held.is_some_and(|held| {
                held.purpose() == Purpose::Writing && held.is_live(&self.connection)
            })
        });
        if is_durable {
            self.spare_sync();
        }
        is_durable
    }

    /// Whether the server is gone: this `File` returns `None` for ever. Looking at the descriptor again may find another one.
    pub fn is_lost(&self) -> bool {
        self.generation != Generation::current() || self.connection.is_lost()
    }

    /// The file was made by this process, which expects to use it as often as [others of the kind](Self::close): it is attached when it is first written to.
    pub fn expect_use(&self) {
        if let Some(_inside) = self.enter()
            && let Some(mut state) = self.exclusive()
        {
            state.policy.expect_use();
            self.waiting.stop();
        }
    }

    /// The last descriptor of this process is closed: lets the file go. Using it again attaches it
    /// again. Returns its use since it was opened, if that is known.
    pub fn close(&self) -> Option<Past> {
        tidy();
        let _inside = self.enter()?;
        let mut state = self.exclusive_to_leave()?;
        let state = &mut *state;
        if let Holds::Lease(leased) = &mut state.holds
            && state.mapped.is_none()
        {
            leased.detach_closed(&self.connection, self.inode);
        }
        self.let_go(state);
        state.is_closed = true;
        Some(self.start_again(state))
    }

    #[inline]
    fn enter(&self) -> Option<Inside> {
        let inside = Inside::enter()?;
        (self.generation == Generation::current()).then_some(inside)
    }

    /// To look at it for an operation that the kernel does as well.
    #[inline]
    fn shared(&self) -> Option<Reading<'_, State>> {
        self.state.read(TURN)
    }

    /// To use it for such an operation.
    #[inline]
    fn exclusive(&self) -> Option<Changing<'_, State>> {
        self.state.change(TURN)
    }

    /// To let it go, which nobody else does: waits as long as an honest server may take.
    #[inline]
    fn exclusive_to_leave(&self) -> Option<Changing<'_, State>> {
        self.state.change(4 * WAIT)
    }

    #[cold]
    fn refuse<T>(&self, why: Counter) -> Option<T> {
        self.connection.count(why, 1);
        None
    }

    /// What can be read, and how long the file is.
    #[inline]
    fn held<'s>(&self, state: &'s State) -> Option<(&'s Attachment, u64)> {
        if self.connection.is_lost() {
            return None;
        }
        match &state.holds {
            Holds::Nothing => None,
            Holds::Reading {
                attachment,
                size_bytes,
            } => Some((attachment, *size_bytes)),
            Holds::Lease(leased) => Some((leased.attachment(), leased.size_bytes())),
        }
    }

    #[inline]
    fn read_held(&self, state: &State, into: &mut [IoSliceMut<'_>], offset: u64) -> Read {
        let Some((attachment, size_bytes)) = self.held(state) else {
            return Read::NotAttached;
        };
        let bytes = match offset < size_bytes {
            true => attachment.read(&self.connection, into, offset, size_bytes),
            false => Some(0),
        };
        if !attachment.is_live(&self.connection) {
            return Read::Ended;
        }
        let Some(bytes) = bytes else {
            return Read::NoPlace;
        };
        attachment.count(&self.connection, Purpose::Reading, bytes);
        Read::Done(bytes)
    }

    #[cold]
    fn attach_and_read(
        &self,
        descriptor: BorrowedFd<'_>,
        into: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Option<usize> {
        let mut state = self.exclusive()?;
        self.end_if_over(&mut state);
        let purchase = match state.holds {
            Holds::Nothing => self.attach(&mut state, descriptor, Purpose::Reading, Some(offset)),
            _ => None,
        };
        let read = self.read_held(&state, into, offset);
        self.end_purchase(purchase);
        match read {
            Read::Done(bytes) => Some(bytes),
            Read::NoPlace => self.refuse(Counter::NoPlace),
            Read::NotAttached => self.refuse(self.why_not(&state, Purpose::Reading)),
            Read::Ended => self.refuse(Counter::TakenBack),
        }
    }

    /// Writes at an offset, or at the end of the file.
    #[inline]
    fn write(
        &self,
        descriptor: BorrowedFd<'_>,
        data: &[IoSlice<'_>],
        offset: Option<u64>,
    ) -> Option<(usize, u64)> {
        let _inside = self.enter()?;
        if self.is_left_to_kernel(Purpose::Writing) {
            return None;
        }
        let mut state = self.exclusive()?;
        let mut purchase = None;
        if !matches!(state.holds, Holds::Lease(_)) {
            purchase = self.attach_for_writing(&mut state, descriptor, offset);
        }
        let Holds::Lease(leased) = &mut state.holds else {
            return self.refuse(self.why_not(&state, Purpose::Writing));
        };
        let total = data
            .iter()
            .fold(0_usize, |sum, slice| sum.saturating_add(slice.len()));
        let offset = offset.unwrap_or_else(|| leased.size_bytes());
        let mut outcome = match total {
            0 => Ok(0),
            1..=BYTES_MAX if offset <= i64::MAX as u64 => {
                leased.write(&self.connection, data, total, offset)
            }
            _ => Err(Trouble::NotOffered),
        };
        if outcome == Err(Trouble::TooSmall) {
            outcome = self.write_with_more(&mut state, descriptor, (data, total), offset);
        }
        if purchase.is_some() {
            self.end_purchase(purchase);
        }
        match outcome {
            Ok(bytes) => Some((bytes, offset + bytes as u64)),
            Err(trouble) => self.refuse_write(state, trouble),
        }
    }

    /// Writes after a larger lease was got for the one that was too small. Nobody else writes in between: if somebody had, the file would end elsewhere than at `offset`, so an append goes to the kernel then.
    #[cold]
    fn write_with_more(
        &self,
        state: &mut State,
        descriptor: BorrowedFd<'_>,
        (data, total): (&[IoSlice<'_>], usize),
        offset: u64,
    ) -> Result<usize, Trouble> {
        let Some((_, size_bytes)) = self.held(state) else {
            return Err(Trouble::Ended);
        };
        self.let_go(state);
        state.policy.expects_more();
        self.attach(state, descriptor, Purpose::Writing, Some(offset));
        match &mut state.holds {
            Holds::Lease(leased) if leased.size_bytes() == size_bytes => {
                leased.write(&self.connection, data, total, offset)
            }
            _ => Err(Trouble::NoRoom),
        }
    }

    #[cold]
    fn refuse_write<T>(&self, mut state: Changing<'_, State>, trouble: Trouble) -> Option<T> {
        self.refuse(match trouble {
            Trouble::Ended => {
                self.end(&mut state);
                Counter::TakenBack
            }
            Trouble::NoRoom | Trouble::TooSmall => Counter::NoRoom,
            Trouble::NoPlace => Counter::NoPlace,
            Trouble::NotOffered => Counter::NotOffered,
        })
    }

    /// Tells the server that what this process had of the file is let go.
    fn detach_held(&self, holds: &Holds) {
        match holds {
            Holds::Nothing => {}
            Holds::Reading { attachment, .. } => attachment.detach(&self.connection),
            Holds::Lease(leased) => leased.detach(&self.connection),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.generation != Generation::current() {
            // In a child: the pool is not mapped here, and what is at its addresses now is not ours to unmap.
            let state = self.state.get_mut();
            std::mem::forget(std::mem::replace(&mut state.holds, Holds::Nothing));
            std::mem::forget(Arc::clone(&self.connection));
            return;
        }
        // Inside of another operation nobody can be asked; the server hears of it when the process ends.
        if let Some(_inside) = Inside::enter() {
            let holds = std::mem::replace(&mut self.state.get_mut().holds, Holds::Nothing);
            self.detach_held(&holds);
            self.connection.forget_file(self.inode);
        }
    }
}
