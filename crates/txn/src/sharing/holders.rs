//! The processes that have a file open or mapped, as far as can be seen.

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Returns the numbers of other processes that have this file, or the file that they get in its
/// place, which has this name in a file system of the server's own.
pub(crate) fn holders(file: &File, name: &str) -> io::Result<Vec<String>> {
    let wanted = Wanted {
        identity: look(file.as_fd(), c"")?,
        name: format!("/{name}"),
    };
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let number = entry.file_name().to_string_lossy().into_owned();
        let is_process = number.bytes().all(|byte| byte.is_ascii_digit()) && number != own;
        // A process that ends meanwhile has nothing.
        if is_process && (wanted.is_open_in(&entry.path()) || wanted.is_mapped_in(&entry.path())) {
            found.push(number);
        }
    }
    Ok(found)
}

struct Wanted {
    identity: Statx,
    name: String,
}

impl Wanted {
    fn is_open_in(&self, process: &Path) -> bool {
        let descriptors = fs::read_dir(process.join("fd"));
        descriptors.into_iter().flatten().flatten().any(|entry| {
            let place = entry.path();
            let is_named = fs::read_link(&place).is_ok_and(|link| link == Path::new(&self.name));
            is_named || look(CWD, place).is_ok_and(|found| self.is_same(&found))
        })
    }

    fn is_same(&self, found: &Statx) -> bool {
        let identity = |file: &Statx| (file.stx_dev_major, file.stx_dev_minor, file.stx_ino);
        identity(found) == identity(&self.identity)
    }

    fn is_mapped_in(&self, process: &Path) -> bool {
        let Statx {
            stx_dev_major: major,
            stx_dev_minor: minor,
            stx_ino: inode,
            ..
        } = self.identity;
        let (device, inode) = (format!("{major:02x}:{minor:02x}"), inode.to_string());
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        // Addresses, permissions, offset, device, inode, name.
        String::from_utf8_lossy(&maps).lines().any(|line| {
            let mut words = line.split_ascii_whitespace().skip(3);
            let is_same = words.next() == Some(&device) && words.next() == Some(&inode);
            is_same || line.split_ascii_whitespace().nth(5) == Some(&self.name)
        })
    }
}

/// Only the kernel answers this call: other descriptors may be files of a server that does not
/// answer.
fn look(folder: BorrowedFd<'_>, path: impl rustix::path::Arg) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(folder, path, flags, StatxFlags::BASIC_STATS)
}
