//! A file that this process may read: where its blocks are, and whether that is still true.

use crate::connection::{Connection, Link};
use crate::layout::{Counter, Entry, Layout, MAP_CHUNK, head};
use crate::line::{Left, NoAnswer};
use crate::memory::SharedMemory;
use crate::policy::Purpose;
use crate::protocol::{
    Attached, CHUNKS_AT_ONCE, Kind, Prospect, Refusal, Request, SEGMENTS_BESIDE,
};
use crate::runs::{Look, Runs};
use crate::segments::Segments;
use lease::{Holding, Place};
use pmem::{BLOCK_BYTES, BlockNumber, Permission};
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Chunks of the map that are asked for at once at least, if the file is used from the front to the back.
const CHUNKS_AHEAD: u64 = 8;

/// So many operations are counted one by one, so that users see them at once; later ones together, so that threads with other files do not wait for the same line of memory.
const COUNTED_ONE_BY_ONE: u64 = 64;
const COUNTED_TOGETHER: u64 = 64;
/// How often who only reads looks whether the server has hung up.
const OPERATIONS_PER_LOOK: u64 = 4096;

/// The memory of an attachment that was let go, as a new one's.
///
/// This process has changed its copy of the map, but not behind the first chunk ([`crate::leased`] keeps no memory of longer files). What the first one says of an empty file needs no look at the server's: page faults
/// take longer.
fn again(
    left: Left,
    layout: &Layout,
    is_empty: bool,
    private_at: Option<usize>,
) -> Option<SharedMemory> {
    let mut memory = left.memory;
    if !memory.has_shape(layout.bytes(), private_at) {
        return None;
    }
    match is_empty {
        true => {
            let hole = Entry::Place(Place::Hole).word();
            let first_chunk = (0..MAP_CHUNK).map(|index| layout.entry_at(index));
            first_chunk.for_each(|at| memory.word(at).store(hole, Relaxed));
        }
        false => memory.renew().ok()?,
    }
    Some(memory)
}

/// What was done with an attachment.
#[derive(Debug, Default)]
struct Tally {
    operations: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

#[inline]
fn add(word: &AtomicU64, amount: u64) -> u64 {
    let sum = word.load(Relaxed) + amount;
    word.store(sum, Relaxed);
    sum
}

/// An attachment, for reading or of a lease.
#[derive(Debug)]
pub(crate) struct Attachment {
    number: u32,
    purpose: Purpose,
    permission: Permission,
    memory: SharedMemory,
    layout: Layout,
    /// Where its map begins: what the layout says, worked out once.
    map_at: usize,
    /// What readers look at before the map.
    runs: Runs,
    /// Chunk of the map behind those that were asked for last.
    next_chunk: AtomicU64,
    /// Chunks that were asked for.
    chunks_asked: AtomicU64,
    /// Chunk in which the file ended when it was attached.
    last_chunk: u64,
    tally: Tally,
}

impl Attachment {
    /// Asks the server to attach a file.
    pub(crate) fn ask(
        connection: &Connection,
        inode: u64,
        descriptor: BorrowedFd<'_>,
        purpose: Purpose,
        prospect: Prospect,
    ) -> Result<(Attachment, Attached), NoAnswer> {
        connection.line().tell_of(inode);
        let is_lease = purpose == Purpose::Writing;
        // Only what is let go behind a question has memory to be used again: journals, and the like of them.
        let left = match prospect.writes_little {
            true => connection.line().take_left(),
            false => None,
        };
        let left_number = left.as_ref().map_or(0, |left| left.attachment);
        let request = Request {
            kind: Kind::Attach as u32,
            file: left_number,
            first: is_lease.into(),
            second: prospect.word(),
        };
        let (reply, beside) = connection.line().ask_for_many(request, Some(descriptor))?;
        let attached = Attached::of(&reply);
        let mut beside = beside.into_iter();
        let memory = match attached.is_same_memory {
            1 => None,
            _ => beside.next(),
        };
        // As far as this process had room for their descriptors.
        let numbers = attached.segments.iter().filter_map(|it| it.checked_sub(1));
        let segments = numbers
            .zip(beside)
            .take(if is_lease { SEGMENTS_BESIDE } else { 0 });
        let layout = Layout {
            ring_blocks: attached.ring_blocks,
            spare_blocks: attached.spare_blocks,
            capacity_blocks: attached.capacity_blocks,
        };
        let number =
            u32::try_from(attached.file).map_err(|_| NoAnswer::Refused(Refusal::Failed))?;
        let refuse = |refusal| {
            let _ = connection.ask(Kind::Detach, number, 0, 0, None);
            NoAnswer::Refused(refusal)
        };
        let makes_sense = layout.is_sound()
            && attached.is_lease == u64::from(is_lease)
            && attached.size_bytes <= i64::MAX as u64
            && attached.inode == inode;
        if !makes_sense {
            return Err(refuse(Refusal::Protocol));
        }
        let private_at = is_lease.then(|| layout.map_at());
        let memory = match left {
            Some(left) if attached.is_same_memory == 1 => {
                let is_empty = attached.is_empty == 1;
                again(left, &layout, is_empty, private_at)
            }
            _ => memory.and_then(|made| SharedMemory::map(&made, layout.bytes(), private_at).ok()),
        };
        let Some(memory) = memory else {
            return Err(refuse(Refusal::Failed));
        };
        let attachment = Attachment {
            number,
            purpose,
            permission: match is_lease {
                true => Permission::ReadWrite,
                false => Permission::Read,
            },
            memory,
            map_at: layout.map_at(),
            runs: Runs::default(),
            layout,
            next_chunk: AtomicU64::new(0),
            chunks_asked: AtomicU64::new(0),
            last_chunk: attached.size_bytes / BLOCK / MAP_CHUNK,
            tally: Tally::default(),
        };
        for (segment, descriptor) in segments {
            connection.segments().accept(segment.into(), descriptor);
        }
        if let Some(first_block) = prospect.first_block {
            attachment.hear_of(first_block);
        }
        if attachment.last_chunk > 0 {
            // Others may have asked for all of its map.
            attachment.make_runs();
        }
        Ok((attachment, attached))
    }

    /// Its memory, when nobody uses it any more.
    pub(crate) fn into_memory(self) -> SharedMemory {
        self.memory
    }

    /// Its number, for the server.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What it is for.
    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// What process and server both see.
    #[inline]
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// What lies where in it.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether what was read before this look is true.
    #[inline]
    pub(crate) fn is_live(&self, connection: &Connection) -> bool {
        self.has_not_ended() && connection.is_current()
    }

    #[inline(always)]
    fn has_not_ended(&self) -> bool {
        let state = self.memory.word(head::STATE);
        // Who only looks is not busy.
        Holding { state, busy: state }.is_live()
    }

    /// Where block `index` of the file is, if that is known and this process may go there without asking anybody.
    #[inline]
    pub(crate) fn known(&self, connection: &Connection, index: u64) -> Option<Place> {
        self.known_in(connection.segments(), index)
    }

    #[inline(always)]
    fn known_in(&self, segments: &Segments, index: u64) -> Option<Place> {
        if index >= self.layout.capacity_blocks {
            return None;
        }
        let Entry::Place(place) = self.entry(index) else {
            return None;
        };
        let is_ready = match place {
            Place::Hole => true,
            Place::At(block) | Place::Unwritten(block) => segments.is_ready(block, self.permission),
        };
        is_ready.then_some(place)
    }

    #[inline(always)]
    fn entry(&self, index: u64) -> Entry {
        Entry::of(self.entry_word(index).load(Relaxed))
    }

    /// Block `index` of the file, if it is known where that is, something is there, and this process may read it.
    #[inline(always)]
    fn readable(&self, segments: &Segments, index: u64) -> Option<BlockNumber> {
        let look = self.runs.look(index);
        if let Look::At(block) = look {
            return segments.is_ready(block, self.permission).then_some(block);
        }
        let Place::At(block) = self.known_in(segments, index)? else {
            return None;
        };
        if look == Look::AtMapOnce {
            self.learn_run(index);
        }
        Some(block)
    }

    /// Of a block that is known the whole run is, because the map is filled in by chunks. One that is just being filled in for another process is taken for one in pieces, which is slower and nothing worse.
    #[cold]
    fn learn_run(&self, index: u64) {
        self.runs.learn(index, |index| match self.entry(index) {
            Entry::Place(place) => Some(place),
            Entry::Unknown | Entry::Elsewhere => None,
        });
    }

    /// Runs that are known to be in one piece.
    #[cfg(test)]
    pub(crate) fn known_runs(&self) -> usize {
        self.runs.known()
    }

    /// From now on block `index` of the file is in `block`: the holder of the lease has put it there.
    #[inline]
    pub(crate) fn put(&self, index: u64, block: BlockNumber) {
        let word = Entry::Place(Place::At(block)).word();
        self.entry_word(index).store(word, Relaxed);
        self.runs.forget(index);
    }

    #[inline(always)]
    fn entry_word(&self, index: u64) -> &AtomicU64 {
        self.memory
            .word(self.map_at + index as usize * size_of::<u64>())
    }

    /// Where block `index` of the file is, whether or not this process can go there; asks the server if it does not know. `None` if there is no such block, or no answer.
    pub(crate) fn place_of(&self, connection: &Connection, index: u64) -> Option<Entry> {
        if index >= self.layout.capacity_blocks {
            return None;
        }
        if self.entry(index) == Entry::Unknown {
            self.ask_for_map(connection, index / MAP_CHUNK);
        }
        Some(self.entry(index)).filter(|entry| *entry != Entry::Unknown)
    }

    /// As [`known`](Self::known), but asks the server for what is missing.
    #[cold]
    pub(crate) fn learn(&self, connection: &Connection, index: u64) -> Option<Place> {
        if index >= self.layout.capacity_blocks {
            return None;
        }
        if self.entry(index) == Entry::Unknown {
            self.ask_for_map(connection, index / MAP_CHUNK);
        }
        if let Entry::Place(Place::At(block) | Place::Unwritten(block)) = self.entry(index)
            && !connection.segments().is_ready(block, self.permission)
        {
            let soon = self.blocks_around(index);
            connection
                .segments()
                .make_ready(connection.line(), block, self.permission, soon);
        }
        self.known(connection, index)
    }

    /// The map of this block came with the answer, as if it had been asked for, unless the server could not fill it in.
    fn hear_of(&self, index: u64) {
        let is_known = index < self.layout.capacity_blocks && self.entry(index) != Entry::Unknown;
        if is_known {
            self.next_chunk.store(index / MAP_CHUNK + 1, Relaxed);
            self.chunks_asked.store(1, Relaxed);
        }
    }

    fn ask_for_map(&self, connection: &Connection, chunk: u64) {
        let window = self.window(chunk);
        let chunks = window.end - window.start;
        let (first, count) = (window.start * MAP_CHUNK, chunks * MAP_CHUNK);
        if connection
            .ask(Kind::Map, self.number, first, count, None)
            .is_ok()
        {
            self.next_chunk.store(window.end, Relaxed);
            self.chunks_asked.fetch_add(chunks, Relaxed);
            self.make_runs();
        }
    }

    /// Who only reads sees the file as long as it was.
    fn make_runs(&self) {
        self.runs.make(match self.purpose {
            Purpose::Reading => (self.last_chunk + 1) * MAP_CHUNK,
            Purpose::Writing => self.layout.capacity_blocks,
        });
    }

    /// The chunks that are asked for when one of them is needed: as many again as were asked for so far, so that a file that is used all over is known after few questions, and of one that is hardly
    /// used hardly anything is asked.
    fn window(&self, chunk: u64) -> Range<u64> {
        let asked = self.chunks_asked.load(Relaxed).clamp(1, CHUNKS_AT_ONCE);
        let is_sequential = self.next_chunk.load(Relaxed) == chunk;
        let (first, chunks) = match is_sequential {
            true => (chunk, asked.max(CHUNKS_AHEAD)),
            false => {
                let chunks = 1 << asked.ilog2();
                (chunk - chunk % chunks, chunks)
            }
        };
        // A file that has grown beyond its end goes on growing, by all looks.
        let file_end = match chunk > self.last_chunk {
            true => chunk + CHUNKS_AHEAD,
            false => self.last_chunk + 1,
        };
        let map_end = self.layout.capacity_blocks / MAP_CHUNK;
        first..(first + chunks).min(file_end).min(map_end)
    }

    /// Blocks that the map names near `index`.
    pub(crate) fn blocks_around(&self, index: u64) -> impl Iterator<Item = BlockNumber> {
        let chunks = self.window(index / MAP_CHUNK);
        let indices = chunks.start * MAP_CHUNK..chunks.end * MAP_CHUNK;
        indices.filter_map(|index| match self.entry(index) {
            Entry::Place(Place::At(block) | Place::Unwritten(block)) => Some(block),
            Entry::Place(Place::Hole) | Entry::Unknown | Entry::Elsewhere => None,
        })
    }

    /// Copies what lies from `offset` on of a file of `size_bytes`, which is behind the offset. `None` if a block is where this process may not go. Whether the bytes are true, [`is_live`](Self::is_live)
    /// says afterwards.
    #[inline]
    pub(crate) fn read(
        &self,
        connection: &Connection,
        into: &mut [IoSliceMut<'_>],
        offset: u64,
        size_bytes: u64,
    ) -> Option<usize> {
        let mut at = offset;
        for part in into {
            let left = size_bytes - at;
            let bytes = (part.len() as u64).min(left) as usize;
            self.read_part(connection, &mut part[..bytes], at)?;
            at += bytes as u64;
            if at == size_bytes {
                break;
            }
        }
        Some((at - offset) as usize)
    }

    /// Copies what lies at `offset`, all of it inside the file, if it is known where that is. `false`: it is not, or nothing is there.
    #[inline]
    pub(crate) fn read_known(
        &self,
        connection: &Connection,
        mut into: &mut [u8],
        mut at: u64,
    ) -> bool {
        while !into.is_empty() {
            let within = at % BLOCK;
            let bytes = into.len().min((BLOCK - within) as usize);
            let (now, later) = into.split_at_mut(bytes);
            let segments = connection.segments();
            let Some(block) = self.readable(segments, at / BLOCK) else {
                return false;
            };
            segments.region().read(block.offset() + within, now);
            into = later;
            at += bytes as u64;
        }
        true
    }

    /// Copies block `index`, all of it inside the file, if it is known where that is. `false`: it is not, or nothing is there, or it was not true any more when it had been read.
    #[inline(always)]
    pub(crate) fn read_block(&self, link: &Link, into: &mut [u8; BLOCK_BYTES], index: u64) -> bool {
        let segments = link.segments();
        // Who looks may lock, and is to be inside.
        if self.is_look_due() {
            return false;
        }
        let Some(block) = self.readable(segments, index) else {
            return false;
        };
        segments.region().read_block(block.offset(), into);
        self.has_not_ended() && link.is_current()
    }

    #[inline]
    fn read_part(&self, connection: &Connection, mut into: &mut [u8], mut at: u64) -> Option<()> {
        while !into.is_empty() {
            let index = at / BLOCK;
            let within = at % BLOCK;
            let bytes = into.len().min((BLOCK - within) as usize);
            let (now, later) = into.split_at_mut(bytes);
            let place = match self.known(connection, index) {
                Some(place) => place,
                None => self.learn(connection, index)?,
            };
            match place {
                Place::At(block) => {
                    let from = block.offset() + within;
                    connection.segments().region().read(from, now);
                }
                Place::Hole | Place::Unwritten(_) => now.fill(0),
            }
            into = later;
            at += bytes as u64;
        }
        Some(())
    }

    /// Operations that were done.
    #[inline(always)]
    pub(crate) fn operations(&self) -> u64 {
        self.tally.operations.load(Relaxed)
    }

    /// Counts a read or a write.
    #[inline(always)]
    pub(crate) fn count(&self, connection: &Connection, purpose: Purpose, bytes: usize) {
        let (operations, sum) = match purpose {
            Purpose::Reading => (&self.tally.reads, &self.tally.read_bytes),
            Purpose::Writing => (&self.tally.writes, &self.tally.written_bytes),
        };
        add(operations, 1);
        add(sum, bytes as u64);
        let is_look = self.is_look_due();
        let all = add(&self.tally.operations, 1);
        if all <= COUNTED_ONE_BY_ONE || all.is_multiple_of(COUNTED_TOGETHER) {
            self.report(connection);
            // Who writes looks by the clock.
            if purpose == Purpose::Reading && is_look {
                connection.line().notice_hangup();
            }
        }
    }

    /// Whether it is looked at the next operation whether the server has hung up, if that is a read.
    #[inline(always)]
    fn is_look_due(&self) -> bool {
        self.operations() % OPERATIONS_PER_LOOK == OPERATIONS_PER_LOOK - 1
    }

    /// Adds what was counted to what users see.
    #[cold]
    fn report(&self, connection: &Connection) {
        for (word, counter) in [
            (&self.tally.reads, Counter::Reads),
            (&self.tally.read_bytes, Counter::ReadBytes),
            (&self.tally.writes, Counter::Writes),
            (&self.tally.written_bytes, Counter::WrittenBytes),
        ] {
            let amount = word.load(Relaxed);
            word.store(0, Relaxed);
            connection.count(counter, amount);
        }
    }

    /// As [`detach`](Self::detach), but the server hears of it when there is something else to be said.
    pub(crate) fn detach_later(&self, connection: &Connection, inode: u64) {
        self.report(connection);
        connection.line().tell_later(self.number, inode);
    }

    /// Lets the file go. Until the server has heard so it keeps the blocks that this process might still be storing into.
    ///
    /// Nobody waits for the server: who uses the file by the kernel ends the attachment by that, and what this process asks later comes behind.
    pub(crate) fn detach(&self, connection: &Connection) {
        self.report(connection);
        if !connection.line().tell(Kind::LetGo, self.number) {
            let _ = connection.ask(Kind::Detach, self.number, 0, 0, None);
        }
    }
}
