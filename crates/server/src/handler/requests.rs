//! The requests themselves: unpack, perform, reply.
//!
//! `ENOSYS` to OPEN, OPENDIR, CREATE, FLUSH and FSYNCDIR is not a failure. It tells the kernel, once, that there is nothing
//! for us to do, and it never asks again: opening needs no state of ours, and every reply to a write was
//! sent after the write was durable. MKNOD does what CREATE does, without a handle that must be
//! released later. Files are always ready; rights and locks are the kernel's business.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use ::direct::protocol::DISCOVER;
use fs::{Held, SetAttributes};
use fuse::{
    At, Changes, Config, Errno, FileHandle, Filesystem, Filled, FopenFlags, Generation, INodeNo,
    Ioctl, Read, RenameFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    Space, Write,
};
use txn::Store;

use super::Handler;
use super::data::Answer;
use super::namespace::Blueprint;
use super::page_cache::Written;
use super::replies::{reply_empty, reply_entry, reply_written, reply_xattr};
use crate::attributes::{self, PERMISSION_BITS};
use crate::connection::{self, CACHE_LIFETIME};
use crate::edge::Subject;
use crate::statistics::Operation;

impl<S: Store> Filesystem for Handler<S> {
    fn init(&mut self, config: &mut Config) -> io::Result<()> {
        self.agreement = connection::negotiate(config);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn();
        let found = self.perform(Operation::Lookup, Subject::named(parent, name), || {
            self.find(parent, name)
        });
        match found {
            Err(Errno::ENOENT) => reply.entry(
                &CACHE_LIFETIME,
                &CACHE_LIFETIME,
                &attributes::absent(),
                Generation(0),
            ),
            found => reply_entry(found, reply),
        }
    }

    fn forget(&self, number: INodeNo, references: u64) {
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

    fn getattr(&self, request: &Request, number: INodeNo, reply: ReplyAttr) {
        let _turn = self.turn();
        self.answer_attributes(request.pid(), number, reply);
    }

    fn setattr(&self, request: &Request, number: INodeNo, changes: &Changes, reply: ReplyAttr) {
        let _turn = self.turn();
        let change = SetAttributes {
            mode: changes.mode.map(|mode| mode & PERMISSION_BITS),
            uid: changes.uid,
            gid: changes.gid,
            size_bytes: changes.size_bytes,
            accessed: changes.accessed.map(attributes::to_time_change),
            modified: changes.modified.map(attributes::to_time_change),
        };
        self.answer_change(number, request.uid(), change, reply);
    }

    fn readlink(&self, number: INodeNo, reply: ReplyData) {
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
        (mode, device): (u32, u32),
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

    fn unlink(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn();
        let done = self.perform(Operation::Unlink, Subject::named(parent, name), || {
            Ok(self.fs().unlink(&self.node(parent)?, name.as_bytes())?)
        });
        reply_empty(done, reply);
    }

    fn rmdir(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
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
        target: &OsStr,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn();
        let target = target.as_bytes();
        let made = self.perform(Operation::Symlink, Subject::named(parent, name), || {
            self.make(request, parent, name, &Blueprint::Symlink { target })
        });
        reply_entry(made, reply);
    }

    fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn();
        let subject = Subject::named(from.0, from.1);
        let done = self.perform(Operation::Rename, subject, || {
            self.move_name(from, to, flags)
        });
        reply_empty(done, reply);
    }

    fn link(&self, number: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn();
        let linked = self.perform(
            Operation::Link,
            Subject::named(new_parent, new_name),
            || self.link_to(number, new_parent, new_name),
        );
        reply_entry(linked, reply);
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: i32, reply: ReplyOpen) {
        let _turn = self.turn();
        if self.agreement.opens_without_request {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::KEEP_CACHE);
        }
    }

    fn read(&self, _request: &Request, at: At, read: Read, reply: ReplyData) {
        let _turn = self.turn();
        let number = at.inode;
        if !read.is_direct {
            self.note_pages(number, read.open_flags, true);
        }
        self.shared.direct.kernel_reads(number.0);
        reply.fill::<Held>(read.bytes as usize, |room| {
            let answer = self.perform(Operation::Read, Subject::inode(number), || {
                self.read_answer(number, at.offset, room)
            });
            Ok(match answer? {
                Answer::Held(held) => Filled::Held(held),
                Answer::Copied(bytes) => Filled::Room(bytes),
            })
        });
    }

    fn write(&self, request: &Request, at: At, write: Write<'_>, reply: ReplyWrite) {
        let _turn = self.turn();
        let written = Written {
            number: at.inode,
            user: request.uid(),
            offset: at.offset,
            data: write.data,
            write_flags: write.flags,
            open_flags: write.open_flags,
            is_direct: write.is_direct,
        };
        self.answer_write(&written, reply);
        if let Some(logger) = self.fs().store().logger() {
            logger.written(at.inode.0, Instant::now());
        }
    }

    /// Only pages that found no room are left to do. But the question must be asked: without it the
    /// kernel reports success for mapped pages that it could not send to a server that is gone.
    fn fsync(&self, number: INodeNo, reply: ReplyEmpty) {
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

    fn opendir(&self, _request: &Request, _number: INodeNo, reply: ReplyOpen) {
        let _turn = self.turn();
        if self.agreement.opens_directories_without_request {
            reply.error(Errno::ENOSYS);
        } else {
            let flags = FopenFlags::KEEP_CACHE | FopenFlags::CACHE_DIR;
            reply.opened(FileHandle(0), flags);
        }
    }

    fn readdir(&self, at: At, mut reply: ReplyDirectory) {
        let _turn = self.turn();
        let subject = Subject::inode(at.inode);
        let listed = self.perform(Operation::ReadDirectory, subject, || {
            self.list(at.inode, at.offset, &mut reply)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(&self, at: At, mut reply: ReplyDirectoryPlus) {
        let _turn = self.turn();
        let subject = Subject::inode(at.inode);
        let listed = self.perform(Operation::ReadDirectoryPlus, subject, || {
            self.list_with_attributes(at.inode, at.offset, &mut reply)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    /// Where calls are durable when they return the kernel asks no more.
    fn fsyncdir(&self, number: INodeNo, reply: ReplyEmpty) {
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
            Ok(space) => reply.statfs(&Space {
                blocks: space.blocks,
                free_blocks: space.free_blocks,
                available_blocks: space.available_blocks,
                inodes: space.inodes,
                free_inodes: space.free_inodes,
                block_bytes: space.block_bytes,
                name_max: space.name_max,
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(&self, number: INodeNo, name: &OsStr, value: &[u8], flags: i32, reply: ReplyEmpty) {
        let _turn = self.turn();
        let done = self.perform(Operation::SetXattr, Subject::named(number, name), || {
            self.change_xattr(number, name, value, flags)
        });
        reply_empty(done, reply);
    }

    fn getxattr(&self, number: INodeNo, name: &OsStr, bytes: u32, reply: ReplyXattr) {
        let _turn = self.turn();
        let value = self.perform(Operation::GetXattr, Subject::named(number, name), || {
            self.xattr(number, name)
        });
        reply_xattr(value, bytes, reply);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, bytes: u32, reply: ReplyXattr) {
        let _turn = self.turn();
        let names = self.perform(Operation::ListXattr, Subject::inode(number), || {
            self.xattr_names(number, request.uid())
        });
        reply_xattr(names, bytes, reply);
    }

    fn removexattr(&self, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn();
        let done = self.perform(Operation::RemoveXattr, Subject::named(number, name), || {
            self.drop_xattr(number, name)
        });
        reply_empty(done, reply);
    }

    fn ioctl(&self, _number: INodeNo, ioctl: Ioctl<'_>, reply: ReplyIoctl) {
        let _turn = self.turn();
        let discovery = self.shared.direct.discovery();
        let answer = zerocopy::IntoBytes::as_bytes(&discovery);
        if ioctl.command == DISCOVER && ioctl.output_bytes as usize == answer.len() {
            reply.ioctl(0, answer);
        } else {
            reply.error(Errno::ENOTTY);
        }
    }

    fn fallocate(&self, at: At, length: u64, mode: i32, reply: ReplyEmpty) {
        let _turn = self.turn();
        let subject = Subject::inode(at.inode);
        let done = self.perform(Operation::Allocate, subject, || {
            self.allocate_range(at.inode, at.offset, length, mode)
        });
        reply_empty(done, reply);
    }

    fn lseek(&self, number: INodeNo, offset: i64, whence: i32, reply: ReplyLseek) {
        let _turn = self.turn();
        self.answer_seek(number, offset, whence, reply);
    }

    fn copy_file_range(&self, from: At, to: At, length: u64, reply: ReplyWrite) {
        let _turn = self.turn();
        let (source, target) = ((from.inode, from.offset), (to.inode, to.offset));
        let copied = self.perform(Operation::CopyRange, Subject::inode(to.inode), || {
            self.copy_range(source, target, length)
        });
        reply_written(copied, reply);
    }
}
