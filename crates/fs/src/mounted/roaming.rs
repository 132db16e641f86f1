//! Lots: which change in place moves its block.
//!
//! No block has a counter. Changes draw lots: after a random number of them, [`MountOptions::roam_after`] on average, the block of the last one moves. So a block moves
//! as often as it is hot, a cold one never, and moving costs a fixed share of all writes (a block for some five hundred changes) whatever the
//! load. The count goes to a line of the thread's own.
//!
//! The allocator, which levels by what it knows was written, learns of changes in place by lots as well: a block that moves stands for all changes
//! that drew; pieces of data, up to sixteen lines each and most of them appended once, draw by the line, and whoever wins is charged one block.
//!
//! [`MountOptions::roam_after`]: crate::MountOptions::roam_after

use crate::format::InodeNumber;
use crate::values::error::FsError;
use pmem::{BLOCK_BYTES, LINE_BYTES};
use std::sync::atomic::{AtomicU32, Ordering};
use txn::checksum::mix64;
use txn::transaction::thread_slot;

/// Changes of one kind until the next move.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    /// Words of an inode.
    Inode,
    /// A name in a directory.
    Name,
    /// A pointer in a node of a block map.
    Pointer,
    /// Bytes of a file, in place.
    Data,
}

/// Lines of data in place have lots of their own, behind those of the [`Change`]s.
const DATA_LINES: usize = Change::Data as usize + 1;
const KINDS: usize = DATA_LINES + 1;
/// Lines of data in place for which a block of wear is charged.
const LINES_PER_CHARGE: u32 = (BLOCK_BYTES / LINE_BYTES) as u32;

/// Changes in place after which a block moves, on average: 512 lines, most of them, deposited in a block of 64.
pub(crate) const ROAM_AFTER: u32 = 512;

/// Lots still to be drawn before one wins, by kind of change; and how many have won.
#[derive(Default)]
#[repr(align(128))]
struct Lots {
    left: [AtomicU32; KINDS],
    won: AtomicU32,
}

/// Who moves next.
pub(crate) struct Roaming {
    after: u32,
    threads: Box<[Lots]>,
}

impl Roaming {
    /// Every `after`th change moves its block, on average; the lots of `threads` threads and more are drawn apart.
    pub(crate) fn new(after: u32, threads: usize) -> Roaming {
        Roaming {
            after: after.max(1),
            // A power of two, so that finding one's own takes no division.
            threads: (0..threads.next_power_of_two())
                .map(|_| Lots::default())
                .collect(),
        }
    }

    /// How often a block that moves was written whole without the allocator's knowledge: one block moves for `after` changes of about a
    /// line each, so it stands for all of them. Data in place was charged by its lines.
    pub(crate) fn wear_blocks(&self, change: Change) -> u64 {
        match change {
            Change::Data => 0,
            _ => (u64::from(self.after) * LINE_BYTES as u64).div_ceil(BLOCK_BYTES as u64),
        }
    }

    /// Draws a lot for a change: whether its block is to move.
    #[inline]
    pub(crate) fn draw(&self, change: Change) -> bool {
        self.draw_lots(change as usize, 1, self.after)
    }

    /// Draws a lot for each line that a write of data in place touched: whether its block is charged.
    #[inline]
    pub(crate) fn draw_lines(&self, lines: u32) -> bool {
        self.draw_lots(DATA_LINES, lines, LINES_PER_CHARGE)
    }

    /// Draws `lots` lots of one kind, of which every `after`th wins, on average; at most one of them.
    ///
    /// Two threads with one set of lots may lose a step, which matters to nobody; a locked instruction would.
    #[inline]
    fn draw_lots(&self, kind: usize, lots: u32, after: u32) -> bool {
        let own = &self.threads[thread_slot() & (self.threads.len() - 1)];
        let now = own.left[kind].load(Ordering::Relaxed);
        if now > lots {
            own.left[kind].store(now - lots, Ordering::Relaxed);
            return false;
        }
        own.end(kind, lots, after)
    }
}

impl Lots {
    /// The last lot of a kind is drawn, or none has been shuffled yet.
    #[cold]
    fn end(&self, kind: usize, lots: u32, after: u32) -> bool {
        let left = &self.left[kind];
        let mut now = left.load(Ordering::Relaxed);
        if now == 0 {
            now = self.until_next(after);
            if now > lots {
                left.store(now - lots, Ordering::Relaxed);
                return false;
            }
        }
        // What was drawn behind the winner counts for the next one. (Another thread with these lots may have shuffled them meanwhile.)
        let behind = lots.saturating_sub(now);
        let next = self.until_next(after).saturating_sub(behind);
        left.store(next.max(1), Ordering::Relaxed);
        true
    }

    /// A random number of lots, because loads have rhythms: with a fixed one it might be the same block each time.
    fn until_next(&self, after: u32) -> u32 {
        let won = self.won.load(Ordering::Relaxed).wrapping_add(1);
        self.won.store(won, Ordering::Relaxed);
        1 + (mix64(u64::from(won)) % (2 * u64::from(after) - 1)) as u32
    }
}

/// Moving is a wish; only damage is worth a word.
pub(crate) fn note(what: &str, number: InodeNumber, result: Result<(), FsError>) {
    if let Err(FsError::Corrupt(error)) = result {
        tracing::error!(inode = number.get(), %error, "{what} cannot move; run `perdure fsck`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lots_win_as_often_as_they_should_and_never_in_step() {
        let roaming = Roaming::new(100, 1);
        let wins: Vec<u32> = (0..200_000)
            .filter(|_| roaming.draw(Change::Name))
            .collect();
        assert!((1_700..2_300).contains(&wins.len()), "{}", wins.len());
        let even = wins.iter().filter(|&&win| win % 2 == 0).count();
        assert!((wins.len() * 2 / 5..wins.len() * 3 / 5).contains(&even));
        // A kind that is never drawn never wins, and does not move the others.
        assert_eq!(
            roaming.threads[0].left[Change::Data as usize].load(Ordering::Relaxed),
            0
        );
    }

    #[test]
    fn lines_of_data_win_in_proportion() {
        let roaming = Roaming::new(ROAM_AFTER, 1);
        for lines in [1, 3, 16] {
            let wins = (0..100_000).filter(|_| roaming.draw_lines(lines)).count();
            let expected = (100_000 * lines / LINES_PER_CHARGE) as usize;
            assert!(wins.abs_diff(expected) < expected / 20, "{lines}: {wins}");
        }
    }

    #[test]
    fn threads_may_share_their_lots() {
        let roaming = Roaming::new(ROAM_AFTER, 1);
        let draw = || (0..1_000_000).filter(|_| roaming.draw_lines(16)).count();
        let wins = std::thread::scope(|scope| {
            let other = scope.spawn(draw);
            draw() + other.join().expect("no panic")
        });
        // Steps that both take at once count once.
        assert!((100_000..=520_000).contains(&wins), "{wins}");
    }

    #[test]
    fn one_means_every_change() {
        let roaming = Roaming::new(1, 1);
        let wins = (0..10).filter(|_| roaming.draw(Change::Inode)).count();
        assert_eq!(wins, 10);
    }
}
