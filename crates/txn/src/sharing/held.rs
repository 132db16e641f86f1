//! Segments that processes were given, and that stay with their owners as long as any process has
//! them (`docs/DIRECT.md`, *Whose segments*).
//!
//! The end of the process that was given a segment says nothing: a child may have inherited its
//! mapping, and a descriptor can be sent to any process. The kernel knows which files are in use.
//! It gives a *lease* for writing on a file (`F_SETLEASE`) only if no other descriptor has the file
//! open, mapped, or on its way in a socket, so the server asks for a lease. The pool's own mapping
//! has the file open as well; so the very descriptors that were mapped are kept, and asked about.

use super::pages::{self, GivenPages};
use super::seals::{self, Seals};
use crate::descriptors::DescriptorRoom;
use parking_lot::{Mutex, RwLock};
use pmem::HUGE_PAGE_BYTES;
use pmem::deliberate::{self, Bug};
use scatter::SegmentNumber;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The files of a pool's segments, by their numbers: the descriptors through which they are mapped.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) files: Vec<File>,
    pub(crate) _room: DescriptorRoom,
}

/// The descriptors that have a file open or mapped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Usage {
    /// Only the descriptor that was asked about has the file.
    Alone,
    /// Another process has it as well, be it for reading only.
    Shared,
    /// The file's file system cannot tell.
    Unknown,
}

/// The segments of an open pool that stay with their owners.
#[derive(Debug)]
pub struct HeldSegments {
    /// Reasons to hold each segment: one for each process that was given it, and one more if it
    /// lingers.
    counts: Box<[AtomicU32]>,
    /// Whether a segment was held at any time. Each commit asks.
    were_any: AtomicBool,
    /// No files for a pool that is not made of files: no process is given segments of it.
    files: OnceLock<SegmentFiles>,
    /// Pages that a process may have of a segment even if no process has the segment.
    pages: GivenPages,
    /// Segments in which nobody can make holes.
    seals: Seals,
    /// Segments that are still open or mapped, although no process has them that the server knows
    /// of.
    lingering: Mutex<BTreeSet<u32>>,
    /// Whether the files are on fsdax: then it is known which pages are in use.
    is_dax: OnceLock<bool>,
    /// Held for writing while a file has holes.
    holes: RwLock<()>,
}

impl HeldSegments {
    /// Makes a table of so many segments, none of which is held.
    pub(crate) fn none_of(segments: u32) -> HeldSegments {
        HeldSegments {
            counts: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            were_any: AtomicBool::new(false),
            files: OnceLock::new(),
            pages: GivenPages::none_of(segments),
            seals: Seals::default(),
            lingering: Mutex::default(),
            is_dax: OnceLock::new(),
            holes: RwLock::default(),
        }
    }

    /// Begins to ask which segments are in use; the files are mapped. `lingering` are the segments
    /// that processes of former servers have.
    pub(crate) fn watch(&self, files: SegmentFiles, lingering: &[u32], is_dax: bool) {
        self.pages.read(&files.files);
        let installed = self.is_dax.set(is_dax).is_ok() && self.files.set(files).is_ok();
        debug_assert!(installed, "once for each opening of the pool");
        let all = 0..self.counts.len() as u32;
        let pinned = all.filter(|segment| self.are_pinned(SegmentNumber(*segment)));
        let had: BTreeSet<u32> = lingering.iter().copied().chain(pinned).collect();
        let mut set = self.lingering.lock();
        for segment in had {
            if set.insert(segment) && !self.hold(SegmentNumber(segment)) {
                set.remove(&segment);
            }
            self.give(SegmentNumber(segment));
        }
    }

    /// Returns the very descriptor through which a segment is mapped: a process that has a
    /// descriptor opened from it has the segment. `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn file(&self, segment: SegmentNumber) -> io::Result<Option<File>> {
        self.own_file(segment).map(File::try_clone).transpose()
    }

    /// Prevents holes in the file of a segment that is held, also through a mapping of it, until no
    /// process holds the segment.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn seal(&self, segment: SegmentNumber) -> io::Result<()> {
        let file = self.own_file(segment);
        file.map_or(Ok(()), |file| self.seals.set(segment, file))
    }

    /// Returns whether segments can be [sealed](Self::seal).
    pub fn can_seal(&self) -> bool {
        self.own_file(SegmentNumber(0))
            .is_some_and(seals::are_possible)
    }

    fn unseal(&self, segment: SegmentNumber) {
        if let Some(file) = self.own_file(segment) {
            self.seals.lift(segment, file, || !self.is_held(segment));
        }
    }

    /// Returns whether a process has pages of a segment that was given and lies on fsdax; it need
    /// not have the segment. To take pages out there would wait for that process, so the segment
    /// stays with its owner instead.
    fn are_pinned(&self, segment: SegmentNumber) -> bool {
        let may_be = self.is_dax.get() == Some(&true) && self.pages.are_given(segment);
        let file = self.own_file(segment).filter(|_| may_be);
        file.is_some_and(|file| {
            let ask = || pages::are_pinned(file);
            self.seals.without(segment, file, ask)
        })
    }

    fn own_file(&self, segment: SegmentNumber) -> Option<&File> {
        self.files.get()?.files.get(segment.0 as usize)
    }

    /// Returns whether processes were given a segment, so that they may have its pages: no other
    /// owner's blocks may come to lie between the blocks that its owner has in it.
    pub(crate) fn are_pages_given(&self, segment: SegmentNumber) -> bool {
        self.pages.are_given(segment)
    }

    /// Notes that the segment gets another owner. If its pages were given, no block of it is in
    /// use. From here on its pages are renewed by the leaf, until [`renewed`](Self::renewed) says
    /// that all are.
    pub(crate) fn change_hands(&self, segment: SegmentNumber, bytes: u64) {
        self.pages.change_hands(segment);
        // All at once, if a leaf is less than the kernel may have as one page: a part of a page
        // cannot be replaced while a process has it.
        if bytes < HUGE_PAGE_BYTES as u64 {
            self.renew(segment, 0, bytes);
        }
    }

    /// Returns whether pages have to be renewed before they are used.
    pub(crate) fn are_pages_left(&self, segment: SegmentNumber) -> bool {
        self.pages.are_left(segment)
    }

    /// Renews pages of a segment, so many bytes from a place in it on, if they have to be; returns
    /// whether they were. On fsdax no process has any when a segment gets another owner.
    pub(crate) fn renew(&self, segment: SegmentNumber, at: u64, bytes: u64) -> bool {
        if self.is_dax.get() == Some(&true) {
            return false;
        }
        let file = self.own_file(segment);
        let Some(file) = file.filter(|_| self.pages.are_left(segment)) else {
            return false;
        };
        let _holes = self.holes.write();
        let take_out = || pages::take_out(file, at, bytes);
        let taken_out = self.seals.without(segment, file, take_out);
        let outcome = taken_out.and_then(|()| pages::put_others(segment, file, at, bytes));
        if let Err(error) = &outcome {
            tracing::error!(segment = segment.0, %error, "pages that a process had cannot be replaced; it may see what comes to lie in them");
        }
        outcome.is_ok()
    }

    /// Reads blocks that may be free. No file has a hole meanwhile: without room for its page the
    /// load would end this process.
    pub(crate) fn without_holes<T>(&self, read: impl FnOnce() -> T) -> T {
        let _no_holes = self.holes.read();
        read()
    }

    /// Takes the pages out of memory whose names are gone and that other processes have mapped,
    /// apart from the `spared` segments.
    pub(crate) fn empty(&self, is_spared: impl Fn(SegmentNumber) -> bool) {
        if !self.were_any() {
            return;
        }
        let Some(files) = self.files.get() else {
            return;
        };
        for (segment, file) in (0..).zip(&files.files) {
            if self.is_had(segment)
                && !is_spared(SegmentNumber(segment))
                && let Ok(found) = file.metadata()
            {
                pages::empty_file(file, found.len());
            }
        }
    }

    /// Notes that all leaves of a segment have been cleared.
    pub(crate) fn renewed(&self, segment: SegmentNumber) {
        let is_held = || self.is_held(segment);
        self.pages.renewed(segment, self.own_file(segment), is_held);
    }

    /// Keeps the segment with its present owner until [`let_go`](Self::let_go): a process is about
    /// to get it. A caller that needs the owner asks the allocator afterwards, whose lock stands
    /// between this and any change. Returns `false` if there is no such segment.
    #[must_use = "a segment that does not exist is not held"]
    pub fn hold(&self, segment: SegmentNumber) -> bool {
        let count = self.counts.get(segment.0 as usize);
        count.is_some_and(|count| {
            self.were_any.store(true, Ordering::SeqCst);
            count.fetch_add(1, Ordering::SeqCst);
            true
        })
    }

    /// Notes that a process gets a segment that is held: from here on that process may have its
    /// pages.
    pub fn give(&self, segment: SegmentNumber) {
        self.pages.give(segment, self.own_file(segment));
    }

    /// Undoes one [`hold`](Self::hold): the process is gone, or does not want the segment any more.
    /// Returns `false` if the segment is still in use, by a process that this server does not know:
    /// it lingers.
    pub fn let_go(&self, segment: SegmentNumber) -> bool {
        let Some(count) = self.counts.get(segment.0 as usize) else {
            return true;
        };
        // Two callers that release the same segment must not both see the other one's hold as the
        // last.
        let mut lingering = self.lingering.lock();
        let is_last = count.load(Ordering::SeqCst) == 1;
        if is_last && self.is_had(segment.0) {
            // The process's count stands for the unknown holder from here on.
            lingering.insert(segment.0);
            return false;
        }
        count.fetch_sub(1, Ordering::SeqCst);
        self.unseal(segment);
        true
    }

    /// Returns the segments that lingered and that no process has any more. They are not held now,
    /// unless a process was given them since.
    pub(crate) fn look_again(&self) -> Vec<SegmentNumber> {
        let listed: Vec<u32> = self.lingering.lock().iter().copied().collect();
        // The question takes a while where pages are in use; no other call is to wait for that.
        let free: BTreeSet<u32> = listed.into_iter().filter(|it| !self.is_had(*it)).collect();
        let mut lingering = self.lingering.lock();
        // A process may have got it and left it to somebody meanwhile.
        let is_over = |segment: &u32| free.contains(segment) && !self.is_had(*segment);
        let over: Vec<u32> = lingering.extract_if(.., is_over).collect();
        for &segment in &over {
            self.counts[segment as usize].fetch_sub(1, Ordering::SeqCst);
            self.unseal(SegmentNumber(segment));
        }
        over.into_iter().map(SegmentNumber).collect()
    }

    /// Returns the number of segments that linger.
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.lock().len()
    }

    /// Returns whether any segment was held since the pool was opened.
    #[inline]
    pub(crate) fn were_any(&self) -> bool {
        self.were_any.load(Ordering::Relaxed)
    }

    pub(crate) fn is_held(&self, segment: SegmentNumber) -> bool {
        let count = self.counts.get(segment.0 as usize);
        count.is_some_and(|count| count.load(Ordering::SeqCst) > 0)
    }

    /// Returns whether any process but this one has a segment. Where that cannot be known, the
    /// answer is yes.
    fn is_had(&self, segment: u32) -> bool {
        let files = self.files.get();
        let file = files.and_then(|files| files.files.get(segment as usize));
        let is_had = |file| usage(file) != Usage::Alone || self.are_pinned(SegmentNumber(segment));
        file.is_some_and(is_had) && !deliberate::is(Bug::ForgetHeirs)
    }
}

impl Drop for HeldSegments {
    fn drop(&mut self) {
        if let Some(files) = self.files.get() {
            self.seals.lift_all(&files.files);
        }
    }
}

/// Returns which descriptors have the file of this one. The caller must own the file.
pub(crate) fn usage(file: &File) -> Usage {
    /// `F_SETSIG`: the signal that is sent when another process opens the file.
    const SET_SIGNAL: libc::c_int = 10;
    let ask = |command: libc::c_int, argument: libc::c_int| {
        // SAFETY: the descriptor is open, and these commands take no pointers.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // A process may open the file, and wait, before the lease is given back; the usual signal would
    // end this process.
    let asked = ask(SET_SIGNAL, libc::SIGURG)
        .and_then(|()| ask(libc::F_SETLEASE, libc::c_int::from(libc::F_WRLCK)));
    match asked {
        Ok(()) => {
            // The lease is ours, and to give it back cannot fail.
            let _ = ask(libc::F_SETLEASE, libc::c_int::from(libc::F_UNLCK));
            Usage::Alone
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Usage::Shared,
        Err(_) => Usage::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::{Access, DurabilityClass, Part, Region};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const BYTES: u64 = 4096;

    fn make(folder: &Path, name: &str) -> File {
        let options = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .clone();
        let file = options.open(folder.join(name)).expect("a file");
        file.set_len(BYTES).expect("its length");
        file
    }

    fn map(file: &File, path: &Path, access: Access) -> Region {
        let part = Part {
            file,
            path,
            file_offset: 0,
            length: BYTES,
        };
        Region::map(&[part], DurabilityClass::Volatile, access).expect("map")
    }

    /// Two segments in files, mapped as a pool's are.
    fn two() -> (HeldSegments, [Region; 2], tempfile::TempDir) {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let files = ["0", "1"].map(|name| make(folder.path(), name));
        let regions = [0, 1].map(|n| map(&files[n], &folder.path().join("n"), Access::ReadWrite));
        let held = HeldSegments::none_of(2);
        let files = SegmentFiles {
            files: files.into(),
            _room: DescriptorRoom::new(0),
        };
        held.watch(files, &[], false);
        (held, regions, folder)
    }

    fn give(folder: &tempfile::TempDir, for_writing: bool) -> File {
        let options = File::options().read(true).write(for_writing).clone();
        options.open(folder.path().join("0")).expect("open")
    }

    #[test]
    fn who_has_a_file_is_known() {
        let (held, _regions, folder) = two();
        let look = || usage(&held.files.get().expect("files").files[0]);
        assert_eq!(look(), Usage::Alone, "mapped by the pool");
        for (for_writing, access) in [
            (true, Access::ReadWrite),
            // As a process has it that only reads.
            (false, Access::PrivateCopy),
        ] {
            let file = give(&folder, for_writing);
            assert_eq!(look(), Usage::Shared, "open, for writing: {for_writing}");
            let region = map(&file, &folder.path().join("0"), access);
            drop(file);
            assert_eq!(look(), Usage::Shared, "mapped, for writing: {for_writing}");
            drop(region);
            assert_eq!(look(), Usage::Alone, "neither");
        }
        let (pipe, _other) = std::io::pipe().expect("a pipe");
        assert_eq!(
            usage(&File::from(std::os::fd::OwnedFd::from(pipe))),
            Usage::Unknown
        );
    }

    #[test]
    fn a_segment_is_held_as_long_as_anybody_has_it() {
        let (held, _regions, folder) = two();
        let segment = SegmentNumber(0);
        assert!(held.hold(segment) && held.hold(segment));
        let inherited = give(&folder, true);
        assert!(held.let_go(segment), "the other one has it");
        assert!(!held.let_go(segment), "somebody has it");
        assert!(held.is_held(segment) && held.lingering() == 1);
        assert_eq!(held.look_again(), []);
        // It is given out again meanwhile, and taken in.
        assert!(held.hold(segment) && held.let_go(segment) && held.is_held(segment));
        drop(inherited);
        assert_eq!(held.look_again(), [segment]);
        assert!(!held.is_held(segment) && held.lingering() == 0);
        assert!(held.hold(segment) && held.let_go(segment) && !held.is_held(segment));
    }

    #[test]
    fn a_segment_on_its_way_to_a_process_is_had() {
        use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        use std::io::IoSlice;
        use std::os::fd::AsFd;
        let (held, _regions, folder) = two();
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let kind = rustix::net::SocketType::SEQPACKET;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).expect("sockets");
        let file = give(&folder, false);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
        let message = [IoSlice::new(b"x")];
        rustix::net::sendmsg(&ours, &message, &mut beside, SendFlags::empty()).expect("sent");
        drop(file);
        assert!(held.hold(SegmentNumber(0)) && !held.let_go(SegmentNumber(0)));
        drop(theirs);
        assert_eq!(held.look_again(), [SegmentNumber(0)]);
    }

    #[test]
    fn what_processes_of_former_servers_have_lingers_from_the_beginning() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let files = vec![make(folder.path(), "0")];
        let theirs = give(&folder, true);
        let held = HeldSegments::none_of(1);
        let room = DescriptorRoom::new(0);
        held.watch(SegmentFiles { files, _room: room }, &[0, 7], false);
        assert!(held.is_held(SegmentNumber(0)) && held.lingering() == 1);
        drop(theirs);
        assert_eq!(held.look_again(), [SegmentNumber(0)]);
    }

    #[test]
    fn free_blocks_are_read_while_no_file_has_a_hole() {
        let (held, _regions, _folder) = two();
        held.give(SegmentNumber(0));
        std::thread::scope(|scope| {
            let renewing = held.without_holes(|| {
                // Its pages are less than the kernel may have as one, so all are replaced at once.
                let renewing = scope.spawn(|| held.change_hands(SegmentNumber(0), BYTES));
                std::thread::sleep(std::time::Duration::from_millis(100));
                assert!(!renewing.is_finished(), "pages were taken out meanwhile");
                renewing
            });
            renewing.join().expect("replaced");
        });
    }

    #[test]
    fn memory_that_a_process_has_mapped_is_freed_unless_it_is_spared() {
        let (held, _regions, folder) = two();
        for number in [0, 1] {
            assert!(held.hold(SegmentNumber(number)));
            let file = held.own_file(SegmentNumber(number)).expect("a file");
            file.write_all_at(&[7; BYTES as usize], 0).expect("written");
        }
        let reader = |name: &str| File::open(folder.path().join(name)).expect("opened");
        let readers = ["0", "1"].map(reader);
        held.empty(|segment| segment == SegmentNumber(1));
        let content = readers.map(|file| {
            let mut bytes = [0; BYTES as usize];
            file.read_exact_at(&mut bytes, 0).expect("read");
            bytes
        });
        assert!(content == [[0; BYTES as usize], [7; BYTES as usize]]);
    }
}
