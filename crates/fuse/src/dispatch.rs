//! Unpacks a request and calls its method. Requests are not trusted: whatever is too short or has
//! no end is answered with `EIO`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{self, InHeader};
use crate::answer::{Owed, Way};
use crate::filesystem::{At, Filesystem, Ioctl, Read, Write};
use crate::opcode::Opcode;
use crate::reply::{
    ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use crate::types::{Changes, Errno, FileHandle, INodeNo, RenameFlags, Request, WriteFlags};

/// No listing and no read is longer, whatever the kernel asks for.
const ANSWER_BYTES_MAX: u32 = 16 << 20;

/// A request as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'m> {
    pub(crate) header: InHeader,
    /// The structure of this kind of request, if it does not begin the rest.
    operation: Option<&'m [u8]>,
    rest: &'m [u8],
}

impl<'m> Message<'m> {
    /// One that was read from the device.
    pub(crate) fn read(bytes: &'m [u8]) -> Option<Message<'m>> {
        let (header, rest) = InHeader::read_from_prefix(bytes).ok()?;
        (header.len as usize == bytes.len()).then_some(Message {
            header,
            operation: None,
            rest,
        })
    }

    /// One that lies in an entry of a queue.
    pub(crate) fn in_entry(
        header: InHeader,
        operation: &'m [u8],
        payload: &'m [u8],
    ) -> Message<'m> {
        Message {
            header,
            operation: Some(operation),
            rest: payload,
        }
    }

    pub(crate) fn opcode(&self) -> Option<Opcode> {
        Opcode::from_number(self.header.opcode)
    }

    /// Takes the structure of this kind of request.
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Option<T> {
        match self.operation.take() {
            Some(operation) => Some(T::read_from_prefix(operation).ok()?.0),
            None => {
                let (structure, rest) = T::read_from_prefix(self.rest).ok()?;
                self.rest = rest;
                Some(structure)
            }
        }
    }

    /// Takes text up to its NUL.
    fn take_name(&mut self) -> Option<&'m OsStr> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(OsStr::from_bytes(name))
    }

    fn take_bytes(&mut self, bytes: u32) -> Option<&'m [u8]> {
        self.rest.get(..bytes as usize)
    }
}

/// Calls the method for a request. The answer goes `way`.
pub(crate) fn dispatch<F: Filesystem>(files: &F, message: Message<'_>, way: Way) {
    let unique = message.header.unique;
    let opcode = message.opcode();
    if opcode.is_some_and(Opcode::is_unanswered) {
        if let Way::Desk(desk) = way {
            desk.answer(0, &[]);
        }
        forget(files, message);
        return;
    }
    let owed = Owed::new(unique, way);
    let Some(opcode) = opcode else {
        return owed.refuse(Errno::ENOSYS);
    };
    let mut call = Call {
        files,
        request: Request::new(message.header),
        inode: INodeNo(message.header.nodeid),
        message,
        owed: Some(owed),
    };
    let done = match opcode {
        Opcode::Read
        | Opcode::Write
        | Opcode::Fallocate
        | Opcode::Lseek
        | Opcode::CopyFileRange
        | Opcode::Fsync => call.data(opcode),
        Opcode::Setxattr | Opcode::Getxattr | Opcode::Listxattr | Opcode::Removexattr => {
            call.extended_attributes(opcode)
        }
        Opcode::Readdir | Opcode::Readdirplus => call.listing(opcode),
        Opcode::Getattr
        | Opcode::Setattr
        | Opcode::Statfs
        | Opcode::Readlink
        | Opcode::Ioctl
        | Opcode::Open
        | Opcode::Opendir
        | Opcode::Fsyncdir => call.inode(opcode),
        _ => call.name(opcode),
    };
    if done.is_none() {
        tracing::warn!(?opcode, unique, "a request of the kernel is cut short");
    }
    // A request whose method was not called fails here.
    if let Some(owed) = call.owed {
        owed.refuse(Errno::EIO);
    }
}

fn forget<F: Filesystem>(files: &F, mut message: Message<'_>) -> Option<()> {
    match message.opcode()? {
        Opcode::Forget => {
            let inode = INodeNo(message.header.nodeid);
            files.forget(inode, message.take::<abi::ForgetIn>()?.nlookup);
        }
        Opcode::BatchForget => {
            let count = message.take::<abi::BatchForgetIn>()?.count;
            for _ in 0..count {
                let (one, rest) = abi::ForgetOne::read_from_prefix(message.rest).ok()?;
                message.rest = rest;
                files.forget(INodeNo(one.nodeid), one.nlookup);
            }
        }
        _ => {}
    }
    Some(())
}

/// One request on its way to its method. The functions return nothing where it is cut short.
struct Call<'c, F> {
    files: &'c F,
    request: Request,
    inode: INodeNo,
    message: Message<'c>,
    owed: Option<Owed>,
}

impl<F: Filesystem> Call<'_, F> {
    fn at(&self, handle: u64, offset: u64) -> At {
        At {
            inode: self.inode,
            handle: FileHandle(handle),
            offset,
        }
    }

    fn data(&mut self, opcode: Opcode) -> Option<()> {
        match opcode {
            Opcode::Read => {
                let read = self.message.take::<abi::ReadIn>()?;
                let at = self.at(read.fh, read.offset);
                let read = Read {
                    bytes: read.size.min(ANSWER_BYTES_MAX),
                    open_flags: read.flags,
                    is_direct: read.read_flags & abi::READ_LOCKOWNER != 0,
                };
                let reply = ReplyData(self.owed.take()?);
                self.files.read(&self.request, at, read, reply);
            }
            Opcode::Write => {
                let write = self.message.take::<abi::WriteIn>()?;
                let data = self.message.take_bytes(write.size)?;
                let at = self.at(write.fh, write.offset);
                let flags = WriteFlags::from_bits_retain(write.write_flags);
                let write = Write {
                    data,
                    flags,
                    open_flags: write.flags,
                    is_direct: flags.contains(WriteFlags::LOCKOWNER),
                };
                let reply = ReplyWrite(self.owed.take()?);
                self.files.write(&self.request, at, write, reply);
            }
            Opcode::Fallocate => {
                let range = self.message.take::<abi::FallocateIn>()?;
                let at = self.at(range.fh, range.offset);
                let reply = ReplyEmpty(self.owed.take()?);
                self.files.fallocate(at, range.length, range.mode, reply);
            }
            Opcode::Lseek => {
                let seek = self.message.take::<abi::LseekIn>()?;
                let reply = ReplyLseek(self.owed.take()?);
                self.files
                    .lseek(self.inode, seek.offset, seek.whence, reply);
            }
            Opcode::CopyFileRange => {
                let copy = self.message.take::<abi::CopyFileRangeIn>()?;
                let from = self.at(copy.fh_in, copy.off_in);
                let to = At {
                    inode: INodeNo(copy.nodeid_out),
                    ..self.at(copy.fh_out, copy.off_out)
                };
                let reply = ReplyWrite(self.owed.take()?);
                self.files.copy_file_range(from, to, copy.len, reply);
            }
            _ => self.files.fsync(self.inode, ReplyEmpty(self.owed.take()?)),
        }
        Some(())
    }

    fn extended_attributes(&mut self, opcode: Opcode) -> Option<()> {
        match opcode {
            Opcode::Setxattr => {
                let set = self.message.take::<abi::SetxattrIn>()?;
                let name = self.message.take_name()?;
                let value = self.message.take_bytes(set.size)?;
                let reply = ReplyEmpty(self.owed.take()?);
                self.files
                    .setxattr(self.inode, name, value, set.flags, reply);
            }
            Opcode::Getxattr => {
                let bytes = self.message.take::<abi::GetxattrIn>()?.size;
                let name = self.message.take_name()?;
                let reply = ReplyXattr(self.owed.take()?);
                self.files.getxattr(self.inode, name, bytes, reply);
            }
            Opcode::Listxattr => {
                let bytes = self.message.take::<abi::GetxattrIn>()?.size;
                let reply = ReplyXattr(self.owed.take()?);
                self.files
                    .listxattr(&self.request, self.inode, bytes, reply);
            }
            _ => {
                let name = self.message.take_name()?;
                let reply = ReplyEmpty(self.owed.take()?);
                self.files.removexattr(self.inode, name, reply);
            }
        }
        Some(())
    }

    fn listing(&mut self, opcode: Opcode) -> Option<()> {
        let read = self.message.take::<abi::ReadIn>()?;
        let at = self.at(read.fh, read.offset);
        let most = read.size.min(ANSWER_BYTES_MAX) as usize;
        let owed = self.owed.take()?;
        match opcode {
            Opcode::Readdir => self.files.readdir(at, ReplyDirectory::new(owed, most)),
            _ => self
                .files
                .readdirplus(at, ReplyDirectoryPlus::new(owed, most)),
        }
        Some(())
    }

    fn inode(&mut self, opcode: Opcode) -> Option<()> {
        let (files, request, inode) = (self.files, &self.request, self.inode);
        match opcode {
            Opcode::Getattr => files.getattr(request, inode, ReplyAttr(self.owed.take()?)),
            Opcode::Setattr => {
                let changes = Changes::from_abi(&self.message.take::<abi::SetattrIn>()?);
                files.setattr(request, inode, &changes, ReplyAttr(self.owed.take()?));
            }
            Opcode::Statfs => files.statfs(request, inode, ReplyStatfs(self.owed.take()?)),
            Opcode::Readlink => files.readlink(inode, ReplyData(self.owed.take()?)),
            Opcode::Ioctl => {
                let ioctl = self.message.take::<abi::IoctlIn>()?;
                let input = self.message.take_bytes(ioctl.in_size)?;
                let ioctl = Ioctl {
                    command: ioctl.cmd,
                    input,
                    output_bytes: ioctl.out_size,
                };
                files.ioctl(inode, ioctl, ReplyIoctl(self.owed.take()?));
            }
            Opcode::Open => {
                let flags = self.message.take::<abi::OpenIn>()?.flags;
                files.open(request, inode, flags, ReplyOpen(self.owed.take()?));
            }
            Opcode::Opendir => files.opendir(request, inode, ReplyOpen(self.owed.take()?)),
            _ => files.fsyncdir(inode, ReplyEmpty(self.owed.take()?)),
        }
        Some(())
    }

    fn name(&mut self, opcode: Opcode) -> Option<()> {
        let (files, request, parent) = (self.files, &self.request, self.inode);
        let message = &mut self.message;
        match opcode {
            Opcode::Lookup => {
                let name = message.take_name()?;
                files.lookup(request, parent, name, ReplyEntry(self.owed.take()?));
            }
            Opcode::Mknod => {
                let made = message.take::<abi::MknodIn>()?;
                let (name, kind) = (message.take_name()?, (made.mode, made.rdev));
                files.mknod(request, parent, name, kind, ReplyEntry(self.owed.take()?));
            }
            Opcode::Mkdir => {
                let made = message.take::<abi::MkdirIn>()?;
                let name = message.take_name()?;
                files.mkdir(
                    request,
                    parent,
                    name,
                    made.mode,
                    ReplyEntry(self.owed.take()?),
                );
            }
            Opcode::Symlink => {
                let (name, target) = (message.take_name()?, message.take_name()?);
                files.symlink(request, parent, name, target, ReplyEntry(self.owed.take()?));
            }
            Opcode::Unlink => {
                let name = message.take_name()?;
                files.unlink(parent, name, ReplyEmpty(self.owed.take()?));
            }
            Opcode::Rmdir => {
                let name = message.take_name()?;
                files.rmdir(parent, name, ReplyEmpty(self.owed.take()?));
            }
            Opcode::Rename | Opcode::Rename2 => return self.rename(opcode),
            Opcode::Link => {
                let inode = INodeNo(message.take::<abi::LinkIn>()?.oldnodeid);
                let name = message.take_name()?;
                files.link(inode, parent, name, ReplyEntry(self.owed.take()?));
            }
            // There is nothing to close, and the kernel does not look at the answer.
            Opcode::Release | Opcode::Releasedir | Opcode::Destroy => {
                ReplyEmpty(self.owed.take()?).ok();
            }
            other => self.owed.take()?.refuse(files.refusal(other)),
        }
        Some(())
    }

    fn rename(&mut self, opcode: Opcode) -> Option<()> {
        let message = &mut self.message;
        let (directory, flags) = match opcode {
            Opcode::Rename => (message.take::<abi::RenameIn>()?.newdir, 0),
            _ => {
                let rename = message.take::<abi::Rename2In>()?;
                (rename.newdir, rename.flags)
            }
        };
        let (name, new_name) = (message.take_name()?, message.take_name()?);
        let (from, to) = ((self.inode, name), (INodeNo(directory), new_name));
        let flags = RenameFlags::from_bits_retain(flags);
        let reply = ReplyEmpty(self.owed.take()?);
        self.files.rename(from, to, flags, reply);
        Some(())
    }
}
