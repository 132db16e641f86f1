//! Free runs within one segment.

use crate::tree::Tree;

/// Which leaves a search for a run may enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Only those with a block in use: whole free leaves are kept for those who need them.
    Touched,
    All,
}

/// What a search for a run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// The run starts at this offset.
    At(u32),
    /// None is long enough; this is the longest.
    Longest { start: u32, blocks: u32 },
}

impl Run {
    pub(crate) fn start(self) -> Option<u32> {
        match self {
            Self::At(start) => Some(start),
            Self::Longest { .. } => None,
        }
    }
}

impl Tree<'_> {
    /// The first free run of `blocks` that starts at a multiple of `align` at or after the leaf-aligned offset `from`, running on from the
    /// segment's start when the end is reached. Full and empty leaves are passed in one step.
    pub(crate) fn find_run(&mut self, from: u32, blocks: u32, align: u32, leaves: Leaves) -> Run {
        let end = self.shape.blocks;
        let behind = self.find_run_within(from, end, blocks, align, leaves);
        if from == 0 || matches!(behind, Run::At(_)) {
            return behind;
        }
        // A run may cross `from`: the second half of the search starts over at 0 and sees the whole segment.
        self.find_run_within(0, end, blocks, align, leaves)
    }

    /// The longest free run.
    pub(crate) fn longest_run(&mut self, leaves: Leaves) -> u32 {
        match self.find_run(0, self.shape.blocks + 1, 1, leaves) {
            Run::At(_) => unreachable!("a run longer than the segment"),
            Run::Longest { blocks, .. } => blocks,
        }
    }

    fn find_run_within(
        &mut self,
        from: u32,
        end: u32,
        blocks: u32,
        align: u32,
        leaves: Leaves,
    ) -> Run {
        let leaf_blocks = self.shape.leaf_blocks;
        let mut scan = RunScan {
            start: from,
            blocks,
            align,
            longest: (from, 0),
        };
        let mut at = from;
        while at < end {
            if at & (leaf_blocks - 1) == 0 {
                let used = self.leaf_used(self.shape.leaf_of(at));
                if used == leaf_blocks
                    || (used == 0 && leaves == Leaves::Touched)
                    || (used > 0 && align >= leaf_blocks)
                {
                    scan.stop(at, at + leaf_blocks);
                    at += leaf_blocks;
                    continue;
                }
                if used == 0 {
                    at += leaf_blocks;
                    if let Some(start) = scan.fits(at) {
                        return Run::At(start);
                    }
                    continue;
                }
            }
            let word = *self.word(at / 64);
            if let Some(start) = scan.word(at, word) {
                return Run::At(start);
            }
            at += 64;
        }
        scan.stop(end, end);
        Run::Longest {
            start: scan.longest.0,
            blocks: scan.longest.1,
        }
    }

    /// The first free run of `blocks` within `start..end`.
    pub(crate) fn first_run(&mut self, start: u32, end: u32, blocks: u32) -> Option<u32> {
        let mut at = start;
        loop {
            at = self.first_zero(at, end)?;
            if at + blocks > end {
                return None;
            }
            match self.first_unlike(at, blocks, false) {
                None => return Some(at),
                Some(in_use) => at = in_use + 1,
            }
            if at >= end {
                return None;
            }
        }
    }

    /// An upper bound of the free run around a range that was just freed: exact up to a leaf's length on either side.
    #[inline]
    pub(crate) fn run_around(&mut self, start: u32, blocks: u32) -> u32 {
        let (bit, end) = (start % 64, start % 64 + blocks);
        if bit > 0 && end < 64 {
            let word = *self.word(start / 64);
            let (below, above) = (word << (64 - bit), word >> end);
            if below != 0 && above != 0 {
                return below.leading_zeros() + blocks + above.trailing_zeros();
            }
        }
        self.run_around_words(start, blocks)
    }

    /// The same, for runs that may reach beyond one word.
    fn run_around_words(&mut self, start: u32, blocks: u32) -> u32 {
        let (mut low, mut high) = (start, start + blocks);
        while low > 0 && start - low < self.shape.leaf_blocks {
            let in_word = (low - 1) % 64 + 1;
            let zeros = (*self.word((low - 1) / 64) << (64 - in_word))
                .leading_zeros()
                .min(in_word);
            low -= zeros;
            if zeros < in_word {
                break;
            }
        }
        while high < self.shape.blocks && high - start - blocks < self.shape.leaf_blocks {
            let in_word = 64 - high % 64;
            let zeros = (*self.word(high / 64) >> (high % 64))
                .trailing_zeros()
                .min(in_word);
            high += zeros;
            if zeros < in_word {
                break;
            }
        }
        let stopped = (low > 0 && start - low >= self.shape.leaf_blocks)
            || (high < self.shape.blocks && high - start - blocks >= self.shape.leaf_blocks);
        if stopped {
            self.shape.blocks - self.used()
        } else {
            high.min(self.shape.blocks) - low
        }
    }
}

/// The state of a scan for a run: where the current one started, and the longest so far.
struct RunScan {
    start: u32,
    blocks: u32,
    /// A power of two.
    align: u32,
    longest: (u32, u32),
}

impl RunScan {
    #[inline]
    fn aligned_start(&self) -> u32 {
        (self.start + self.align - 1) & !(self.align - 1)
    }

    /// The aligned start of the current run, if it is long enough when it reaches to `end`.
    #[inline]
    fn fits(&self, end: u32) -> Option<u32> {
        let start = self.aligned_start();
        (start + self.blocks <= end).then_some(start)
    }

    /// The current run ends before `end`; the next may start at `next`.
    #[inline]
    fn stop(&mut self, end: u32, next: u32) {
        let start = self.aligned_start();
        let length = end.saturating_sub(start) & !(self.align - 1);
        if length > self.longest.1 {
            self.longest = (start, length);
        }
        self.start = next;
    }

    /// Takes 64 blocks into account; returns where a long enough run starts.
    #[inline]
    fn word(&mut self, at: u32, word: u64) -> Option<u32> {
        let before = word.trailing_zeros();
        if let Some(start) = self.fits(at + before) {
            return Some(start);
        }
        if word == 0 {
            return None;
        }
        let behind = word.leading_zeros();
        // Most words of an aged leaf hold only short runs: one look at the longest, then on to the next word.
        if self.align > 1 || longest_run_of_zeros(word) > self.longest.1.min(self.blocks - 1) {
            return self.word_bit_by_bit(at, word);
        }
        self.stop(at + before, at + 64 - behind);
        None
    }

    #[cold]
    fn word_bit_by_bit(&mut self, at: u32, word: u64) -> Option<u32> {
        let mut bit = 0;
        while bit < 64 {
            let zeros = (word >> bit).trailing_zeros().min(64 - bit);
            bit += zeros;
            if let Some(start) = self.fits(at + bit) {
                return Some(start);
            }
            if bit < 64 {
                let ones = (word >> bit).trailing_ones();
                self.stop(at + bit, at + bit + ones);
                bit += ones;
            }
        }
        None
    }
}

/// Each step shortens every run of zeros by one, so the steps until none is left are the length of the longest.
#[inline]
fn longest_run_of_zeros(word: u64) -> u32 {
    let (mut zeros, mut length) = (!word, 0);
    while zeros != 0 {
        zeros &= zeros << 1;
        length += 1;
    }
    length
}
