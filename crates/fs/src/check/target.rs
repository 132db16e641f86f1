//! The target of a symbolic link that is too long for the inode: in a block, its checksum in the inode.

use super::context::{Findings, Scan};
use super::kind::FaultKind;
use super::map::MapFound;
use super::report::Place;
use super::single_bit;
use crate::format::inode::INLINE_BYTES;
use crate::format::{InodeNumber, RawInode};
use txn::checksum::crc32c;

/// Whether the link leads where it was made to lead; one flipped bit of the target is corrected.
pub(super) fn check(
    scan: &Scan<'_>,
    findings: &mut Findings,
    number: InodeNumber,
    raw: &RawInode,
    found: &MapFound,
) -> bool {
    let length = raw.size as usize;
    let mut lost = |detail: String| {
        findings.fault(Place::Inode(number), FaultKind::SymlinkTarget, detail);
        false
    };
    if (1..=INLINE_BYTES).contains(&length) {
        return true;
    }
    let Some(block) = found.wanted.filter(|_| length > 0) else {
        return lost(format!("{length} bytes are missing"));
    };
    let mut target = vec![0; length];
    scan.region.read(block.offset(), &mut target);
    let difference = crc32c(&target) ^ raw.target_checksum();
    if difference == 0 {
        return true;
    }
    let Some(bit) = single_bit::locate(length, difference) else {
        return lost("its checksum does not match".into());
    };
    lost(format!("bit {} of byte {} is flipped", bit % 8, bit / 8));
    let at = block.offset() + (bit / 8) as u64;
    let byte = target[bit / 8] ^ 1 << (bit % 8);
    findings.plan.bytes(at, vec![byte]);
    true
}
