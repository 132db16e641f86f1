//! The names of one directory: what lookups share with changes.
//!
//! A change holds the directory's lock while its transaction becomes durable, a microsecond and more. The names change at its end only, and
//! have a lock of their own for that moment: a lookup never waits for the medium. What it finds is durable, because names follow
//! a transaction and never lead it.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering};

use super::name_index::{IndexEntry, NameIndex};
use super::name_tag::name_tag;
use super::record;
use super::{DentryFault, DentryOffset, FileType};
use crate::format::InodeNumber;
use crate::locks::spin::then_wait;

/// A dentry that may have the name that is looked for. Offset and inode number are known before the medium is touched,
/// so that the caller can fetch both cache lines, the dentry's and the inode's, at the same time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// Where the dentry is.
    pub offset: DentryOffset,
    /// The inode that it refers to.
    pub inode: InodeNumber,
}

/// Does the candidate's dentry, in directory `number`, have this name? `record` are the bytes of the medium from the candidate's offset to the
/// end of its block. Returns the type of the inode if so. A dentry that was damaged since it was loaded
/// is a fault, not a missing name.
pub fn has_name(
    number: InodeNumber,
    candidate: Candidate,
    name: &[u8],
    record: &[u8],
) -> Result<Option<FileType>, DentryFault> {
    record::has_name(number, candidate.offset, candidate.inode, name, record)
}

/// Where a directory's blocks are: root pointer's word and height of its block map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MapRoot {
    pub(crate) root: u64,
    pub(crate) height: u8,
}

/// Names of one directory, on lines of their own. They are empty and closed to lookups until a [`Directory`](super::Directory) over
/// them opens them, and again when that is dropped.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Names {
    state: RwLock<State>,
    /// Changes that took a name away or gave it to another inode; counted with the lock, read without.
    departures: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    index: NameIndex,
    /// `None` as long as the index is not complete.
    map: Option<MapRoot>,
}

/// What a lookup of [`Names`] gives.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Lookup {
    /// The name is there.
    Found {
        /// What it stands for.
        inode: InodeNumber,
        /// Departures until then.
        departures: u64,
    },
    /// There is no such name.
    Absent,
    /// The names are closed, or the medium is being changed or damaged: who holds the directory's lock can tell.
    Unknown,
}

impl Names {
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, State> {
        then_wait(|| self.state.try_read(), || self.state.read())
    }

    /// Held for some ten nanoseconds. Whoever waits here holds the directory's lock, so he does not go to sleep for that.
    #[inline]
    fn write(&self) -> RwLockWriteGuard<'_, State> {
        then_wait(|| self.state.try_write(), || self.state.write())
    }

    /// Finds a name while others may change the directory. `verify` looks at the medium as for [`Directory::find`](super::Directory::find); it
    /// may find anything there if a name leaves the directory at the same time.
    #[inline]
    pub(crate) fn look_up<T, E>(
        &self,
        name: &[u8],
        mut verify: impl FnMut(MapRoot, Candidate) -> Result<Option<T>, E>,
    ) -> Lookup {
        let state = self.read();
        let Some(map) = state.map else {
            return Lookup::Unknown;
        };
        // A dentry with another name is one of very few with the same tag, or one that took the place of a name that is just leaving: then neither
        // has the old name left the index nor the new one entered it.
        let verify = |candidate| match verify(map, candidate) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) | Err(_) => Err(()),
        };
        match state.find(name, verify) {
            Ok(Some((candidate, _))) => Lookup::Found {
                inode: candidate.inode,
                departures: self.departures(),
            },
            Ok(None) => Lookup::Absent,
            Err(()) => Lookup::Unknown,
        }
    }

    /// Finds a name for who holds the directory's lock.
    #[inline]
    pub(super) fn find<T, E>(
        &self,
        name: &[u8],
        verify: impl FnMut(Candidate) -> Result<Option<T>, E>,
    ) -> Result<Option<(Candidate, T)>, E> {
        self.read().find(name, verify)
    }

    /// Changes the names: all at once, as lookups see it. With `departs` a name goes, or is given to another inode.
    #[inline]
    pub(super) fn change<T>(&self, departs: bool, change: impl FnOnce(&mut NameIndex) -> T) -> T {
        let mut state = self.write();
        if departs {
            let departures = self.departures.load(Ordering::Relaxed);
            self.departures.store(departures + 1, Ordering::Relaxed);
        }
        change(&mut state.index)
    }

    /// Changes so far that took a name away or gave it to another inode.
    #[inline]
    pub(crate) fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// No lookup finds anything until the names are [opened](Self::open) again.
    pub(super) fn shut(&self) {
        self.write().map = None;
    }

    /// Opens the complete names to lookups, or tells them where the blocks are now.
    pub(super) fn open(&self, map: MapRoot) {
        self.write().map = Some(map);
    }

    /// Forgets all names.
    pub(super) fn close(&self) {
        let state = std::mem::take(&mut *self.write());
        drop(state);
    }

    pub(super) fn len(&self) -> usize {
        self.read().index.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.read().index.heap_bytes()
    }
}

impl State {
    #[inline]
    fn find<T, E>(
        &self,
        name: &[u8],
        mut verify: impl FnMut(Candidate) -> Result<Option<T>, E>,
    ) -> Result<Option<(Candidate, T)>, E> {
        self.index
            .find(name_tag(name), |entry: IndexEntry| {
                let candidate = Candidate {
                    offset: DentryOffset::from_units(entry.offset),
                    inode: InodeNumber::new(entry.inode.into()),
                };
                verify(candidate)
                    .map(|found| found.map(|value| (candidate, value)))
                    .transpose()
            })
            .transpose()
    }
}
