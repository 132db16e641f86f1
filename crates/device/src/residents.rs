//! Knowledge of each block of memory: whether the device has the same content, and how often the
//! block was used lately.
//!
//! A block of memory is *clean* if a block of the device, its *twin*, has the same content. Clean
//! blocks are evicted without a write. A word for each block says so, in DRAM: after a power cut no
//! block is clean, and no pointer names a twin.
//!
//! A copy begins with a ticket, and the block becomes clean only if the ticket is still there when
//! the device has the content. A change in place tears the ticket **after** it was made (T2): a
//! copy that began later has seen the change, and one that began before finds its ticket gone. A
//! block that loses its owner tears it before it gets another one.

use crate::block::DeviceBlock;
use pmem::BlockNumber;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Uses that are counted; a sweep takes one away.
const HEAT_MAX: u8 = 3;
const DIRTY: u64 = 0;
/// In the low half of a word: a copy is under way, and the high half is its ticket.
const COPYING: u32 = u32::MAX;

/// Stands for copies that begin together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ticket(u32);

/// The block of the device with the same content as a block of memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Twin {
    /// The block.
    pub block: DeviceBlock,
    /// CRC32C of its content.
    pub checksum: u32,
}

/// Knowledge of the blocks of one region.
#[derive(Debug)]
pub struct Residents {
    words: Box<[AtomicU64]>,
    heat: Box<[AtomicU8]>,
    clean: AtomicU64,
    tickets: AtomicU32,
}

impl Twin {
    fn word(self) -> Option<u64> {
        let low = u32::try_from(self.block.get() + 1).ok();
        let low = low.filter(|&low| low != COPYING)?;
        Some(u64::from(self.checksum) << 32 | u64::from(low))
    }

    fn of_word(word: u64) -> Option<Twin> {
        match word as u32 {
            0 | COPYING => None,
            low => Some(Twin {
                block: DeviceBlock::new(u64::from(low - 1)),
                checksum: (word >> 32) as u32,
            }),
        }
    }
}

impl Ticket {
    fn word(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(COPYING)
    }
}

/// The transitions of a block's word, for real words and for those of a model checker.
trait Word {
    fn replace(&self, word: u64) -> u64;
    fn exchange(&self, from: u64, to: u64) -> bool;

    /// Dirty becomes copied.
    fn begin(&self, ticket: Ticket) -> bool {
        self.exchange(DIRTY, ticket.word())
    }

    /// Copied becomes clean, if nobody has torn the ticket.
    fn finish(&self, ticket: Ticket, to: u64) -> bool {
        self.exchange(ticket.word(), to)
    }
}

impl Word for AtomicU64 {
    fn replace(&self, word: u64) -> u64 {
        AtomicU64::swap(self, word, Ordering::AcqRel)
    }

    fn exchange(&self, from: u64, to: u64) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.compare_exchange(from, to, success, failure).is_ok()
    }
}

impl Residents {
    /// Those of a region of `blocks` blocks, all of them dirty and cold.
    pub fn new(blocks: u64) -> Residents {
        Residents {
            words: (0..blocks).map(|_| AtomicU64::new(DIRTY)).collect(),
            heat: (0..blocks).map(|_| AtomicU8::new(0)).collect(),
            clean: AtomicU64::new(0),
            tickets: AtomicU32::new(0),
        }
    }

    fn word(&self, block: BlockNumber) -> &AtomicU64 {
        &self.words[block.get() as usize]
    }

    /// A ticket for copies that begin now.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Says that a block is about to be copied. `false` if it is clean, or another copy is under
    /// way.
    pub fn begin_copy(&self, block: BlockNumber, ticket: Ticket) -> bool {
        self.word(block).begin(ticket)
    }

    /// The device has the block as it was when the copy began, durably. Returns whether the block
    /// is clean now; else it has changed meanwhile, and `twin` is nobody's.
    pub fn finish_copy(&self, block: BlockNumber, ticket: Ticket, twin: Twin) -> bool {
        let is_clean = match twin.word() {
            Some(word) => self.word(block).finish(ticket, word),
            None => false,
        };
        if is_clean {
            self.clean.fetch_add(1, Ordering::Relaxed);
        }
        is_clean
    }

    /// The copy failed: the block stays dirty.
    pub fn give_up_copy(&self, block: BlockNumber, ticket: Ticket) {
        self.word(block).finish(ticket, DIRTY);
    }

    /// A fresh block of memory has got the content of this block of the device. The caller has
    /// locked its file. Returns whether it counts as clean.
    pub fn brought_in(&self, block: BlockNumber, twin: Twin) -> bool {
        let word = twin.word();
        let is_clean = word.is_some_and(|word| self.word(block).exchange(DIRTY, word));
        if is_clean {
            self.clean.fetch_add(1, Ordering::Relaxed);
        }
        is_clean
    }

    /// The block has changed, or has no owner any more: it is dirty. Returns its twin, which is the
    /// caller's. To be called after the change.
    pub fn changed(&self, block: BlockNumber) -> Option<Twin> {
        // Always a swap: a load may miss the ticket of a copy that has not seen the change.
        let twin = Twin::of_word(self.word(block).replace(DIRTY));
        if twin.is_some() {
            self.clean.fetch_sub(1, Ordering::Relaxed);
        }
        twin
    }

    /// The block's twin, if it is clean.
    pub fn twin(&self, block: BlockNumber) -> Option<Twin> {
        Twin::of_word(self.word(block).load(Ordering::Acquire))
    }

    /// Whether the block is neither clean nor being copied.
    pub fn is_dirty(&self, block: BlockNumber) -> bool {
        self.word(block).load(Ordering::Relaxed) == DIRTY
    }

    /// Blocks that are clean.
    pub fn clean_blocks(&self) -> u64 {
        self.clean.load(Ordering::Relaxed)
    }

    /// The block was used.
    #[inline]
    pub fn used(&self, block: BlockNumber) {
        let heat = &self.heat[block.get() as usize];
        let now = heat.load(Ordering::Relaxed);
        // Two readers at once may count one use: a locked instruction would cost more than that.
        if now < HEAT_MAX {
            heat.store(now + 1, Ordering::Relaxed);
        }
    }

    /// A sweep passes: returns the block's heat, and takes one away.
    pub fn cool(&self, block: BlockNumber) -> u8 {
        let heat = &self.heat[block.get() as usize];
        let now = heat.load(Ordering::Relaxed);
        if now > 0 {
            heat.store(now - 1, Ordering::Relaxed);
        }
        now
    }

    /// The block has a new owner: nothing is known of its use.
    pub fn forget_use(&self, block: BlockNumber) {
        self.heat[block.get() as usize].store(0, Ordering::Relaxed);
    }

    /// Takes all twins away. Nobody copies, changes or evicts meanwhile.
    pub fn take_all(&self) -> impl Iterator<Item = Twin> + '_ {
        let blocks = (0..self.words.len() as u64).map(BlockNumber::new);
        blocks.filter_map(|block| self.changed(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as ModelWord;

    impl Word for ModelWord {
        fn replace(&self, word: u64) -> u64 {
            ModelWord::swap(self, word, Ordering::AcqRel)
        }

        fn exchange(&self, from: u64, to: u64) -> bool {
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            self.compare_exchange(from, to, success, failure).is_ok()
        }
    }

    fn twin(index: u64) -> Twin {
        Twin {
            block: DeviceBlock::new(index),
            checksum: 7,
        }
    }

    /// A thread changes a block while another one copies it.
    fn explore(change: fn(&ModelWord, &ModelWord)) {
        loom::model(move || {
            let block = Arc::new((ModelWord::new(DIRTY), ModelWord::new(1)));
            let changed = Arc::clone(&block);
            let thread = loom::thread::spawn(move || change(&changed.0, &changed.1));
            let (word, content) = &*block;
            let clean = twin(3).word().expect("a small number");
            let mut copy = None;
            if word.begin(Ticket(1)) {
                copy = Some(content.load(Ordering::Relaxed));
                word.finish(Ticket(1), clean);
            }
            thread.join().expect("no panic");
            if word.load(Ordering::Relaxed) == clean {
                let now = content.load(Ordering::Relaxed);
                assert_eq!(copy, Some(now), "the twin has other content");
            }
        });
    }

    #[test]
    fn a_clean_block_has_the_content_of_its_twin() {
        explore(|word, content| {
            content.store(2, Ordering::Relaxed);
            word.replace(DIRTY);
        });
    }

    #[test]
    #[should_panic(expected = "the twin has other content")]
    fn a_ticket_that_is_torn_before_the_change_is_worth_nothing() {
        explore(|word, content| {
            word.replace(DIRTY);
            content.store(2, Ordering::Relaxed);
        });
    }

    #[test]
    #[should_panic(expected = "the twin has other content")]
    fn a_look_instead_of_a_swap_misses_the_ticket() {
        explore(|word, content| {
            content.store(2, Ordering::Relaxed);
            if word.load(Ordering::Relaxed) != DIRTY {
                word.replace(DIRTY);
            }
        });
    }

    #[test]
    fn a_word_knows_its_state() {
        let residents = Residents::new(8);
        let block = BlockNumber::new(5);
        let (first, second) = (residents.ticket(), residents.ticket());
        assert!(residents.begin_copy(block, first));
        assert!(!residents.begin_copy(block, second), "one copy at a time");
        assert!(!residents.is_dirty(block));
        assert_eq!(residents.twin(block), None);
        assert!(residents.finish_copy(block, first, twin(9)));
        assert_eq!(residents.twin(block), Some(twin(9)));
        assert_eq!(residents.clean_blocks(), 1);
        assert_eq!(residents.changed(block), Some(twin(9)));
        assert_eq!(residents.changed(block), None);
        assert_eq!(residents.clean_blocks(), 0);
        assert!(residents.begin_copy(block, second));
        assert_eq!(residents.changed(block), None);
        assert!(!residents.finish_copy(block, second, twin(9)));
        assert!(residents.is_dirty(block));
        let last = twin(u64::from(u32::MAX) - 1);
        assert!(residents.begin_copy(block, first));
        assert!(!residents.finish_copy(block, first, last), "no word for it");
        residents.give_up_copy(block, first);
        assert!(residents.is_dirty(block));
    }

    #[test]
    fn heat_is_lost_by_sweeps() {
        let residents = Residents::new(1);
        let block = BlockNumber::new(0);
        (0..9).for_each(|_| residents.used(block));
        let sweeps: Vec<u8> = (0..5).map(|_| residents.cool(block)).collect();
        assert_eq!(sweeps, [3, 2, 1, 0, 0]);
    }
}
