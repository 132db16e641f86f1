//! The requests themselves: unpack, perform, reply.
//!
//! `ENOSYS` to OPEN, OPENDIR, CREATE, FLUSH and FSYNCDIR is not a failure. It tells the kernel, once, that there is nothing
//! for us to do, and it never asks again: opening needs no state of ours, and every reply to a write was
//! sent after the write was durable.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Instant, SystemTime};

use ::direct::protocol::DISCOVER;
use fs::SetAttributes;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use txn::Store;

use super::Handler;
use super::data::{Answer, checked_read_length, with_buffer};
use super::namespace::Blueprint;
use super::page_cache::Written;
use super::replies::{reply_empty, reply_entry, reply_written, reply_xattr};
use crate::attributes::{self, PERMISSION_BITS};
use crate::connection::{self, CACHE_LIFETIME};
use crate::edge::Subject;
use crate::statistics::Operation;
use crate::unanswered::refuse;

impl<S: Store> Filesystem for Handler<S> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.agreement = connection::negotiate(config);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn();
        let found = self.perform(Operation::Lookup, Subject::named(parent, name), || {
            self.find(parent, name)
        });
        match found {
            Err(Errno::ENOENT) => {
                reply.entry(&CACHE_LIFETIME, &attributes::absent(), Generation(0))
            }
            found => reply_entry(found, reply),
        }
    }

    fn forget(&self, _request: &Request, number: INodeNo, references: u64) {
        let _turn = self.turn();
        // Nobody waits for an answer. A panic is logged by the guard.
        let _ = self.guard("forget", Subject::inode(number), || {
            self.forget_pages(number, || {
                let is_last = self.shared.nodes.forget(number.0, references);
                if is_last {
                    self.shared.direct.forget(number.0);
                }
                is_last
            });
            Ok(())
        });
    }

    fn getattr(
        &self,
        request: &Request,
        number: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turn();
        self.answer_attributes(request.pid(), number, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_macos: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turn();
        let change = SetAttributes {
            mode: mode.map(|mode| mode & PERMISSION_BITS),
            uid,
            gid,
            size_bytes: size,
            accessed: accessed.map(attributes::to_time_change),
            modified: modified.map(attributes::to_time_change),
        };
        self.answer_change(number, request.uid(), change, reply);
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        let _turn = self.turn();
        let target = self.perform(Operation::ReadLink, Subject::inode(number), || {
            Ok(self.fs().read_link(&self.node(number)?)?)
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn();
        let made = self.perform(Operation::MakeNode, Subject::named(parent, name), || {
            self.make(request, parent, name, &Blueprint::Plain { mode, device })
        });
        let bell = made.as_ref().ok().and_then(|made| {
            let inode = made.attributes.inode.get();
            self.shared.direct.made(inode, request.pid())
        });
        reply_entry(made, reply);
        // Behind the answer: woken before, the conversation would be given the processor of who waits for it.
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn();
        let made = self.perform(
            Operation::MakeDirectory,
            Subject::named(parent, name),
            || self.make(request, parent, name, &Blueprint::Directory { mode }),
        );
        reply_entry(made, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn();
        let done = self.perform(Operation::Unlink, Subject::named(parent, name), || {
            Ok(self.fs().unlink(&self.node(parent)?, name.as_bytes())?)
        });
        reply_empty(done, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn();
        let done = self.perform(
            Operation::RemoveDirectory,
            Subject::named(parent, name),
            || {
                Ok(self
                    .fs()
                    .remove_directory(&self.node(parent)?, name.as_bytes())?)
            },
        );
        reply_empty(done, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn();
        let made = self.perform(Operation::Symlink, Subject::named(parent, name), || {
            self.make(
                request,
                parent,
                name,
                &Blueprint::Symlink {
                    target: target.as_os_str().as_bytes(),
                },
            )
        });
        reply_entry(made, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn();
        let done = self.perform(Operation::Rename, Subject::named(parent, name), || {
            self.move_name((parent, name), (new_parent, new_name), flags)
        });
        reply_empty(done, reply);
    }

    fn link(
        &self,
        _request: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn();
        let linked = self.perform(
            Operation::Link,
            Subject::named(new_parent, new_name),
            || self.link_to(number, new_parent, new_name),
        );
        reply_entry(linked, reply);
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn();
        if self.agreement.opens_without_request {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.turn();
        // MKNOD does the same without a handle that must be released later.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turn();
        if lock_owner.is_none() {
            self.note_pages(number, flags, true);
        }
        let Some(bytes) = checked_read_length(size) else {
            return reply.error(Errno::EINVAL);
        };
        self.shared.direct.kernel_reads(number.0);
        with_buffer(bytes, |buffer| {
            let read = self.perform(Operation::Read, Subject::inode(number), || {
                self.read_answer(number, offset, buffer)
            });
            match read {
                Ok(Answer::Held(held)) => reply.data(held.bytes()),
                Ok(Answer::Copied(bytes)) => reply.data(&buffer[..bytes]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turn();
        let written = Written {
            number,
            user: request.uid(),
            offset,
            data,
            write_flags,
            open_flags: flags,
            is_direct: lock_owner.is_some(),
        };
        self.answer_write(&written, reply);
        if let Some(logger) = self.fs().store().logger() {
            logger.written(number.0, Instant::now());
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn();
        reply.error(Errno::ENOSYS);
    }

    /// Only pages that found no room are left to do. But the question must be asked: without it the
    /// kernel reports success for mapped pages that it could not send to a server that is gone.
    fn fsync(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn();
        if let Some(logger) = self.fs().store().logger() {
            logger.synced(number.0, Instant::now());
        }
        let synced = self.perform(Operation::Sync, Subject::inode(number), || {
            self.save_pages(number)?;
            Ok(self.fs().sync()?)
        });
        reply_empty(synced, reply);
    }

    fn opendir(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn();
        if self.agreement.opens_directories_without_request {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR,
            );
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.turn();
        let listed = self.perform(Operation::ReadDirectory, Subject::inode(number), || {
            self.list(number, cookie, &mut reply)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.turn();
        let listed = self.perform(Operation::ReadDirectoryPlus, Subject::inode(number), || {
            self.list_with_attributes(number, cookie, &mut reply)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    /// Where calls are durable when they return the kernel asks no more.
    fn fsyncdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn();
        if self.fs().store().logger().is_none() {
            return reply.error(Errno::ENOSYS);
        }
        let synced = self.perform(Operation::Sync, Subject::inode(number), || {
            Ok(self.fs().sync()?)
        });
        reply_empty(synced, reply);
    }

    fn statfs(&self, request: &Request, number: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turn();
        let space = self.perform(Operation::StatFs, Subject::inode(number), || {
            Ok(self.fs().statistics_for(request.uid()))
        });
        match space {
            Ok(space) => reply.statfs(
                space.blocks,
                space.free_blocks,
                space.available_blocks,
                space.inodes,
                space.free_inodes,
                space.block_bytes,
                space.name_max,
                space.block_bytes,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn();
        let done = self.perform(Operation::SetXattr, Subject::named(number, name), || {
            self.change_xattr(number, name, value, flags)
        });
        reply_empty(done, reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let _turn = self.turn();
        let value = self.perform(Operation::GetXattr, Subject::named(number, name), || {
            self.xattr(number, name)
        });
        reply_xattr(value, size, reply);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turn();
        let names = self.perform(Operation::ListXattr, Subject::inode(number), || {
            self.xattr_names(number, request.uid())
        });
        reply_xattr(names, size, reply);
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn();
        let done = self.perform(Operation::RemoveXattr, Subject::named(number, name), || {
            self.drop_xattr(number, name)
        });
        reply_empty(done, reply);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        _input: &[u8],
        output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        let _turn = self.turn();
        let discovery = self.shared.direct.discovery();
        let answer = zerocopy::IntoBytes::as_bytes(&discovery);
        if command == DISCOVER && output_bytes as usize == answer.len() {
            reply.ioctl(0, answer);
        } else {
            reply.error(Errno::ENOTTY);
        }
    }

    // Files are always ready; rights and locks are the kernel's business, which does not ask.
    refuse! { ENOSYS: bmap poll access getlk setlk; }

    fn fallocate(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn();
        let done = self.perform(Operation::Allocate, Subject::inode(number), || {
            self.allocate_range(number, offset, length, mode)
        });
        reply_empty(done, reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turn();
        self.answer_seek(number, offset, whence, reply);
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        from: INodeNo,
        _from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.turn();
        let copied = self.perform(Operation::CopyRange, Subject::inode(to), || {
            self.copy_range((from, from_offset), (to, to_offset), length)
        });
        reply_written(copied, reply);
    }
}
