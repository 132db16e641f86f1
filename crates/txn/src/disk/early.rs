//! A batch that is begun before the sync that will wait for it.
//!
//! A program that writes a file and syncs it does so again and again, mostly with as many
//! writes each time. So the disk may begin behind the last of them, while the sync is coming.
//! Only real syncs make a file known, and one that does not come takes that back.

use super::logger::{Logger, Shared};
use super::policy::Durability;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Files that share a slot forget each other, and that costs their batches the head start only.
const SLOTS: usize = 64;
/// A sync this long after the last write needs no head start.
const SOON: Duration = Duration::from_millis(1);
/// After so many rounds alike the next one is expected to be so.
const TIMES: u8 = 2;

/// The writes and syncs of one file.
#[derive(Debug, Default)]
struct Habit {
    inode: u64,
    /// Since the last sync.
    writes: u32,
    last_write: Option<Instant>,
    /// Between the last two syncs.
    expected: u32,
    /// How many times there were so many.
    times: u8,
}

impl Habit {
    fn of(&mut self, inode: u64) -> &mut Habit {
        if self.inode != inode {
            *self = Habit {
                inode,
                ..Habit::default()
            };
        }
        self
    }

    /// Whether a sync is expected next.
    fn is_written(&mut self, now: Instant) -> bool {
        self.writes = self.writes.saturating_add(1);
        self.last_write = Some(now);
        if self.writes > self.expected {
            self.times = 0;
        }
        self.times >= TIMES && self.writes == self.expected
    }

    fn is_synced(&mut self, now: Instant) {
        let Some(last_write) = self.last_write.take() else {
            return;
        };
        let is_soon = now.saturating_duration_since(last_write) < SOON;
        self.times = match is_soon && self.writes == self.expected {
            true => (self.times + 1).min(TIMES),
            false => u8::from(is_soon),
        };
        self.expected = self.writes;
        self.writes = 0;
    }
}

/// The habits of files that were written or synced lately.
#[derive(Debug)]
pub(super) struct Habits(Box<[Mutex<Habit>]>);

impl Habits {
    /// With the policy `call` each call waits for its own batch.
    pub(super) fn new(durability: Durability) -> Habits {
        let slots = match durability {
            Durability::Call => 0,
            Durability::Fsync(_) => SLOTS,
        };
        Habits((0..slots).map(|_| Mutex::default()).collect())
    }

    fn with<T>(&self, inode: u64, note: impl FnOnce(&mut Habit) -> T) -> Option<T> {
        let slot = self.0.get(inode as usize % SLOTS)?;
        Some(note(slot.lock().of(inode)))
    }
}

impl Shared {
    /// Writes a batch now, unless others are on their way: the next one is due behind them anyway.
    fn begin_early(&self) {
        if self.has_failed() || self.placed() >= self.journals.sequence() {
            return;
        }
        let mut state = self.state();
        if state.in_flight > 0 {
            return;
        }
        state.in_flight += 1;
        drop(state);
        let _waiting = self.watch.begin();
        // A failure ends the log, and each sync says so.
        let _ = self.write_batch();
        self.end_write();
    }
}

impl Logger {
    /// This file was written by this moment, and the answer is sent: writes a batch if a sync is
    /// expected next.
    pub fn written(&self, inode: u64, now: Instant) {
        let habits = &self.shared.habits;
        if habits.with(inode, |habit| habit.is_written(now)) == Some(true) {
            self.shared.begin_early();
        }
    }

    /// This file is to be synced.
    pub fn synced(&self, inode: u64, now: Instant) {
        let habits = &self.shared.habits;
        habits.with(inode, |habit| habit.is_synced(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the writes between two syncs had the batch begun, one letter each.
    fn rounds(habit: &mut Habit, now: Instant, writes: &[u32]) -> Vec<String> {
        let round = |&writes: &u32| {
            let begun = (0..writes).map(|_| if habit.is_written(now) { 'b' } else { '-' });
            let begun = begun.collect();
            habit.is_synced(now);
            begun
        };
        writes.iter().map(round).collect()
    }

    #[test]
    fn a_batch_is_begun_behind_the_last_of_as_many_writes_as_before() {
        let (mut habit, now) = (Habit::default(), Instant::now());
        let begun = rounds(&mut habit, now, &[2, 2, 2, 2]);
        assert_eq!(begun, ["--", "--", "-b", "-b"]);
        let begun = rounds(&mut habit, now, &[3, 3, 3, 1, 3, 1]);
        assert_eq!(begun, ["-b-", "---", "--b", "-", "---", "-"]);
    }

    #[test]
    fn writes_without_a_sync_begin_one_batch_at_most() {
        let (mut habit, now) = (Habit::default(), Instant::now());
        assert_eq!(rounds(&mut habit, now, &[1, 1, 1]), ["-", "-", "b"]);
        let begun = (0..1000).filter(|_| habit.is_written(now)).count();
        assert_eq!(begun, 1);
        habit.is_synced(now);
        assert_eq!(rounds(&mut habit, now, &[1]), ["-"]);
    }

    #[test]
    fn late_syncs_and_other_files_are_no_habit() {
        let (mut habit, now) = (Habit::default(), Instant::now());
        for round in 0..9 {
            assert!(!habit.is_written(now), "round {round}");
            habit.is_synced(now + SOON);
        }
        rounds(&mut habit, now, &[1, 1, 1]);
        assert!(!habit.of(7).is_written(now));
        // Further syncs without writes change nothing.
        rounds(habit.of(7), now, &[1, 1, 1]);
        habit.is_synced(now);
        assert!(habit.of(7).is_written(now));
    }
}
