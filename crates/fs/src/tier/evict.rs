//! Evicting clean blocks: the pointer names the twin, and the memory is free.
//!
//! Sweeps go round through all files with blocks in memory. A block that was used since the last
//! sweep stays, and loses one use; up to three are counted, so that a block in steady use survives
//! while blocks that were written or read once pass. A file that a process has attached is left
//! alone, and so is a block that a process may still see.

use crate::block_map::{BlockMap, MapEditor, free_block};
use crate::changes::relocate::{BLOCKS_AT_ONCE, copy_block, finish};
use crate::format::{BLOCK, InodeNumber, Pointer};
use crate::inode::node::{Body, Node};
use crate::mounted::file_system::Core;
use crate::mounted::tiering::Tiering;
use crate::values::error::FsError;
use device::{Residents, Twin};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::DomainId;
use std::sync::atomic::Ordering;
use txn::{Store, Transaction};

/// Blocks that a call looks at for each one that it should evict, at least.
const LOOKS_MIN: u64 = 4 * BLOCKS_AT_ONCE;

/// A block to be evicted.
#[derive(Clone, Copy)]
struct Candidate {
    /// Its index in the file.
    index: u64,
    block: BlockNumber,
}

/// Blocks whose twins were taken, to be given back unless the eviction commits.
struct Taken<'r> {
    residents: &'r Residents,
    blocks: Vec<(Candidate, Twin)>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (candidate, twin) in &self.blocks {
            self.residents.brought_in(candidate.block, *twin);
        }
    }
}

impl<S: Store> Core<S> {
    /// Evicts about `wanted` blocks. Returns how many it has evicted: fewer if few are clean, or if
    /// most are in use, so that it takes another sweep.
    pub(super) fn evict(&self, tier: &Tiering, wanted: u64) -> u64 {
        let (mut evicted, mut looked) = (0, 0);
        let blocks = self.store.geometry().total_blocks();
        // Each block is looked at as often as its uses are counted.
        let looks_max = LOOKS_MIN.max(4 * blocks);
        while evicted < wanted && looked < looks_max {
            let next = tier.files.lock().next_to_sweep();
            let Some((file, next_block)) = next else {
                break;
            };
            if self.begin_change().is_err() {
                // Of class `log`: nothing becomes durable any more.
                tier.files.lock().swept(file, Some(next_block), true);
                break;
            }
            let number = InodeNumber::new(file);
            let swept = self.sweep(number, next_block, wanted - evicted);
            let (next, has_blocks, looks, count) = swept.unwrap_or_else(|error| {
                if !matches!(error, FsError::NotFound) {
                    tracing::warn!(inode = file, %error, "blocks of a file are not evicted");
                }
                (None, !matches!(error, FsError::NotFound), BLOCKS_AT_ONCE, 0)
            });
            tier.files.lock().swept(file, next, has_blocks);
            looked += looks.max(1);
            evicted += count;
        }
        tier.counters.evicted.fetch_add(evicted, Ordering::Relaxed);
        evicted
    }

    /// Sweeps a file from a block on, until `wanted` blocks are evicted. Returns where the next
    /// sweep goes on, whether the file has blocks in memory, how many were looked at, and how many
    /// are evicted.
    fn sweep(
        &self,
        number: InodeNumber,
        from: u64,
        wanted: u64,
    ) -> Result<(Option<u64>, bool, u64, u64), FsError> {
        let node = self.node(number)?;
        let Some((_, residents)) = self.tiered() else {
            return Ok((None, false, 0, 0));
        };
        let (mut next, mut has_blocks, mut looked, mut evicted) = (from, from > 0, 0, 0);
        while evicted < wanted {
            let mut candidates = Vec::new();
            let body = node.read();
            if body.require_regular().is_err() {
                return Ok((None, false, looked, evicted));
            }
            let map = BlockMap::of(number, &body.raw);
            let Some(first) = map.next_mapped(&self.store, next)? else {
                return Ok((None, has_blocks, looked, evicted));
            };
            map.lookup_range(&self.store, first, BLOCKS_AT_ONCE, |index, pointer| {
                let Some(Pointer::Written(block)) = pointer else {
                    return;
                };
                (has_blocks, looked) = (true, looked + 1);
                if residents.cool(block) == 0 && residents.twin(block).is_some() {
                    candidates.push(Candidate { index, block });
                }
            })?;
            drop(body);
            if !candidates.is_empty() {
                evicted += self.evict_blocks(&node, residents, &candidates)?;
            }
            next = first + BLOCKS_AT_ONCE;
        }
        Ok((Some(next), true, looked, evicted))
    }

    /// Evicts blocks of a file: one transaction.
    fn evict_blocks(
        &self,
        node: &Node,
        residents: &Residents,
        candidates: &[Candidate],
    ) -> Result<u64, FsError> {
        let mut body = node.write();
        if body.is_attached() && !deliberate::is(Bug::EvictAttached) {
            return Ok(0);
        }
        let map = BlockMap::of(node.number(), &body.raw);
        let mut taken = Taken {
            residents,
            blocks: Vec::new(),
        };
        let seen = self.store.seen_blocks();
        for &candidate in candidates {
            let place = Pointer::Written(candidate.block);
            if map.lookup(&self.store, candidate.index)? != Some(place)
                || seen.is_any() && seen.sees(&mut [candidate.block].into_iter())
            {
                continue;
            }
            if let Some(twin) = residents.changed(candidate.block) {
                match self.is_same(&body, candidate, twin)? {
                    true => taken.blocks.push((candidate, twin)),
                    false => self.store.free_twin(twin.block),
                }
            }
        }
        let (Some(first), Some(last)) = (taken.blocks.first(), taken.blocks.last()) else {
            return Ok(0);
        };
        let bytes = first.0.index * BLOCK..(last.0.index + 1) * BLOCK;
        body.changes_content(&self.copies, bytes);
        self.swap_pointers(node, &mut body, map, &taken)?;
        if deliberate::is(Bug::KeepTwinOfEvicted) {
            return Ok(taken.blocks.len() as u64);
        }
        Ok(std::mem::take(&mut taken.blocks).len() as u64)
    }

    /// Whether a block still has the content of its twin. Only a process that stores into blocks
    /// that it was not given, or a mistake, can make a difference; it costs little to ask.
    fn is_same(&self, body: &Body, candidate: Candidate, twin: Twin) -> Result<bool, FsError> {
        let mut content = [0; BLOCK_BYTES];
        let place = (candidate.index, Pointer::Written(candidate.block));
        copy_block(self, place, body.raw.size, &mut content)?;
        Ok(pmem::crc32c(&content) == twin.checksum || deliberate::is(Bug::EvictUnseen))
    }

    fn swap_pointers(
        &self,
        node: &Node,
        body: &mut Body,
        map: BlockMap,
        taken: &Taken<'_>,
    ) -> Result<(), FsError> {
        let mut transaction = self.begin();
        let mut editor = MapEditor::new(&self.store, map);
        let follows =
            |one: &(Candidate, Twin), next: &(Candidate, Twin)| one.0.index + 1 == next.0.index;
        for run in taken.blocks.chunk_by(follows) {
            let pointers: Vec<Pointer> = run
                .iter()
                .map(|(_, twin)| Pointer::Device(twin.block))
                .collect();
            let first = run[0].0.index;
            editor.set(&mut transaction, first, &pointers, DomainId::METADATA)?;
        }
        let twins: Vec<Twin> = taken.blocks.iter().map(|(_, twin)| *twin).collect();
        transaction.adopt_device(&twins);
        for (candidate, _) in &taken.blocks {
            free_block(&mut transaction, Pointer::Written(candidate.block));
        }
        finish(node.number(), body, editor, transaction)
    }
}
