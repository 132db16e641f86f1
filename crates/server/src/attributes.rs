//! Attributes, times and modes between FUSE's terms and the file system's.

use fs::{Attributes, SetAttributes, TimeChange, Timestamp};
use fuse::{FileAttr, FileType, Generation, INodeNo, Time, TimeOrNow};

/// Reported as the best size for a transfer. `stdio` sizes its buffers by it: 64 KiB instead of
/// 4 KiB saves 15 of 16 requests to programs that read and write in small pieces.
const PREFERRED_TRANSFER_BYTES: u32 = 64 << 10;

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;
/// The bits of a mode that `chmod` sets.
pub(crate) const PERMISSION_BITS: u32 = 0o7777;

/// What `stat` shows.
pub(crate) fn to_fuse(attributes: &Attributes) -> FileAttr {
    FileAttr {
        inode: INodeNo(attributes.inode.get()),
        size_bytes: attributes.size_bytes,
        sectors: attributes.sectors,
        accessed: to_fuse_time(attributes.accessed),
        modified: to_fuse_time(attributes.modified),
        changed: to_fuse_time(attributes.changed),
        mode: attributes.mode,
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        device: attributes.device,
        block_bytes: PREFERRED_TRANSFER_BYTES,
    }
}

/// Those of a file of `bytes` that is in no pool: root's, and of 1970.
pub(crate) fn made_up(inode: INodeNo, kind: FileType, permissions: u32, bytes: u64) -> FileAttr {
    FileAttr {
        inode,
        size_bytes: bytes,
        sectors: bytes.div_ceil(512),
        accessed: Time::default(),
        modified: Time::default(),
        changed: Time::default(),
        mode: kind.mode() | permissions,
        links: 1,
        uid: 0,
        gid: 0,
        device: 0,
        block_bytes: pmem::BLOCK_BYTES as u32,
    }
}

/// The answer "this name does not exist", which the kernel may keep: an entry of inode 0.
pub(crate) fn absent() -> FileAttr {
    made_up(INodeNo(0), FileType::Regular, 0, 0)
}

/// Stands for the attributes of an inode that cannot be read: its type, and no rights.
pub(crate) fn unknown(number: INodeNo, kind: FileType) -> FileAttr {
    made_up(number, kind, 0, 1)
}

/// Tells two files apart that had the same inode number one after the other.
pub(crate) fn generation(attributes: &Attributes) -> Generation {
    Generation(u64::from(attributes.generation))
}

pub(crate) fn to_fuse_type(file_type: fs::FileType) -> FileType {
    match file_type {
        fs::FileType::Regular => FileType::Regular,
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::CharacterDevice => FileType::CharacterDevice,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        fs::FileType::Fifo => FileType::Fifo,
        fs::FileType::Socket => FileType::Socket,
    }
}

pub(crate) fn to_time_change(time: TimeOrNow) -> TimeChange {
    match time {
        TimeOrNow::Now => TimeChange::Now,
        TimeOrNow::At(time) => TimeChange::At(from_fuse_time(time)),
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

fn to_fuse_time(time: Timestamp) -> Time {
    let nanoseconds = time.nanoseconds();
    Time {
        seconds: nanoseconds.div_euclid(NANOSECONDS_PER_SECOND),
        // A remainder is below a thousand million.
        nanoseconds: nanoseconds.rem_euclid(NANOSECONDS_PER_SECOND) as u32,
    }
}

/// The time that the kernel sent. Those beyond the years 1677 to 2262 become the nearest that can
/// be kept.
fn from_fuse_time(time: Time) -> Timestamp {
    let seconds = i128::from(time.seconds) * i128::from(NANOSECONDS_PER_SECOND);
    let total = seconds + i128::from(time.nanoseconds);
    let kept = total.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Timestamp::from_nanoseconds(kept as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> Time {
        Time {
            seconds,
            nanoseconds,
        }
    }

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
        let decoded = from_fuse_time(at(-2, 750_000_000));
        assert_eq!(decoded.nanoseconds(), -1_250_000_000);
        assert_eq!(from_fuse_time(at(3, 5)).nanoseconds(), 3_000_000_005);
    }

    #[test]
    fn times_beyond_what_can_be_kept_are_clamped() {
        assert_eq!(from_fuse_time(at(1 << 60, 0)).nanoseconds(), i64::MAX);
        assert_eq!(from_fuse_time(at(-1 << 60, 0)).nanoseconds(), i64::MIN);
        let most = from_fuse_time(at(i64::MAX, u32::MAX));
        assert_eq!(most.nanoseconds(), i64::MAX);
    }

    #[test]
    fn every_kept_time_can_be_shown() {
        for nanoseconds in [i64::MIN, -1_250_000_000, -1, 0, 1, i64::MAX] {
            let shown = to_fuse_time(Timestamp::from_nanoseconds(nanoseconds));
            assert!(i64::from(shown.nanoseconds) < NANOSECONDS_PER_SECOND);
            assert_eq!(from_fuse_time(shown).nanoseconds(), nanoseconds);
        }
    }
}
