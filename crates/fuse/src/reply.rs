//! Answers, a type for each shape. Each is given once, by any thread; one that is dropped is `EIO`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::abi;
use crate::answer::Owed;
use crate::device::BackingId;
use crate::types::{Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo};

/// Names in a directory begin at multiples of this.
const NAME_ALIGNMENT: usize = 8;

macro_rules! replies {
    ($($(#[$meta:meta])* $name:ident)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug)]
            pub struct $name(pub(crate) Owed);

            impl $name {
                /// The request fails.
                pub fn error(self, errno: Errno) {
                    self.0.refuse(errno);
                }
            }
        )*
    };
}

replies! {
    /// The request is done.
    ReplyEmpty
    /// An inode that was found or made, to which the kernel holds a reference from now on.
    ReplyEntry
    /// Attributes of an inode.
    ReplyAttr
    /// An opened file or directory.
    ReplyOpen
    /// Bytes of a file, or the target of a symbolic link.
    ReplyData
    /// The number of bytes written.
    ReplyWrite
    /// Space and inodes.
    ReplyStatfs
    /// The value of an extended attribute, or names of them.
    ReplyXattr
    /// The outcome of an ioctl.
    ReplyIoctl
    /// An offset in a file.
    ReplyLseek
}

impl ReplyEmpty {
    /// It is.
    pub fn ok(self) {
        self.0.send(&[]);
    }
}

fn entry(
    attributes: &FileAttr,
    generation: Generation,
    lifetime: &Duration,
    name_lifetime: &Duration,
) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: attributes.inode.0,
        generation: generation.0,
        entry_valid: name_lifetime.as_secs(),
        attr_valid: lifetime.as_secs(),
        entry_valid_nsec: name_lifetime.subsec_nanos(),
        attr_valid_nsec: lifetime.subsec_nanos(),
        attr: attributes.to_abi(),
    }
}

impl ReplyEntry {
    /// The inode; the kernel keeps its attributes and its name for so long. Inode number 0 says
    /// that there is none, which the kernel may keep as well.
    pub fn entry(
        self,
        lifetime: &Duration,
        name_lifetime: &Duration,
        attributes: &FileAttr,
        generation: Generation,
    ) {
        let message = entry(attributes, generation, lifetime, name_lifetime);
        self.0.send(&[message.as_bytes()]);
    }
}

impl ReplyAttr {
    /// The attributes, and how long the kernel keeps them.
    pub fn attr(self, lifetime: &Duration, attributes: &FileAttr) {
        let message = abi::AttrOut {
            attr_valid: lifetime.as_secs(),
            attr_valid_nsec: lifetime.subsec_nanos(),
            dummy: 0,
            attr: attributes.to_abi(),
        };
        self.0.send(&[message.as_bytes()]);
    }
}

impl ReplyOpen {
    /// The handle that further requests name.
    pub fn opened(self, handle: FileHandle, flags: FopenFlags) {
        self.send(handle, flags, 0);
    }

    /// As `opened`; the kernel passes mappings through to a backing file.
    pub fn opened_passthrough(self, handle: FileHandle, flags: FopenFlags, backing: &BackingId) {
        self.send(handle, flags | FopenFlags::PASSTHROUGH, backing.number);
    }

    fn send(self, handle: FileHandle, flags: FopenFlags, backing_id: u32) {
        let message = abi::OpenOut {
            fh: handle.0,
            open_flags: flags.bits(),
            backing_id,
        };
        self.0.send(&[message.as_bytes()]);
    }

    /// Makes a file one that can stand behind others.
    ///
    /// # Errors
    ///
    /// The system's error. A request over io_uring cannot do it.
    pub fn open_backing(&self, file: impl AsFd) -> io::Result<BackingId> {
        self.0.open_backing(file.as_fd())
    }
}

/// What [`ReplyData::fill`] found.
pub enum Filled<H> {
    /// So many bytes of the room.
    Room(usize),
    /// Bytes that lie elsewhere.
    Held(H),
}

thread_local! {
    /// Room for answers that go to the device.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl ReplyData {
    /// The bytes.
    pub fn data(self, data: &[u8]) {
        self.0.send(&[data]);
    }

    /// Has `work` put up to `bytes` into the room that the kernel takes them from, or into a
    /// buffer of this thread. The room is not empty: it has bytes of earlier requests.
    pub fn fill<H: AsRef<[u8]>>(
        mut self,
        bytes: usize,
        work: impl FnOnce(&mut [u8]) -> Result<Filled<H>, Errno>,
    ) {
        if let Some(room) = self.0.room(bytes) {
            return match work(room) {
                Ok(Filled::Room(filled)) => self.0.send_room(filled.min(bytes)),
                Ok(Filled::Held(held)) => self.data(held.as_ref()),
                Err(errno) => self.error(errno),
            };
        }
        ROOM.with_borrow_mut(|room| {
            if room.len() < bytes {
                room.resize(bytes, 0);
            }
            match work(&mut room[..bytes]) {
                Ok(Filled::Room(filled)) => self.data(&room[..filled.min(bytes)]),
                Ok(Filled::Held(held)) => self.data(held.as_ref()),
                Err(errno) => self.error(errno),
            }
        });
    }
}

impl ReplyWrite {
    /// So many bytes are written.
    pub fn written(self, bytes: u32) {
        let message = abi::WriteOut {
            size: bytes,
            padding: 0,
        };
        self.0.send(&[message.as_bytes()]);
    }
}

/// Space and inodes of a file system.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Space {
    pub blocks: u64,
    pub free_blocks: u64,
    pub available_blocks: u64,
    pub inodes: u64,
    pub free_inodes: u64,
    pub block_bytes: u32,
    pub name_max: u32,
}

impl ReplyStatfs {
    /// The space.
    pub fn statfs(self, space: &Space) {
        let message = abi::StatfsOut {
            blocks: space.blocks,
            bfree: space.free_blocks,
            bavail: space.available_blocks,
            files: space.inodes,
            ffree: space.free_inodes,
            bsize: space.block_bytes,
            namelen: space.name_max,
            frsize: space.block_bytes,
            ..abi::StatfsOut::default()
        };
        self.0.send(&[message.as_bytes()]);
    }
}

impl ReplyXattr {
    /// The value's length, to a caller that gives no room.
    pub fn size(self, bytes: u32) {
        let message = abi::GetxattrOut {
            size: bytes,
            padding: 0,
        };
        self.0.send(&[message.as_bytes()]);
    }

    /// The value.
    pub fn data(self, data: &[u8]) {
        self.0.send(&[data]);
    }
}

impl ReplyIoctl {
    /// The call's result and its output.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        let message = abi::IoctlOut {
            result,
            ..abi::IoctlOut::default()
        };
        self.0.send(&[message.as_bytes(), data]);
    }
}

impl ReplyLseek {
    /// The offset found.
    pub fn offset(self, offset: i64) {
        self.0.send(&[abi::LseekOut { offset }.as_bytes()]);
    }
}

/// Names of a directory, as many as the caller has room for.
#[derive(Debug)]
pub struct ReplyDirectory {
    owed: Owed,
    list: List,
}

/// Names of a directory with attributes. The kernel holds a reference to each but `.` and `..`.
#[derive(Debug)]
pub struct ReplyDirectoryPlus {
    owed: Owed,
    list: List,
}

#[derive(Debug)]
struct List {
    bytes: Vec<u8>,
    most: usize,
}

impl List {
    fn new(most: usize) -> List {
        List {
            bytes: Vec::with_capacity(most),
            most,
        }
    }

    /// Adds one entry, unless there is no room: then tells so.
    fn add(&mut self, before: &[u8], number: u64, next: u64, kind: u32, name: &OsStr) -> bool {
        let dirent = abi::Dirent {
            ino: number,
            off: next,
            // Names are shorter than 4 GiB.
            namelen: name.len() as u32,
            kind: kind >> 12,
        };
        let length = before.len() + size_of::<abi::Dirent>() + name.len();
        let padded = length.next_multiple_of(NAME_ALIGNMENT);
        if self.bytes.len() + padded > self.most {
            return true;
        }
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        let end = self.bytes.len() + padded - length;
        self.bytes.resize(end, 0);
        false
    }
}

impl ReplyDirectory {
    pub(crate) fn new(owed: Owed, most: usize) -> ReplyDirectory {
        ReplyDirectory {
            owed,
            list: List::new(most),
        }
    }

    /// Adds a name, and tells whether it found no room. `next` is where a listing goes on behind.
    #[must_use]
    pub fn add(&mut self, inode: INodeNo, next: u64, kind: FileType, name: &OsStr) -> bool {
        self.list.add(&[], inode.0, next, kind.mode(), name)
    }

    /// All that was added.
    pub fn ok(self) {
        self.owed.send(&[&self.list.bytes]);
    }

    /// The request fails.
    pub fn error(self, errno: Errno) {
        self.owed.refuse(errno);
    }
}

impl ReplyDirectoryPlus {
    pub(crate) fn new(owed: Owed, most: usize) -> ReplyDirectoryPlus {
        ReplyDirectoryPlus {
            owed,
            list: List::new(most),
        }
    }

    /// Adds a name, and tells whether it found no room. `next` is where a listing goes on behind.
    #[must_use]
    pub fn add(
        &mut self,
        next: u64,
        name: &OsStr,
        (lifetime, name_lifetime): (&Duration, &Duration),
        attributes: &FileAttr,
        generation: Generation,
    ) -> bool {
        let message = entry(attributes, generation, lifetime, name_lifetime);
        let (number, mode) = (attributes.inode.0, attributes.mode);
        self.list.add(message.as_bytes(), number, next, mode, name)
    }

    /// All that was added.
    pub fn ok(self) {
        self.owed.send(&[&self.list.bytes]);
    }

    /// The request fails.
    pub fn error(self, errno: Errno) {
        self.owed.refuse(errno);
    }
}
