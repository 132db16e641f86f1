//! Dirty pages that the kernel wrote back when the pool, or a user's quota, was full.
//!
//! The kernel reports such a failure once, at the next `msync` or `fsync`, and takes the page for
//! clean. The server keeps the page instead: it serves it to readers, tries again at each `fsync`,
//! and reports the failure until the page is saved, overwritten or cut off.
//!
//! The kept pages are memory of the server, so a crash of the server loses them, as it loses dirty
//! pages. Beyond [`BYTES_MAX`] a page is dropped, and every `fsync` of its file fails from then on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use fuse::Errno;
use parking_lot::Mutex;

/// Bytes of a page of the kernel, and of a block.
pub(crate) const PAGE_BYTES: u64 = pmem::BLOCK_BYTES as u64;

/// Limit of the kept pages of all files.
const BYTES_MAX: u64 = 64 << 20;
const PAGES_MAX: u64 = BYTES_MAX / PAGE_BYTES;

/// Content of one page; shorter at the end of a file.
type Page = Box<[u8]>;

#[derive(Debug)]
struct UnsavedFile {
    /// By page number.
    pages: BTreeMap<u64, Page>,
    reason: Errno,
    /// Pages for which there was no room here either.
    lost_pages: u64,
}

/// All such pages of a mount.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    /// Files, so that requests look no further while there are none.
    count: AtomicUsize,
    files: Mutex<HashMap<u64, UnsavedFile>>,
}

impl Unsaved {
    /// Whether there may be pages of the file.
    #[inline]
    pub(crate) fn has(&self, inode: u64) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.files.lock().contains_key(&inode)
    }

    /// Keeps what could not be written at `offset`, because of `reason`.
    pub(crate) fn keep(&self, inode: u64, offset: u64, data: &[u8], reason: Errno) {
        self.change(|files| {
            let mut kept: u64 = files.values().map(|file| file.pages.len() as u64).sum();
            let file = files.entry(inode).or_insert_with(|| UnsavedFile {
                pages: BTreeMap::new(),
                reason,
                lost_pages: 0,
            });
            file.reason = reason;
            for (number, within, bytes) in pieces(offset, data.len() as u64) {
                let piece = &data[bytes.start as usize..bytes.end as usize];
                match file.pages.entry(number) {
                    Entry::Occupied(mut there) => put(there.get_mut(), within.start, piece),
                    Entry::Vacant(place) if kept < PAGES_MAX && within.start == 0 => {
                        place.insert(piece.into());
                        kept += 1;
                    }
                    Entry::Vacant(_) => file.lost_pages += 1,
                }
            }
        });
    }

    /// Puts new content of a range into what is kept.
    pub(crate) fn patch(&self, inode: u64, offset: u64, data: &[u8]) {
        self.change_file(inode, |file| {
            for (number, within, bytes) in pieces(offset, data.len() as u64) {
                if let Some(page) = file.pages.get_mut(&number) {
                    let piece = &data[bytes.start as usize..bytes.end as usize];
                    put(page, within.start, piece);
                }
            }
        });
    }

    /// Drops the kept pages of a range whose content the file system has.
    pub(crate) fn saved(&self, inode: u64, offset: u64, length: u64) {
        self.change_file(inode, |file| {
            for (number, within, _) in pieces(offset, length) {
                let is_whole = |page: &Page| within.start == 0 && within.end >= page.len() as u64;
                if file.pages.get(&number).is_some_and(is_whole) {
                    file.pages.remove(&number);
                }
            }
        });
    }

    /// The range became zeros or a hole.
    pub(crate) fn zeroed(&self, inode: u64, range: Range<u64>) {
        self.change_file(inode, |file| {
            let first = range.start / PAGE_BYTES;
            for (number, page) in file.pages.range_mut(first..range.end.div_ceil(PAGE_BYTES)) {
                let begin = number * PAGE_BYTES;
                let length = page.len() as u64;
                let from = range.start.saturating_sub(begin).min(length);
                let to = range.end.saturating_sub(begin).min(length);
                page[from as usize..to as usize].fill(0);
            }
            file.pages.retain(|&number, page| {
                let begin = number * PAGE_BYTES;
                begin < range.start || begin + page.len() as u64 > range.end
            });
        });
    }

    /// The file ends at `size_bytes` now.
    pub(crate) fn cut(&self, inode: u64, size_bytes: u64) {
        self.change_file(inode, |file| {
            file.pages.split_off(&size_bytes.div_ceil(PAGE_BYTES));
            if let Some(last) = file.pages.get_mut(&(size_bytes / PAGE_BYTES)) {
                let keep = (size_bytes % PAGE_BYTES) as usize;
                let length = last.len();
                last[keep.min(length)..].fill(0);
            }
        });
    }

    /// Reads with `read`, which fills `buffer` from `offset` on, and puts what is kept over it.
    ///
    /// Under the lock: else a page could be saved after the reading and gone before the putting.
    pub(crate) fn read_over<E>(
        &self,
        inode: u64,
        offset: u64,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let files = self.files.lock();
        let bytes_read = read(buffer)?;
        let Some(file) = files.get(&inode) else {
            return Ok(bytes_read);
        };
        let buffer = &mut buffer[..bytes_read];
        for (number, within, bytes) in pieces(offset, bytes_read as u64) {
            if let Some(page) = file.pages.get(&number) {
                let end = within.end.min(page.len() as u64).max(within.start);
                let length = (end - within.start) as usize;
                let into = bytes.start as usize;
                let kept = &page[within.start.min(end) as usize..end as usize];
                buffer[into..into + length].copy_from_slice(kept);
            }
        }
        Ok(bytes_read)
    }

    /// The first byte at or after `offset` that is in a kept page, and where that page ends.
    pub(crate) fn next_data(&self, inode: u64, offset: u64) -> Option<Range<u64>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let files = self.files.lock();
        let pages = &files.get(&inode)?.pages;
        let (number, _) = pages.range(offset / PAGE_BYTES..).next()?;
        let begin = number * PAGE_BYTES;
        Some(begin.max(offset)..begin + PAGE_BYTES)
    }

    /// Tries to save what is kept of a file by `write`, which gets offset and content.
    ///
    /// # Errors
    ///
    /// The reason why something is still not saved, or was lost.
    pub(crate) fn save(
        &self,
        inode: u64,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !self.has(inode) {
            return Ok(());
        }
        let mut outcome = Ok(());
        // Under the lock, so that no other thread saves an older content of a page later.
        self.change_file(inode, |file| {
            while let Some((&number, page)) = file.pages.first_key_value() {
                if let Err(errno) = write(number * PAGE_BYTES, page) {
                    file.reason = errno;
                    outcome = Err(errno);
                    return;
                }
                file.pages.remove(&number);
            }
            if file.lost_pages > 0 {
                outcome = Err(file.reason);
            }
        });
        outcome
    }

    /// The kernel has forgotten the file, or the mount ends: how many pages are lost.
    pub(crate) fn forget(&self, inode: u64) -> u64 {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let file = self.change(|files| files.remove(&inode));
        file.map_or(0, |file| file.pages.len() as u64 + file.lost_pages)
    }

    /// Inodes with kept pages.
    pub(crate) fn inodes(&self) -> Vec<u64> {
        self.files.lock().keys().copied().collect()
    }

    fn change_file(&self, inode: u64, work: impl FnOnce(&mut UnsavedFile)) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        self.change(|files| {
            if let Some(file) = files.get_mut(&inode) {
                work(file);
                if file.pages.is_empty() && file.lost_pages == 0 {
                    files.remove(&inode);
                }
            }
        });
    }

    fn change<T>(&self, work: impl FnOnce(&mut HashMap<u64, UnsavedFile>) -> T) -> T {
        let mut files = self.files.lock();
        let outcome = work(&mut files);
        self.count.store(files.len(), Ordering::Release);
        outcome
    }
}

/// Splits a range of a file: page number, range within the page, range of the caller's bytes.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, Range<u64>, Range<u64>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let within = at % PAGE_BYTES;
        let bytes = (PAGE_BYTES - within).min(length - done);
        let piece = (at / PAGE_BYTES, within..within + bytes, done..done + bytes);
        done += bytes;
        (bytes > 0).then_some(piece)
    })
}

/// Writes into a page, which grows if need be.
fn put(page: &mut Page, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    if page.len() < end {
        let mut longer = std::mem::take(page).into_vec();
        longer.resize(end, 0);
        *page = longer.into_boxed_slice();
    }
    page[at as usize..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = PAGE_BYTES as usize;

    fn read(unsaved: &Unsaved, offset: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![b'.'; length];
        let all = |buffer: &mut [u8]| Ok::<usize, ()>(buffer.len());
        assert_eq!(unsaved.read_over(7, offset, &mut buffer, all), Ok(length));
        buffer
    }

    #[test]
    fn what_is_kept_is_read_until_it_is_overwritten_or_cut() {
        let unsaved = Unsaved::default();
        unsaved.keep(7, 2 * PAGE_BYTES, &[b'a'; 2 * PAGE], Errno::ENOSPC);
        assert!(unsaved.has(7) && !unsaved.has(8));
        assert_eq!(read(&unsaved, 2 * PAGE_BYTES - 2, 4), b"..aa");
        assert_eq!(
            unsaved.next_data(7, 0),
            Some(2 * PAGE_BYTES..3 * PAGE_BYTES)
        );
        unsaved.patch(7, 2 * PAGE_BYTES, b"bc");
        unsaved.saved(7, 2 * PAGE_BYTES, 2);
        assert_eq!(read(&unsaved, 2 * PAGE_BYTES, 3), b"bca");
        unsaved.zeroed(7, 2 * PAGE_BYTES + 1..2 * PAGE_BYTES + 2);
        assert_eq!(read(&unsaved, 2 * PAGE_BYTES, 3), b"b\0a");
        unsaved.saved(7, 2 * PAGE_BYTES, PAGE_BYTES);
        assert_eq!(read(&unsaved, 3 * PAGE_BYTES - 1, 2), b".a");
        unsaved.cut(7, 3 * PAGE_BYTES + 1);
        assert_eq!(read(&unsaved, 3 * PAGE_BYTES, 3), b"a\0\0");
        unsaved.cut(7, 3 * PAGE_BYTES);
        assert!(!unsaved.has(7));
        assert_eq!(unsaved.next_data(7, 0), None);
    }

    #[test]
    fn saving_goes_on_where_it_failed_and_says_why() {
        let unsaved = Unsaved::default();
        unsaved.keep(7, 0, &[1; 3 * PAGE], Errno::ENOSPC);
        let mut saved = Vec::new();
        let outcome = unsaved.save(7, |at, page| {
            if at == PAGE_BYTES {
                return Err(Errno::EDQUOT);
            }
            saved.push((at, page.len()));
            Ok(())
        });
        assert_eq!(outcome, Err(Errno::EDQUOT));
        assert_eq!(saved, [(0, PAGE)]);
        assert!(unsaved.has(7));
        assert_eq!(unsaved.save(7, |_, _| Ok(())), Ok(()));
        assert!(!unsaved.has(7));
    }

    #[test]
    fn a_page_beyond_the_limit_is_an_error_that_stays() {
        let unsaved = Unsaved::default();
        let megabyte = vec![1; 1 << 20];
        for number in 0..(BYTES_MAX >> 20) {
            unsaved.keep(8, number << 20, &megabyte, Errno::ENOSPC);
        }
        unsaved.keep(7, 0, &[1; PAGE], Errno::ENOSPC);
        for _ in 0..2 {
            assert_eq!(unsaved.save(7, |_, _| Ok(())), Err(Errno::ENOSPC));
        }
        assert_eq!(unsaved.forget(7), 1);
        assert_eq!(unsaved.save(7, |_, _| Ok(())), Ok(()));
        assert_eq!(unsaved.forget(8), PAGES_MAX);
    }
}
