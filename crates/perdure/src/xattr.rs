//! Extended attributes.

use crate::dir::Dir;
use crate::error::{Cause, Result};
use fs::format::xattr::VALUE_BYTES_MAX;
use fs::{FsError, Node, XattrMode};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Namespaces of attributes that are kept, here as on a mount.
const KEPT_NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

fn check(name: &[u8], value: &[u8]) -> Result<(), Cause> {
    if value.len() > VALUE_BYTES_MAX {
        let length = value.len();
        return Err(Cause::AttributeTooLong { length });
    }
    let is_kept = |namespace: &&[u8]| name.starts_with(namespace);
    match KEPT_NAMESPACES.iter().any(is_kept) {
        true => Ok(()),
        false => Err(Cause::AttributeNamespace),
    }
}

impl Dir {
    /// The value of an extended attribute, `None` if the file has none of this name. A symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound` and the errors of path_resolution(7).
    pub fn get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let name = name.as_ref().as_bytes();
        self.on_node("get_xattr", path.as_ref(), |node| {
            match self.filesystem().get_xattr(node, name) {
                Ok(value) => Ok(Some(value)),
                Err(FsError::NoAttribute) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Creates or replaces an extended attribute. A symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound`, `StorageFull`, `Unsupported` for a name outside of `user.`, `trusted.` and `security.`, `ERANGE` and `E2BIG` for a name of more than 255 bytes or a value of more than 64 KiB.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        let filesystem = self.filesystem();
        check(name, value).map_err(|cause| cause.at("set_xattr", path.as_ref()))?;
        self.on_node("set_xattr", path.as_ref(), |node| {
            filesystem.set_xattr(node, name, value, XattrMode::Any)
        })
    }

    /// The names of all extended attributes. A symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound` and the errors of path_resolution(7).
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let names = self.on_node("list_xattrs", path.as_ref(), |node| {
            self.filesystem().list_xattrs(node)
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute. A symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound`; `ENODATA` if there is none of this name.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.on_node("remove_xattr", path.as_ref(), |node| {
            self.filesystem().remove_xattr(node, name)
        })
    }

    fn on_node<T>(
        &self,
        operation: &'static str,
        path: &Path,
        work: impl FnOnce(&Node) -> Result<T, FsError>,
    ) -> Result<T> {
        let node = self.resolve(path, false);
        node.and_then(|node| Ok(work(&node)?))
            .map_err(|cause: Cause| cause.at(operation, path))
    }
}
