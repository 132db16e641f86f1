//! The memory that says where the blocks of an attached file are, from the side that writes it.

use super::accounts::{Account, Goods, Taken};
use super::session::failed;
use ::direct::SharedMemory;
use ::direct::layout::{self, CAPACITY_BLOCKS_MAX, CAPACITY_BLOCKS_MIN, Entry, Layout, MAP_CHUNK};
use ::direct::protocol::Refusal;
use fs::{FileSystem, FsError, Node};
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::SegmentNumber;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::{Domain, Store};

const WORD_BYTES: u64 = size_of::<u64>() as u64;
/// What a chunk of the map takes.
const CHUNK_BYTES: u64 = MAP_CHUNK * WORD_BYTES;

/// What processes see of one attached file.
pub(crate) struct FileMemory {
    pub(super) shared: SharedMemory,
    pub(super) layout: Layout,
    /// For processes that attach it; not of a lease any more, once its holder has it.
    descriptor: Mutex<Option<OwnedFd>>,
    /// Chunks of the map that are filled in: each once, because a holder changes his copy of them.
    filled: Mutex<Filled>,
    /// A bit for each chunk in which there may be blocks, for who must not wait for the lock above.
    touched: Vec<AtomicU64>,
    /// It counts as one of its maker's user's attachments as long as it is there, whoever has let the file go.
    _place: Taken,
}

/// What of a map is filled in.
struct Filled {
    /// A bit for each chunk.
    chunks: Vec<u64>,
    /// The first chunk, and no other, and it names no block.
    is_hole: bool,
    /// What the memory takes, of what its maker's user may have.
    taken: Taken,
}

impl FileMemory {
    /// For a file of `size_bytes`, and a lease of so many blocks; it counts as memory of this user.
    pub(super) fn new(
        size_bytes: u64,
        ring_blocks: u64,
        spare_blocks: u64,
        account: &Account,
    ) -> Result<FileMemory, Refusal> {
        let layout = layout_for(size_bytes, ring_blocks, spare_blocks);
        let chunks = (layout.capacity_blocks / MAP_CHUNK).div_ceil(64);
        let mut place = account.nothing(Goods::Attachments);
        let mut taken = account.nothing(Goods::MapBytes);
        // With the first chunk, which hardly any attachment goes without.
        let first_bytes = layout.map_at() as u64 + CHUNK_BYTES + 2 * chunks * WORD_BYTES;
        if !place.grow(1) || !taken.grow(first_bytes) {
            return Err(Refusal::NoRoom);
        }
        let (shared, descriptor) = SharedMemory::make(layout.bytes()).map_err(failed)?;
        Ok(FileMemory {
            shared,
            layout,
            descriptor: Mutex::new(Some(descriptor)),
            filled: Mutex::new(Filled {
                chunks: vec![0; chunks as usize],
                is_hole: false,
                taken,
            }),
            touched: (0..chunks).map(|_| AtomicU64::new(0)).collect(),
            _place: place,
        })
    }

    /// The descriptor, for one of the processes that share it.
    pub(super) fn share(&self) -> io::Result<Option<OwnedFd>> {
        let descriptor = self.descriptor.lock();
        descriptor.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// The descriptor, for the only process that has it; the server needs it no more.
    pub(super) fn hand_over(&self) -> Option<OwnedFd> {
        self.descriptor.lock().take()
    }

    /// The same memory for another file: its process has mapped it, and will see what is stored from here on. `None` if it does not fit, or if it takes longer to clear than to make.
    pub(super) fn again(
        mut self,
        size_bytes: u64,
        ring_blocks: u64,
        spare_blocks: u64,
    ) -> Option<FileMemory> {
        let layout = layout_for(size_bytes, ring_blocks, spare_blocks);
        let is_first_only = self.touched_chunks().all(|chunk| chunk == 0);
        if layout != self.layout || !is_first_only {
            return None;
        }
        *self.touched[0].get_mut() = 0;
        let filled = self.filled.get_mut();
        filled.chunks[0] = 0;
        let words = (0..layout::head::BYTES).step_by(size_of::<u64>());
        for at in words {
            self.shared.word(at).store(0, Ordering::Relaxed);
        }
        if !filled.is_hole {
            self.store_first_chunk(Entry::Unknown);
        }
        Some(self)
    }

    fn store_first_chunk(&self, entry: Entry) {
        for index in 0..MAP_CHUNK {
            let word = self.shared.word(self.layout.entry_at(index));
            word.store(entry.word(), Ordering::Release);
        }
    }

    /// What the map says of a file before, which had no blocks, is not true of one that has some.
    pub(super) fn forget_empty(&self) {
        let mut filled = self.filled.lock();
        if std::mem::take(&mut filled.is_hole) {
            self.store_first_chunk(Entry::Unknown);
        }
    }

    /// Fills in the beginning of the map of a file that has no blocks; nobody has asked for any of it yet.
    pub(super) fn fill_empty(&self) {
        let mut filled = self.filled.lock();
        if !filled.is_hole {
            self.store_first_chunk(Entry::Place(lease::Place::Hole));
        }
        filled.chunks[0] |= 1;
        filled.is_hole = true;
    }

    /// Fills in what who attaches a file would ask for next: the chunk of the map that he begins with, or all of a small file's.
    pub(super) fn fill_for_beginning<S: Store>(
        &self,
        files: &FileSystem<S>,
        node: &Node,
        owner: Domain,
        size_bytes: u64,
        first_block: Option<u64>,
    ) {
        let is_small = size_bytes < MAP_CHUNK * BLOCK_BYTES as u64;
        let first_block = if is_small { Some(0) } else { first_block };
        if let Some(block) = first_block.filter(|block| *block < self.layout.capacity_blocks)
            && let Err(error) = self.fill(files, node, owner, (block, 1))
        {
            // Who asks for it hears why.
            tracing::debug!(%error, "the beginning of a file's map cannot be filled in");
        }
    }

    /// Fills in the chunks of the map that `first .. first + count` touches and that are not filled in yet, as far as there may be so much memory. Blocks in segments that are not `owner`'s are where processes may not go.
    pub(super) fn fill<S: Store>(
        &self,
        files: &FileSystem<S>,
        node: &Node,
        owner: Domain,
        (first, count): (u64, u64),
    ) -> Result<(), FsError> {
        let end = first.saturating_add(count).min(self.layout.capacity_blocks);
        let mut filled = self.filled.lock();
        let mut segments = Segments::new(files, owner);
        for chunk in first / MAP_CHUNK..end.div_ceil(MAP_CHUNK) {
            let (word, bit) = ((chunk / 64) as usize, 1_u64 << (chunk % 64));
            if filled.chunks[word] & bit != 0 {
                continue;
            }
            // A hole is said as well, so the chunk takes its page in any case.
            if chunk > 0 && !filled.taken.grow(CHUNK_BYTES) {
                return Err(FsError::NoSpace);
            }
            // First, because who locks the file in between has to find what processes have seen by then.
            self.touched[word].fetch_or(bit, Ordering::SeqCst);
            files.places(node, chunk * MAP_CHUNK, MAP_CHUNK, |index, place| {
                let entry = match place {
                    None => Entry::Elsewhere,
                    Some(lease::Place::At(block) | lease::Place::Unwritten(block))
                        if !segments.is_owners(block) =>
                    {
                        Entry::Elsewhere
                    }
                    Some(place) => Entry::Place(place),
                };
                let at = self.layout.entry_at(index);
                self.shared.word(at).store(entry.word(), Ordering::Release);
            })?;
            filled.chunks[word] |= bit;
        }
        Ok(())
    }

    /// What processes know of the file's attributes is true no more. The file is locked.
    pub(super) fn attributes_changed(&self) {
        let word = self.head(layout::head::ATTRIBUTES);
        let next = word.load(Ordering::Relaxed) + 1;
        word.store(next, Ordering::Release);
    }

    /// The blocks of a file that processes may know of. The file is locked, so none come to be known meanwhile. Takes no lock, and looks at nothing that takes no memory yet.
    pub(super) fn known_blocks(&self) -> Vec<BlockNumber> {
        let indices = self.touched_chunks();
        let indices = indices.flat_map(|chunk| chunk * MAP_CHUNK..(chunk + 1) * MAP_CHUNK);
        let entries = indices.map(|index| {
            let word = self.shared.word(self.layout.entry_at(index));
            Entry::of(word.load(Ordering::Acquire))
        });
        entries
            .filter_map(|entry| match entry {
                Entry::Place(lease::Place::At(block)) => Some(block),
                _ => None,
            })
            .collect()
    }

    fn touched_chunks(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(&self.touched).flat_map(|(index, word)| {
            let word = word.load(Ordering::SeqCst);
            let chunks = (0..64).filter(move |bit| word >> bit & 1 == 1);
            chunks.map(move |bit| index * 64 + bit)
        })
    }

    /// A word of the head.
    pub(super) fn head(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < layout::head::BYTES);
        self.shared.word(at)
    }
}

/// What lies where in the memory of a file of `size_bytes`.
fn layout_for(size_bytes: u64, ring_blocks: u64, spare_blocks: u64) -> Layout {
    let blocks = size_bytes.div_ceil(BLOCK_BYTES as u64);
    let wanted = blocks.saturating_mul(4).next_multiple_of(MAP_CHUNK);
    Layout {
        ring_blocks,
        spare_blocks,
        capacity_blocks: wanted.clamp(CAPACITY_BLOCKS_MIN, CAPACITY_BLOCKS_MAX),
    }
}

/// Whether blocks are in segments of one owner; remembers the last segment, because neighbours mostly share it.
pub(super) struct Segments<'f, S: Store> {
    files: &'f FileSystem<S>,
    owner: Domain,
    last: Option<(u32, bool)>,
}

impl<'f, S: Store> Segments<'f, S> {
    pub(super) fn new(files: &'f FileSystem<S>, owner: Domain) -> Segments<'f, S> {
        Segments {
            files,
            owner,
            last: None,
        }
    }

    /// The segment that a block is in; `None` if there is no such number.
    pub(super) fn of(&self, block: BlockNumber) -> Option<u32> {
        let geometry = self.files.store().geometry();
        let behind_header = block.get().checked_sub(geometry.first_block().get())?;
        (behind_header / geometry.segment_blocks).try_into().ok()
    }

    pub(super) fn is_owners(&mut self, block: BlockNumber) -> bool {
        let Some(segment) = self.of(block) else {
            return false;
        };
        if let Some((_, answer)) = self.last.filter(|(last, _)| *last == segment) {
            return answer;
        }
        let store = self.files.store();
        let number = store.domain_number(self.owner);
        let answer = store.allocator().owner_of(SegmentNumber(segment)) == Some(number);
        self.last = Some((segment, answer));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::accounts::{Accounts, Limits};

    fn account(attachments: u64) -> Account {
        let limits = Limits {
            attachments,
            map_bytes: 1 << 40,
            seen_blocks: 0,
        };
        Accounts::new(limits).of(0)
    }

    #[test]
    fn an_attachment_counts_as_long_as_its_memory_is_there() {
        let account = account(1);
        let memory = FileMemory::new(100, 0, 0, &account).expect("the only one");
        let refused = FileMemory::new(100, 0, 0, &account);
        assert_eq!(refused.err(), Some(Refusal::NoRoom));
        drop(memory);
        assert!(FileMemory::new(100, 0, 0, &account).is_ok());
    }

    #[test]
    fn looking_for_blocks_takes_no_memory_for_what_nobody_has_asked_for() {
        let memory = FileMemory::new(1 << 40, 0, 0, &account(1)).expect("memory");
        let taken = || {
            let descriptor = memory.share().expect("a descriptor").expect("it has one");
            rustix::fs::fstat(descriptor).expect("attributes").st_blocks
        };
        let before = taken();
        assert!(memory.known_blocks().is_empty());
        assert_eq!(taken(), before);
        let last = (1 << 40) / BLOCK_BYTES as u64 / MAP_CHUNK - 1;
        let block = BlockNumber::new(1000);
        let at = memory.layout.entry_at(last * MAP_CHUNK);
        let entry = Entry::Place(lease::Place::At(block));
        memory
            .shared
            .word(at)
            .store(entry.word(), Ordering::Relaxed);
        memory.touched[last as usize / 64].store(1 << (last % 64), Ordering::Relaxed);
        assert_eq!(memory.known_blocks(), [block]);
    }
}
