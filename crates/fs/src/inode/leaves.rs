//! Where the pointers of a leased file, or of a lease, are kept: what folding has to know of each record.

use crate::block_map::{BlockMap, DamagedAt, Slot};
use crate::format::map::{FANOUT, FANOUT_BITS};
use pmem::{Offset, WORD_BYTES};
use txn::{Store, Transaction};
use zerocopy::IntoBytes;

/// Nodes that are remembered: those of 1 GiB in a row.
const LEAVES: usize = 512;

/// Lowest nodes of a block map that were looked up before. They stay where they are as long as the lease lasts (L1), so most records need no way through the map.
pub(crate) struct Leaves {
    /// The number of a node among all lowest ones, and where it lies; in the place that the number's last bits say.
    known: Box<[Option<(u64, Offset)>; LEAVES]>,
}

impl Leaves {
    pub(crate) fn new() -> Leaves {
        Leaves {
            known: Box::new([None; LEAVES]),
        }
    }

    /// Where the pointer to block `index` is kept, if its node is known.
    #[inline]
    pub(crate) fn known(&self, index: u64) -> Option<Offset> {
        let number = index >> FANOUT_BITS;
        let known = self.known[number as usize % LEAVES];
        let (_, leaf) = known.filter(|(known, _)| *known == number)?;
        Some(leaf + (index & (FANOUT - 1)) * WORD_BYTES as u64)
    }

    /// Where the map keeps the pointer to block `index`.
    #[inline]
    pub(crate) fn slot<S: Store>(
        &mut self,
        store: &S,
        map: &BlockMap,
        index: u64,
    ) -> Result<Slot, DamagedAt> {
        if let Some(at) = self.known(index) {
            return Ok(Slot::Word(at));
        }
        let slot = map.slot(store, index)?;
        if let Slot::Word(at) = slot {
            let number = index >> FANOUT_BITS;
            self.known[number as usize % LEAVES] = Some((number, at.block().offset()));
        }
        Ok(slot)
    }
}

/// Pointers that are going to be stored: those that lie in a row in one node are one change.
#[derive(Default)]
pub(crate) struct Run {
    first: Option<Offset>,
    words: Vec<u64>,
}

impl Run {
    /// Stores `word` at `at`, now or with those that follow.
    #[inline]
    pub(crate) fn store(&mut self, transaction: &mut impl Transaction, at: Offset, word: u64) {
        let is_next = self.first.is_some_and(|first| {
            let bytes = (self.words.len() * WORD_BYTES) as u64;
            at == first + bytes && at.block() == first.block()
        });
        if !is_next {
            self.end(transaction);
            self.first = Some(at);
        }
        self.words.push(word.to_le());
    }

    /// Stores what is left.
    #[inline]
    pub(crate) fn end(&mut self, transaction: &mut impl Transaction) {
        if let Some(first) = self.first.take() {
            match self.words[..] {
                [word] => transaction.store_word(first, u64::from_le(word)),
                _ => transaction.store(first, self.words.as_bytes()),
            }
        }
        self.words.clear();
    }
}
