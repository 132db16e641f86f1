//! Mounting and unmounting a FUSE connection.
//!
//! A mount that is gone already is not looked for at its path: something else may be mounted there.
//! Root calls `mount(2)`; everybody else goes through the setuid helper `fusermount3`, which sends
//! the descriptor of `/dev/fuse` back over a socket.

use std::ffi::{CString, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::mountpoint;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const SUBTYPE: &str = "perdure";

/// Why the kernel did not take the mount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// `/dev/fuse` does not exist.
    #[error(
        "/dev/fuse does not exist: load the kernel module with `modprobe fuse`, or give the container the device"
    )]
    NoDevice,
    /// `/dev/fuse` may not be opened.
    #[error(
        "no permission to open /dev/fuse: ask the administrator for read and write access to it"
    )]
    DeviceDenied,
    /// The helper for ordinary users is missing.
    #[error(
        "{HELPER} is not installed: an ordinary user mounts through it (package fuse3); or mount as root"
    )]
    NoHelper,
    /// The helper refused.
    #[error("{HELPER} refused to mount at {mountpoint}: {message}")]
    HelperRefused {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// What it printed.
        message: String,
    },
    /// The kernel refused.
    #[error("the kernel refused to mount at {mountpoint}: {source}")]
    Refused {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What to tell the kernel about the mount.
pub(crate) struct Attachment<'a> {
    /// Shown as the source in the mount table: the pool.
    pub(crate) source: &'a Path,
    /// Canonical mount point.
    pub(crate) mountpoint: &'a Path,
    pub(crate) read_only: bool,
    pub(crate) allow_other: bool,
    /// `NOSUID`, `NODEV`, `NOEXEC`
    pub(crate) restrictions: MountFlags,
}

/// How the helper calls what a mount can be restricted by.
const RESTRICTIONS: [(MountFlags, &str); 3] = [
    (MountFlags::NOSUID, ",nosuid"),
    (MountFlags::NODEV, ",nodev"),
    (MountFlags::NOEXEC, ",noexec"),
];

/// Mounts, and returns the connection to the kernel.
pub(crate) fn attach(attachment: &Attachment<'_>) -> Result<OwnedFd, AttachError> {
    if rustix::process::geteuid().is_root() {
        match attach_directly(attachment) {
            // Root without CAP_SYS_ADMIN, as in many containers: the helper may still be able to.
            Err(AttachError::Refused { source, .. })
                if source.raw_os_error() == Some(libc::EPERM) => {}
            outcome => return outcome,
        }
    }
    attach_by_helper(attachment)
}

fn attach_directly(attachment: &Attachment<'_>) -> Result<OwnedFd, AttachError> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = device.map_err(|error| match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => AttachError::NoDevice,
        Errno::ACCESS | Errno::PERM => AttachError::DeviceDenied,
        error => AttachError::Refused {
            mountpoint: attachment.mountpoint.into(),
            source: error.into(),
        },
    })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},subtype={SUBTYPE},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if attachment.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = attachment.restrictions;
    flags.set(MountFlags::RDONLY, attachment.read_only);
    let refused = |source: io::Error| AttachError::Refused {
        mountpoint: attachment.mountpoint.into(),
        source,
    };
    let data = CString::new(data).map_err(|error| refused(error.into()))?;
    rustix::mount::mount(
        attachment.source,
        attachment.mountpoint,
        "fuse",
        flags,
        data.as_c_str(),
    )
    .map_err(|error| match error {
        Errno::NODEV => AttachError::NoDevice,
        error => refused(error.into()),
    })?;
    Ok(device)
}

fn attach_by_helper(attachment: &Attachment<'_>) -> Result<OwnedFd, AttachError> {
    let refused = |source: io::Error| AttachError::Refused {
        mountpoint: attachment.mountpoint.into(),
        source,
    };
    // Without CLOEXEC: the helper inherits its end, as its protocol demands. Our end closes on exec.
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )
    .map_err(|error| refused(error.into()))?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)
        .map_err(|error| refused(error.into()))?;

    let mut options = OsString::from(format!("subtype={SUBTYPE},default_permissions,fsname="));
    options.push(mountpoint::escape_option(attachment.source.as_os_str()));
    if attachment.read_only {
        options.push(",ro");
    }
    if attachment.allow_other {
        options.push(",allow_other");
    }
    for (flag, name) in RESTRICTIONS {
        if attachment.restrictions.contains(flag) {
            options.push(name);
        }
    }
    let child = Command::new(HELPER)
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(attachment.mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => AttachError::NoHelper,
            _ => refused(error),
        })?;
    drop(theirs);
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(refused)?;
    match device {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(AttachError::HelperRefused {
            mountpoint: attachment.mountpoint.into(),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
        Err(error) => Err(refused(error)),
    }
}

/// One descriptor from the helper; `None` if it closed the socket without sending one.
fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    loop {
        let mut slices = [io::IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors
        .next()
        .and_then(|mut descriptors| descriptors.next()))
}

/// How firmly to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detach {
    /// Only if nobody uses the mount.
    IfIdle,
    /// Take it out of the tree; those who use it keep using it.
    Lazy,
    /// Take it out of the tree and fail all further requests of those who use it. As an
    /// ordinary user this is no more than [`Detach::Lazy`].
    Forced,
}

/// Unmounts `mountpoint`.
pub(crate) fn detach(mountpoint: &Path, how: Detach) -> io::Result<()> {
    let flags = match how {
        Detach::IfIdle => UnmountFlags::NOFOLLOW,
        Detach::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        Detach::Forced => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE,
    };
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => detach_by_helper(mountpoint, how),
        Err(error) => Err(error.into()),
    }
}

/// Unmounts `mountpoint`, a canonical path, if nobody uses it.
///
/// # Errors
///
/// `ResourceBusy` while it is in use, `InvalidInput` if nothing is mounted there.
pub fn unmount(mountpoint: &Path) -> io::Result<()> {
    detach(mountpoint, Detach::IfIdle)
}

fn detach_by_helper(mountpoint: &Path, how: Detach) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if how != Detach::IfIdle {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if message.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, message))
}

/// Ends the FUSE connection of a mount by the control file system, which its owner may do.
pub(crate) fn abort_connection(device_minor: u32) -> io::Result<()> {
    std::fs::write(
        format!("/sys/fs/fuse/connections/{device_minor}/abort"),
        b"1",
    )
}

/// True if `path` can be handed to `mount(2)` and the mount table.
pub(crate) fn is_nameable(path: &Path) -> bool {
    !path.as_os_str().as_bytes().contains(&0)
}
