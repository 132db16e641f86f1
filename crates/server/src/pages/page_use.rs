//! Whether the kernel may have pages of a file, and whether some of them may be dirty.
//!
//! The kernel does not tell the server of opens (docs/DESIGN.md), so the server concludes. A page
//! in the cache came from a READ or a WRITE of the page cache. A store can dirty a page without a
//! request only through a descriptor that is open for reading and writing, and only a page that the
//! kernel has whole: by a READ, or a WRITE of all of it. When a dirty page arrives, the file
//! certainly has a writable mapping.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The kernel may have whole pages of the file: it reads any other one before a store.
const CACHED: u8 = 1;
/// A dirty page came: the file has, or had, a writable shared mapping.
const MAPPED: u8 = 2;

/// How long after the last sign a file counts as one whose pages may be dirtied.
const SIGN_LASTS_MS: u32 = 60_000;
/// How long the kernel may keep attributes of such a file.
const LIFETIME: Duration = Duration::from_millis(10);
/// So many questions in a row without a dirty page: the file is read and written, not mapped.
const CLEAN_QUESTIONS: u8 = 8;

/// Milliseconds since the server started; 0 is never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Milliseconds(u32);

impl Milliseconds {
    pub(crate) fn now(start: Instant) -> Milliseconds {
        Milliseconds((start.elapsed().as_millis() as u32).max(1))
    }
}

/// How the kernel's page cache uses one inode.
#[derive(Debug, Default)]
pub(crate) struct PageUse {
    flags: AtomicU8,
    clean_questions: AtomicU8,
    /// When the kernel read or wrote pages last.
    paged_ms: AtomicU32,
    /// When a sign of a writable descriptor was seen last.
    signed_ms: AtomicU32,
    asked_ms: AtomicU32,
}

impl PageUse {
    /// Notes that the kernel reads or writes pages. `is_writable`: the descriptor is open for both.
    /// `has_whole`: it may have a whole page afterwards.
    #[inline]
    pub(crate) fn note_pages(&self, is_writable: bool, has_whole: bool, now: Milliseconds) {
        if has_whole && !self.is_cached() {
            self.flags.fetch_or(CACHED, Ordering::Relaxed);
        }
        self.paged_ms.store(now.0, Ordering::Relaxed);
        if is_writable {
            self.signed_ms.store(now.0, Ordering::Relaxed);
        }
    }

    /// The kernel writes dirty pages back.
    pub(crate) fn note_dirty_page(&self, now: Milliseconds) {
        self.flags.fetch_or(CACHED | MAPPED, Ordering::Relaxed);
        self.signed_ms.store(now.0, Ordering::Relaxed);
        self.clean_questions.store(0, Ordering::Relaxed);
    }

    /// Whether the kernel may have whole pages at all.
    pub(crate) fn is_cached(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CACHED != 0
    }

    /// Whether a dirty page came lately.
    pub(crate) fn is_mapped(&self, now: Milliseconds) -> bool {
        self.flags.load(Ordering::Relaxed) & MAPPED != 0 && self.may_be_dirty(now)
    }

    /// Whether the kernel may have read a page that a direct write was about to make stale.
    ///
    /// The kernel drops the range before it sends the write, so only a page that came in between
    /// is stale. [`SIGN_LASTS_MS`] is longer than a request waits in the kernel's queue.
    #[inline]
    pub(crate) fn may_be_stale(&self, now: Milliseconds) -> bool {
        let paged = self.paged_ms.load(Ordering::Relaxed);
        paged != 0 && now.0.saturating_sub(paged) < SIGN_LASTS_MS
    }

    /// Whether a page may be dirty that the file system has not seen.
    fn may_be_dirty(&self, now: Milliseconds) -> bool {
        let signed = self.signed_ms.load(Ordering::Relaxed);
        self.is_cached() && signed != 0 && now.0.saturating_sub(signed) < SIGN_LASTS_MS
    }

    /// Whether the kernel is to write dirty pages back before attributes are told.
    pub(crate) fn should_ask(&self, now: Milliseconds) -> bool {
        if !self.may_be_dirty(now) {
            return false;
        }
        let flags = self.flags.load(Ordering::Relaxed);
        let is_often_clean = self.clean_questions.load(Ordering::Relaxed) >= CLEAN_QUESTIONS;
        let age_ms = now.0.saturating_sub(self.asked_ms.load(Ordering::Relaxed));
        flags & MAPPED != 0 || !is_often_clean || u128::from(age_ms) >= LIFETIME.as_millis()
    }

    /// A question begins. A dirty page that comes of it makes the file a mapped one.
    pub(crate) fn note_question(&self, now: Milliseconds) {
        self.asked_ms.store(now.0, Ordering::Relaxed);
        let clean = self.clean_questions.load(Ordering::Relaxed);
        self.clean_questions
            .store(clean.saturating_add(1), Ordering::Relaxed);
    }

    /// How long the kernel may keep attributes that are told now; `None`: as long as it likes.
    pub(crate) fn lifetime(&self, now: Milliseconds) -> Option<Duration> {
        if !self.may_be_dirty(now) {
            return None;
        }
        Some(match self.should_ask(now) {
            true => Duration::ZERO,
            false => LIFETIME,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Milliseconds = Milliseconds(5000);

    fn later(milliseconds: u32) -> Milliseconds {
        Milliseconds(BEGIN.0 + milliseconds)
    }

    #[test]
    fn a_file_that_is_only_read_is_never_asked_about() {
        let pages = PageUse::default();
        assert!(!pages.is_cached());
        assert_eq!(pages.lifetime(BEGIN), None);
        pages.note_pages(false, true, BEGIN);
        assert!(pages.is_cached());
        assert!(!pages.should_ask(BEGIN));
        assert_eq!(pages.lifetime(BEGIN), None);
    }

    #[test]
    fn a_file_without_whole_pages_is_asked_about_once_it_has_one() {
        let pages = PageUse::default();
        pages.note_pages(true, false, BEGIN);
        assert!(!pages.is_cached());
        assert!(!pages.should_ask(BEGIN));
        assert_eq!(pages.lifetime(BEGIN), None);
        // The sign of the writable descriptor still counts.
        pages.note_pages(false, true, later(1));
        assert!(pages.should_ask(later(1)));
        assert_eq!(pages.lifetime(later(1)), Some(Duration::ZERO));
        pages.note_pages(true, false, later(2));
        assert!(pages.should_ask(later(SIGN_LASTS_MS + 1)));
    }

    #[test]
    fn a_file_that_is_never_dirty_is_asked_about_seldom() {
        let pages = PageUse::default();
        pages.note_pages(true, true, BEGIN);
        for _ in 0..CLEAN_QUESTIONS {
            assert!(pages.should_ask(BEGIN));
            assert_eq!(pages.lifetime(BEGIN), Some(Duration::ZERO));
            pages.note_question(BEGIN);
        }
        assert!(!pages.should_ask(later(9)));
        assert_eq!(pages.lifetime(later(9)), Some(LIFETIME));
        assert!(pages.should_ask(later(10)));
        assert!(!pages.should_ask(later(SIGN_LASTS_MS)));
        assert_eq!(pages.lifetime(later(SIGN_LASTS_MS)), None);
    }

    #[test]
    fn a_file_with_a_dirty_page_is_asked_about_each_time() {
        let pages = PageUse::default();
        pages.note_dirty_page(BEGIN);
        for _ in 0..20 {
            pages.note_question(BEGIN);
            assert!(pages.should_ask(BEGIN));
            assert_eq!(pages.lifetime(BEGIN), Some(Duration::ZERO));
        }
        assert!(!pages.should_ask(later(SIGN_LASTS_MS)));
    }
}
