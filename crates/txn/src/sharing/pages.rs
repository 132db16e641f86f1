//! Pages of segments that a process may still have although no process has the segment
//! (`docs/DIRECT.md`, *Pages that are left*).
//!
//! A process that had a segment mapped can have put its pages into a pipe, registered them with
//! `io_uring`, or left them in a socket on their way out. Nothing counts those: the segment's file
//! is neither open nor mapped ([`held`](super::held)), and yet the process reads, or writes, the
//! later content of these pages. So a segment that a process had goes to another owner with other
//! pages: the leaves that the allocator clears before it uses them are taken out of the file and
//! made anew.
//!
//! A bit of the file's mode that means nothing for a file notes that the segment was given: a
//! process can outlive the server.

use crate::alarm::Alarm;
use parking_lot::Mutex;
use pmem::HUGE_PAGE_BYTES;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use scatter::SegmentNumber;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

/// Time between two messages that there is no room.
const REMINDER: Duration = Duration::from_secs(5);
/// A call that takes so long waits for a process.
const PINNED_AFTER: Duration = Duration::from_millis(1);
/// "Sticky".
const GIVEN_BIT: u32 = 0o1000;

/// The users of a segment's pages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Pages {
    /// Only the pool uses them.
    #[default]
    Ours,
    /// A process of the present owner was given them.
    Given,
    /// A process of a former owner was given them: those of leaves that have not been cleared since
    /// are not to be used.
    Left,
    /// A former server has given them to unknown processes: free blocks as of `Left`, and processes
    /// of the present owner may have those in use.
    Former,
}

/// The users of each segment's pages.
#[derive(Debug)]
pub(crate) struct GivenPages(Box<[Mutex<Pages>]>);

impl GivenPages {
    /// Makes a table of so many segments, none of which was given.
    pub(crate) fn none_of(segments: u32) -> GivenPages {
        GivenPages((0..segments).map(|_| Mutex::default()).collect())
    }

    /// Reads the notes of former servers. They do not say whether the present owner's process was
    /// given a segment.
    pub(crate) fn read(&self, files: &[File]) {
        for (pages, file) in self.0.iter().zip(files) {
            if were_given(file) {
                *pages.lock() = Pages::Former;
            }
        }
    }

    fn of(&self, segment: SegmentNumber) -> Option<&Mutex<Pages>> {
        self.0.get(segment.0 as usize)
    }

    /// Notes that a process is about to get the segment.
    pub(crate) fn give(&self, segment: SegmentNumber, file: Option<&File>) {
        let (Some(pages), Some(file)) = (self.of(segment), file) else {
            return;
        };
        let mut pages = pages.lock();
        if *pages == Pages::Ours {
            note(file, true);
            *pages = Pages::Given;
        }
    }

    /// Returns whether a process was given the segment, so that its pages may be in use.
    pub(crate) fn are_given(&self, segment: SegmentNumber) -> bool {
        self.of(segment)
            .is_some_and(|pages| *pages.lock() != Pages::Ours)
    }

    /// Notes that the segment gets another owner.
    pub(crate) fn change_hands(&self, segment: SegmentNumber) {
        if let Some(pages) = self.of(segment) {
            let mut pages = pages.lock();
            if matches!(*pages, Pages::Given | Pages::Former) {
                *pages = Pages::Left;
            }
        }
    }

    /// Returns whether leaves are listed because their pages may be in use.
    pub(crate) fn are_left(&self, segment: SegmentNumber) -> bool {
        self.of(segment)
            .is_some_and(|pages| matches!(*pages.lock(), Pages::Left | Pages::Former))
    }

    /// Notes that all leaves of a segment have been cleared. If it `is_held`, its owner's process
    /// has the new pages; that is asked while no process can be [given](Self::give) it.
    pub(crate) fn renewed(
        &self,
        segment: SegmentNumber,
        file: Option<&File>,
        is_held: impl FnOnce() -> bool,
    ) {
        let (Some(pages), Some(file)) = (self.of(segment), file) else {
            return;
        };
        let mut pages = pages.lock();
        match *pages {
            // Only free blocks were cleared. Blocks in use are the owner's, and keep their pages.
            Pages::Former => *pages = Pages::Given,
            Pages::Left if is_held() => *pages = Pages::Given,
            Pages::Left => {
                *pages = Pages::Ours;
                note(file, false);
            }
            Pages::Ours | Pages::Given => {}
        }
    }
}

/// Returns whether it is noted at a segment's file that a process was given it.
pub(crate) fn were_given(file: &File) -> bool {
    let mode = file.metadata().map(|metadata| metadata.mode());
    mode.is_ok_and(|mode| mode & GIVEN_BIT != 0)
}

/// Notes at a file whether its segment was given. To take the note away is only tidy; without a
/// note that it was, a server after this one does not know.
fn note(file: &File, is_given: bool) {
    let noted = file.metadata().and_then(|metadata| {
        let mode = match is_given {
            true => metadata.mode() | GIVEN_BIT,
            false => metadata.mode() & !GIVEN_BIT,
        };
        file.set_permissions(Permissions::from_mode(mode & 0o7777))
    });
    if let Err(error) = noted {
        tracing::warn!(%error, is_given, "it cannot be noted at a segment's file whether it was given to a process");
    }
}

/// Returns whether a process has pages of a file on fsdax pinned (in a pipe, for direct I/O), even
/// if it has the file neither open nor mapped. This process must have it mapped: the kernel looks
/// only then.
///
/// To give a file the length that it has changes nothing, and waits until no process has any, which
/// can be interrupted. (To take pages out waits for the same, without an end.) Elsewhere than on
/// fsdax nothing is waited for, and the answer is no.
pub(crate) fn are_pinned(file: &File) -> bool {
    let tried = || -> io::Result<()> {
        let length = file.metadata()?.len();
        let _alarm = Alarm::set(PINNED_AFTER, PINNED_AFTER)?;
        Ok(rustix::fs::ftruncate(file, length)?)
    };
    tried()
        .inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                tracing::warn!(%error, "it cannot be known whether somebody has pages of a segment");
            }
        })
        .is_err()
}

/// Takes pages of a segment out of its file, so that others come in their [place](put_others).
///
/// If a part of a page is named, the kernel makes small pages of it first. Where it cannot, because
/// a process has the page, it only overwrites that part: the process would see the later content.
/// So whole leaves are named, which are empty then, or whole segments.
///
/// # Errors
///
/// The system's error. The pages are still there.
pub(crate) fn take_out(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // The bytes behind the file's end are a part of its last page.
    let end = match at + bytes {
        end if end == file.metadata()?.len() => end.next_multiple_of(HUGE_PAGE_BYTES as u64),
        end => end,
    };
    Ok(fallocate(file, hole, at, end - at)?)
}

/// Takes all pages out of a file that has no name any more, or will have none: they would stay as
/// long as any process has the file mapped, which sees zeros from here on.
pub(crate) fn empty_file(file: &File, bytes: u64) {
    if let Err(error) = take_out(file, 0, bytes) {
        tracing::warn!(%error, "memory of a pool stays in use until no process has it mapped");
    }
}

/// Puts pages that hold zeros into a segment's file where some were [taken out](take_out).
///
/// If others have taken the room meanwhile, on a file system that they may write to as well, it
/// waits for room: with a hole in the file the next access would end this process.
///
/// # Errors
///
/// The system's error. The file may have a hole there, in which no process sees former or later
/// content.
pub(crate) fn put_others(
    segment: SegmentNumber,
    file: &File,
    at: u64,
    bytes: u64,
) -> io::Result<()> {
    let mut said = Instant::now();
    loop {
        match fallocate(file, FallocateFlags::empty(), at, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                if said.elapsed() >= REMINDER {
                    said = Instant::now();
                    tracing::error!(
                        segment = segment.0,
                        bytes,
                        "the file system that the pool lies on is full, and pages that a process had have to be replaced: the mount waits for room; remove files there"
                    );
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return Ok(outcome?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::held::{HeldSegments, SegmentFiles};
    use super::*;
    use crate::descriptors::DescriptorRoom;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::process::Command;
    use tempfile::TempDir;

    const BYTES: u64 = 4 << 12;
    const SEGMENT: SegmentNumber = SegmentNumber(0);

    fn file(content: u8) -> File {
        let mut file = tempfile::tempfile_in("/dev/shm").expect("a file");
        file.write_all(&[content; BYTES as usize]).expect("written");
        file
    }

    /// A file system of its own in memory.
    struct Tmpfs(TempDir);

    impl Tmpfs {
        /// `None` if nothing can be mounted here.
        fn mount(options: &str) -> Option<Tmpfs> {
            if !rustix::process::geteuid().is_root() {
                eprintln!("skipped: mounting needs root");
                return None;
            }
            let folder = tempfile::tempdir().expect("a folder");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", options, "none"]);
            let status = mount.arg(folder.path()).status().expect("mount");
            assert!(status.success());
            Some(Tmpfs(folder))
        }

        fn path(&self) -> &Path {
            self.0.path()
        }
    }

    impl Drop for Tmpfs {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }

    /// Puts the file's pages into a pipe, not their content.
    fn splice(file: &File, at: u64, into: &io::PipeWriter) -> isize {
        let mut from = at.cast_signed();
        // SAFETY: both descriptors are open, and the position is a variable of this function's.
        unsafe {
            libc::splice(
                file.as_raw_fd(),
                &raw mut from,
                into.as_raw_fd(),
                std::ptr::null_mut(),
                BYTES as usize,
                0,
            )
        }
    }

    fn renew(file: &File) -> io::Result<()> {
        take_out(file, 0, BYTES).and_then(|()| put_others(SEGMENT, file, 0, BYTES))
    }

    #[test]
    fn who_has_pages_of_a_file_does_not_see_what_comes_after_them() {
        for is_renewed in [false, true] {
            let file = file(1);
            let (mut kept, into) = io::pipe().expect("a pipe");
            assert_eq!(splice(&file, 0, &into), BYTES as isize);
            drop(into);
            if is_renewed {
                renew(&file).expect("renewed");
            }
            file.write_all_at(&[2; BYTES as usize], 0).expect("written");
            let mut seen = Vec::new();
            kept.read_to_end(&mut seen).expect("read");
            let wanted = if is_renewed { 1 } else { 2 };
            assert!(seen.iter().all(|byte| *byte == wanted), "{is_renewed}");
        }
    }

    #[test]
    fn nor_if_the_kernel_has_more_than_a_leaf_as_one_page() {
        const LEAF_BYTES: u64 = 256 << 10;
        const SEGMENT_BYTES: u64 = 4 * LEAF_BYTES;
        let Some(tmpfs) = Tmpfs::mount("huge=always,size=16M") else {
            return;
        };
        let mut file = File::create_new(tmpfs.path().join("0")).expect("a file");
        file.write_all(&[1; SEGMENT_BYTES as usize])
            .expect("written");
        let options = File::options().read(true).write(true).clone();
        let file = options.open(tmpfs.path().join("0")).expect("open");
        let held = HeldSegments::none_of(1);
        let files = vec![file.try_clone().expect("a descriptor")];
        let _room = DescriptorRoom::new(0);
        held.watch(SegmentFiles { files, _room }, &[], false);
        held.give(SEGMENT);
        let (mut kept, into) = io::pipe().expect("a pipe");
        assert_eq!(splice(&file, LEAF_BYTES, &into), BYTES as isize);
        drop(into);
        held.change_hands(SEGMENT, SEGMENT_BYTES);
        assert!(held.renew(SEGMENT, LEAF_BYTES, LEAF_BYTES));
        file.write_all_at(&[2; BYTES as usize], LEAF_BYTES)
            .expect("written");
        let mut seen = Vec::new();
        kept.read_to_end(&mut seen).expect("read");
        assert!(seen.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn who_finds_no_room_for_other_pages_waits_for_it() {
        const ROOM: u64 = 1 << 20;
        let Some(tmpfs) = Tmpfs::mount("size=1M") else {
            return;
        };
        let file = File::create_new(tmpfs.path().join("segment")).expect("a file");
        file.set_len(BYTES).expect("a hole");
        let filler = File::create_new(tmpfs.path().join("other")).expect("a file");
        fallocate(&filler, FallocateFlags::empty(), 0, ROOM).expect("all the room");
        std::thread::scope(|scope| {
            let renewing = scope.spawn(|| renew(&file));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!renewing.is_finished(), "there is no room");
            filler.set_len(0).expect("room");
            let outcome = renewing.join().expect("no panic");
            outcome.expect("renewed");
        });
        assert_eq!(file.metadata().expect("metadata").blocks() * 512, BYTES);
    }

    #[test]
    fn nobody_is_given_a_segment_between_the_question_and_what_follows() {
        let file = file(0);
        let pages = GivenPages::none_of(1);
        pages.give(SEGMENT, Some(&file));
        pages.change_hands(SEGMENT);
        let mut was_asked = false;
        pages.renewed(SEGMENT, Some(&file), || {
            was_asked = true;
            assert!(pages.0[0].try_lock().is_none());
            false
        });
        assert!(was_asked && !pages.are_given(SEGMENT));
    }

    #[test]
    fn that_a_segment_was_given_is_known_until_its_pages_are_others() {
        let file = file(0);
        file.set_permissions(Permissions::from_mode(0o600))
            .expect("a mode");
        let pages = GivenPages::none_of(1);
        pages.change_hands(SEGMENT);
        assert!(!pages.are_given(SEGMENT) && !pages.are_left(SEGMENT));
        pages.give(SEGMENT, Some(&file));
        assert!(pages.are_given(SEGMENT) && !pages.are_left(SEGMENT));
        pages.renewed(SEGMENT, Some(&file), || false);
        assert!(pages.are_given(SEGMENT), "its owner keeps them");
        // The next server does not know whose they are; blocks in use keep them until the segment
        // gets another owner.
        let next = GivenPages::none_of(1);
        next.read(std::slice::from_ref(&file));
        assert!(next.are_given(SEGMENT) && next.are_left(SEGMENT));
        next.renewed(SEGMENT, Some(&file), || false);
        assert!(next.are_given(SEGMENT) && !next.are_left(SEGMENT));
        next.read(std::slice::from_ref(&file));
        assert!(next.are_left(SEGMENT), "it is still noted");
        for pages in [&pages, &next] {
            pages.change_hands(SEGMENT);
            assert!(pages.are_given(SEGMENT) && pages.are_left(SEGMENT));
        }
        pages.renewed(SEGMENT, Some(&file), || true);
        assert!(pages.are_given(SEGMENT) && !pages.are_left(SEGMENT));
        pages.change_hands(SEGMENT);
        pages.renewed(SEGMENT, Some(&file), || false);
        assert!(!pages.are_given(SEGMENT));
        let last = GivenPages::none_of(1);
        last.read(std::slice::from_ref(&file));
        assert!(!last.are_given(SEGMENT));
    }
}
