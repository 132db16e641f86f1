//! Reading a file without its lock.
//!
//! A sequence lock beside the inode's lock: whoever holds the lock for writing makes the sequence
//! odd, and even again with what readers need when he lets go. A reader takes a snapshot, looks up
//! and copies, and asks whether the sequence is still the same. If not, what it has may be a
//! mixture of anything (blocks may have been freed and reused meanwhile), and is thrown away. A
//! reader writes nothing that others read, so readers don't slow each other down, and executes no
//! locked instruction, so the processor overlaps one read with the next.
//!
//! Rejected: the lock for readers. Its two locked instructions cost a bare loop of 4 KiB reads 50
//! to 80 ns of 850.

use crate::format::{FileType, RawInode};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

/// Height of what is not a regular file, or a leased one: readers without the lock leave it alone.
const NOT_A_FILE: u8 = u8::MAX;

/// An atomic word; abstract, so that the orderings below can be checked exhaustively.
trait Word {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, word: u64, ordering: Ordering);
    fn fence(ordering: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    #[inline]
    fn store(&self, word: u64, ordering: Ordering) {
        AtomicU64::store(self, word, ordering);
    }

    #[inline]
    fn fence(ordering: Ordering) {
        std::sync::atomic::fence(ordering);
    }
}

/// The number beside the lock: odd while something changes.
#[derive(Debug)]
struct Sequence<W>(W);

impl<W: Word> Sequence<W> {
    /// One thread at a time, who then changes something.
    #[inline]
    fn begin_change(&self) {
        let sequence = self.0.load(Ordering::Relaxed);
        self.0.store(sequence + 1, Ordering::Relaxed);
        // The change comes after the odd number.
        W::fence(Ordering::Release);
    }

    #[inline]
    fn end_change(&self) {
        let sequence = self.0.load(Ordering::Relaxed);
        // The even number comes after the change.
        self.0.store(sequence + 1, Ordering::Release);
    }

    /// The number, unless something is changing.
    #[inline]
    fn begin_read(&self) -> Option<u64> {
        let sequence = self.0.load(Ordering::Acquire);
        sequence.is_multiple_of(2).then_some(sequence)
    }

    /// Whether nothing has changed since.
    #[inline]
    fn is_current(&self, sequence: u64) -> bool {
        // What was read comes before this look.
        W::fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == sequence
    }
}

/// Whether an inode has a name, for who has just counted a reference to it.
///
/// Who takes the last name away says so before he looks whether anybody else refers to the inode.
/// So either he sees a new reference, or whoever counted that sees that the name is about to go.
#[derive(Debug)]
struct Named<W>(W);

impl<W: Word> Named<W> {
    /// The name may be going. The caller counts references next.
    #[inline]
    fn leave(&self) {
        self.0.store(0, Ordering::Relaxed);
        W::fence(Ordering::SeqCst);
    }

    #[inline]
    fn set(&self, named: bool) {
        self.0.store(u64::from(named), Ordering::Relaxed);
    }

    /// The caller has counted a reference.
    #[inline]
    fn is_sure(&self) -> bool {
        W::fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// What a reader needs of an inode.
#[derive(Debug)]
pub(crate) struct View {
    /// Odd while the inode's lock is held for writing.
    sequence: Sequence<AtomicU64>,
    named: Named<AtomicU64>,
    size: AtomicU64,
    root: AtomicU64,
    /// The last access, if it is later than the last change.
    accessed: AtomicI64,
    height: AtomicU8,
}

/// A view at one moment, to be believed only after [`View::is_current`].
#[derive(Debug)]
pub(crate) struct Snapshot {
    sequence: u64,
    /// Bytes of content.
    pub(crate) size: u64,
    /// Root pointer's word of the block map.
    pub(crate) root: u64,
    /// Levels of the block map.
    pub(crate) height: u8,
    /// [`RawInode::access_since_change`].
    pub(crate) accessed: i64,
}

impl View {
    pub(crate) fn new(raw: &RawInode) -> View {
        let view = View {
            sequence: Sequence(AtomicU64::new(0)),
            named: Named(AtomicU64::new(0)),
            size: AtomicU64::new(0),
            root: AtomicU64::new(0),
            accessed: AtomicI64::new(0),
            height: AtomicU8::new(NOT_A_FILE),
        };
        view.publish(raw, false);
        view
    }

    /// From here on nobody believes a snapshot. The caller holds the inode's lock for writing.
    #[inline]
    pub(crate) fn begin_change(&self) {
        self.sequence.begin_change();
    }

    /// The inode is `raw` now. The caller still holds the lock. Readers without the lock leave a
    /// leased file alone.
    #[inline]
    pub(crate) fn end_change(&self, raw: &RawInode, is_leased: bool) {
        self.publish(raw, is_leased);
        self.sequence.end_change();
    }

    #[inline]
    fn publish(&self, raw: &RawInode, is_leased: bool) {
        let is_file = raw.file_type() == Some(FileType::Regular) && !is_leased;
        let height = if is_file { raw.height } else { NOT_A_FILE };
        self.size.store(raw.size, Ordering::Relaxed);
        self.root.store(raw.root, Ordering::Relaxed);
        self.accessed
            .store(raw.access_since_change(), Ordering::Relaxed);
        self.height.store(height, Ordering::Relaxed);
        self.named.set(raw.links > 0);
    }

    /// The inode may be about to lose its last name. The caller holds its lock for writing, and
    /// looks next whether somebody refers to it; what it has become shows when the lock is
    /// released.
    #[inline]
    pub(crate) fn leave(&self) {
        self.named.leave();
    }

    /// Whether the inode keeps its name until somebody notices the reference that the caller has
    /// counted.
    #[inline]
    pub(crate) fn is_surely_named(&self) -> bool {
        self.named.is_sure()
    }

    /// A regular file's view, unless it is being changed.
    #[inline]
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let sequence = self.sequence.begin_read()?;
        let height = self.height.load(Ordering::Relaxed);
        (height != NOT_A_FILE).then(|| Snapshot {
            sequence,
            size: self.size.load(Ordering::Relaxed),
            root: self.root.load(Ordering::Relaxed),
            height,
            accessed: self.accessed.load(Ordering::Relaxed),
        })
    }

    /// Whether the only change since is that the caller, which holds the write lock, has begun one.
    pub(crate) fn has_only_begun_since(&self, snapshot: &Snapshot) -> bool {
        self.sequence.is_current(snapshot.sequence + 1)
    }

    /// Whether nothing has changed since: then the snapshot, and all that was read by it, is true.
    #[inline]
    pub(crate) fn is_current(&self, snapshot: &Snapshot) -> bool {
        self.sequence.is_current(snapshot.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;

    impl Word for loom::sync::atomic::AtomicU64 {
        fn load(&self, ordering: Ordering) -> u64 {
            loom::sync::atomic::AtomicU64::load(self, ordering)
        }

        fn store(&self, word: u64, ordering: Ordering) {
            loom::sync::atomic::AtomicU64::store(self, word, ordering);
        }

        fn fence(ordering: Ordering) {
            loom::sync::atomic::fence(ordering);
        }
    }

    #[derive(Default)]
    struct Pair {
        sequence: loom::sync::atomic::AtomicU64,
        left: loom::sync::atomic::AtomicU64,
        right: loom::sync::atomic::AtomicU64,
    }

    /// One thread changes both halves twice, the other reads them. `believes` decides whether it
    /// believes what it read.
    fn explore(believes: fn(&Sequence<&loom::sync::atomic::AtomicU64>, u64) -> bool) {
        loom::model(move || {
            let pair = Arc::new(Pair::default());
            let writer = Arc::clone(&pair);
            let thread = loom::thread::spawn(move || {
                let sequence = Sequence(&writer.sequence);
                for version in 1..=2 {
                    sequence.begin_change();
                    writer.left.store(version, Ordering::Relaxed);
                    writer.right.store(version, Ordering::Relaxed);
                    sequence.end_change();
                }
            });
            let sequence = Sequence(&pair.sequence);
            if let Some(number) = sequence.begin_read() {
                let left = pair.left.load(Ordering::Relaxed);
                let right = pair.right.load(Ordering::Relaxed);
                if believes(&sequence, number) {
                    assert_eq!((left, right), (number / 2, number / 2));
                }
            }
            thread.join().expect("the writer ends");
        });
    }

    impl<W: Word> Word for &W {
        fn load(&self, ordering: Ordering) -> u64 {
            (**self).load(ordering)
        }

        fn store(&self, word: u64, ordering: Ordering) {
            (**self).store(word, ordering);
        }

        fn fence(ordering: Ordering) {
            W::fence(ordering);
        }
    }

    /// One thread takes a reference while the other takes the name away, and with it the inode if
    /// nobody else has a reference.
    fn explore_references(look: fn(&Named<&loom::sync::atomic::AtomicU64>) -> bool) {
        type Word = loom::sync::atomic::AtomicU64;
        loom::model(move || {
            let shared = Arc::new((Word::new(1), Word::new(1)));
            let remover = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                Named(&remover.0).leave();
                remover.1.load(Ordering::Relaxed) == 1
            });
            shared.1.fetch_add(1, Ordering::Relaxed);
            let is_believed = look(&Named(&shared.0));
            let is_removed = thread.join().expect("the remover ends");
            assert!(!(is_believed && is_removed), "removed and in use");
        });
    }

    #[test]
    fn what_is_in_use_is_not_removed() {
        explore_references(|named| named.is_sure());
    }

    #[test]
    #[should_panic(expected = "removed and in use")]
    fn a_reader_who_looks_too_early_is_caught() {
        explore_references(|named| named.0.load(Ordering::Relaxed) != 0);
    }

    #[test]
    fn what_is_believed_is_one_version() {
        explore(|sequence, number| sequence.is_current(number));
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_reader_that_does_not_look_again_is_caught() {
        explore(|_, _| true);
    }
}
