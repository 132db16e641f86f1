//! One thread changes a file in every way there is; after each change every block is read twice, from the medium and from its copy.

use fs::{AllocateOptions, FileSystem, Node, SetAttributes};
use perdure_fs as fs;

use super::pool::{BLOCK_BYTES, file, make_hot, mounted};

const BLOCKS: usize = 12;
const SIZE: usize = BLOCKS * BLOCK_BYTES;

struct Model {
    files: FileSystem,
    node: Node,
    content: Vec<u8>,
    random: u64,
}

impl Model {
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % limit as u64) as usize
    }

    /// An offset and a length, often of whole blocks.
    fn range(&mut self) -> (usize, usize) {
        let unit = [1, 512, BLOCK_BYTES][self.below(3)];
        let offset = self.below(SIZE / unit) * unit;
        let longest = [BLOCK_BYTES, SIZE][self.below(2)];
        let length = (1 + self.below(longest / unit)) * unit;
        (offset, length.min(SIZE - offset))
    }

    fn set_size(&mut self, size: usize) {
        let change = SetAttributes {
            size_bytes: Some(size as u64),
            ..SetAttributes::default()
        };
        self.files
            .set_attributes(&self.node, &change)
            .expect("resize");
        self.content.resize(size, 0);
    }

    fn zero(&mut self, (offset, length): (usize, usize), options: AllocateOptions) {
        self.files
            .allocate(&self.node, offset as u64, length as u64, options)
            .expect("allocate");
        if options.zero_range && !options.keep_size && offset + length > self.content.len() {
            self.content.resize(offset + length, 0);
        }
        let end = (offset + length).min(self.content.len());
        if offset < end {
            self.content[offset..end].fill(0);
        }
    }

    fn step(&mut self) -> &'static str {
        let range = self.range();
        let (offset, length) = range;
        match self.below(8) {
            0..=2 => {
                let data = vec![self.below(255) as u8 + 1; length];
                self.files
                    .write(&self.node, offset as u64, &data)
                    .expect("write");
                if self.content.len() < offset + length {
                    self.content.resize(offset + length, 0);
                }
                self.content[offset..offset + length].copy_from_slice(&data);
                "write"
            }
            3 if self.content.len() + length <= SIZE => {
                let data = vec![self.below(255) as u8 + 1; length];
                self.files.append(&self.node, &data).expect("append");
                self.content.extend_from_slice(&data);
                "append"
            }
            4 => {
                let options = AllocateOptions {
                    punch_hole: true,
                    keep_size: true,
                    ..AllocateOptions::default()
                };
                self.zero(range, options);
                "punch"
            }
            5 => {
                let keep_size = self.below(2) == 0;
                let options = AllocateOptions {
                    zero_range: true,
                    keep_size,
                    ..AllocateOptions::default()
                };
                self.zero(range, options);
                "zero"
            }
            6 => {
                let size = self.below(SIZE);
                self.set_size(size);
                "truncate"
            }
            _ => {
                self.set_size(SIZE);
                "extend"
            }
        }
    }

    /// Every block, and all of them in one call.
    fn compare(&self, after: &str) {
        let mut whole = vec![0xee; SIZE];
        let length = self.files.read(&self.node, 0, &mut whole).expect("read");
        assert_eq!(
            whole[..length],
            self.content,
            "the whole file after {after}"
        );
        for (block, wanted) in self.content.chunks(BLOCK_BYTES).enumerate() {
            let mut bytes = [0xee; BLOCK_BYTES];
            let at = (block * BLOCK_BYTES) as u64;
            let length = self.files.read(&self.node, at, &mut bytes).expect("read");
            assert_eq!(bytes[..length], *wanted, "block {block} after {after}");
        }
    }

    fn is_written(&self, block: usize) -> bool {
        let at = (block * BLOCK_BYTES) as u64;
        self.files.seek_data(&self.node, at) == Ok(at)
    }
}

/// Every change, with copies of all blocks in place.
pub(crate) fn changes_end_copies() {
    let files = mounted(16, 64);
    let node = file(&files, "file");
    let mut model = Model {
        files,
        node,
        content: Vec::new(),
        random: 0x9e37_79b9_7f4a_7c15,
    };
    for _ in 0..400 {
        let blocks = model.content.len() / BLOCK_BYTES;
        for block in (0..blocks).filter(|&block| model.is_written(block)) {
            make_hot(&model.files, &model.node, block as u64);
        }
        let change = model.step();
        model.compare(change);
    }
    let statistics = model.files.read_cache_statistics().expect("a cache");
    assert!(statistics.invalidations > 400, "{statistics:?}");
    assert!(statistics.hits > 4000, "{statistics:?}");
}

#[test]
fn every_change_of_content_ends_the_copies_of_its_blocks() {
    changes_end_copies();
}
