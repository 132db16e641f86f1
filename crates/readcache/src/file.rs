//! A file's table of entries, and how it grows and shrinks without stopping anybody.
//!
//! A file has tables of several sizes, each made once and kept as long as the file has copies; one of them is current. (To give the memory of the others back, nobody
//! may be between his look at the tables and his claim in one of them, and to know that would cost every claim two locked instructions. Together they
//! are at most as large as the largest.) To change the size, the background thread makes the other table current, then moves entries
//! over: it takes one in the new table for the block (so that whoever writes the block finds it there), ends the old one's life, and publishes the new one.
//!
//! * M1 A writer looks into the old table first, then into the new one, then whether the tables are still these two. If the old entry
//!   had been taken away before he looked, the new one was there before that.
//! * M2 A claim in a table that is no longer current is given up, or ended by the pass over it: the same two orders as in E2, with the
//!   change of tables for the write.
//! * M3 Nobody reads from a table that was retired before the reader's snapshot of the file: who finishes a write has seen the tables as
//!   they are, or newer ones, and who begins to read after that sees at least those.
//! * M4 When a table is retired, no life in it goes on: the table may become current again, and no write has looked into it meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use pmem::{BLOCK_BYTES, BlockNumber};

use crate::entry::{self, BLOCKS_MAX, Entry};
use crate::requests::{Fill, Urgent};
use crate::shared::Shared;
use crate::statistics::{Event, FileCounts, FileStatistics};
use crate::table::{LEVELS, Table};
use crate::word::{State, Word};

/// Tables of fewer entries grow eightfold, because each step keeps readers waiting for room; of more, twofold. What they are too large by is at most 224 KiB.
const QUICK_ENTRIES: usize = 1 << 11;

/// Which tables hold entries: the current one, and one that is being emptied into it.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Tables(u64);

impl Tables {
    fn new(changes: u64, current: usize, old: usize) -> Tables {
        Tables(changes << 16 | (old as u64) << 8 | current as u64)
    }

    fn changes(self) -> u64 {
        self.0 >> 16
    }

    #[inline]
    fn current(self) -> usize {
        (self.0 & 0xff) as usize
    }

    fn old(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }
}

/// The copies of one file's blocks. Its owners count their references on another line than every read looks at.
#[repr(align(128))]
pub struct FileCache {
    /// What the owner calls the file.
    tag: u64,
    /// Place in the register of files.
    place: u32,
    shared: Arc<Shared>,
    tables: AtomicU64,
    smallest: Table,
    /// The larger ones, made when they are needed, each once.
    larger: OnceLock<Box<[OnceLock<Table>]>>,
    wants_room: AtomicBool,
    is_empty: AtomicBool,
    counts: Arc<FileCounts>,
}

impl FileCache {
    pub(crate) fn new(tag: u64, place: u32, shared: Arc<Shared>) -> FileCache {
        FileCache {
            tag,
            place,
            shared,
            tables: AtomicU64::new(Tables::new(0, 0, 0).0),
            smallest: Table::new(0),
            larger: OnceLock::new(),
            wants_room: AtomicBool::new(false),
            is_empty: AtomicBool::new(false),
            counts: FileCounts::new(),
        }
    }

    #[inline]
    fn tables(&self) -> Tables {
        Tables(self.tables.load(Ordering::Acquire))
    }

    /// A table that was current once.
    #[inline]
    pub(crate) fn table(&self, level: usize) -> Option<&Table> {
        match level {
            0 => Some(&self.smallest),
            _ => self.larger.get()?[level - 1].get(),
        }
    }

    /// An entry of a table that was current once.
    pub(crate) fn entry(&self, level: usize, index: u32) -> Option<Entry<'_, AtomicU64>> {
        self.table(level)?.entry(index)
    }

    #[inline]
    fn current(&self) -> &Table {
        self.table(self.tables().current())
            .unwrap_or(&self.smallest)
    }

    #[cfg(test)]
    pub(crate) fn ask_to_resize(&self, level: usize) -> bool {
        let file = self.place;
        self.shared.ask_urgently(Urgent::Resize { file, level })
    }

    pub(crate) fn current_table(&self) -> &Table {
        self.current()
    }

    /// Copies a part of a block out of DRAM. `false` if there is no copy; `into` holds anything then.
    ///
    /// What comes is what the block held at some moment between the call and the return, or before a write that has not returned by then: a write
    /// ends the copies of its blocks before it returns.
    #[inline]
    pub fn read(&self, block: u64, in_block: usize, into: &mut [u8]) -> bool {
        let table = self.current();
        let Some((entry, word)) = table.find(block) else {
            return false;
        };
        if block.is_multiple_of(4) {
            table.prefetch(block + 4);
        }
        let Some(frame) = word.frame() else {
            return false;
        };
        self.shared.frames.copy_out(frame, in_block, into);
        if !entry.is_alive(word) {
            return false;
        }
        entry.touch(block, self.shared.clock_now());
        self.count(Event::Hit, 1);
        true
    }

    /// Holds the copy of a block where it is. `None` if there is none.
    ///
    /// The bytes do not change as long as it is held, not even when the block is written: whoever needs to know that they are still the block's asks
    /// after this.
    pub fn hold(self: &Arc<Self>, block: u64) -> Option<Page> {
        let level = self.tables().current();
        let table = self.table(level)?;
        let (entry, word) = table.find(block)?;
        if !entry.pin(word) {
            return None;
        }
        entry.touch(block, self.shared.clock_now());
        self.count(Event::Hit, 1);
        Some(Page {
            level,
            index: table.index_of(entry),
            word,
            file: Arc::clone(self),
        })
    }

    /// Whether there were no copies lately, and no pointers that will become some.
    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Relaxed)
    }

    /// The background thread has seen so many entries in use.
    pub(crate) fn note_live(&self, live: usize) {
        self.is_empty.store(live == 0, Ordering::Relaxed);
    }

    #[inline]
    fn count(&self, event: Event, number: u64) {
        self.shared.meter.count(event, number, &self.counts);
    }

    /// Counts a read that found no copy.
    #[inline]
    pub(crate) fn count_miss(&self) {
        self.count(Event::Miss, 1);
    }

    /// Leaves a pointer to a block that lies at `home`: the background thread copies it. `is_current` says whether it still lies there, for
    /// a question asked after the claim (E2).
    pub(crate) fn point(&self, block: u64, home: BlockNumber, is_current: impl FnOnce() -> bool) {
        let tables = self.tables();
        if self.shared.requests.is_full() {
            return;
        }
        let Some((table, entry, prepared)) = self.prepare(tables, block, is_current) else {
            return;
        };
        let request = Fill {
            file: self.place,
            level: tables.current() as u8,
            index: table.index_of(entry),
            life: prepared.version(),
            home,
        };
        if !self.shared.ask(request) {
            entry.abandon(prepared);
        }
    }

    /// Fills an entry with bytes that the caller has fetched. For stores that are so slow that what they give must not be fetched twice.
    pub(crate) fn insert(
        &self,
        block: u64,
        bytes: &[u8; BLOCK_BYTES],
        is_current: impl FnOnce() -> bool,
    ) {
        let tables = self.tables();
        let Some((_, entry, prepared)) = self.prepare(tables, block, is_current) else {
            return;
        };
        if !self.fill(entry, prepared, |into| *into = *bytes) {
            entry.abandon(prepared);
            self.shared.ask_urgently(Urgent::Reclaim);
        }
    }

    /// Claims an entry for a block and writes the block down.
    fn prepare(
        &self,
        tables: Tables,
        block: u64,
        is_current: impl FnOnce() -> bool,
    ) -> Option<(&Table, Entry<'_, AtomicU64>, Word)> {
        if block >= BLOCKS_MAX {
            return None;
        }
        let table = self.table(tables.current())?;
        if table.stands_for(block) {
            return None;
        }
        if self.is_empty() {
            self.is_empty.store(false, Ordering::Relaxed);
        }
        if let Some((entry, claimed)) = table.claim(block) {
            let is_same_table = self.tables() == tables;
            if is_same_table && is_current() {
                return Some((table, entry, entry.prepare(claimed)?));
            }
            entry.release();
            return None;
        }
        let wants_room = self.wants_room.load(Ordering::Relaxed);
        if !wants_room && !self.wants_room.swap(true, Ordering::Relaxed) {
            let request = Urgent::Room {
                file: self.place,
                block,
            };
            if !self.shared.ask_urgently(request) {
                self.wants_room.store(false, Ordering::Relaxed);
            }
        }
        None
    }

    /// Fills a prepared entry. `false` if there is no page for it; true also if it was invalidated meanwhile.
    pub(crate) fn fill(
        &self,
        entry: Entry<'_, AtomicU64>,
        prepared: Word,
        fetch: impl FnOnce(&mut [u8; BLOCK_BYTES]),
    ) -> bool {
        let frames = &self.shared.frames;
        let spare = match prepared.frame() {
            Some(_) => None,
            None => match frames.take() {
                Some(frame) => Some(frame),
                None => return false,
            },
        };
        let Some(copying) = entry.begin_copy(prepared, spare) else {
            spare.into_iter().for_each(|frame| frames.give_back(frame));
            return true;
        };
        let Some(frame) = copying.frame() else {
            return true;
        };
        let mut bytes = [0; BLOCK_BYTES];
        fetch(&mut bytes);
        frames.fill(frame, &bytes);
        if entry.publish(copying, self.shared.clock_now()) {
            self.count(Event::Fill, 1);
        } else {
            frames.give_back(frame);
        }
        true
    }

    /// The block will be looked for soon: fetches what is needed for that.
    #[inline]
    pub fn prefetch(&self, block: u64) {
        self.current().prefetch(block);
    }

    /// The copy of this block will be ended soon, or made: fetches what is needed for that.
    #[inline]
    pub fn prefetch_for_write(&self, block: u64) {
        self.current().prefetch_for_write(block);
    }

    /// Ends the copies of `count` blocks from `first` on. The caller has made sure that the questions of [`ReadCache::missed`](crate::ReadCache::missed)
    /// and [`ReadCache::fetched`](crate::ReadCache::fetched) are answered with no from here on, and a sequentially consistent fence stands between that
    /// and this call (E2).
    #[inline]
    pub fn invalidate(&self, first: u64, count: u64) {
        let mut tables = self.tables();
        loop {
            let mut ended = 0;
            if tables.old() != tables.current() {
                ended += self.invalidate_in(tables.old(), first, count);
            }
            ended += self.invalidate_in(tables.current(), first, count);
            if ended > 0 {
                self.count(Event::Invalidation, ended);
            }
            let now = self.tables();
            if now == tables {
                return;
            }
            tables = now;
        }
    }

    #[inline]
    fn invalidate_in(&self, level: usize, first: u64, count: u64) -> u64 {
        let Some(table) = self.table(level) else {
            return 0;
        };
        if count == 1 {
            return table.invalidate(first);
        }
        Self::invalidate_range(table, first, count)
    }

    #[inline(never)]
    fn invalidate_range(table: &Table, first: u64, count: u64) -> u64 {
        let mut ended = 0;
        if count > table.entries() as u64 {
            let end = first.saturating_add(count);
            for entry in table.iter() {
                let block = entry.block();
                let is_meant = (first..end).contains(&block);
                ended += u64::from(is_meant && entry.invalidate(block));
            }
            return ended;
        }
        for block in first..first.saturating_add(count) {
            ended += table.invalidate(block);
        }
        ended
    }

    /// Makes room where `block` belongs: by a larger table if this one is rather full, else by ending the oldest of its neighbours.
    pub(crate) fn make_room(&self, block: u64) {
        let table = self.current();
        let live = table
            .iter()
            .filter(|entry| entry.word().state() != State::Invalid);
        if live.count() > table.entries() / 4 {
            let steps = if table.entries() < QUICK_ENTRIES {
                3
            } else {
                1
            };
            self.resize((self.tables().current() + steps).min(LEVELS - 1));
        } else {
            let ready = table.candidates(block).filter(|entry| {
                let word = entry.word();
                word.state() == State::Ready
            });
            let now = self.shared.clock_now();
            if let Some(entry) = ready.max_by_key(|entry| entry::age(now, entry.used()))
                && let Some(frame) = entry.evict()
            {
                self.shared.frames.give_back(frame);
                self.shared.meter.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.wants_room.store(false, Ordering::Relaxed);
    }

    /// Makes the table of `level` the current one. One thread at a time: the background thread.
    pub(crate) fn resize(&self, level: usize) {
        let before = self.tables();
        if before.current() == level {
            return;
        }
        self.make_table(level);
        let changes = before.changes() + 1;
        let moving = Tables::new(changes, level, before.current());
        self.tables.store(moving.0, Ordering::SeqCst);
        // The change of tables comes before the pass over the old one (M2).
        fence(Ordering::SeqCst);
        if let (Some(old), Some(new)) = (self.table(before.current()), self.table(level)) {
            old.iter().for_each(|entry| self.move_entry(entry, new));
            let moved = Tables::new(changes + 1, level, level);
            self.tables.store(moved.0, Ordering::SeqCst);
        }
    }

    fn make_table(&self, level: usize) {
        if let Some(index) = level.checked_sub(1) {
            let tables = || (1..LEVELS).map(|_| OnceLock::new()).collect();
            let larger: &[OnceLock<Table>] = self.larger.get_or_init(tables);
            larger[index].get_or_init(|| Table::new(level));
        }
    }

    /// Moves an entry with its page. One that is held, claimed or being filled is given up instead.
    fn move_entry(&self, old: Entry<'_, AtomicU64>, new: &Table) {
        self.move_seen(old, old.word(), new);
    }

    /// The same, of an entry that was seen as `word`; it may be something else by now.
    pub(crate) fn move_seen(&self, old: Entry<'_, AtomicU64>, word: Word, new: &Table) {
        let frames = &self.shared.frames;
        if word.state() == State::Ready
            && let Some(frame) = self.move_page(old, word, new)
        {
            frames.give_back(frame);
        }
        // Nothing stays alive in a table where no write looks any more (M4): it would be a copy again when the table is. That is not only what could not be moved when it was
        // seen; somebody may have taken hold of the page since.
        old.clear();
        if let Some(frame) = old.evict() {
            frames.give_back(frame);
        }
    }

    /// Moves a page; gives it back if the block was written meanwhile.
    fn move_page(
        &self,
        old: Entry<'_, AtomicU64>,
        word: Word,
        new: &Table,
    ) -> Option<crate::word::Frame> {
        let (block, used) = (old.block(), old.used());
        if new.stands_for(block) {
            return None;
        }
        let (entry, claimed) = new.claim(block)?;
        let prepared = entry.prepare(claimed)?;
        if prepared.frame().is_some() {
            // A frame from before the table was retired: this page would not be the one that is published.
            entry.abandon(prepared);
            return None;
        }
        let Some(frame) = old.evict_from(word) else {
            entry.abandon(prepared);
            return None;
        };
        match entry.begin_copy(prepared, Some(frame)) {
            Some(copying) if entry.publish(copying, used) => None,
            _ => Some(frame),
        }
    }

    /// Current tables for a file whose copies have become few.
    pub(crate) fn shrink(&self, live: usize) {
        let entries = self.current().entries();
        let level = self.tables().current();
        if level > 0 && live < entries / 8 {
            let fitting = (live * 2).max(4).next_power_of_two();
            self.resize((fitting / 4).ilog2() as usize);
        }
    }

    /// What happened to this file.
    pub(crate) fn statistics(&self) -> FileStatistics {
        let framed = self
            .current()
            .iter()
            .filter(|entry| entry.word().frame().is_some());
        let counted = |event| self.shared.meter.of_file(event, &self.counts);
        FileStatistics {
            file: self.tag,
            hits: counted(Event::Hit),
            misses: counted(Event::Miss),
            fills: counted(Event::Fill),
            invalidations: counted(Event::Invalidation),
            bytes: framed.count() as u64 * BLOCK_BYTES as u64,
            table_bytes: self.current().bytes() as u64,
        }
    }

    /// Every table that was ever made.
    fn all_tables(&self) -> impl Iterator<Item = &Table> {
        (0..LEVELS).filter_map(|level| self.table(level))
    }
}

impl std::fmt::Debug for FileCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "copies of file {}", self.tag)
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        // Nobody holds a page: each holds the file. Nobody fills one: who does holds it too.
        for entry in self.all_tables().flat_map(Table::iter) {
            // What is only pointed to can own a page of its last life.
            entry.clear();
            if let Some(frame) = entry.evict() {
                self.shared.frames.give_back(frame);
            }
        }
        self.shared.forget(self.place);
    }
}

/// A copy of a block that is held where it is.
pub struct Page {
    file: Arc<FileCache>,
    level: usize,
    index: u32,
    word: Word,
}

impl Page {
    /// The block's bytes.
    pub fn bytes(&self) -> &[u8] {
        match self.word.frame() {
            // SAFETY: the entry is pinned until this is dropped, and owns the frame in the life that was pinned.
            Some(frame) => unsafe { self.file.shared.frames.bytes(frame) },
            None => &[],
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let entry = self
            .file
            .table(self.level)
            .and_then(|table| table.entry(self.index));
        if let Some(frame) = entry.and_then(Entry::unpin) {
            self.file.shared.frames.give_back(frame);
        }
    }
}
