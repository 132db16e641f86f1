//! Records of direct writes that wait to be applied to their files.

use super::context::{Findings, Inodes, LeaseFound, Scan};
use super::kind::FaultKind;
use super::report::Place;
use crate::format::lease::{RawLease, is_leasable};
use crate::format::{InodeNumber, RawInode};
use lease::{RECORD_BYTES, RECORDS_PER_BLOCK, Ring};
use zerocopy::IntoBytes;

/// Looks for damage in the rings of all leases whose files take their records.
pub(super) fn check(scan: &Scan<'_>, inodes: &Inodes, findings: &mut Findings) {
    for found in std::mem::take(&mut findings.leases) {
        let target = InodeNumber::new(found.words.target);
        let Some(at) = inodes.offset(target) else {
            continue;
        };
        let raw: RawInode = scan.region.load(at);
        if raw.links > 0 && is_leasable(&raw, &found.raw, &found.words) {
            findings.written_directly.push(target);
            check_ring(scan, inodes, findings, found);
        }
    }
}

fn check_ring(scan: &Scan<'_>, inodes: &Inodes, findings: &mut Findings, found: LeaseFound) {
    let LeaseFound {
        number,
        raw,
        words,
        is_map_whole,
        ring,
    } = found;
    // The file is what matters to its owner; the lease has no name.
    let place = Place::Inode(InodeNumber::new(words.target));
    if !is_map_whole {
        let detail = format!("lease {number} lost blocks; records that name them do not count");
        findings.fault(place, FaultKind::LeaseRecordsLost, detail);
    }
    if ring.len() != words.ring_blocks as usize {
        let detail = format!("lease {number}: the ring has a hole");
        findings.fault(place, FaultKind::LeaseRecordsLost, detail);
        let Some(at) = inodes.offset(number) else {
            return;
        };
        let mut ended = findings.plan.planned(number).unwrap_or(raw);
        RawLease { ended: 1, ..words }.store(&mut ended);
        findings.plan.inode(number, at, ended);
        return;
    }
    let ring = Ring::new(ring);
    let salt = RawLease::salt(number, raw.generation);
    let inspection = lease::inspect(scan.region, &ring, salt, words.next);
    for record in inspection.corrected {
        let detail = format!(
            "lease {number}, record {}: one bit is flipped",
            record.sequence
        );
        findings.fault(place, FaultKind::LeaseRecordsLost, detail);
        let at = ring.place(record.sequence);
        findings.plan.bytes(at, record.as_bytes().to_vec());
    }
    if let Some(gap) = inspection.gap {
        let detail = format!("lease {number}: {gap}");
        findings.fault(place, FaultKind::LeaseRecordsLost, detail);
        // All places from the damaged record on, a block of the ring at a time.
        let mut number = gap.damaged;
        while number < words.next + ring.records() {
            let end = (number + 1).next_multiple_of(RECORDS_PER_BLOCK);
            let count = end.min(words.next + ring.records()) - number;
            let zeros = vec![0; count as usize * RECORD_BYTES];
            findings.plan.bytes(ring.place(number), zeros);
            number += count;
        }
    }
}
