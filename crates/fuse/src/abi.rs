//! Messages as they lie in memory: version 7 of the kernel's `include/uapi/linux/fuse.h`.
//!
//! Fields that the server does not use keep the kernel's names, too.
#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) const MAJOR: u32 = 7;
/// The first version that speaks of io_uring is 42.
pub(crate) const MINOR: u32 = 42;
/// An answer to INIT has been this long since version 7.23.
pub(crate) const MINOR_LEAST: u32 = 31;
/// No reader of `/dev/fuse` may offer less room.
pub(crate) const READ_BUFFER_BYTES_MIN: usize = 8192;

/// Declares a message with its size, which the compiler checks.
macro_rules! message {
    ($name:ident, $bytes:literal { $($field:ident: $kind:ty,)* }) => {
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

message! { InHeader, 40 {
    len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
    total_extlen: u16, padding: u16,
} }
message! { OutHeader, 16 { len: u32, error: i32, unique: u64, } }

message! { Attr, 88 {
    ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
    atimensec: u32, mtimensec: u32, ctimensec: u32,
    mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
} }
message! { EntryOut, 128 {
    nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
    entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
} }
message! { AttrOut, 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, } }
message! { ForgetIn, 8 { nlookup: u64, } }
message! { ForgetOne, 16 { nodeid: u64, nlookup: u64, } }
message! { BatchForgetIn, 8 { count: u32, dummy: u32, } }
message! { MknodIn, 16 { mode: u32, rdev: u32, umask: u32, padding: u32, } }
message! { MkdirIn, 8 { mode: u32, umask: u32, } }
message! { RenameIn, 8 { newdir: u64, } }
message! { Rename2In, 16 { newdir: u64, flags: u32, padding: u32, } }
message! { LinkIn, 8 { oldnodeid: u64, } }
message! { SetattrIn, 88 {
    valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
    atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
    mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
} }
message! { OpenIn, 8 { flags: i32, open_flags: u32, } }
message! { OpenOut, 16 { fh: u64, open_flags: u32, backing_id: u32, } }
message! { ReadIn, 40 {
    fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: i32, padding: u32,
} }
message! { WriteIn, 40 {
    fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: i32, padding: u32,
} }
message! { WriteOut, 8 { size: u32, padding: u32, } }
message! { StatfsOut, 80 {
    blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
    bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
} }
message! { SetxattrIn, 8 { size: u32, flags: i32, } }
message! { GetxattrIn, 8 { size: u32, padding: u32, } }
message! { GetxattrOut, 8 { size: u32, padding: u32, } }
message! { IoctlIn, 32 {
    fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32,
} }
message! { IoctlOut, 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, } }
message! { FallocateIn, 32 { fh: u64, offset: u64, length: u64, mode: i32, padding: u32, } }
message! { LseekIn, 24 { fh: u64, offset: i64, whence: i32, padding: u32, } }
message! { LseekOut, 8 { offset: i64, } }
message! { CopyFileRangeIn, 56 {
    fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
} }
message! { Dirent, 24 { ino: u64, off: u64, namelen: u32, kind: u32, } }
message! { InitIn, 64 {
    major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
} }
// Kernels before 7.36 send this much.
message! { InitInShort, 16 { major: u32, minor: u32, max_readahead: u32, flags: u32, } }
message! { InitOut, 64 {
    major: u32, minor: u32, max_readahead: u32, flags: u32,
    max_background: u16, congestion_threshold: u16, max_write: u32, time_gran: u32,
    max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
    request_timeout: u16, unused: [u16; 11],
} }
message! { NotifyInvalInodeOut, 24 { ino: u64, off: i64, len: i64, } }
message! { NotifyStoreOut, 24 { nodeid: u64, offset: u64, size: u32, padding: u32, } }
message! { NotifyRetrieveOut, 32 {
    notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32,
} }
message! { BackingMap, 16 { fd: i32, flags: u32, padding: u64, } }

/// Bits of [`SetattrIn::valid`].
pub(crate) mod valid {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

/// READ and WRITE name their lock's owner: they go past the page cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;

/// Kinds of message to the kernel without a request. Their place is that of an answer's error.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RETRIEVE: i32 = 5;
}

/// A request or an answer in an entry of a queue over io_uring.
pub(crate) mod ring {
    use super::{FromBytes, Immutable, IntoBytes, KnownLayout};

    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
    /// Header and payload.
    pub(crate) const PARTS: u32 = 2;

    message! { InOut, 32 {
        flags: u64, commit_id: u64, payload_bytes: u32, padding: u32, reserved: u64,
    } }
    message! { Command, 24 { flags: u64, commit_id: u64, queue: u16, padding: [u16; 3], } }

    /// A request or an answer without its payload.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
    pub(crate) struct Header {
        pub(crate) in_out: [u8; 128],
        pub(crate) operation: [u8; 128],
        pub(crate) entry: InOut,
    }
    const _: () = assert!(size_of::<Header>() == 288);
}
