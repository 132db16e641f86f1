//! The content of a file, compared by what reads return: a hole and a block of zeros are the same.

use pmem::BLOCK_BYTES;
use std::collections::BTreeMap;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A sparse file: its size, and the blocks that are not all zeros.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Content {
    /// Bytes.
    pub size: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Content {
    /// Writes `data` at `offset`; the file grows if it has to.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.size = self.size.max(offset + data.len() as u64);
        self.store(offset, offset + data.len() as u64, |at| {
            data[(at - offset) as usize]
        });
    }

    /// Makes `from..to` zeros without a change of size. An empty or backward range is nothing.
    pub fn zero(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let touched: Vec<u64> = self
            .blocks
            .range(from / BLOCK..to.div_ceil(BLOCK))
            .map(|(index, _)| *index)
            .collect();
        for index in touched {
            let (start, end) = (from.max(index * BLOCK), to.min((index + 1) * BLOCK));
            self.store(start, end, |_| 0);
        }
    }

    /// Cuts or extends to `size` bytes.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size.next_multiple_of(BLOCK));
        }
        self.size = size;
    }

    /// The blocks that are not all zeros, by index.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.blocks
            .iter()
            .map(|(index, block)| (*index, &block[..]))
    }

    /// Whether it has the size of both others, and each aligned word is that of one of them.
    pub fn is_between(&self, before: &Content, after: &Content) -> bool {
        const WORD: usize = size_of::<u64>();
        let block = |content: &'_ Content, index: u64| match content.blocks.get(&index) {
            Some(block) => block.to_vec(),
            None => vec![0; BLOCK_BYTES],
        };
        let all = [self, before, after];
        let mut indexes = all.iter().flat_map(|content| content.blocks.keys());
        self.size == before.size
            && self.size == after.size
            && indexes.all(|&index| {
                let [found, before, after] = all.map(|content| block(content, index));
                let words = found
                    .chunks(WORD)
                    .zip(before.chunks(WORD).zip(after.chunks(WORD)));
                words
                    .into_iter()
                    .all(|(found, (before, after))| found == before || found == after)
            })
    }

    fn store(&mut self, from: u64, to: u64, byte: impl Fn(u64) -> u8) {
        let mut at = from;
        while at < to {
            let index = at / BLOCK;
            let end = to.min((index + 1) * BLOCK);
            let block = self
                .blocks
                .entry(index)
                .or_insert_with(|| vec![0; BLOCK_BYTES].into());
            for position in at..end {
                block[(position % BLOCK) as usize] = byte(position);
            }
            if block.iter().all(|&byte| byte == 0) {
                self.blocks.remove(&index);
            }
            at = end;
        }
    }
}

/// Bytes that differ from place to place, so that a block in the wrong place is noticed.
pub fn pattern(byte: u8, offset: u64, bytes: usize) -> Vec<u8> {
    (offset..offset + bytes as u64)
        .map(|at| byte.wrapping_add((at / 7) as u8) | 1)
        .collect()
}

pub(crate) fn link_target(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + (at % 26) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_holes_are_the_same() {
        let mut content = Content::default();
        content.write(5000, &[1; 5000]);
        content.write(0, &[0; 100]);
        assert_eq!(
            content.blocks().map(|(index, _)| index).collect::<Vec<_>>(),
            [1, 2]
        );
        content.zero(4096, 8192);
        content.zero(9500, 9000);
        assert_eq!(
            content.blocks().map(|(index, _)| index).collect::<Vec<_>>(),
            [2]
        );
        content.resize(9000);
        content.resize(20_000);
        let last = content.blocks().next().map(|(_, block)| block.to_vec());
        assert_eq!(last.map(|block| (block[807], block[808])), Some((1, 0)));
        content.resize(0);
        assert_eq!(content, Content::default());
    }
}
