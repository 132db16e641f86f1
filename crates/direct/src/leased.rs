//! A file that this process writes.

use crate::attachment::Attachment;
use crate::connection::Connection;
use crate::counted::Counted;
use crate::layout::{MAP_CHUNK, SLOTS, head, left_at, slot_at};
use crate::line::NoAnswer;
use crate::policy::Purpose;
use crate::protocol::{Attached, Kind, Prospect, Refusal};
use lease::{
    Busy, FileMap, Holding, InPlace, Place, RECORD_NUMBERS, Refusal as WriterRefusal, Ring, Salt,
    Spare, Writer,
};
use pmem::{BLOCK_BYTES, BlockNumber, Permission};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most bytes that are one write, all or nothing.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// The clock's time is good for so many ticks of the processor: less than the kernel takes from one tick to the next (1 to 10 ms).
const CLOCK_TICKS: u64 = 1 << 20;
/// When there was room, so many records are written before it is looked at again.
const RECORDS_PER_LOOK: u64 = 64;
/// After a refill so many records are written before the server is asked for another one. Otherwise it would be asked at each write while a pool that is nearly full has hardly a block for it.
const RECORDS_BETWEEN_MESSAGES: u64 = 16;

/// A lease that was not written to for so long is not in use: whoever has ended it (the server, because nobody used it, or somebody else) was not in the way.
const NANOSECONDS_UNUSED: i64 = 1_000_000_000;

/// How often a write is tried, with the server's help in between.
const ATTEMPTS: u32 = 4;

/// Why a write did not happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Trouble {
    /// The lease has ended.
    Ended,
    /// The lease has no room for it, even after the server has folded.
    NoRoom,
    /// A block is where this process may not go, or nowhere.
    NoPlace,
    /// Not a write for us.
    NotOffered,
    /// The lease was asked for by who expected to write little; a larger one has room for it.
    TooSmall,
}

/// Of a file larger than this the server hears at once that it is closed: until then nobody gets the blocks of a removed file.
const LATER_BYTES_MAX: u64 = 1 << 20;

/// What is let go later has changed the first chunk of its map only: its memory can be used again.
const _: () = assert!(LATER_BYTES_MAX <= MAP_CHUNK * BLOCK);

/// A lease.
#[derive(Debug)]
pub(crate) struct Leased {
    attachment: Attachment,
    writer: Writer,
    /// Where in the process's memory it says what it is busy with.
    slot_at: usize,
    /// Where in it it says that it has left.
    left_at: usize,
    /// Records before this number are folded, as far as the writer has heard.
    folded: u64,
    /// Refills that the writer has got.
    refills: u64,
    /// Spare blocks that the writer has got, all in all.
    received: u64,
    /// Time of the last write since the kernel was asked about the file.
    modified: Option<i64>,
    /// More records than these unfolded, or fewer spare blocks: it is time to fold.
    records_enough: u64,
    spares_enough: usize,
    /// Not before this record the server is asked to fold again.
    tell_at: u64,
    /// Largest size that this process may give a file.
    size_bytes_max: u64,
    /// Overwrites go in place, and so are not all or nothing.
    is_in_place: bool,
    /// The second in which it was last looked whether the server has hung up.
    looked_in: i64,
    /// What time it was when the clock was looked at last, by the clock and by the processor.
    now: i64,
    now_ticks: u64,
    /// Before this record there is room, and nobody looks whether there is.
    room_until: u64,
    /// It was asked for by who expected to write little: it is not folded to go on, but given back.
    is_small: bool,
    /// The server has been told that this process has let go, or will be.
    has_let_go: bool,
    /// The number of the first record.
    first: u64,
    _counted: Counted,
}

/// The map as the writer sees it.
struct Map<'l> {
    attachment: &'l Attachment,
    connection: &'l Connection,
}

impl FileMap for Map<'_> {
    #[inline]
    fn get(&self, index: u64) -> Option<Place> {
        self.attachment.known(self.connection, index)
    }

    #[inline]
    fn set(&mut self, index: u64, block: BlockNumber) {
        self.attachment.put(index, block);
    }
}

enum Attempt {
    Done,
    Ended,
    Refused(WriterRefusal),
}

impl Leased {
    /// Asks the server for a lease.
    pub(crate) fn ask(
        connection: &Connection,
        inode: u64,
        descriptor: BorrowedFd<'_>,
        prospect: Prospect,
    ) -> Result<Leased, NoAnswer> {
        let purpose = Purpose::Writing;
        let (attachment, attached) =
            Attachment::ask(connection, inode, descriptor, purpose, prospect)?;
        match Leased::new(connection, &attached, attachment, prospect.writes_little) {
            Ok(leased) => Ok(leased),
            Err(attachment) => {
                attachment.detach(connection);
                Err(NoAnswer::Refused(Refusal::Failed))
            }
        }
    }

    fn new(
        connection: &Connection,
        attached: &Attached,
        attachment: Attachment,
        is_small: bool,
    ) -> Result<Leased, Box<Attachment>> {
        let is_sound = attached.ring_blocks.is_power_of_two()
            && attached.slot < SLOTS as u64
            && RECORD_NUMBERS.contains(&attached.next);
        let ring = is_sound.then(|| ring_of(connection, &attachment)).flatten();
        let Some(ring) = ring else {
            return Err(Box::new(attachment));
        };
        let (records, spares) = (ring.records(), attached.spare_blocks as usize);
        let region = Arc::clone(connection.segments().region());
        let salt = Salt(attached.salt);
        let writer = Writer::new(region, ring, salt, attached.next, [], attached.size_bytes);
        let mut leased = Leased {
            writer,
            slot_at: slot_at(attached.slot as usize),
            left_at: left_at(attached.slot as usize),
            folded: attached.next,
            refills: 0,
            received: 0,
            modified: None,
            records_enough: if is_small { records } else { records / 2 },
            spares_enough: if is_small { 0 } else { spares / 2 },
            tell_at: 0,
            size_bytes_max: getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX),
            is_in_place: connection.is_in_place(),
            looked_in: 0,
            now: nanoseconds(clock_gettime(ClockId::RealtimeCoarse)),
            now_ticks: 0,
            room_until: 0,
            is_small,
            has_let_go: false,
            first: attached.next,
            _counted: Counted::new(),
            attachment,
        };
        leased.pick_up(connection);
        Ok(leased)
    }

    /// What can be read of it.
    #[inline]
    pub(crate) fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Bytes of the file.
    #[inline]
    pub(crate) fn size_bytes(&self) -> u64 {
        self.writer.size_bytes()
    }

    /// Blocks that went into holes of the file.
    pub(crate) fn placed(&self) -> u64 {
        self.received - self.writer.spare_blocks() as u64
    }

    /// Time of the last write, nanoseconds since the epoch, if there was one since [`forget_modified`](Self::forget_modified).
    pub(crate) fn modified(&self) -> Option<i64> {
        self.modified
    }

    /// Whether the time of a write is in its record, so that the server will tell the same one.
    pub(crate) fn records_times(&self) -> bool {
        !self.is_in_place
    }

    /// The kernel has been asked.
    pub(crate) fn forget_modified(&mut self) {
        self.modified = None;
    }

    /// Lets the file go, unless that was said already.
    pub(crate) fn detach(&self, connection: &Connection) {
        if !self.has_let_go {
            self.leave(connection);
            self.attachment.detach(connection);
        }
    }

    /// The same, beforehand, for a file that is closed, if the server may hear of it later, with another question: of a journal that is made anew for each transaction with the next one's.
    pub(crate) fn detach_closed(&mut self, connection: &Connection, inode: u64) {
        if self.has_let_go || !self.is_journal() {
            return;
        }
        self.leave(connection);
        self.attachment.detach_later(connection, inode);
        self.has_let_go = true;
    }

    /// It was let go, and nobody uses it any more: if it is one of many, its memory serves another one.
    pub(crate) fn keep_memory(self, connection: &Connection) {
        if self.has_let_go && self.is_journal() {
            let number = self.attachment.number();
            connection
                .line()
                .keep(number, self.attachment.into_memory());
        }
    }

    /// Whether it is one of those small files that a program makes again and again.
    fn is_journal(&self) -> bool {
        self.is_small && self.size_bytes() <= LATER_BYTES_MAX
    }

    /// Says whether it is a small lease.
    pub(crate) fn is_small(&self) -> bool {
        self.is_small
    }

    /// Returns the number of records: about as many as writes, if these are small.
    pub(crate) fn records(&self) -> u64 {
        self.writer.next() - self.first
    }

    /// Whether it was written to a moment ago.
    pub(crate) fn is_in_use(&self) -> bool {
        let now = nanoseconds(clock_gettime(ClockId::RealtimeCoarse));
        now.saturating_sub(self.now) < NANOSECONDS_UNUSED
    }

    fn leave(&self, connection: &Connection) {
        let word = connection.process().word(self.left_at);
        lease::leave(word, self.attachment.number());
    }

    /// Writes all of `data`, which is `total` bytes, at `offset`: in pieces, each of which is all or nothing. Bytes written; fewer than all if there was trouble behind the first piece.
    #[inline]
    pub(crate) fn write(
        &mut self,
        connection: &Connection,
        data: &[IoSlice<'_>],
        total: usize,
        offset: u64,
    ) -> Result<usize, Trouble> {
        let end = offset
            .checked_add(total as u64)
            .ok_or(Trouble::NotOffered)?;
        if end > self.size_bytes_max {
            return Err(Trouble::NotOffered);
        }
        if let [alone] = data
            && total <= PIECE_BYTES_MAX
        {
            self.write_piece(connection, alone, offset)?;
        } else {
            return self.write_pieces(connection, data, total, offset);
        }
        self.attachment.count(connection, Purpose::Writing, total);
        Ok(total)
    }

    /// Overwrites a whole block, if nobody has to be asked and nothing is due: `false`, and nothing happened, if not.
    #[inline(always)]
    pub(crate) fn overwrite_block(
        &mut self,
        connection: &Connection,
        block: &[u8; BLOCK_BYTES],
        offset: u64,
    ) -> bool {
        let limit = self.size_bytes().min(self.size_bytes_max);
        let is_inside = offset.is_multiple_of(BLOCK) && limit >= BLOCK && offset <= limit - BLOCK;
        let is_due = self.writer.next() >= self.room_until
            || pmem::ticks().wrapping_sub(self.now_ticks) >= CLOCK_TICKS;
        if !is_inside || is_due || connection.line().is_lost() {
            return false;
        }
        let is_done = matches!(
            self.attempt(connection, block, offset, self.now),
            Attempt::Done
        );
        if is_done {
            self.modified = Some(self.now);
            self.attachment
                .count(connection, Purpose::Writing, BLOCK_BYTES);
        }
        is_done
    }

    fn write_pieces(
        &mut self,
        connection: &Connection,
        data: &[IoSlice<'_>],
        total: usize,
        offset: u64,
    ) -> Result<usize, Trouble> {
        let mut bytes = data.iter().flat_map(|slice| slice.chunks(BLOCK_BYTES));
        let mut left: &[u8] = &[];
        let mut piece = Vec::with_capacity(total.min(PIECE_BYTES_MAX));
        let mut done = 0;
        while done < total {
            piece.clear();
            while piece.len() < (total - done).min(PIECE_BYTES_MAX) {
                if left.is_empty() {
                    left = bytes.next().unwrap_or_default();
                }
                let (now, later) = left.split_at(left.len().min(PIECE_BYTES_MAX - piece.len()));
                piece.extend_from_slice(now);
                left = later;
            }
            match self.write_piece(connection, &piece, offset + done as u64) {
                Ok(()) => done += piece.len(),
                Err(trouble) if done == 0 => return Err(trouble),
                // A short write; who goes on hears why.
                Err(_) => break,
            }
        }
        self.attachment.count(connection, Purpose::Writing, done);
        Ok(done)
    }

    #[inline]
    fn write_piece(
        &mut self,
        connection: &Connection,
        data: &[u8],
        offset: u64,
    ) -> Result<(), Trouble> {
        let ticks = pmem::ticks();
        let now = clock_gettime(ClockId::RealtimeCoarse);
        if now.tv_sec != self.looked_in {
            self.looked_in = now.tv_sec;
            connection.line().notice_hangup();
        }
        if connection.line().is_lost() {
            return Err(Trouble::Ended);
        }
        let now = nanoseconds(now);
        (self.now, self.now_ticks) = (now, ticks);
        match self.attempt(connection, data, offset, now) {
            Attempt::Done => {}
            Attempt::Ended => return Err(Trouble::Ended),
            Attempt::Refused(refusal) => {
                self.write_with_help(connection, data, offset, now, refusal)?;
            }
        }
        self.modified = Some(now);
        let unfolded = self.writer.next() - self.folded;
        if unfolded > self.records_enough || self.writer.spare_blocks() < self.spares_enough {
            self.keep_room(connection);
        }
        self.room_until = self.room_for(self.writer.next());
        Ok(())
    }

    /// Until which record overwrites need no look at the room that there is, of which they use a record each.
    fn room_for(&self, next: u64) -> u64 {
        let enough_until = self.folded + self.records_enough;
        let has_spares = self.writer.spare_blocks() >= self.spares_enough;
        match enough_until.checked_sub(next) {
            Some(records) if has_spares => next + records.min(RECORDS_PER_LOOK),
            // The server is folding.
            _ => next + RECORDS_PER_LOOK.min(self.records_enough / 4),
        }
    }

    /// Writes, if nobody has to be asked.
    #[inline]
    fn attempt(&mut self, connection: &Connection, data: &[u8], offset: u64, now: i64) -> Attempt {
        if self.is_in_place
            && let Some(outcome) = self.attempt_in_place(connection, data, offset, now)
        {
            return outcome;
        }
        let busy_with = match self.writer.block_in_place(offset) {
            Some(index) => Busy::Block(index),
            None => Busy::SpareBlocks,
        };
        let holding = Holding {
            state: self.attachment.memory().word(head::STATE),
            busy: connection.process().word(self.slot_at),
        };
        if !holding.begin(busy_with) {
            return Attempt::Ended;
        }
        // Whoever opens the pool next changes its epoch, then waits for those who had begun: a look at the beginning is enough.
        if !connection.is_current() {
            holding.abandon();
            return Attempt::Ended;
        }
        let mut map = Map {
            attachment: &self.attachment,
            connection,
        };
        if let Err(refusal) = self.writer.write(&mut map, offset, data, now) {
            holding.abandon();
            return Attempt::Refused(refusal);
        }
        match holding.end() {
            true => Attempt::Done,
            false => self.ask_for_outcome(connection),
        }
    }

    /// Overwrites in place; `None` if it is not a write for that. Not inline, so that who does not want it has no more than the branch.
    #[inline(never)]
    fn attempt_in_place(
        &mut self,
        connection: &Connection,
        data: &[u8],
        offset: u64,
        now: i64,
    ) -> Option<Attempt> {
        let holding = Holding {
            state: self.attachment.memory().word(head::STATE),
            busy: connection.process().word(self.slot_at),
        };
        let begin = |index| {
            let may_store = holding.begin(Busy::Block(index)) && connection.is_current();
            if !may_store {
                holding.abandon();
            }
            may_store
        };
        let map = Map {
            attachment: &self.attachment,
            connection,
        };
        match self
            .writer
            .overwrite_in_place(&map, offset, data, now, begin)
        {
            Ok(InPlace::Elsewhere) => None,
            Ok(InPlace::Done) if holding.end() => Some(Attempt::Done),
            // Forced: the file has got a copy of the block, perhaps one of before. The kernel writes all of it again.
            Ok(InPlace::Done | InPlace::Ended) => Some(Attempt::Ended),
            Err(refusal) => {
                holding.abandon();
                Some(Attempt::Refused(refusal))
            }
        }
    }

    /// The lease was forced from us while we wrote: only the server knows whether it took the record.
    #[cold]
    fn ask_for_outcome(&mut self, connection: &Connection) -> Attempt {
        let (number, last) = (self.attachment.number(), self.writer.next() - 1);
        let answer = connection.ask(Kind::Outcome, number, last, 0, None);
        self.has_let_go = answer.is_ok();
        match answer {
            Ok((reply, _)) if reply.words[0] == 1 => Attempt::Done,
            _ => Attempt::Ended,
        }
    }

    /// Writes after the server has done what was missing.
    #[cold]
    fn write_with_help(
        &mut self,
        connection: &Connection,
        data: &[u8],
        offset: u64,
        now: i64,
        mut refusal: WriterRefusal,
    ) -> Result<(), Trouble> {
        let mut has_folded = false;
        for _ in 0..ATTEMPTS {
            match refusal {
                WriterRefusal::NoPlace { .. } => {
                    if !self.learn(connection, offset, data.len()) {
                        return Err(Trouble::NoPlace);
                    }
                }
                WriterRefusal::NoSpareBlocks { .. } | WriterRefusal::RingFull if self.is_small => {
                    return Err(Trouble::TooSmall);
                }
                WriterRefusal::NoSpareBlocks { .. } | WriterRefusal::RingFull => {
                    if !self.pick_up(connection) {
                        if has_folded {
                            return Err(Trouble::NoRoom);
                        }
                        has_folded = true;
                        self.fold(connection)?;
                    }
                }
                WriterRefusal::TooLong => return Err(Trouble::NotOffered),
            }
            match self.attempt(connection, data, offset, now) {
                Attempt::Done => return Ok(()),
                Attempt::Ended => return Err(Trouble::Ended),
                Attempt::Refused(again) => refusal = again,
            }
        }
        Err(Trouble::NoRoom)
    }

    /// Learns where the blocks of a write are; whether that is news.
    fn learn(&self, connection: &Connection, offset: u64, bytes: usize) -> bool {
        let mut is_news = false;
        let last = (offset + bytes as u64 - 1) / BLOCK;
        for index in offset / BLOCK..=last {
            if self.attachment.known(connection, index).is_none() {
                if self.attachment.learn(connection, index).is_none() {
                    return false;
                }
                is_news = true;
            }
        }
        is_news
    }

    fn fold(&mut self, connection: &Connection) -> Result<(), Trouble> {
        match connection.ask(Kind::Fold, self.attachment.number(), 0, 0, None) {
            Ok(_) => {
                self.pick_up(connection);
                Ok(())
            }
            Err(NoAnswer::Refused(Refusal::Ended) | NoAnswer::Lost) => Err(Trouble::Ended),
            Err(NoAnswer::Refused(_)) => Err(Trouble::NoRoom),
        }
    }

    /// Room is getting short: takes what the server has folded meanwhile; if that is not enough, tells it that it is time to, and does not wait.
    #[cold]
    fn keep_room(&mut self, connection: &Connection) {
        let refills = self.refills;
        self.pick_up(connection);
        let next = self.writer.next();
        if self.refills != refills {
            // The server has done what it was told, and can be told again.
            self.tell_at = self.tell_at.min(next + RECORDS_BETWEEN_MESSAGES);
        }
        let lacks_records = next - self.folded > self.records_enough;
        let lacks_spares = self.writer.spare_blocks() < self.spares_enough;
        if (lacks_records || lacks_spares) && next >= self.tell_at {
            // Folding a few records costs hardly less than folding thousands: the server is not told again while it is at it.
            let patience = match lacks_spares {
                true => self.records_enough.min(self.spares_enough as u64),
                false => self.records_enough / 2,
            };
            self.tell_at = next + patience.max(1);
            connection.line().tell(Kind::Ring, self.attachment.number());
        }
    }

    /// Hears what was folded and which slots were filled again; whether there was any.
    fn pick_up(&mut self, connection: &Connection) -> bool {
        let memory = self.attachment.memory();
        let layout = self.attachment.layout();
        let folded = memory.word(head::FOLDED).load(Acquire);
        let folded = folded.clamp(self.folded, self.writer.next());
        // Acquire: a refill is there before it is counted.
        let refills = memory.word(head::REFILLS).load(Acquire).max(self.refills);
        if folded == self.folded && refills == self.refills {
            return false;
        }
        // A lease has no more spare blocks than slots, whatever the memory says.
        let room = layout
            .spare_blocks
            .saturating_sub(self.writer.spare_blocks() as u64);
        let first = self.refills.max(refills.saturating_sub(room));
        let attachment = &self.attachment;
        let spares = (first..refills).filter_map(|count| {
            let (slot, block) = refill(attachment, count);
            let soon = (count..refills).map(|later| refill(attachment, later).1);
            let is_usable = slot < layout.spare_blocks && make_writable(connection, block, soon);
            is_usable.then_some(Spare {
                slot: slot as u32,
                block,
            })
        });
        let spares_before = self.writer.spare_blocks();
        self.writer.folded(folded, spares);
        self.received += (self.writer.spare_blocks() - spares_before) as u64;
        self.folded = folded;
        self.refills = refills;
        true
    }
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The ring of a lease, if this process may write all of it. The spare blocks are needed right behind it.
fn ring_of(connection: &Connection, attachment: &Attachment) -> Option<Ring> {
    let layout = attachment.layout();
    let memory = attachment.memory();
    let block_at = |index| {
        let word = memory.word(layout.ring_at(index));
        BlockNumber::new(word.load(Relaxed))
    };
    let filled = memory.word(head::REFILLS).load(Acquire);
    let spares = || (0..filled.min(layout.spare_blocks)).map(|count| refill(attachment, count).1);
    let blocks = (0..layout.ring_blocks).map(|index| {
        let block = block_at(index);
        let soon = (index..layout.ring_blocks).map(block_at).chain(spares());
        make_writable(connection, block, soon).then_some(block)
    });
    Some(Ring::new(blocks.collect::<Option<Vec<_>>>()?))
}

/// The slot that was filled as the `count`th one, and with which block.
fn refill(attachment: &Attachment, count: u64) -> (u64, BlockNumber) {
    let memory = attachment.memory();
    let at = attachment.layout().refill_at(count);
    let slot = memory.word(at).load(Relaxed);
    let block = memory.word(at + size_of::<u64>()).load(Relaxed);
    (slot, BlockNumber::new(block))
}

/// Makes a block ready for writing, if it is not, with others that are needed `soon`.
fn make_writable(
    connection: &Connection,
    block: BlockNumber,
    soon: impl Iterator<Item = BlockNumber>,
) -> bool {
    let segments = connection.segments();
    segments.is_ready(block, Permission::ReadWrite)
        || segments.make_ready(connection.line(), block, Permission::ReadWrite, soon)
}
