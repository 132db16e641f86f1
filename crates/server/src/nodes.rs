//! Inodes that the kernel knows, with the number of its references.
//!
//! FUSE's rule: every reply that names an inode (LOOKUP, MKNOD, MKDIR, SYMLINK, LINK, and each
//! entry of READDIRPLUS except `.` and `..`) gives the kernel one reference; FORGET takes some back. As long as one
//! is out, the inode must stay reachable by its number, unlinked or not. The [`Node`] kept here does that: an
//! unlinked inode lives until its last `Node` is dropped, so its number is not given to another file meanwhile.
//!
//! Reads and writes come here too (a file is opened without a request, so there is no handle):
//! one multiplication, one shard's read lock, one probe.

use std::hash::{BuildHasherDefault, Hasher};

use fs::Node;
use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::pages::PageUse;

/// Power of two. Enough that two threads seldom meet in one.
const SHARDS: usize = 64;

/// Root's reference count starts beyond what the kernel could ever give back.
const ROOT_REFERENCES: u64 = u64::MAX / 2;

struct Known {
    node: Node,
    references: u64,
    pages: PageUse,
}

type Shard = RwLock<HashMap<u64, Known, BuildHasherDefault<InodeHasher>>>;

/// The table. Any number of threads may use it at once.
pub(crate) struct NodeTable {
    shards: Box<[Shard]>,
}

impl NodeTable {
    /// A table that knows only the root directory, for ever.
    pub(crate) fn new(root: Node) -> NodeTable {
        let shards = std::iter::repeat_with(Shard::default)
            .take(SHARDS)
            .collect();
        let table = NodeTable { shards };
        let number = root.number().get();
        let known = Known {
            node: root,
            references: ROOT_REFERENCES,
            pages: PageUse::default(),
        };
        table.shard(number).write().insert(number, known);
        table
    }

    /// The node of an inode that the kernel holds a reference to.
    pub(crate) fn get(&self, number: u64) -> Option<Node> {
        self.shard(number)
            .read()
            .get(&number)
            .map(|known| known.node.clone())
    }

    /// Looks at how the kernel's page cache uses an inode that the kernel knows.
    pub(crate) fn pages<T>(&self, number: u64, look: impl FnOnce(&PageUse) -> T) -> Option<T> {
        let shard = self.shard(number).read();
        shard.get(&number).map(|known| look(&known.pages))
    }

    /// Counts one more reference. Must happen before the reply that gives it to the kernel.
    pub(crate) fn reference(&self, node: Node) {
        let number = node.number().get();
        // A node that is known already is dropped after the lock: dropping may end the inode.
        let mut unused = None;
        let mut shard = self.shard(number).write();
        match shard.get_mut(&number) {
            Some(known) => {
                known.references = known.references.saturating_add(1);
                unused = Some(node);
            }
            None => {
                shard.insert(
                    number,
                    Known {
                        node,
                        references: 1,
                        pages: PageUse::default(),
                    },
                );
            }
        }
        drop(shard);
        drop(unused);
    }

    /// Takes `references` back; the last one lets go of the inode, which frees it if it has no name. Whether it was the last.
    pub(crate) fn forget(&self, number: u64, references: u64) -> bool {
        let mut shard = self.shard(number).write();
        let Some(known) = shard.get_mut(&number) else {
            return false;
        };
        known.references = known.references.saturating_sub(references);
        let last = (known.references == 0).then(|| shard.remove(&number));
        drop(shard);
        last.is_some()
    }

    /// Number of inodes that the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    fn shard(&self, number: u64) -> &Shard {
        &self.shards[number as usize % SHARDS]
    }
}

/// Multiplies by an odd constant: inode numbers are dense and come from our own allocator, so there is
/// nobody to defend against.
#[derive(Default)]
struct InodeHasher(u64);

impl Hasher for InodeHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
