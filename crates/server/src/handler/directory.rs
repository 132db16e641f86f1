//! Listing directories.
//!
//! The kernel holds the directory's lock while it asks, so no name comes or goes between the
//! listing and the attributes of what was listed. Cookies are stable, so nothing is kept between two requests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fs::{FileType, InodeNumber};
use fuse::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use txn::Store;

use super::Handler;
use crate::attributes;
use crate::edge::Refusal;

/// Names taken out of the directory at a time, before their attributes are looked up.
const BATCH: usize = 64;

/// A name taken out of a directory, in the batch's store of bytes.
struct Listed {
    cookie: u64,
    inode: InodeNumber,
    file_type: FileType,
    name: std::ops::Range<usize>,
}

impl<S: Store> Handler<S> {
    /// Fills `reply` with names from `cookie` on.
    pub(super) fn list(
        &self,
        number: INodeNo,
        cookie: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<(), Refusal> {
        let directory = self.node(number)?;
        self.fs().read_directory(&directory, cookie, &mut |entry| {
            let kind = attributes::to_fuse_type(entry.file_type);
            let name = OsStr::from_bytes(entry.name);
            !reply.add(INodeNo(entry.inode.get()), entry.next_cookie, kind, name)
        })?;
        Ok(())
    }

    /// Fills `reply` with names and attributes from `cookie` on. Each entry gives the kernel a reference, but `.` and `..`.
    pub(super) fn list_with_attributes(
        &self,
        number: INodeNo,
        mut cookie: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), Refusal> {
        let directory = self.node(number)?;
        let mut names = Vec::new();
        let mut batch: Vec<Listed> = Vec::with_capacity(BATCH);
        loop {
            names.clear();
            batch.clear();
            self.fs().read_directory(&directory, cookie, &mut |entry| {
                let start = names.len();
                names.extend_from_slice(entry.name);
                batch.push(Listed {
                    cookie: entry.next_cookie,
                    inode: entry.inode,
                    file_type: entry.file_type,
                    name: start..names.len(),
                });
                batch.len() < BATCH
            })?;
            for listed in &batch {
                if self.add_with_attributes(listed, &names[listed.name.clone()], reply) {
                    return Ok(());
                }
            }
            match batch.last() {
                Some(last) if batch.len() == BATCH => cookie = last.cookie,
                _ => return Ok(()),
            }
        }
    }

    /// Adds one entry, and tells whether it found no room.
    fn add_with_attributes(
        &self,
        listed: &Listed,
        name: &[u8],
        reply: &mut ReplyDirectoryPlus,
    ) -> bool {
        let number = listed.inode.get();
        let known = self
            .shared
            .nodes
            .get(number)
            .map_or_else(|| self.fs().node(listed.inode), Ok);
        let found = known
            .map_err(Refusal::from)
            .and_then(|node| Ok((self.describe(&node)?, node)));
        let mut add = |attributes: &FileAttr, generation, lifetimes: (&Duration, &Duration)| {
            let name = OsStr::from_bytes(name);
            reply.add(listed.cookie, name, lifetimes, attributes, generation)
        };
        match found {
            Ok((found, node)) => {
                let full = add(
                    &attributes::to_fuse(&found.attributes),
                    attributes::generation(&found.attributes),
                    (&found.lifetime, &found.lifetime),
                );
                if !full && !matches!(name, b"." | b"..") {
                    self.shared.nodes.reference(node);
                }
                full
            }
            Err(error) => {
                // libc hides a name without inode number. So the kernel gets the number, and
                // attributes that expire at once: `stat` looks the name up again and fails.
                let name = OsStr::from_bytes(name);
                tracing::error!(
                    inode = number,
                    ?name,
                    "{error}; unmount and run `perdure fsck`"
                );
                let kind = attributes::to_fuse_type(listed.file_type);
                let unknown = attributes::unknown(INodeNo(number), kind);
                add(&unknown, Generation(0), (&Duration::ZERO, &Duration::ZERO))
            }
        }
    }
}
