//! The other way to use DRAM: a classic page cache, as kernels have one over block devices.
//!
//! Every read and every write goes through a page of DRAM. A miss copies the block to a page while the reader waits, then to him; a
//! write changes the page, and `fsync` writes the whole page back. A file has a map from blocks to pages behind a lock that readers share.
//!
//! One thing is simpler than in a kernel: each file has a share of the budget of its own, so that no file needs another one's lock to evict.

use super::bed::{BLOCK, Bed, System, require_all};
use crate::error::BenchError;
use foldhash::fast::RandomState;
use fs::Node;
use hashbrown::HashMap;
use parking_lot::RwLock;
use pmem::{BLOCK_BYTES, Dram};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A page cache over a file system that has none.
pub(super) struct PageCache {
    bed: Bed,
    pages_per_file: usize,
}

/// A file and its pages.
pub(super) struct CachedFile {
    node: Node,
    pages: RwLock<Pages>,
}

/// What is in a page.
struct Slot {
    block: u64,
    is_dirty: bool,
    /// Read or written since the clock's hand came by.
    is_used: AtomicBool,
}

/// The pages of one file.
struct Pages {
    /// Where a block's page is.
    places: HashMap<u64, usize, RandomState>,
    slots: Vec<Slot>,
    /// A page for each slot; of the same kind of memory as the read cache's copies.
    memory: Dram,
    /// The clock's hand.
    hand: usize,
    /// Blocks that were written since the last `fsync`; some may have been written back meanwhile.
    written: Vec<u64>,
    size_bytes: u64,
}

impl PageCache {
    /// Over `bed`; each file may have so many bytes of DRAM.
    pub(super) fn new(bed: Bed, bytes_per_file: u64) -> PageCache {
        let pages_per_file = (bytes_per_file / BLOCK).max(1) as usize;
        PageCache {
            bed,
            pages_per_file,
        }
    }

    /// Changes pages; they are not durable before [`fsync`](Self::fsync).
    pub(super) fn write_pages(
        &self,
        file: &CachedFile,
        offset: u64,
        data: &[u8],
    ) -> Result<(), BenchError> {
        let mut pages = file.pages.write();
        self.write_to(&mut pages, &file.node, offset, data)
    }

    fn write_to(
        &self,
        pages: &mut Pages,
        node: &Node,
        offset: u64,
        data: &[u8],
    ) -> Result<(), BenchError> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (block, in_block) = (at / BLOCK, (at % BLOCK) as usize);
            let length = (BLOCK_BYTES - in_block).min(data.len() - done);
            let slot = self.slot_to_write(pages, node, block, length == BLOCK_BYTES)?;
            let part = &data[done..done + length];
            pages.memory.copy_in(slot * BLOCK_BYTES + in_block, part);
            pages.size_bytes = pages.size_bytes.max(at + length as u64);
            if !std::mem::replace(&mut pages.slots[slot].is_dirty, true) {
                pages.written.push(block);
            }
            done += length;
        }
        Ok(())
    }

    /// The page of a block that is about to be written. What a part of a block leaves as it is must be there.
    fn slot_to_write(
        &self,
        pages: &mut Pages,
        node: &Node,
        block: u64,
        is_whole: bool,
    ) -> Result<usize, BenchError> {
        if let Some(&slot) = pages.places.get(&block) {
            pages.slots[slot].is_used.store(true, Ordering::Relaxed);
            return Ok(slot);
        }
        match is_whole {
            true => self.take_slot(pages, node, block),
            false => self.load(pages, node, block),
        }
    }

    /// Writes back what was written since the last time.
    pub(super) fn fsync(&self, file: &CachedFile) -> Result<(), BenchError> {
        let mut pages = file.pages.write();
        while let Some(block) = pages.written.pop() {
            if let Some(&slot) = pages.places.get(&block) {
                self.write_back(&mut pages, &file.node, slot)?;
            }
        }
        Ok(())
    }

    fn write_back(&self, pages: &mut Pages, node: &Node, slot: usize) -> Result<(), BenchError> {
        let Slot {
            block, is_dirty, ..
        } = pages.slots[slot];
        if !is_dirty {
            return Ok(());
        }
        let mut bytes = [0; BLOCK_BYTES];
        pages.memory.copy_out(slot * BLOCK_BYTES, &mut bytes);
        let offset = block * BLOCK;
        let length = (pages.size_bytes - offset).min(BLOCK) as usize;
        let written = self.bed.files.write(node, offset, &bytes[..length])?;
        require_all(written, length)?;
        pages.slots[slot].is_dirty = false;
        Ok(())
    }

    /// The page of a block, fetched if it is not there.
    fn load(&self, pages: &mut Pages, node: &Node, block: u64) -> Result<usize, BenchError> {
        if let Some(&slot) = pages.places.get(&block) {
            return Ok(slot);
        }
        let slot = self.take_slot(pages, node, block)?;
        // What lies behind the end of the file is zeros.
        let mut bytes = [0; BLOCK_BYTES];
        self.bed.files.read(node, block * BLOCK, &mut bytes)?;
        pages.memory.copy_in(slot * BLOCK_BYTES, &bytes);
        Ok(slot)
    }

    /// A page for a block that has none. Its content is whatever it was.
    fn take_slot(&self, pages: &mut Pages, node: &Node, block: u64) -> Result<usize, BenchError> {
        let new = Slot {
            block,
            is_dirty: false,
            is_used: AtomicBool::new(true),
        };
        let slot = pages.slots.len();
        if slot < self.pages_per_file {
            pages.slots.push(new);
            pages.places.insert(block, slot);
            return Ok(slot);
        }
        let slot = pages.unused_slot();
        self.write_back(pages, node, slot)?;
        let before = std::mem::replace(&mut pages.slots[slot], new);
        pages.places.remove(&before.block);
        pages.places.insert(block, slot);
        Ok(slot)
    }
}

impl Pages {
    /// The next page that was not used since the hand came by.
    fn unused_slot(&mut self) -> usize {
        loop {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            if !self.slots[slot].is_used.swap(false, Ordering::Relaxed) {
                return slot;
            }
        }
    }

    /// A part of a block, if it has a page.
    fn copy_out(&self, block: u64, in_block: usize, into: &mut [u8]) -> bool {
        let Some(&slot) = self.places.get(&block) else {
            return false;
        };
        let is_used = &self.slots[slot].is_used;
        // Only when it is not set, so that readers of one page share its line.
        if !is_used.load(Ordering::Relaxed) {
            is_used.store(true, Ordering::Relaxed);
        }
        self.memory.copy_out(slot * BLOCK_BYTES + in_block, into);
        true
    }
}

impl System for PageCache {
    type File = CachedFile;

    fn create(&self, name: &str) -> Result<CachedFile, BenchError> {
        let memory = Dram::new(self.pages_per_file * BLOCK_BYTES)
            .map_err(BenchError::io("take memory for", Path::new("a page cache")))?;
        Ok(CachedFile {
            node: self.bed.create(name)?,
            pages: RwLock::new(Pages {
                places: HashMap::default(),
                slots: Vec::new(),
                memory,
                hand: 0,
                written: Vec::new(),
                size_bytes: 0,
            }),
        })
    }

    #[inline]
    fn read(&self, file: &CachedFile, offset: u64, into: &mut [u8]) -> Result<usize, BenchError> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (block, in_block) = (at / BLOCK, (at % BLOCK) as usize);
            let pages = file.pages.read();
            let left = pages.size_bytes.saturating_sub(at);
            let room = (BLOCK_BYTES - in_block).min(into.len() - done);
            let length = (room as u64).min(left) as usize;
            if length == 0 {
                break;
            }
            let part = &mut into[done..done + length];
            if !pages.copy_out(block, in_block, part) {
                drop(pages);
                let mut pages = file.pages.write();
                self.load(&mut pages, &file.node, block)?;
                pages.copy_out(block, in_block, part);
            }
            done += length;
        }
        Ok(done)
    }

    #[inline]
    fn write(&self, file: &CachedFile, offset: u64, data: &[u8]) -> Result<(), BenchError> {
        self.write_pages(file, offset, data)?;
        self.fsync(file)
    }

    #[inline]
    fn append(&self, file: &CachedFile, data: &[u8]) -> Result<(), BenchError> {
        {
            let mut pages = file.pages.write();
            let offset = pages.size_bytes;
            self.write_to(&mut pages, &file.node, offset, data)?;
        }
        self.fsync(file)
    }

    fn clear(&self, file: &CachedFile) -> Result<(), BenchError> {
        let mut pages = file.pages.write();
        pages.places.clear();
        pages.slots.clear();
        pages.written.clear();
        pages.hand = 0;
        pages.size_bytes = 0;
        self.bed.clear(&file.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Places;
    use crate::readcache::ReadCacheOptions;
    use pmem::MediaModel;

    /// A cache of so many pages for each file.
    fn cache(pages: u64) -> PageCache {
        let options = ReadCacheOptions::smoke();
        let off = fs::ReadCacheOptions::default();
        let bed = Bed::new(&options, &MediaModel::dram(), off).expect("a bed");
        PageCache::new(bed, pages * BLOCK)
    }

    /// What the file system holds, whatever the pages say.
    fn beneath(cache: &PageCache, file: &CachedFile) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let read = cache.bed.files.read(&file.node, 0, &mut bytes);
        bytes.truncate(read.expect("read"));
        bytes
    }

    #[test]
    fn it_is_a_file_whatever_is_evicted() {
        const BYTES_MAX: u64 = 20 * BLOCK;
        for (pages, seed) in [(1, 1), (2, 2), (5, 3), (100, 4)] {
            let cache = cache(pages);
            let file = cache.create("file").expect("a file");
            let mut model: Vec<u8> = Vec::new();
            let mut places = Places::new(seed);
            for step in 0..3000_u64 {
                let offset = places.below(BYTES_MAX);
                let length = places.below(3 * BLOCK).min(BYTES_MAX - offset) as usize;
                // Whole blocks are a case of their own.
                let (offset, length) = match places.below(3) {
                    0 => (offset / BLOCK * BLOCK, BLOCK_BYTES),
                    _ => (offset, length),
                };
                match places.below(10) {
                    0..5 => {
                        let mut bytes = vec![0xee; length];
                        let read = cache.read(&file, offset, &mut bytes).expect("read");
                        let end = model.len().min(offset as usize + length);
                        let expected = model.get(offset as usize..end).unwrap_or_default();
                        assert_eq!(&bytes[..read], expected, "step {step}, {pages} pages");
                    }
                    5..9 => {
                        let bytes = vec![step as u8; length];
                        cache.write_pages(&file, offset, &bytes).expect("write");
                        let end = offset as usize + length;
                        if length > 0 {
                            model.resize(model.len().max(end), 0);
                            model[offset as usize..end].copy_from_slice(&bytes);
                        }
                    }
                    _ if places.below(50) == 0 => {
                        cache.clear(&file).expect("clear");
                        model.clear();
                    }
                    _ => {
                        cache.fsync(&file).expect("fsync");
                        assert!(beneath(&cache, &file) == model, "step {step}");
                    }
                }
                assert!(file.pages.read().slots.len() as u64 <= pages);
            }
        }
    }

    #[test]
    fn a_write_is_durable_when_it_returns_and_a_changed_page_is_not() {
        let cache = cache(8);
        let file = cache.create("file").expect("a file");
        cache.append(&file, &[1; 100]).expect("append");
        assert_eq!(beneath(&cache, &file), [1; 100]);
        cache.write_pages(&file, 10, &[2; 10]).expect("write");
        assert_eq!(beneath(&cache, &file), [1; 100]);
        cache.fsync(&file).expect("fsync");
        assert_eq!(beneath(&cache, &file)[10..20], [2; 10]);
    }

    #[test]
    fn threads_never_see_half_of_a_block() {
        let cache = cache(3);
        let file = cache.fill("file", 8).expect("a file");
        for block in 0..8 {
            let write = cache.write(&file, block * BLOCK, &[0; BLOCK_BYTES]);
            write.expect("write");
        }
        std::thread::scope(|scope| {
            for thread in 0..2_u8 {
                let (cache, file) = (&cache, &file);
                scope.spawn(move || {
                    let mut places = Places::new(thread.into());
                    let mut bytes = [0; BLOCK_BYTES];
                    for step in 0..3000_u64 {
                        let offset = places.below(8) * BLOCK;
                        if step % 3 == 0 {
                            let data = [step as u8 ^ thread; BLOCK_BYTES];
                            cache.write(file, offset, &data).expect("write");
                        }
                        let read = cache.read(file, offset, &mut bytes).expect("read");
                        assert_eq!(read, BLOCK_BYTES);
                        assert!(bytes.iter().all(|&byte| byte == bytes[0]));
                    }
                });
            }
        });
    }
}
