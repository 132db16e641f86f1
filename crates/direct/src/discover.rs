//! Which mount a descriptor is of: the only file of this crate that asks a file system.

use crate::protocol::{DISCOVER, Discovery, MAGIC, VERSION};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, fstatfs, statx};
use rustix::ioctl::{Getter, ioctl};
use std::os::fd::BorrowedFd;

/// Magic number of a FUSE file system.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// The number of a mounted file system.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    /// That of a file.
    pub(crate) fn of(status: &Statx) -> Device {
        Device {
            major: status.stx_dev_major,
            minor: status.stx_dev_minor,
        }
    }
}

/// Device and inode of a descriptor, if it is of a regular file. The kernel answers by itself.
pub(crate) fn regular_file(descriptor: BorrowedFd<'_>) -> Option<(Device, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let status = statx(descriptor, c"", flags, wanted).ok()?;
    let is_regular = FileType::from_raw_mode(u32::from(status.stx_mode)) == FileType::RegularFile;
    is_regular.then_some((Device::of(&status), status.stx_ino))
}

/// The server of a mount.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// Where it listens, in the abstract namespace.
    pub name: Vec<u8>,
    /// Files are not written directly.
    pub reads_only: bool,
}

#[cfg(test)]
impl Server {
    /// One that listens at a name.
    pub(crate) fn at(name: &[u8]) -> Server {
        Server {
            name: name.to_vec(),
            reads_only: false,
        }
    }
}

/// The server of a file's mount, if it is one of ours that offers direct access.
pub fn server_of(descriptor: BorrowedFd<'_>) -> Option<Server> {
    let file_system = fstatfs(descriptor).ok()?;
    if file_system.f_type as u64 != FUSE_SUPER_MAGIC {
        return None;
    }
    // SAFETY: the command says in its number that it fills in 64 bytes, and any 64 bytes are a `Discovery`.
    let discovery = unsafe { ioctl(descriptor, Getter::<DISCOVER, Discovery>::new()) }.ok()?;
    server_in(&discovery)
}

fn server_in(discovery: &Discovery) -> Option<Server> {
    if discovery.magic != MAGIC || discovery.version != VERSION {
        return None;
    }
    let name = discovery.socket.split(|byte| *byte == 0).next()?;
    (!name.is_empty()).then(|| Server {
        name: name.to_vec(),
        reads_only: discovery.reads_only == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn other_file_systems_are_not_ours() {
        let file = File::open("/proc/self/exe").expect("open");
        assert!(regular_file(file.as_fd()).is_some());
        assert_eq!(server_of(file.as_fd()), None);
        let folder = File::open("/").expect("open");
        assert_eq!(regular_file(folder.as_fd()), None);
    }

    #[test]
    fn only_our_version_with_a_name_is_spoken_to() {
        let mut discovery = Discovery {
            magic: MAGIC,
            version: VERSION,
            reads_only: 0,
            socket: [0; _],
        };
        assert_eq!(server_in(&discovery), None);
        discovery.socket[..3].copy_from_slice(b"abc");
        for reads_only in [false, true] {
            discovery.reads_only = reads_only.into();
            let name = b"abc".to_vec();
            assert_eq!(server_in(&discovery), Some(Server { name, reads_only }));
        }
        discovery.version += 1;
        assert_eq!(server_in(&discovery), None);
    }
}
