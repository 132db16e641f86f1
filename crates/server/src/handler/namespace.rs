//! Names: finding, making, moving and removing them; extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fs::{NewInode, Node, RenameOptions, XattrMode};
use fuse::{Errno, INodeNo, RenameFlags, Request};
use txn::Store;

use super::{Described, Handler};
use crate::edge::Refusal;

/// Kinds of attribute names that are kept. `system.` is missing: storing access control lists that
/// nobody enforces would deceive their owner.
const KEPT_NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const TRUSTED: &[u8] = b"trusted.";

/// What a new inode is to be.
pub(super) enum Blueprint<'a> {
    /// Anything but the two below.
    Plain {
        mode: u32,
        device: u32,
    },
    Directory {
        mode: u32,
    },
    Symlink {
        target: &'a [u8],
    },
}

impl<S: Store> Handler<S> {
    /// Finds a name. `.` and `..` come from whoever opens a file by its handle (NFS, `open_by_handle_at`), with
    /// an inode that the kernel may have forgotten or that may be gone.
    pub(super) fn find(&self, directory: INodeNo, name: &OsStr) -> Result<Described, Refusal> {
        let by_handle = matches!(name.as_bytes(), b"." | b"..");
        let start = match self.node(directory) {
            Err(_) if by_handle => self
                .fs()
                .node(fs::InodeNumber::new(directory.0))
                .map_err(|_| Refusal::STALE)?,
            found => found?,
        };
        let node = match name.as_bytes() {
            // Unlinked, and alive only until somebody else lets go of it: a handle must not revive it.
            b"." if self.fs().attributes(&start)?.links == 0 => return Err(Refusal::STALE),
            b"." => start,
            name => self.fs().lookup(&start, name)?,
        };
        self.hand_out(node)
    }

    /// Makes an inode with a name, owned by whoever asks for it. (A directory with set-group-id passes its group on.)
    pub(super) fn make(
        &self,
        request: &Request,
        directory: INodeNo,
        name: &OsStr,
        blueprint: &Blueprint<'_>,
    ) -> Result<Described, Refusal> {
        let parent = self.node(directory)?;
        let (uid, gid) = (request.uid(), request.gid());
        let name = name.as_bytes();
        let new = |mode, device| NewInode {
            mode,
            uid,
            gid,
            device,
        };
        let node = match *blueprint {
            Blueprint::Plain { mode, device } => {
                self.fs().create(&parent, name, &new(mode, device))?
            }
            Blueprint::Directory { mode } => {
                self.fs().make_directory(&parent, name, &new(mode, 0))?
            }
            Blueprint::Symlink { target } => {
                self.fs().make_symlink(&parent, name, target, uid, gid)?
            }
        };
        self.hand_out(node)
    }

    /// Gives an existing inode another name.
    pub(super) fn link_to(
        &self,
        number: INodeNo,
        directory: INodeNo,
        name: &OsStr,
    ) -> Result<Described, Refusal> {
        let node = self.node(number)?;
        self.fs()
            .link(&node, &self.node(directory)?, name.as_bytes())?;
        self.hand_out(node)
    }

    pub(super) fn move_name(
        &self,
        (from, name): (INodeNo, &OsStr),
        (to, new_name): (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Refusal> {
        if !RenameFlags::all().contains(flags) {
            return Err(Refusal::Request(
                Errno::EINVAL,
                "unknown flags of renameat2",
            ));
        }
        let options = RenameOptions {
            no_replace: flags.contains(RenameFlags::NOREPLACE),
            exchange: flags.contains(RenameFlags::EXCHANGE),
            whiteout: flags.contains(RenameFlags::WHITEOUT),
        };
        let (from, to) = (self.node(from)?, self.node(to)?);
        Ok(self
            .fs()
            .rename(&from, name.as_bytes(), &to, new_name.as_bytes(), options)?)
    }

    /// Attributes for a reply that gives the kernel a reference, which is counted here.
    fn hand_out(&self, node: Node) -> Result<Described, Refusal> {
        let described = self.describe(&node)?;
        self.shared.nodes.reference(node);
        Ok(described)
    }

    pub(super) fn xattr(&self, number: INodeNo, name: &OsStr) -> Result<Vec<u8>, Refusal> {
        check_namespace(name)?;
        Ok(self.fs().get_xattr(&self.node(number)?, name.as_bytes())?)
    }

    pub(super) fn change_xattr(
        &self,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Refusal> {
        check_namespace(name)?;
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Refusal::Request(Errno::EINVAL, "unknown flags of setxattr")),
        };
        Ok(self
            .fs()
            .set_xattr(&self.node(number)?, name.as_bytes(), value, mode)?)
    }

    pub(super) fn drop_xattr(&self, number: INodeNo, name: &OsStr) -> Result<(), Refusal> {
        check_namespace(name)?;
        Ok(self
            .fs()
            .remove_xattr(&self.node(number)?, name.as_bytes())?)
    }

    /// All names, each followed by a NUL. The kernel does not hide `trusted.` from users, so it is done here.
    pub(super) fn xattr_names(&self, number: INodeNo, user: u32) -> Result<Vec<u8>, Refusal> {
        let mut list = Vec::new();
        for name in self.fs().list_xattrs(&self.node(number)?)? {
            if user == 0 || !name.starts_with(TRUSTED) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }
}

fn check_namespace(name: &OsStr) -> Result<(), Refusal> {
    let kept = KEPT_NAMESPACES
        .iter()
        .any(|namespace| name.as_bytes().starts_with(namespace));
    kept.then_some(()).ok_or(Refusal::Request(
        Errno::EOPNOTSUPP,
        "attributes of this namespace are not kept",
    ))
}
