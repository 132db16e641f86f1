//! Linux's dentry cache, as far as PMFS has it from the VFS.
//!
//! A name that was looked up, made or removed is known from then on, also that it is absent. Nothing presses entries out, as on a machine
//! with memory to spare.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;

use super::inode::Inode;

/// What a directory's names lead to.
#[derive(Default)]
pub(super) struct NameCache {
    names: RwLock<HashMap<Box<[u8]>, Known, RandomState>>,
}

/// What is known of a name.
#[derive(Clone)]
pub(super) enum Known {
    /// It leads to this inode.
    Present(Arc<Inode>),
    /// There is no such name.
    Absent,
}

impl NameCache {
    /// What is known of a name, if anything.
    #[inline]
    pub(super) fn get(&self, name: &[u8]) -> Option<Known> {
        self.names.read().get(name).cloned()
    }

    /// Notes what a name leads to. The caller holds the directory's lock, and drops what is returned after it has released its locks.
    pub(super) fn set(&self, name: &[u8], known: Known) -> Option<Known> {
        let mut names = self.names.write();
        if let Some(old) = names.get_mut(name) {
            return Some(std::mem::replace(old, known));
        }
        names.insert(name.into(), known)
    }
}
