//! What is known about a file besides its content.

use crate::error::Result;
use fs::{Attributes, SetAttributes, TimeChange, Timestamp};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is known about a file, a directory or a symbolic link; as `std::fs::Metadata` with `MetadataExt` of Unix.
#[derive(Clone, Debug)]
pub struct Metadata {
    attributes: Attributes,
}

impl Metadata {
    pub(crate) fn new(attributes: Attributes) -> Metadata {
        Metadata { attributes }
    }

    /// The type of the file.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType(self.attributes.file_type())
    }

    /// Whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether this is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether this is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Size in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "the shape of std::fs::Metadata"
    )]
    pub fn len(&self) -> u64 {
        self.attributes.size_bytes
    }

    /// The mode as permissions. They are kept for the programs that use the pool through a mount; this library
    /// itself does not check them, because whoever can open the pool can read all of it anyway.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.attributes.mode)
    }

    /// Time of the last change of the content.
    ///
    /// # Errors
    /// None; a `Result` because `std` has one.
    pub fn modified(&self) -> Result<SystemTime> {
        Ok(to_system_time(self.attributes.modified))
    }

    /// Time of the last access, as exact as the pool's policy for access times.
    ///
    /// # Errors
    /// None; a `Result` because `std` has one.
    pub fn accessed(&self) -> Result<SystemTime> {
        Ok(to_system_time(self.attributes.accessed))
    }

    /// Time of creation.
    ///
    /// # Errors
    /// None; a `Result` because `std` has one.
    pub fn created(&self) -> Result<SystemTime> {
        Ok(to_system_time(self.attributes.created))
    }

    /// Time of the last change of content or metadata.
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        to_system_time(self.attributes.changed)
    }

    /// `st_mode`: the permission bits and the bits of the type.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.attributes.mode
    }

    /// User that owns the file.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.attributes.uid
    }

    /// Group that owns the file.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.attributes.gid
    }

    /// Inode number, unique among the existing files of a pool.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.attributes.inode.get()
    }

    /// Number of names.
    #[must_use]
    pub fn nlink(&self) -> u32 {
        self.attributes.links
    }

    /// Device number of a device node, otherwise 0.
    #[must_use]
    pub fn rdev(&self) -> u32 {
        self.attributes.device
    }

    /// Space in use, in units of 512 bytes; less than the size when the file has holes.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.attributes.sectors
    }

    /// All of it as the file system keeps it.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}

/// The type of a file; as `std::fs::FileType` with `FileTypeExt` of Unix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType(pub(crate) fs::FileType);

impl FileType {
    /// Whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0 == fs::FileType::Directory
    }

    /// Whether this is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0 == fs::FileType::Regular
    }

    /// Whether this is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0 == fs::FileType::Symlink
    }

    /// Whether this is a fifo.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.0 == fs::FileType::Fifo
    }

    /// Whether this is a socket.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.0 == fs::FileType::Socket
    }

    /// Whether this is a block device.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.0 == fs::FileType::BlockDevice
    }

    /// Whether this is a character device.
    #[must_use]
    pub fn is_char_device(&self) -> bool {
        self.0 == fs::FileType::CharacterDevice
    }
}

/// Times to give to a file; as `std::fs::FileTimes`. A time that is not set stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// No change of any time.
    #[must_use]
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// Sets the time of the last access.
    #[must_use]
    pub fn set_accessed(mut self, time: SystemTime) -> FileTimes {
        self.accessed = Some(time);
        self
    }

    /// Sets the time of the last change of the content.
    #[must_use]
    pub fn set_modified(mut self, time: SystemTime) -> FileTimes {
        self.modified = Some(time);
        self
    }

    pub(crate) fn change(self) -> SetAttributes {
        let at = |time: SystemTime| TimeChange::At(to_timestamp(time));
        SetAttributes {
            accessed: self.accessed.map(at),
            modified: self.modified.map(at),
            ..SetAttributes::default()
        }
    }
}

fn to_system_time(time: Timestamp) -> SystemTime {
    let nanoseconds = time.nanoseconds();
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 {
        UNIX_EPOCH - distance
    } else {
        UNIX_EPOCH + distance
    }
}

/// Times beyond the years 1677 and 2262, the range of the format, become the nearest time inside it.
fn to_timestamp(time: SystemTime) -> Timestamp {
    let clamp = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanoseconds(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => clamp(after),
        Err(before) => -clamp(before.duration()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_there_and_back() {
        for nanoseconds in [0, 1, -1, 1_700_000_000_123_456_789, -5_000_000_001] {
            let time = Timestamp::from_nanoseconds(nanoseconds);
            assert_eq!(
                to_timestamp(to_system_time(time)).nanoseconds(),
                nanoseconds
            );
        }
        let far_future = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(to_timestamp(far_future).nanoseconds(), i64::MAX);
    }
}
