//! For the fuzz target `request`: any bytes as a request, and a file system that looks at all it
//! is given.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::abi::InHeader;
use crate::answer::Way;
use crate::device::Device;
use crate::dispatch::{Message, dispatch};
use crate::handshake::Config;
use crate::{
    At, Changes, Errno, Filesystem, INodeNo, Ioctl, Opcode, RenameFlags, ReplyAttr, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyWrite, ReplyXattr, Request, Write,
};

/// A queue's entry has this much room for a request's structure.
const OPERATION_BYTES: usize = 128;

/// Answers requests into a file that takes everything.
pub struct Fuzzed(Arc<Device>);

impl Fuzzed {
    /// Answers go to `sink`, such as `/dev/null`.
    pub fn new(sink: OwnedFd) -> Fuzzed {
        Fuzzed(Device::new(sink))
    }

    /// Bytes as they come from the device, and the same as they lie in a queue's entry.
    pub fn request(&self, bytes: &[u8]) {
        let way = || Way::Device(Arc::clone(&self.0));
        if let Some(message) = Message::read(bytes) {
            dispatch(&Looking, message, way());
        }
        let Some((header, rest)) = bytes.split_at_checked(size_of::<InHeader>()) else {
            return;
        };
        let Ok(mut header) = zerocopy::FromBytes::read_from_bytes(header) else {
            return;
        };
        // Most numbers are none of a request.
        let InHeader { opcode, .. } = &mut header;
        *opcode %= 64;
        let (operation, payload) = rest.split_at(rest.len().min(OPERATION_BYTES));
        dispatch(
            &Looking,
            Message::in_entry(header, operation, payload),
            way(),
        );
    }
}

/// Reads every byte of names and data.
struct Looking;

fn look(bytes: &[u8]) -> u32 {
    bytes.iter().map(|byte| u32::from(*byte)).sum()
}

fn look_at(name: &OsStr) {
    std::hint::black_box(look(name.as_encoded_bytes()));
    assert!(
        !name.as_encoded_bytes().contains(&0),
        "a name ends at its NUL"
    );
}

impl Filesystem for Looking {
    fn init(&mut self, _: &mut Config) -> io::Result<()> {
        Ok(())
    }

    fn refusal(&self, _: Opcode) -> Errno {
        Errno::EPERM
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        look_at(name);
        reply.error(Errno::ENOENT);
    }

    fn setattr(&self, _: &Request, _: INodeNo, changes: &Changes, reply: ReplyAttr) {
        std::hint::black_box(changes);
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, name: &OsStr, target: &OsStr, reply: ReplyEntry) {
        look_at(name);
        look_at(target);
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        look_at(from.1);
        look_at(to.1);
        reply.ok();
    }

    fn write(&self, _: &Request, _: At, write: Write<'_>, reply: ReplyWrite) {
        std::hint::black_box(look(write.data));
        reply.written(write.data.len() as u32);
    }

    fn setxattr(&self, _: INodeNo, name: &OsStr, value: &[u8], _: i32, reply: ReplyEmpty) {
        look_at(name);
        std::hint::black_box(look(value));
        reply.ok();
    }

    fn getxattr(&self, _: INodeNo, name: &OsStr, bytes: u32, reply: ReplyXattr) {
        look_at(name);
        reply.size(bytes);
    }

    fn ioctl(&self, _: INodeNo, ioctl: Ioctl<'_>, reply: ReplyIoctl) {
        std::hint::black_box(look(ioctl.input));
        reply.ioctl(0, &[]);
    }
}
