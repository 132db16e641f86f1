//! Descriptors of segments, as processes get them.
//!
//! Whoever has a segment's own file open for writing can make it shorter: the server ends at its next access (SIGBUS), and the pool cannot be mounted. He can make it longer, and punch holes into it. And a
//! descriptor that is good for nothing (`O_PATH`), which nobody counts, opens the file again whenever its mode allows.
//!
//! So processes get descriptors of other files. A file system of the server's own, mounted nowhere, has one for each segment; the kernel passes their mappings through to the
//! segment (`FUSE_PASSTHROUGH`), and asks the server for everything else, reads and writes as well, who refuses it. Who has one has the segment open as far as the kernel is concerned, so who has a segment is still known
//! ([`txn::sharing`]).
//!
//! That takes Linux 6.9 and a server that may administer the system. Others hand out the files themselves, to whom could do all that to them anyway: the server's own user, and root.

use crate::attributes::made_up;
use ::direct::layout::PROCESS_BYTES;
use fuse::{
    BackingId, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, Opcode, Options, ReplyAttr, ReplyEntry, ReplyOpen, Request, Session,
};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::thread::{CpuSet, Pid, sched_getcpu, sched_setaffinity};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nothing that the kernel knows of these files changes.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Pools may lie on a file system that is stacked on another one itself.
const STACKED_MAX: u32 = 2;

/// The inodes of files that each belong to one process begin here; those before are of segments.
const PROCESSES_FIRST: u64 = 1 << 32;

/// One thread answers, from the classic queue: passing files through is done on its descriptor.
const ALONE: Options = Options {
    threads: 1,
    over_io_uring: false,
    stations: 1,
};

/// What is opened just now, and by whom.
struct Wanted {
    thread: i32,
    name: String,
    number: INodeNo,
    file: File,
}

/// One of these files is opened by nobody but the thread that said so before.
#[derive(Default)]
struct Guest {
    wanted: Option<Wanted>,
    /// Who answers, once he has.
    thread: Option<Pid>,
    /// What the kernel knows the segments by that were opened once: for each file always the same.
    backings: HashMap<INodeNo, BackingId>,
    /// The same of a file that nobody else opens, until it is open.
    passing: Option<BackingId>,
}

/// Opens segments for processes.
pub(super) struct Door {
    mount: OwnedFd,
    guest: Arc<Mutex<Guest>>,
    /// How many files there were for one process.
    processes: AtomicU64,
    /// Held while one is opened.
    turn: Mutex<()>,
}

impl Door {
    /// Makes the file system, whose files are so many bytes long.
    ///
    /// # Errors
    ///
    /// What the system says, most of all that this kernel, or this user, cannot have it.
    pub(super) fn new(segment_bytes: u64) -> io::Result<Door> {
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let mount = mount(&device)?;
        let guest = Arc::<Mutex<Guest>>::default();
        let files = Files {
            guest: Arc::clone(&guest),
            segment_bytes,
        };
        let session = Session::new(files, device, ALONE)?;
        // It ends when the last process has let its last descriptor go, or with the server.
        std::thread::Builder::new()
            .name("perdure-door".to_owned())
            .spawn(move || {
                if let Err(error) = session.run(|| ()) {
                    tracing::debug!(%error, "segments are not handed out any more");
                }
            })?;
        let door = Door {
            mount,
            guest,
            processes: AtomicU64::new(0),
            turn: Mutex::default(),
        };
        Ok(door)
    }

    /// A descriptor for a process, of the segment with this number, whose file this is.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) fn open(&self, number: u32, segment: File, for_writing: bool) -> io::Result<File> {
        let name = txn::pool::segment_file(number);
        self.open_as(name, inode_of(number), segment, for_writing)
    }

    /// A descriptor of a file that is one process's own, of [`PROCESS_BYTES`], for that process. No other file has had this name.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) fn open_for_one(&self, name: String, file: File) -> io::Result<File> {
        let number = PROCESSES_FIRST + self.processes.fetch_add(1, Ordering::Relaxed);
        self.open_as(name, INodeNo(number), file, true)
    }

    fn open_as(
        &self,
        name: String,
        number: INodeNo,
        file: File,
        for_writing: bool,
    ) -> io::Result<File> {
        let _turn = self.turn.lock();
        let mut guest = self.guest.lock();
        guest.wanted = Some(Wanted {
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
            name: name.clone(),
            number,
            file,
        });
        guest.come_here();
        drop(guest);
        let how = match for_writing {
            true => OFlags::RDWR,
            false => OFlags::RDONLY,
        };
        let opened = rustix::fs::openat(&self.mount, name, how | OFlags::CLOEXEC, Mode::empty());
        let mut guest = self.guest.lock();
        guest.wanted.take();
        guest.passing.take();
        Ok(opened?.into())
    }
}

impl Guest {
    /// Has who answers run on the processor of who asks, who waits from here on: to wake another processor takes longer than the answer.
    fn come_here(&self) {
        if let Some(thread) = self.thread {
            let mut here = CpuSet::new();
            here.set(sched_getcpu());
            // If he may not, he runs elsewhere.
            let _ = sched_setaffinity(Some(thread), &here);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The thread may outlive this, and what the kernel knows keeps the segments' files open.
        self.guest.lock().backings.clear();
    }
}

/// The number of a segment's file.
fn inode_of(segment: u32) -> INodeNo {
    INodeNo(INodeNo::ROOT.0 + 1 + u64::from(segment))
}

/// Mounts the file system nowhere.
fn mount(device: &OwnedFd) -> io::Result<OwnedFd> {
    use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen};
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    for (key, value) in [
        ("source", "perdure-segments".to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", user.as_raw().to_string()),
        ("group_id", group.as_raw().to_string()),
    ] {
        fsconfig_set_string(context.as_fd(), key, value)?;
    }
    // Processes ask how long a file is.
    fsconfig_set_flag(context.as_fd(), "allow_other")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(mount)
}

/// The file system.
struct Files {
    guest: Arc<Mutex<Guest>>,
    segment_bytes: u64,
}

impl Files {
    fn attributes(&self, number: INodeNo) -> FileAttr {
        let (kind, perm, size) = match number {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            INodeNo(PROCESSES_FIRST..) => (FileType::Regular, 0o600, PROCESS_BYTES as u64),
            _ => (FileType::Regular, 0o600, self.segment_bytes),
        };
        FileAttr {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            ..made_up(number, kind, perm, size)
        }
    }
}

/// What is not here the kernel is told not to exist.
impl Filesystem for Files {
    fn init(&mut self, config: &mut Config) -> io::Result<()> {
        config.max_stack_depth = STACKED_MAX;
        let has_it = config.want(InitFlags::PASSTHROUGH);
        has_it
            .then_some(())
            .ok_or(io::ErrorKind::Unsupported.into())
    }

    /// For most of it there is nothing to do or to find, and the kernel asks no more.
    fn refusal(&self, opcode: Opcode) -> Errno {
        match opcode {
            Opcode::Setattr | Opcode::Read | Opcode::Write | Opcode::Fallocate => Errno::EPERM,
            Opcode::Mknod | Opcode::Mkdir | Opcode::Unlink | Opcode::Rmdir | Opcode::Symlink => {
                Errno::EPERM
            }
            Opcode::Rename2 | Opcode::Link | Opcode::Setxattr | Opcode::Removexattr => Errno::EPERM,
            Opcode::Ioctl => Errno::ENOTTY,
            Opcode::Readlink => Errno::EINVAL,
            Opcode::Readdir | Opcode::Readdirplus => Errno::EACCES,
            _ => Errno::ENOSYS,
        }
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let guest = self.guest.lock();
        let wanted = guest.wanted.as_ref().filter(|wanted| name == &*wanted.name);
        match wanted.map(|wanted| wanted.number) {
            Some(number) => {
                let attributes = self.attributes(number);
                reply.entry(&FOR_EVER, &FOR_EVER, &attributes, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, number: INodeNo, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(number));
    }

    fn open(&self, request: &Request, number: INodeNo, _flags: i32, reply: ReplyOpen) {
        let mut guest = self.guest.lock();
        guest.thread = Some(rustix::thread::gettid());
        let is_guest = |wanted: &mut Wanted| {
            wanted.number == number && request.pid().cast_signed() == wanted.thread
        };
        let Some(wanted) = guest.wanted.take_if(is_guest) else {
            reply.error(Errno::EACCES);
            return;
        };
        let known = guest.backings.get(&number);
        let is_known = known.is_some();
        let made = match is_known {
            true => None,
            false => Some(reply.open_backing(&wanted.file)),
        };
        let made = match made.transpose() {
            Ok(made) => made,
            Err(error) => return reply.error(error.into()),
        };
        if let Some(backing) = known.or(made.as_ref()) {
            // A server that is killed with such a file open would wait for its own answer to the
            // flush, and never end.
            let how = FopenFlags::DIRECT_IO | FopenFlags::NOFLUSH;
            reply.opened_passthrough(FileHandle(0), how, backing);
        }
        match made {
            Some(backing) if number.0 < PROCESSES_FIRST => {
                guest.backings.insert(number, backing);
            }
            Some(backing) => guest.passing = Some(backing),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    const BYTES: u64 = 2 << 20;

    fn segment() -> (File, tempfile::TempDir) {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let options = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .clone();
        let file = options.open(folder.path().join("0")).expect("a file");
        file.set_len(BYTES).expect("its length");
        (file, folder)
    }

    /// As root, on a kernel that has it.
    fn door() -> Option<Door> {
        Door::new(BYTES)
            .inspect_err(|error| eprintln!("skipped: no passthrough: {error}"))
            .ok()
    }

    /// Maps all of a segment for writing.
    fn map(segment: &File) -> Result<pmem::Region, pmem::MapError> {
        let part = pmem::Part {
            file: segment,
            path: "segment".as_ref(),
            file_offset: 0,
            length: BYTES,
        };
        let class = pmem::DurabilityClass::Volatile;
        pmem::Region::map(&[part], class, pmem::Access::ReadWrite)
    }

    #[test]
    fn a_segment_can_be_mapped_and_nothing_else_be_done_to_it() {
        let (Some(door), (file, _folder)) = (door(), segment()) else {
            return;
        };
        let theirs = door
            .open(0, file.try_clone().expect("a descriptor"), true)
            .expect("a segment");
        assert_eq!(theirs.metadata().expect("attributes").len(), BYTES);
        let region = map(&theirs).expect("it can be mapped");
        let at = pmem::Offset::new(4096);
        region.fence(region.store_u64(at, 7).flush());
        assert!((&theirs).write(b"x").is_err() && theirs.write_at(b"x", BYTES).is_err());
        let mut found = [0; 8];
        file.read_exact_at(&mut found, 4096).expect("read");
        assert_eq!(u64::from_le_bytes(found), 7);
        assert!(theirs.set_len(0).is_err(), "shorter");
        assert!(theirs.set_len(2 * BYTES).is_err(), "longer");
        for mode in [0, 1, 3, 16] {
            let mode = rustix::fs::FallocateFlags::from_bits_retain(mode);
            assert!(
                rustix::fs::fallocate(&theirs, mode, 0, 4096).is_err(),
                "{mode:?}"
            );
        }
        let name = format!("/proc/self/fd/{}", theirs.as_raw_fd());
        assert!(File::open(&name).is_err(), "opened again");
        assert!(
            File::options()
                .write(true)
                .truncate(true)
                .open(&name)
                .is_err()
        );
        assert_eq!(file.metadata().expect("attributes").len(), BYTES);
    }

    #[test]
    fn who_reads_cannot_write() {
        let (Some(door), (file, _folder)) = (door(), segment()) else {
            return;
        };
        let again = file.try_clone().expect("a descriptor");
        drop(door.open(0, again, true).expect("for writing before"));
        let theirs = door.open(0, file, false).expect("a segment");
        assert!((&theirs).write(b"x").is_err());
        assert!(map(&theirs).is_err());
    }
}
