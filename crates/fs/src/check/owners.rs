//! Inodes that a repair keeps although their checksum does not match: fields that are doubtful.

use super::context::{Findings, Inodes, Scan};
use super::kind::FaultKind;
use super::map::MapFound;
use super::report::Place;
use crate::format::lease::RawLease;
use crate::format::{FileType, InodeNumber, MODE_TYPE_MASK, RawInode};
use pmem::BLOCK_BYTES;
use txn::{Domain, layout::SegmentEntry};

/// Set-user-id and set-group-id: a program gets the rights of its owner.
const SET_ID_BITS: u32 = 0o6000;
/// Rights of the owner.
const OWNER_BITS: u32 = 0o700;

/// Clears set-id bits of an inode in doubt, and ends its size with its blocks. A lease ends.
pub(super) fn distrust(
    scan: &Scan<'_>,
    findings: &mut Findings,
    number: InodeNumber,
    raw: &mut RawInode,
    found: &MapFound,
) {
    raw.mode &= !SET_ID_BITS;
    if raw.file_type() != Some(FileType::Regular) {
        return;
    }
    raw.size = raw.size.min(found.mapped_end * BLOCK_BYTES as u64);
    if let Some(lease) = RawLease::of(raw) {
        RawLease { ended: 1, ..lease }.store(raw);
        let file = Place::Inode(InodeNumber::new(lease.target));
        let detail = format!("the inode of its lease, {number}, is damaged");
        findings.fault(file, FaultKind::LeaseRecordsLost, detail);
    }
    // Blocks follow their file to another user, so the segment of one tells whose it is.
    let Some(block) = found.data_block else {
        return;
    };
    let segment = scan.claims.segment_of(block) as u32;
    if let Some((uid, gid)) = owner_of(scan, segment).filter(|(uid, _)| *uid != raw.uid) {
        (raw.uid, raw.gid) = (uid, gid);
    }
}

/// Returns the user and the group that own a segment.
fn owner_of(scan: &Scan<'_>, segment: u32) -> Option<(u32, u32)> {
    let entry: SegmentEntry = scan.region.load(scan.geometry.segment_entry(segment));
    match entry.domain(segment) {
        Ok(Some(Domain::Owner { uid, gid, .. })) => Some((uid, gid)),
        _ => None,
    }
}

/// Judges the owners of inodes in doubt by those of all others. An inode with an unknown owner, and
/// a device, becomes root's, without rights for others, and gets a name in `lost+found` only.
pub(super) fn check(scan: &Scan<'_>, inodes: &Inodes, findings: &mut Findings) {
    let segments = 0..scan.geometry.segments;
    segments
        .filter_map(|segment| owner_of(scan, segment))
        .for_each(|owner| findings.known.add(owner));
    for (number, mut raw) in std::mem::take(&mut findings.doubtful) {
        let known = &findings.known;
        let is_known = known.users.contains(&raw.uid) && known.groups.contains(&raw.gid);
        let is_device = matches!(
            raw.file_type(),
            Some(FileType::BlockDevice | FileType::CharacterDevice)
        );
        let Some(at) = inodes.offset(number).filter(|_| !is_known || is_device) else {
            continue;
        };
        let detail = format!("user {}, group {}, mode {:o}", raw.uid, raw.gid, raw.mode);
        findings.fault(Place::Inode(number), FaultKind::InodeOwner, detail);
        (raw.uid, raw.gid) = (0, 0);
        if number != InodeNumber::ROOT {
            raw.mode &= MODE_TYPE_MASK | OWNER_BITS;
            findings.exiled.insert(number);
        }
        findings.plan.inode(number, at, raw);
    }
}
