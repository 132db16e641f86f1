//! A directory together with its blocks, as the layers above would keep them, and the tests that use it.

mod damage;
mod free_space;
mod name_index;
mod operations;

use std::collections::BTreeMap;

use super::*;
use crate::format::InodeNumber;

pub(super) const DIRECTORY: InodeNumber = InodeNumber::new(77);

/// The state of a directory and its medium; every operation goes through both.
pub(super) struct Image {
    pub(super) state: Directory,
    pub(super) blocks: Vec<[u8; BLOCK_BYTES]>,
}

/// What one plan has produced so far.
pub(super) struct Step {
    plan: Plan,
    edits: Vec<Edit>,
    new_blocks: Vec<[u8; BLOCK_BYTES]>,
    /// Blocks of the image that stay.
    kept: usize,
}

impl Image {
    pub(super) fn new() -> Self {
        Self {
            state: Directory::new(DIRECTORY),
            blocks: Vec::new(),
        }
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<(Candidate, FileType)> {
        self.state
            .find(name, |candidate| {
                let offset = candidate.offset;
                let block = &self.blocks[offset.block_index() as usize];
                has_name(DIRECTORY, candidate, name, &block[offset.byte_in_block()..])
            })
            .expect("the medium is sound")
    }

    pub(super) fn step(&self) -> Step {
        Step {
            plan: self.state.plan(),
            edits: Vec::new(),
            new_blocks: Vec::new(),
            kept: self.blocks.len(),
        }
    }

    pub(super) fn insert(&self, step: &mut Step, name: &[u8], inode: u64) {
        let inode = InodeNumber::new(inode);
        match step
            .plan
            .insert(&self.state, name, inode, FileType::Regular)
        {
            Some(edit) => step.edits.push(edit),
            None => {
                let mut block = [0xEE; BLOCK_BYTES];
                let index = step
                    .plan
                    .insert_in_new_block(name, inode, FileType::Regular, &mut block)
                    .unwrap();
                assert_eq!(index, (step.kept + step.new_blocks.len()) as u64);
                step.new_blocks.push(block);
            }
        }
    }

    pub(super) fn remove(&self, step: &mut Step, name: &[u8]) {
        let (found, _) = self.find(name).unwrap();
        step.edits.push(step.plan.remove(&self.state, name, found));
    }

    pub(super) fn replace(&self, step: &mut Step, name: &[u8], inode: u64) {
        let (found, _) = self.find(name).unwrap();
        step.edits.push(
            step.plan
                .replace(name, found, InodeNumber::new(inode), FileType::Symlink),
        );
    }

    /// Gives up to three free blocks at the end back; changes that were planned for them are void.
    pub(super) fn shrink(&self, step: &mut Step) {
        let blocks = step.plan.shrink(&self.state, 3) as usize;
        step.kept = step.kept.min(blocks);
        step.new_blocks.truncate(blocks - step.kept);
        step.edits
            .retain(|edit| edit.offset < (blocks * BLOCK_BYTES) as u64);
    }

    /// Writes what the step produced, and lets the state follow.
    pub(super) fn commit(&mut self, mut step: Step) {
        self.blocks.truncate(step.kept);
        self.blocks.append(&mut step.new_blocks);
        for edit in &step.edits {
            let (block, byte) = (
                edit.offset as usize / BLOCK_BYTES,
                edit.offset as usize % BLOCK_BYTES,
            );
            assert!(edit.bytes.len().is_multiple_of(UNIT_BYTES) && byte.is_multiple_of(UNIT_BYTES));
            self.blocks[block][byte..byte + edit.bytes.len()].copy_from_slice(&edit.bytes);
        }
        self.state.commit(step.plan);
    }

    pub(super) fn insert_now(&mut self, name: &[u8], inode: u64) {
        let mut step = self.step();
        self.insert(&mut step, name, inode);
        self.commit(step);
    }

    pub(super) fn remove_now(&mut self, name: &[u8]) {
        let mut step = self.step();
        self.remove(&mut step, name);
        self.commit(step);
    }

    pub(super) fn reloaded(&self) -> Directory {
        let mut state = Directory::new(DIRECTORY);
        for (index, block) in self.blocks.iter().enumerate() {
            state.load_block(index as u64, block).unwrap();
        }
        state
    }

    /// The blocks decode to exactly the model, and the state is what the blocks say.
    pub(super) fn assert_is(&self, model: &BTreeMap<Vec<u8>, u64>) {
        let mut names = BTreeMap::new();
        let mut free_bytes = 0;
        for (index, block) in self.blocks.iter().enumerate() {
            let mut free = Vec::new();
            for record in records(block, index as u64, DIRECTORY) {
                match record.unwrap() {
                    Record::Entry(entry) => {
                        assert!(
                            names
                                .insert(entry.name.to_vec(), entry.inode.get())
                                .is_none(),
                            "a name twice"
                        );
                    }
                    Record::Free { offset, bytes } => free.push((offset.byte_in_block(), bytes)),
                }
            }
            free_bytes += free.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>();
            assert_eq!(
                self.state.free_ranges(index as u64).collect::<Vec<_>>(),
                free,
                "free ranges of block {index}"
            );
        }
        assert_eq!(&names, model);
        let reloaded = self.reloaded();
        for state in [&self.state, &reloaded] {
            assert_eq!(state.len(), model.len());
            assert_eq!(state.is_empty(), model.is_empty());
            assert_eq!(state.free_bytes(), free_bytes);
            assert_eq!(state.blocks(), self.blocks.len() as u64);
            state.free.assert_consistent();
            state.assert_consistent();
        }
        for (name, inode) in model {
            let (candidate, _) = self.find(name).expect("a name of the model is found");
            assert_eq!(candidate.inode.get(), *inode);
        }
    }
}

/// A name of the given length that depends on `number`.
pub(super) fn name(number: usize, length: usize) -> Vec<u8> {
    let mut name = format!("{number:x}~").into_bytes();
    name.resize(length.max(name.len()), b'\xFE');
    name
}
