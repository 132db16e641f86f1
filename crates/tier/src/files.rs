//! The files that have blocks in memory: by the age of their dirty blocks, and as a ring for
//! sweeps.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::time::Instant;

/// A file that may have dirty blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dirty {
    /// Its number.
    pub file: u64,
    /// No block of it has been dirty for longer.
    pub since: Instant,
    /// The first block that may be dirty for so long.
    pub from_block: u64,
    /// The rest of a pass that was broken off. The file may be known as dirty anew beside it.
    pub is_rest: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether the file is among those by age.
    is_dirty: bool,
    /// Where the next sweep of the file begins.
    next_block: u64,
}

/// Files with blocks in memory.
///
/// A file is here from its first change, or from the look at all files after a mount, until a sweep
/// finds no block of it in memory.
#[derive(Debug, Default)]
pub struct Files {
    known: HashMap<u64, Known, RandomState>,
    /// Oldest first.
    by_age: VecDeque<Dirty>,
    ring: VecDeque<u64>,
}

impl Files {
    /// A file has a dirty block since `now`.
    pub fn changed(&mut self, file: u64, now: Instant) {
        let known = self.known.entry(file).or_insert_with(|| {
            self.ring.push_back(file);
            Known::default()
        });
        if !known.is_dirty {
            known.is_dirty = true;
            self.by_age.push_back(Dirty {
                file,
                since: now,
                from_block: 0,
                is_rest: false,
            });
        }
    }

    /// Since when the oldest dirty block is dirty, at most.
    pub fn oldest(&self) -> Option<Instant> {
        self.by_age.front().map(|dirty| dirty.since)
    }

    /// Takes the file with the oldest dirty blocks, if they are dirty since `until` or before.
    /// Changes from now on count anew.
    pub fn take_dirty(&mut self, until: Instant) -> Option<Dirty> {
        let dirty = *self.by_age.front().filter(|dirty| dirty.since <= until)?;
        self.by_age.pop_front();
        if let Some(known) = self.known.get_mut(&dirty.file)
            && !dirty.is_rest
        {
            known.is_dirty = false;
        }
        Some(dirty)
    }

    /// The file's blocks from `from_block` on were not copied: they keep their age.
    pub fn put_back(&mut self, dirty: Dirty) {
        self.by_age.push_front(Dirty {
            is_rest: true,
            ..dirty
        });
        if !self.known.contains_key(&dirty.file) {
            self.known.insert(dirty.file, Known::default());
            self.ring.push_back(dirty.file);
        }
    }

    /// Takes the next file to be swept, with the block from which on.
    pub fn next_to_sweep(&mut self) -> Option<(u64, u64)> {
        let file = self.ring.pop_front()?;
        let next_block = self.known.get(&file).map_or(0, |known| known.next_block);
        Some((file, next_block))
    }

    /// A sweep has left a file at `next_block`, or has reached its end (`None`). The file is swept
    /// again, from there or behind all others; without a block in memory it is forgotten, until it
    /// changes.
    pub fn swept(&mut self, file: u64, next_block: Option<u64>, has_blocks: bool) {
        let Some(known) = self.known.get_mut(&file) else {
            return;
        };
        known.next_block = next_block.unwrap_or(0);
        match next_block {
            Some(_) => self.ring.push_front(file),
            None if has_blocks || known.is_dirty => self.ring.push_back(file),
            None => {
                self.known.remove(&file);
            }
        }
    }

    /// Files that are known.
    pub fn count(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        // Instants have no zero of their own.
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BEGIN.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    fn taken(files: &mut Files, until: u64) -> Option<(u64, u64)> {
        let dirty = files.take_dirty(at(until));
        dirty.map(|dirty| (dirty.file, dirty.from_block))
    }

    #[test]
    fn the_oldest_file_comes_first_and_only_when_it_is_old() {
        let mut files = Files::default();
        files.changed(7, at(1));
        files.changed(8, at(2));
        files.changed(7, at(3));
        assert_eq!(files.oldest(), Some(at(1)));
        assert_eq!(taken(&mut files, 0), None);
        assert_eq!(taken(&mut files, 1), Some((7, 0)));
        assert_eq!(taken(&mut files, 1), None);
        files.changed(7, at(4));
        assert_eq!(taken(&mut files, 9), Some((8, 0)));
        assert_eq!(taken(&mut files, 9), Some((7, 0)));
        assert_eq!(files.oldest(), None);
    }

    #[test]
    fn the_rest_of_a_pass_keeps_its_age_beside_new_changes() {
        let mut files = Files::default();
        files.changed(7, at(1));
        let dirty = files.take_dirty(at(1)).expect("an old file");
        files.changed(7, at(5));
        files.put_back(Dirty {
            from_block: 100,
            ..dirty
        });
        assert_eq!(taken(&mut files, 1), Some((7, 100)));
        // The file is known as dirty still.
        files.changed(7, at(6));
        assert_eq!(files.oldest(), Some(at(5)));
        assert_eq!(taken(&mut files, 5), Some((7, 0)));
        assert_eq!(taken(&mut files, 9), None);
    }

    #[test]
    fn sweeps_go_round_and_forget_files_without_blocks() {
        let mut files = Files::default();
        (1..=3).for_each(|file| files.changed(file, at(file)));
        assert_eq!(files.next_to_sweep(), Some((1, 0)));
        files.swept(1, Some(40), true);
        assert_eq!(files.next_to_sweep(), Some((1, 40)));
        files.swept(1, None, true);
        assert_eq!(files.next_to_sweep(), Some((2, 0)));
        assert_eq!(taken(&mut files, 1), Some((1, 0)));
        assert_eq!(taken(&mut files, 2), Some((2, 0)));
        files.swept(2, None, false);
        assert_eq!(files.count(), 2);
        assert_eq!(files.next_to_sweep(), Some((3, 0)));
        // It is dirty, whatever the sweep saw.
        files.swept(3, None, false);
        assert_eq!(files.next_to_sweep(), Some((1, 0)));
        files.swept(1, None, true);
        files.changed(2, at(9));
        assert_eq!(files.count(), 3);
    }
}
