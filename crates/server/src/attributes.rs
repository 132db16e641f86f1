//! Attributes, times and modes between FUSE's terms and the file system's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fs::{Attributes, SetAttributes, TimeChange, Timestamp};
use fuser::{FileAttr, Generation, INodeNo, TimeOrNow};

/// Reported as the best size for a transfer. `stdio` sizes its buffers by it: 64 KiB instead of
/// 4 KiB saves 15 of 16 requests to programs that read and write in small pieces.
const PREFERRED_TRANSFER_BYTES: u32 = 64 << 10;

const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;
/// The bits of a mode that `chmod` sets.
pub(crate) const PERMISSION_BITS: u32 = 0o7777;

/// What `stat` shows.
pub(crate) fn to_fuse(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.inode.get()),
        size: attributes.size_bytes,
        blocks: attributes.sectors,
        atime: to_system_time(attributes.accessed),
        mtime: to_system_time(attributes.modified),
        ctime: to_system_time(attributes.changed),
        crtime: to_system_time(attributes.created),
        kind: to_fuse_type(attributes.file_type()),
        perm: (attributes.mode & PERMISSION_BITS) as u16,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: PREFERRED_TRANSFER_BYTES,
        flags: 0,
    }
}

/// Those of a file of `bytes` that is in no pool: root's, and without times.
pub(crate) fn made_up(inode: INodeNo, kind: fuser::FileType, perm: u16, bytes: u64) -> FileAttr {
    FileAttr {
        ino: inode,
        size: bytes,
        blocks: bytes.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: pmem::BLOCK_BYTES as u32,
        flags: 0,
    }
}

/// The answer "this name does not exist", which the kernel may keep: an entry of inode 0.
pub(crate) fn absent() -> FileAttr {
    made_up(INodeNo(0), fuser::FileType::RegularFile, 0, 0)
}

/// Stands for the attributes of an inode that cannot be read: its type, and no rights.
pub(crate) fn unknown(number: INodeNo, kind: fuser::FileType) -> FileAttr {
    made_up(number, kind, 0, 1)
}

/// Tells two files apart that had the same inode number one after the other.
pub(crate) fn generation(attributes: &Attributes) -> Generation {
    Generation(u64::from(attributes.generation))
}

pub(crate) fn to_fuse_type(file_type: fs::FileType) -> fuser::FileType {
    match file_type {
        fs::FileType::Regular => fuser::FileType::RegularFile,
        fs::FileType::Directory => fuser::FileType::Directory,
        fs::FileType::Symlink => fuser::FileType::Symlink,
        fs::FileType::CharacterDevice => fuser::FileType::CharDevice,
        fs::FileType::BlockDevice => fuser::FileType::BlockDevice,
        fs::FileType::Fifo => fuser::FileType::NamedPipe,
        fs::FileType::Socket => fuser::FileType::Socket,
    }
}

pub(crate) fn to_time_change(time: TimeOrNow) -> TimeChange {
    match time {
        TimeOrNow::Now => TimeChange::Now,
        TimeOrNow::SpecificTime(time) => TimeChange::At(from_request_time(time)),
    }
}

/// True if the request changes nothing. The kernel sends such a SETATTR when it wants set-id bits and
/// nothing else gone (before a write by an unprivileged user, after `chown` to the same owner).
pub(crate) fn is_empty(change: &SetAttributes) -> bool {
    let SetAttributes {
        mode,
        uid,
        gid,
        size_bytes,
        accessed,
        modified,
        ..
    } = change;
    mode.is_none()
        && uid.is_none()
        && gid.is_none()
        && size_bytes.is_none()
        && accessed.is_none()
        && modified.is_none()
}

/// `mode` as a write or a change of owner by an unprivileged user leaves it: without set-user-id, and
/// without set-group-id where that means "execute as the group".
pub(crate) fn without_set_id(mode: u32) -> u32 {
    let executed_as_group = mode & GROUP_EXECUTE != 0;
    mode & !SET_USER_ID & if executed_as_group { !SET_GROUP_ID } else { !0 }
}

fn to_system_time(time: Timestamp) -> SystemTime {
    let nanoseconds = time.nanoseconds();
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    // A distance of 292 years at most is within any SystemTime.
    if nanoseconds >= 0 {
        UNIX_EPOCH + distance
    } else {
        UNIX_EPOCH - distance
    }
}

/// The time that the kernel sent. fuser 0.18 turns seconds s < 0 and nanoseconds n into the epoch minus (|s| + n), where
/// s + n is meant: undone here. Times beyond the years 1677 to 2262 become the nearest that can be kept.
fn from_request_time(time: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i128::from(after.as_secs()), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            (-i128::from(before.as_secs()), before.subsec_nanos())
        }
    };
    let total = seconds * NANOSECONDS_PER_SECOND + i128::from(nanoseconds);
    let kept = total.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Timestamp::from_nanoseconds(kept as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_fall_as_posix_says() {
        assert_eq!(without_set_id(0o106_755), 0o100_755);
        assert_eq!(
            without_set_id(0o102_745),
            0o102_745,
            "without group execute it is a locking mark"
        );
        assert_eq!(without_set_id(0o100_644), 0o100_644);
    }

    #[test]
    fn times_before_the_epoch_are_decoded() {
        // -1.25 s is sent as s = -2, n = 750,000,000; fuser makes that the epoch minus 2.75 s.
        let decoded = UNIX_EPOCH - Duration::new(2, 750_000_000);
        assert_eq!(from_request_time(decoded).nanoseconds(), -1_250_000_000);
        assert_eq!(
            from_request_time(UNIX_EPOCH + Duration::new(3, 5)).nanoseconds(),
            3_000_000_005
        );
    }

    #[test]
    fn times_beyond_what_can_be_kept_are_clamped() {
        let far = UNIX_EPOCH + Duration::from_secs(1 << 60);
        assert_eq!(from_request_time(far).nanoseconds(), i64::MAX);
        let long_ago = UNIX_EPOCH - Duration::from_secs(1 << 60);
        assert_eq!(from_request_time(long_ago).nanoseconds(), i64::MIN);
    }

    #[test]
    fn every_kept_time_can_be_shown() {
        for nanoseconds in [i64::MIN, -1_250_000_000, -1, 0, 1, i64::MAX] {
            let shown = to_system_time(Timestamp::from_nanoseconds(nanoseconds));
            let back = match shown.duration_since(UNIX_EPOCH) {
                Ok(after) => after.as_nanos() as i128,
                Err(error) => -(error.duration().as_nanos() as i128),
            };
            assert_eq!(back, i128::from(nanoseconds));
        }
    }
}
