//! Sends the outcome of a request to the kernel.

use fuse::{Errno, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyWrite, ReplyXattr};

use super::Described;
use crate::attributes;

pub(super) fn reply_entry(found: Result<Described, Errno>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(
            &found.lifetime,
            &found.name_lifetime,
            &attributes::to_fuse(&found.attributes),
            attributes::generation(&found.attributes),
        ),
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn reply_attributes(found: Result<Described, Errno>, reply: ReplyAttr) {
    match found {
        Ok(found) => reply.attr(&found.lifetime, &attributes::to_fuse(&found.attributes)),
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn reply_empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn reply_written(written: Result<u32, Errno>, reply: ReplyWrite) {
    match written {
        Ok(bytes) => reply.written(bytes),
        Err(errno) => reply.error(errno),
    }
}

/// Size 0 asks for the length only.
pub(super) fn reply_xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn reply_offset(found: Result<i64, Errno>, reply: ReplyLseek) {
    match found {
        Ok(offset) => reply.offset(offset),
        Err(errno) => reply.error(errno),
    }
}
