//! The inodes in use, by number, and a bounded number of idle ones.

use crate::format::InodeNumber;
use crate::inode::node::{InodeState, Node};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 16;
/// Inodes with successive numbers in one shard. Creators take their numbers from lists of their own, many neighbours in a row; if each
/// number had another shard, all creators would touch the cache lines of all shards in turn.
const NEIGHBOURS: u64 = 64;
/// Idle inodes kept per shard: about 600 bytes each, 1.2 MiB in all. More would only leave the second-level cache, where reading the
/// inode anew costs no more.
const IDLE_PER_SHARD: usize = 128;
/// A directory whose index takes at least this much stays although it is idle: each name costs 200 ns when it is built again.
const INDEX_BYTES_WORTH_KEEPING: usize = 16 << 10;
/// Memory that directories' indexes may take before idle ones are dropped.
const DIRECTORY_BYTES_MAX: usize = 48 << 20;

/// Hashes a number by one multiplication: inode numbers are dense and not chosen by an attacker.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

#[derive(Default)]
struct Shard {
    states: HashMap<u64, Arc<InodeState>, BuildHasherDefault<NumberHasher>>,
    /// Numbers in the order in which they came in: a clock for eviction.
    order: VecDeque<u64>,
}

/// A shard and its lock, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Slot(Mutex<Shard>);

/// One state per inode in use.
///
/// The cache itself holds a reference to each; a state that only the cache refers to is idle and may go.
pub(crate) struct InodeCache {
    shards: [Slot; SHARDS],
    directory_bytes: AtomicUsize,
}

impl InodeCache {
    pub(crate) fn new() -> InodeCache {
        InodeCache {
            shards: Default::default(),
            directory_bytes: AtomicUsize::new(0),
        }
    }

    fn shard(&self, number: InodeNumber) -> &Mutex<Shard> {
        &self.shards[(number.get() / NEIGHBOURS) as usize % SHARDS].0
    }

    /// The inode's node; `load` makes its state if nobody has it.
    #[inline]
    pub(crate) fn get<E>(
        &self,
        number: InodeNumber,
        load: impl FnOnce() -> Result<InodeState, E>,
    ) -> Result<Node, E> {
        let mut shard = self.shard(number).lock();
        if let Some(state) = shard.states.get(&number.get()) {
            return Ok(Node(Arc::clone(state)));
        }
        let state = Arc::new(load()?);
        shard.insert(number.get(), Arc::clone(&state));
        let evicted = shard.make_room();
        drop(shard);
        // Dropped without the lock: dropping an unlinked inode's state runs a transaction.
        drop(evicted);
        Ok(Node(state))
    }

    /// The node of an inode that this thread just created: `state`, unless a lookup by number made one meanwhile.
    /// [`make_room`](Self::make_room) follows.
    #[inline]
    pub(crate) fn insert(&self, state: Arc<InodeState>) -> Node {
        let mut shard = self.shard(state.number).lock();
        if let Some(other) = shard.states.get(&state.number.get()) {
            return Node(Arc::clone(other));
        }
        shard.insert(state.number.get(), Arc::clone(&state));
        Node(state)
    }

    /// Drops an idle inode if there are too many, where `number` belongs.
    #[inline]
    pub(crate) fn make_room(&self, number: InodeNumber) {
        let evicted = self.shard(number).lock().make_room();
        drop(evicted);
    }

    /// The inode's node, if somebody has it or had it lately.
    #[inline]
    pub(crate) fn peek(&self, number: InodeNumber) -> Option<Node> {
        let shard = self.shard(number).lock();
        shard
            .states
            .get(&number.get())
            .map(|state| Node(Arc::clone(state)))
    }

    /// Forgets an inode that has no name any more: the last node outside frees it.
    pub(crate) fn forget(&self, number: InodeNumber) {
        let state = self.shard(number).lock().states.remove(&number.get());
        drop(state);
    }

    /// Takes back an inode that was forgotten and is about to get a name again.
    pub(crate) fn restore(&self, node: &Node) {
        let number = node.number().get();
        let mut shard = self.shard(node.number()).lock();
        shard.insert(number, Arc::clone(&node.0));
    }

    /// Notes that a directory's index was built, and drops idle ones if all together take too much memory.
    pub(crate) fn directory_built(&self, bytes: usize) {
        if self.directory_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= DIRECTORY_BYTES_MAX {
            return;
        }
        // What was evicted since still counts, and what grew does not.
        let mut kept = self.count_directories(bytes, false);
        if kept > DIRECTORY_BYTES_MAX {
            kept = self.count_directories(bytes, true);
        }
        self.directory_bytes.store(kept, Ordering::Relaxed);
    }

    /// Bytes of all indexes, `built` for the one that its builder has locked; with `drop_idle` those of idle directories go.
    fn count_directories(&self, built: usize, drop_idle: bool) -> usize {
        let mut kept = built;
        for shard in &self.shards {
            let shard = shard.0.lock();
            for state in shard.states.values() {
                let Some(mut body) = state.body.try_write() else {
                    continue;
                };
                if drop_idle && Arc::strong_count(state) == 1 {
                    body.directory = None;
                }
                kept += body
                    .directory
                    .as_ref()
                    .map_or(0, |directory| directory.heap_bytes());
            }
        }
        kept
    }
}

impl Shard {
    #[inline]
    fn insert(&mut self, number: u64, state: Arc<InodeState>) {
        self.states.insert(number, state);
        self.order.push_back(number);
    }

    /// Takes out an idle state if there may be too many.
    #[inline]
    fn make_room(&mut self) -> Option<Arc<InodeState>> {
        if self.order.len() > IDLE_PER_SHARD {
            self.evict()
        } else {
            None
        }
    }

    /// Takes out an idle state, looking at a few candidates only so that a call stays cheap.
    fn evict(&mut self) -> Option<Arc<InodeState>> {
        for _ in 0..4 {
            let number = self.order.pop_front()?;
            let state = self.states.get_mut(&number)?;
            // No reference of either kind but this one, and so none can be made meanwhile (D3 in `trail`).
            if Arc::get_mut(state).is_some() && !is_worth_keeping(state) {
                return self.states.remove(&number);
            }
            self.order.push_back(number);
        }
        None
    }
}

/// Whether an idle inode is a directory that would be expensive to have again, or a file with copies in DRAM, which would go with it.
fn is_worth_keeping(state: &InodeState) -> bool {
    if state.copies.get().is_some_and(|copies| !copies.is_empty()) {
        return true;
    }
    state.body.try_read().is_some_and(|body| {
        let bytes = body
            .directory
            .as_ref()
            .map(|directory| directory.heap_bytes());
        bytes.is_some_and(|bytes| bytes >= INDEX_BYTES_WORTH_KEEPING)
    })
}

#[cfg(test)]
mod tests {
    use crate::NewInode;
    use crate::testing::empty;

    /// Thousands of files pass through the cache by paths through one large directory that nobody has open.
    #[test]
    fn a_large_directory_keeps_its_index() {
        let files = empty(32 << 20);
        let large = files
            .make_directory(&files.root(), b"large", &NewInode::file(0o755))
            .expect("create")
            .number();
        let has_index = || {
            let node = files.core.cache.peek(large);
            node.is_some_and(|node| node.read().directory.is_some())
        };
        for number in 0..6_000 {
            let directory = files.lookup(&files.root(), b"large").expect("there");
            let name = format!("a file with number {number}");
            files
                .create(&directory, name.as_bytes(), &NewInode::file(0o644))
                .expect("create");
            drop(directory);
            assert!(has_index() || number < 2_000, "after {number} files");
        }
    }
}
