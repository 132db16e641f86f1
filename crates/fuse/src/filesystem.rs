//! The trait that answers requests: a method for each kind.

use std::ffi::OsStr;
use std::io;

use crate::handshake::Config;
use crate::opcode::Opcode;
use crate::reply::{
    ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Space,
};
use crate::types::{Changes, Errno, FileHandle, INodeNo, RenameFlags, Request, WriteFlags};

/// A place in a file or directory.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct At {
    pub inode: INodeNo,
    pub handle: FileHandle,
    pub offset: u64,
}

/// A request to read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// How many bytes the caller has room for.
    pub bytes: u32,
    /// `O_…` of the open file.
    pub open_flags: i32,
    /// Past the page cache.
    pub is_direct: bool,
}

/// A request to write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'d> {
    /// What to write.
    pub data: &'d [u8],
    /// Where it comes from.
    pub flags: WriteFlags,
    /// `O_…` of the open file.
    pub open_flags: i32,
    /// Past the page cache.
    pub is_direct: bool,
}

/// An `ioctl`.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'d> {
    /// The number of the operation.
    pub command: u32,
    /// The caller's input.
    pub input: &'d [u8],
    /// How much it has room for.
    pub output_bytes: u32,
}

/// A file system. Requests come on several threads at once; each is answered through its reply,
/// then or later. A kind of request without a method of its own is refused.
#[allow(unused_variables)]
pub trait Filesystem: Send + Sync + 'static {
    /// A connection starts: asks the kernel for features.
    ///
    /// # Errors
    ///
    /// The connection is refused, and ends.
    fn init(&mut self, config: &mut Config) -> io::Result<()>;

    /// How requests are refused that have no method. After `ENOSYS` the kernel sends most kinds
    /// never again.
    fn refusal(&self, opcode: Opcode) -> Errno {
        Errno::ENOSYS
    }

    /// Finds a name, and gives the kernel a reference.
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.error(self.refusal(Opcode::Lookup));
    }

    /// The kernel gives references back.
    fn forget(&self, inode: INodeNo, references: u64) {}

    /// Tells attributes.
    fn getattr(&self, request: &Request, inode: INodeNo, reply: ReplyAttr) {
        reply.error(self.refusal(Opcode::Getattr));
    }

    /// Changes attributes.
    fn setattr(&self, request: &Request, inode: INodeNo, changes: &Changes, reply: ReplyAttr) {
        reply.error(self.refusal(Opcode::Setattr));
    }

    /// Tells the target of a symbolic link.
    fn readlink(&self, inode: INodeNo, reply: ReplyData) {
        reply.error(self.refusal(Opcode::Readlink));
    }

    /// Makes a file of any type but a directory or a symbolic link. `mode` has the umask applied.
    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, device): (u32, u32),
        reply: ReplyEntry,
    ) {
        reply.error(self.refusal(Opcode::Mknod));
    }

    /// Makes a directory.
    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        reply: ReplyEntry,
    ) {
        reply.error(self.refusal(Opcode::Mkdir));
    }

    /// Makes a symbolic link.
    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(self.refusal(Opcode::Symlink));
    }

    /// Removes a name of a file.
    fn unlink(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refusal(Opcode::Unlink));
    }

    /// Removes a directory.
    fn rmdir(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refusal(Opcode::Rmdir));
    }

    /// Moves a name.
    fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refusal(Opcode::Rename2));
    }

    /// Gives an inode another name.
    fn link(&self, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.error(self.refusal(Opcode::Link));
    }

    /// Opens a file. `ENOSYS`: all opens succeed without a request from now on.
    fn open(&self, request: &Request, inode: INodeNo, flags: i32, reply: ReplyOpen) {
        reply.error(self.refusal(Opcode::Open));
    }

    /// Reads.
    fn read(&self, request: &Request, at: At, read: Read, reply: ReplyData) {
        reply.error(self.refusal(Opcode::Read));
    }

    /// Writes.
    fn write(&self, request: &Request, at: At, write: Write<'_>, reply: ReplyWrite) {
        reply.error(self.refusal(Opcode::Write));
    }

    /// Makes data durable.
    fn fsync(&self, inode: INodeNo, reply: ReplyEmpty) {
        reply.error(self.refusal(Opcode::Fsync));
    }

    /// Opens a directory. `ENOSYS`: as for `open`.
    fn opendir(&self, request: &Request, inode: INodeNo, reply: ReplyOpen) {
        reply.error(self.refusal(Opcode::Opendir));
    }

    /// Lists names behind an offset.
    fn readdir(&self, at: At, reply: ReplyDirectory) {
        reply.error(self.refusal(Opcode::Readdir));
    }

    /// Lists names with attributes behind an offset.
    fn readdirplus(&self, at: At, reply: ReplyDirectoryPlus) {
        reply.error(self.refusal(Opcode::Readdirplus));
    }

    /// Makes a directory durable.
    fn fsyncdir(&self, inode: INodeNo, reply: ReplyEmpty) {
        reply.error(self.refusal(Opcode::Fsyncdir));
    }

    /// Tells space and inodes. Without a method there are none of both.
    fn statfs(&self, request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        reply.statfs(&Space {
            blocks: 0,
            free_blocks: 0,
            available_blocks: 0,
            inodes: 0,
            free_inodes: 0,
            block_bytes: 512,
            name_max: 255,
        });
    }

    /// Sets an extended attribute; `flags` are those of `setxattr(2)`.
    fn setxattr(&self, inode: INodeNo, name: &OsStr, value: &[u8], flags: i32, reply: ReplyEmpty) {
        reply.error(self.refusal(Opcode::Setxattr));
    }

    /// Tells an extended attribute to a caller with room for so many bytes; 0 asks for the length.
    fn getxattr(&self, inode: INodeNo, name: &OsStr, bytes: u32, reply: ReplyXattr) {
        reply.error(self.refusal(Opcode::Getxattr));
    }

    /// Tells the names of extended attributes, each followed by a NUL.
    fn listxattr(&self, request: &Request, inode: INodeNo, bytes: u32, reply: ReplyXattr) {
        reply.error(self.refusal(Opcode::Listxattr));
    }

    /// Removes an extended attribute.
    fn removexattr(&self, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refusal(Opcode::Removexattr));
    }

    /// Answers an `ioctl`.
    fn ioctl(&self, inode: INodeNo, ioctl: Ioctl<'_>, reply: ReplyIoctl) {
        reply.error(self.refusal(Opcode::Ioctl));
    }

    /// Reserves or frees a range; `mode` is that of `fallocate(2)`.
    fn fallocate(&self, at: At, length: u64, mode: i32, reply: ReplyEmpty) {
        reply.error(self.refusal(Opcode::Fallocate));
    }

    /// Finds data or a hole.
    fn lseek(&self, inode: INodeNo, offset: i64, whence: i32, reply: ReplyLseek) {
        reply.error(self.refusal(Opcode::Lseek));
    }

    /// Copies a range from one file to another.
    fn copy_file_range(&self, from: At, to: At, length: u64, reply: ReplyWrite) {
        reply.error(self.refusal(Opcode::CopyFileRange));
    }
}
