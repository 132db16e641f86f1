//! What the process did with files that it made under the same name before.
//!
//! A file is attached when it has been used some time, because most are not worth it. A journal
//! that is made anew for each transaction never gets that far. So the process remembers, by a hash
//! of the path that the program opens, whether a small lease would have paid for the file of that
//! name; the next one is attached when it is first written to. Names that share a place share a
//! habit: it is a guess in any case.

use descriptors::NAMES;
use libc::c_char;
use std::ffi::CStr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static ARE_USED: [AtomicBool; NAMES] = [const { AtomicBool::new(false) }; NAMES];

/// A name under which the process makes files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Name(u16);

impl Name {
    /// The name that a path is.
    ///
    /// # Safety
    ///
    /// A string of C's.
    pub(crate) unsafe fn of(path: *const c_char) -> Name {
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        // FNV-1a.
        let hash = path
            .to_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Name::from_bits(hash ^ (hash >> 32))
    }

    /// From what [`bits`](Self::bits) said; what is above is left out.
    pub(crate) fn from_bits(bits: u64) -> Name {
        Name((bits % NAMES as u64) as u16)
    }

    /// Less than [`NAMES`].
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// Whether the last file of this name was used like a journal.
    pub(crate) fn is_used(self) -> bool {
        ARE_USED[usize::from(self.0)].load(Relaxed)
    }

    /// Whether a file of this name was, from the first use to the last.
    pub(crate) fn learn(self, is_journal: bool) {
        ARE_USED[usize::from(self.0)].store(is_journal, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_of_a_name_counts() {
        // SAFETY: a string of C's.
        let name = unsafe { Name::of(c"/a/journal".as_ptr()) };
        // SAFETY: a string of C's.
        let other = unsafe { Name::of(c"/a/journal2".as_ptr()) };
        assert_ne!(name, other);
        assert_eq!(Name::from_bits(name.bits()), name);
        assert!(!name.is_used());
        name.learn(true);
        assert!(name.is_used() && !other.is_used());
        name.learn(false);
        assert!(!name.is_used());
    }
}
