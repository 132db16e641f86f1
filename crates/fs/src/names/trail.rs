//! Directories on the way: the steps through upper directories that a thread took lately.
//!
//! Every path begins with the same few directories, and they hardly ever change. Looking a name up in one takes its lock, the cache's lock and
//! a reference, six locked instructions on lines that all threads share, so threads that work far apart in a tree wait for each other at its
//! root. A thread therefore remembers where a step led, and how many departures the directory had seen: as long as that is
//! the same, no name has left the directory, and the step leads there still. Only the reference is left to be counted.
//!
//! Invariants:
//!
//! * D1 A step is believed only if the directory has seen no other departure *after* the reference was counted, and the child has a name. Who takes
//!   that away says so before he counts references, so either he sees ours or we see it (`Node::take_child`).
//! * D2 A trail holds no reference that keeps an inode in use: a removed directory is freed at once.
//! * D3 A state that a trail knows is not taken out of the cache (`Shard::evict` asks for the only reference of either kind), because a second state of
//!   the same inode would have a lock of its own.
//!
//! A step is remembered the second time in a row that its slot is asked for it: who wanders through thousands of directories
//! pays a comparison, not two more locked instructions.

use crate::format::FileType;
use crate::inode::node::{InodeState, Node};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ptr;
use std::sync::{Arc, Weak};
use txn::checksum::mix64;

/// Steps that a thread remembers.
const STEPS: usize = 16;
/// Longest name that is remembered.
const NAME_BYTES_MAX: usize = 40;

/// A step from a directory to one below it.
struct Step {
    /// Never followed; as long as it exists, no other state has its address.
    parent: Weak<InodeState>,
    departures: u64,
    name: SmallVec<[u8; NAME_BYTES_MAX]>,
    child: Weak<InodeState>,
}

#[derive(Default)]
struct Slot {
    /// What was asked for last and not found here.
    candidate: u64,
    step: Option<Step>,
}

thread_local! {
    static TRAIL: RefCell<[Slot; STEPS]> = RefCell::default();
}

/// Distinguishes steps well enough to find their slots; what is found is compared.
#[inline]
fn key(parent: &Node, name: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let (head, tail) = (name.len().min(8), name.len().saturating_sub(8));
    let address = Arc::as_ptr(&parent.0) as u64;
    mix64(mix64(address ^ word(&name[..head])) ^ word(&name[tail..]) ^ name.len() as u64)
}

impl Step {
    #[inline]
    fn is(&self, parent: &Node, name: &[u8]) -> bool {
        ptr::eq(self.parent.as_ptr(), Arc::as_ptr(&parent.0)) && *self.name == *name
    }

    /// Where it leads, unless something changed.
    #[inline]
    fn child(&self, parent: &Node) -> Option<Node> {
        parent.take_child(self.departures, || self.child.upgrade().map(Node))
    }
}

/// Where the step from `parent` leads by this thread's trail; `find` finds out otherwise.
///
/// What `find` returns is remembered if it is a directory, and no name left `parent` meanwhile.
#[inline]
pub(crate) fn step<E>(
    parent: &Node,
    name: &[u8],
    find: impl FnOnce() -> Result<Node, E>,
) -> Result<Node, E> {
    let key = key(parent, name);
    let known = TRAIL.with_borrow(|trail| {
        let step = trail[slot(key)].step.as_ref()?;
        step.is(parent, name).then(|| step.child(parent)).flatten()
    });
    match known {
        Some(child) => Ok(child),
        None => step_anew(key, parent, name, find),
    }
}

#[inline(never)]
fn step_anew<E>(
    key: u64,
    parent: &Node,
    name: &[u8],
    find: impl FnOnce() -> Result<Node, E>,
) -> Result<Node, E> {
    let departures = || parent.names().map(|names| names.departures());
    let before = departures();
    let child = find()?;
    if child.file_type() != FileType::Directory {
        return Ok(child);
    }
    TRAIL.with_borrow_mut(|trail| {
        let slot = &mut trail[slot(key)];
        if std::mem::replace(&mut slot.candidate, key) != key || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let departures = before.filter(|_| departures() == before)?;
        slot.step = Some(Step {
            parent: Arc::downgrade(&parent.0),
            departures,
            name: SmallVec::from_slice(name),
            child: Arc::downgrade(&child.0),
        });
        Some(())
    });
    Ok(child)
}

#[inline]
fn slot(key: u64) -> usize {
    key as usize % STEPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{CheckOptions, check};
    use crate::testing::empty;
    use crate::{FileSystem, FsError, NewInode, RenameOptions};
    use pmem::Region;
    use std::sync::atomic::{AtomicBool, Ordering};

    const OPTIONS: CheckOptions<'static> = CheckOptions {
        threads: 1,
        progress: None,
    };
    const DIRECTORY: NewInode = NewInode {
        mode: 0o755,
        uid: 0,
        gid: 0,
        device: 0,
    };

    /// Goes there often enough that the step is remembered.
    fn wear_in(files: &FileSystem, name: &[u8]) -> Node {
        let root = files.root();
        let go = || files.lookup_on_the_way(&root, name).expect("there");
        (go(), go(), go()).2
    }

    #[test]
    fn a_step_that_is_known_takes_no_lock() {
        let files = empty(16 << 20);
        let root = files.root();
        let made = files
            .make_directory(&root, b"a", &DIRECTORY)
            .expect("mkdir");
        let found = wear_in(&files, b"a");
        assert!(Arc::ptr_eq(&found.0, &made.0));
        let held = root.0.body.write();
        let found = files.lookup_on_the_way(&root, b"a").expect("there");
        assert!(Arc::ptr_eq(&found.0, &made.0));
        drop(held);
    }

    #[test]
    fn what_changed_is_not_believed() {
        let files = empty(16 << 20);
        let root = files.root();
        for name in [&b"a"[..], b"b"] {
            files
                .make_directory(&root, name, &DIRECTORY)
                .expect("mkdir");
        }
        let (a, b) = (
            wear_in(&files, b"a").number(),
            wear_in(&files, b"b").number(),
        );
        let rename = |from: &[u8], to: &[u8]| {
            let renamed = files.rename(&root, from, &root, to, RenameOptions::default());
            renamed.expect("rename");
        };
        rename(b"a", b"c");
        let gone = files.lookup_on_the_way(&root, b"a");
        assert!(matches!(gone, Err(FsError::NotFound)));
        assert_eq!(wear_in(&files, b"c").number(), a);
        rename(b"b", b"a");
        assert_eq!(wear_in(&files, b"a").number(), b);
    }

    #[test]
    fn a_removed_directory_is_freed_at_once_and_files_are_not_remembered() {
        let files = empty(16 << 20);
        let root = files.root();
        drop(
            files
                .make_directory(&root, b"a", &DIRECTORY)
                .expect("mkdir"),
        );
        let free = files.statistics().free_inodes;
        drop(wear_in(&files, b"a"));
        files.remove_directory(&root, b"a").expect("rmdir");
        assert_eq!(files.statistics().free_inodes, free + 1);
        drop(files.create(&root, b"f", &DIRECTORY).expect("create"));
        let file = wear_in(&files, b"f");
        assert_eq!(Arc::weak_count(&file.0), 0);
    }

    #[test]
    fn a_state_that_a_trail_knows_stays_the_only_one() {
        let files = empty(16 << 20);
        let root = files.root();
        drop(
            files
                .make_directory(&root, b"a", &DIRECTORY)
                .expect("mkdir"),
        );
        let known = Arc::downgrade(&wear_in(&files, b"a").0);
        for number in 0..4000 {
            let name = format!("{number}");
            drop(
                files
                    .create(&root, name.as_bytes(), &DIRECTORY)
                    .expect("create"),
            );
        }
        let found = files.lookup(&root, b"a").expect("there");
        assert!(ptr::eq(known.as_ptr(), Arc::as_ptr(&found.0)));
    }

    /// One thread makes and removes a directory, another walks through it and makes files in it.
    #[test]
    fn walking_and_removing_at_the_same_time_lose_nothing() {
        let files = empty(16 << 20);
        let root = files.root();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let Ok(directory) = files.lookup_on_the_way(&root, b"a") else {
                        continue;
                    };
                    if files.create(&directory, b"f", &DIRECTORY).is_ok() {
                        files.unlink(&directory, b"f").expect("just made");
                    }
                }
            });
            for _ in 0..5_000 {
                drop(
                    files
                        .make_directory(&root, b"a", &DIRECTORY)
                        .expect("mkdir"),
                );
                while let Err(error) = files.remove_directory(&root, b"a") {
                    assert!(matches!(error, FsError::DirectoryNotEmpty), "{error}");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        files.checkpoint();
        let image = Region::from_image(files.store().region().image());
        let report = check(&image, &OPTIONS);
        assert!(report.is_clean(), "{report:#?}");
    }
}
