//! Files of segments in which nobody can make holes while a process has them (`docs/DIRECT.md`,
//! *What a process gets*).
//!
//! A process that has a segment mapped for writing can take pages out of its file (`MADV_REMOVE`),
//! whatever its descriptor allows. They hold zeros then, which harms only their owner; but if the
//! file system has no room when the server touches them, that ends the server. From a file that is
//! marked as one that only grows (`chattr +a`) the kernel takes nothing. Such a file is neither
//! opened nor mapped for writing, but where the kernel passes mappings through; it is not made
//! shorter, and not removed. So a file has the mark only as long as a process has the segment. The
//! next opener of the pool takes away a mark that a killed server has left.

use crate::directory::PoolDirectory;
use crate::pool::Mode;
use parking_lot::Mutex;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use scatter::SegmentNumber;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;

/// The segments whose files have the mark.
#[derive(Debug, Default)]
pub(crate) struct Seals(Mutex<BTreeSet<u32>>);

impl Seals {
    /// Marks a file, if it has no mark. The caller holds the segment.
    pub(crate) fn set(&self, segment: SegmentNumber, file: &File) -> io::Result<()> {
        let mut marked = self.0.lock();
        if !marked.contains(&segment.0) {
            mark(file, true)?;
            marked.insert(segment.0);
        }
        Ok(())
    }

    /// Takes the mark away, if `is_free` says that no process holds the segment. That is asked
    /// under the lock of [`set`](Self::set), whose caller has held the segment before.
    pub(crate) fn lift(&self, segment: SegmentNumber, file: &File, is_free: impl FnOnce() -> bool) {
        let mut marked = self.0.lock();
        if marked.contains(&segment.0) && is_free() {
            marked.remove(&segment.0);
            say_if_it_stays(mark(file, false));
        }
    }

    /// Takes the mark away for work that a file with the mark does not allow.
    pub(crate) fn without<T>(
        &self,
        segment: SegmentNumber,
        file: &File,
        work: impl FnOnce() -> T,
    ) -> T {
        let marked = self.0.lock();
        let has_mark = marked.contains(&segment.0);
        if has_mark {
            say_if_it_stays(mark(file, false));
        }
        let outcome = work();
        if has_mark && let Err(error) = mark(file, true) {
            tracing::warn!(segment = segment.0, %error, "a process can make holes in a segment's file");
        }
        outcome
    }

    /// Takes all marks away, because the pool is closed: a process that has segments can make holes
    /// in them from here on, which the next opener fills.
    pub(crate) fn lift_all(&self, files: &[File]) {
        for segment in std::mem::take(&mut *self.0.lock()) {
            if let Some(file) = files.get(segment as usize) {
                say_if_it_stays(mark(file, false));
            }
        }
    }
}

/// Returns whether files of this kind can have the mark, and this process may set it.
pub(crate) fn are_possible(file: &File) -> bool {
    let flags = ioctl_getflags(file);
    flags
        .and_then(|flags| {
            ioctl_setflags(file, flags | IFlags::APPEND)?;
            ioctl_setflags(file, flags)
        })
        .is_ok()
}

/// Takes away a mark that was left; returns whether there was one.
pub(crate) fn lift_left_seal(pool: &PoolDirectory, name: impl AsRef<OsStr>) -> bool {
    let lifted = pool.file(name, Mode::ReadOnly).and_then(|file| {
        let has_mark = ioctl_getflags(&file)?.contains(IFlags::APPEND);
        if has_mark {
            mark(&file, false)?;
        }
        Ok(has_mark)
    });
    lifted.unwrap_or(false)
}

fn mark(file: &File, is_marked: bool) -> io::Result<()> {
    let mut flags = ioctl_getflags(file)?;
    flags.set(IFlags::APPEND, is_marked);
    Ok(ioctl_setflags(file, flags)?)
}

fn say_if_it_stays(lifted: io::Result<()>) {
    if let Err(error) = lifted {
        tracing::warn!(%error, "a segment's file stays marked as one that only grows (`chattr -a` takes that away)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use std::fs;

    const SEGMENT: SegmentNumber = SegmentNumber(0);

    fn punch(file: &File) -> bool {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, hole, 0, 4096).is_ok()
    }

    #[test]
    fn a_file_has_no_holes_made_in_it_as_long_as_somebody_holds_it() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = folder.path().join("segment");
        fs::write(&path, [1; 8192]).expect("written");
        let file = File::options().read(true).write(true).open(&path);
        let file = file.expect("opened");
        if !are_possible(&file) {
            return eprintln!("skipped: no such marks");
        }
        let seals = Seals::default();
        for _ in 0..2 {
            seals.set(SEGMENT, &file).expect("marked");
            assert!(!punch(&file));
        }
        seals.lift(SEGMENT, &file, || false);
        assert!(!punch(&file));
        assert!(seals.without(SEGMENT, &file, || punch(&file)));
        assert!(!punch(&file));
        seals.lift(SEGMENT, &file, || true);
        assert!(punch(&file));
        seals.set(SEGMENT, &file).expect("marked");
        seals.lift_all(std::slice::from_ref(&file));
        assert!(punch(&file));
        // Its server is killed.
        seals.set(SEGMENT, &file).expect("marked");
        drop((seals, file));
        let pool = PoolDirectory::open(folder.path()).expect("opened");
        let open = || crate::pool::open_file(&pool, "segment", Mode::ReadWrite);
        assert!(fs::remove_file(&path).is_err());
        assert!(punch(&open().expect("by who opens the pool")));
        assert!(!lift_left_seal(&pool, "segment"));
    }
}
