//! The header: superblocks, state block, segment table.

use super::claims::{Claims, Owner, Use};
use super::context::{Findings, Scan};
use super::kind::FaultKind;
use super::report::Place;
use super::single_bit;
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use txn::checksum::{Seal, seal, unseal};
use txn::domain::DamagedEntry;
use txn::layout::{
    CHECKPOINT_AT, CLEAN_AT, JOURNALS_AT, ROOT_AREA_AT, SAVED_AT, SEGMENT_ENTRY_BYTES,
    SEGMENT_TABLE_BLOCK, STATE_BLOCK, SavedHeader, SegmentEntry,
};
use txn::{Domain, Geometry, Superblock};
use zerocopy::IntoBytes;

const SUPERBLOCK_BYTES: usize = size_of::<Superblock>();

/// The superblock that counts: the first copy, else the second, wherever it can be.
pub(super) fn find_superblock(region: &Region) -> Option<Superblock> {
    // The smallest header has four blocks.
    let is_long_enough = region.length() >= 4 * BLOCK_BYTES as u64;
    if is_long_enough {
        txn::pool::read_superblock(region).ok()
    } else {
        None
    }
}

/// Checks both copies of the superblock and the bytes behind them.
pub(super) fn check_superblocks(region: &Region, superblock: &Superblock, findings: &mut Findings) {
    let copies = [
        (1, Offset::new(0)),
        (2, superblock.geometry().second_superblock()),
    ];
    for (copy, at) in copies {
        let mut block = [0; BLOCK_BYTES];
        region.read(at, &mut block);
        let found: Superblock = region.load(at);
        if let Err(fault) = found.validate() {
            findings.fault(
                Place::Superblock(copy),
                FaultKind::SuperblockDamaged,
                fault.to_string(),
            );
        } else if found != *superblock {
            findings.fault(
                Place::Superblock(copy),
                FaultKind::SuperblocksDiffer,
                String::new(),
            );
        } else if block[SUPERBLOCK_BYTES..].iter().any(|&byte| byte != 0) {
            findings.fault(
                Place::Superblock(copy),
                FaultKind::HeaderNotZero,
                String::new(),
            );
        } else {
            continue;
        }
        block.fill(0);
        block[..SUPERBLOCK_BYTES].copy_from_slice(superblock.as_bytes());
        findings.plan.bytes(at, block.to_vec());
    }
}

/// What the state block says, damaged words replaced by what they should be.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) checkpoint: u64,
    /// Whether the pool was unmounted cleanly.
    pub(super) is_clean: bool,
    pub(super) journals: Vec<BlockNumber>,
}

/// Checks checkpoint, clean mark and journal pointers.
pub(super) fn check_state(
    region: &Region,
    superblock: &Superblock,
    findings: &mut Findings,
) -> State {
    let journals = check_journal_pointers(region, superblock, findings);
    let checkpoint = check_checkpoint(region, superblock, &journals, findings);
    let at = STATE_BLOCK.offset() + CLEAN_AT;
    let word = region.load_u64(at);
    let mark = unseal(word, Seal::Clean, 0);
    let is_clean = mark == Some(checkpoint);
    if word != 0 && !is_clean {
        let detail = mark.map_or_else(
            || format!("{word:#018x}"),
            |mark| format!("{mark}, the checkpoint is {checkpoint}"),
        );
        findings.fault(
            Place::StateBlock("clean mark"),
            FaultKind::CleanMarkDamaged,
            detail,
        );
        findings.plan.word(at, 0);
    }
    State {
        checkpoint,
        is_clean,
        journals,
    }
}

fn check_checkpoint(
    region: &Region,
    superblock: &Superblock,
    journals: &[BlockNumber],
    findings: &mut Findings,
) -> u64 {
    let at = STATE_BLOCK.offset() + CHECKPOINT_AT;
    let word = region.load_u64(at);
    let read = |word| unseal(word, Seal::Checkpoint, 0);
    if let Some(sequence) = read(word) {
        return sequence;
    }
    // Where the clean mark is whole it has the same number; otherwise a flipped bit, then the journals.
    let mark = unseal(
        region.load_u64(STATE_BLOCK.offset() + CLEAN_AT),
        Seal::Clean,
        0,
    );
    let sequence = mark
        .or_else(|| single_bit::correct_word(word, read).map(|(_, sequence)| sequence))
        .unwrap_or_else(|| super::journals::derive_checkpoint(region, superblock, journals));
    findings.fault(
        Place::StateBlock("checkpoint"),
        FaultKind::CheckpointDamaged,
        format!("should be {sequence}"),
    );
    findings.plan.word(at, seal(sequence, Seal::Checkpoint, 0));
    sequence
}

/// Blocks of a journal, from its first.
pub(super) fn journal_blocks(
    superblock: &Superblock,
    start: BlockNumber,
) -> impl Iterator<Item = BlockNumber> + use<> {
    (0..superblock.journal_blocks).map(move |index| start + index)
}

fn check_journal_pointers(
    region: &Region,
    superblock: &Superblock,
    findings: &mut Findings,
) -> Vec<BlockNumber> {
    let geometry = superblock.geometry();
    let placed = txn::format::place_journals(superblock, &geometry);
    let mut starts: Vec<BlockNumber> = Vec::new();
    for (index, &home) in placed.iter().enumerate() {
        let at = STATE_BLOCK.offset() + JOURNALS_AT + index as u64 * 8;
        let word = region.load_u64(at);
        let inside = |word| {
            let start = unseal(word, Seal::Journal, index as u64)?;
            let last = start.checked_add(superblock.journal_blocks - 1)?;
            let inside = geometry.contains(BlockNumber::new(start))
                && geometry.contains(BlockNumber::new(last));
            inside.then_some(BlockNumber::new(start))
        };
        let overlaps = |start: BlockNumber| {
            starts
                .iter()
                .any(|other| other.get().abs_diff(start.get()) < superblock.journal_blocks)
        };
        let (start, kind) = match inside(word) {
            Some(start) if !overlaps(start) => {
                starts.push(start);
                continue;
            }
            Some(_) => (home, FaultKind::JournalOverlap),
            None => {
                let corrected = single_bit::correct_word(word, inside).map(|(_, start)| start);
                (corrected.unwrap_or(home), FaultKind::JournalPointerDamaged)
            }
        };
        findings.fault(
            Place::Journal(index as u32),
            kind,
            format!("{word:#018x}, should be block {start}"),
        );
        findings
            .plan
            .word(at, seal(start.get(), Seal::Journal, index as u64));
        starts.push(start);
    }
    starts
}

/// Claims the blocks of all journals.
pub(super) fn claim_journals(superblock: &Superblock, state: &State, claims: &Claims) {
    for (index, &start) in state.journals.iter().enumerate() {
        for block in journal_blocks(superblock, start).filter(|&block| claims.contains(block)) {
            // Overlaps were reported with the pointers.
            let _ = claims.claim(block, Owner::Journal(index as u32), Use::Metadata);
        }
    }
}

/// Checks that reserved bytes of state block and segment table are zero.
pub(super) fn check_reserved(
    region: &Region,
    superblock: &Superblock,
    is_clean: bool,
    findings: &mut Findings,
) {
    let geometry = superblock.geometry();
    let state = STATE_BLOCK.offset();
    let saved_end = SAVED_AT + size_of::<SavedHeader>() as u64;
    let journals_end = JOURNALS_AT + u64::from(superblock.journals) * 8;
    let inode_end = ROOT_AREA_AT + crate::format::inode::INODE_BYTES as u64;
    let mut ranges = vec![
        (CHECKPOINT_AT + 8, CLEAN_AT),
        (CLEAN_AT + 8, SAVED_AT),
        (saved_end, JOURNALS_AT),
        (journals_end, ROOT_AREA_AT),
        (inode_end, BLOCK_BYTES as u64),
    ];
    if !is_clean {
        // What an earlier unmount left there counts for nothing, and so does damage to it.
        ranges.retain(|&(start, _)| start != saved_end);
    }
    let mut check = |place, at: Offset, length: u64| {
        let mut bytes = vec![0; length as usize];
        region.read(at, &mut bytes);
        if bytes.iter().any(|&byte| byte != 0) {
            findings.fault(place, FaultKind::HeaderNotZero, format!("offset {at}"));
            findings.plan.bytes(at, vec![0; length as usize]);
        }
    };
    for (start, end) in ranges {
        check(
            Place::StateBlock("reserved bytes"),
            state + start,
            end - start,
        );
    }
    let table_end = geometry.segment_entry(superblock.segments);
    let table_blocks_end = geometry.second_superblock();
    check(Place::Pool, table_end, table_blocks_end - table_end);
    debug_assert!(table_end.get() >= SEGMENT_TABLE_BLOCK.offset().get() + SEGMENT_ENTRY_BYTES);
}

/// Checks the segment table against what is in the segments. Comes last: all claims are made.
pub(super) fn check_segments(scan: &Scan<'_>, findings: &mut Findings) {
    for segment in 0..scan.geometry.segments {
        let at = scan.geometry.segment_entry(segment);
        let entry: SegmentEntry = scan.region.load(at);
        check_segment(scan, findings, segment, at, &entry);
        if entry.wear != 0 && unseal(entry.wear, Seal::Wear, u64::from(segment)).is_none() {
            findings.fault(
                Place::Segment(segment),
                FaultKind::WearDamaged,
                format!("{:#018x}", entry.wear),
            );
            findings.plan.word(at + 16, 0);
        }
        if entry.reserved != 0 {
            findings.fault(
                Place::Segment(segment),
                FaultKind::HeaderNotZero,
                String::new(),
            );
            findings.plan.word(at + 24, 0);
        }
    }
}

fn check_segment(
    scan: &Scan<'_>,
    findings: &mut Findings,
    segment: u32,
    at: Offset,
    entry: &SegmentEntry,
) {
    let (has_data, has_metadata) = scan.claims.uses(segment);
    let derived = match (has_data, has_metadata) {
        (false, false) => None,
        (false, true) => Some(Domain::Metadata),
        (true, _) => Some(Domain::Mixed),
    };
    let (kind, domain) = match entry.domain(segment) {
        Ok(None) if derived.is_none() => return,
        Ok(None) => (FaultKind::SegmentUnassigned, derived),
        Ok(Some(Domain::Owner { .. })) if has_metadata => (FaultKind::SegmentMismatch, derived),
        Ok(Some(_)) => return,
        Err(DamagedEntry) => (
            FaultKind::SegmentEntryDamaged,
            corrected(segment, entry)
                .filter(|&domain| fits(domain, derived))
                .unwrap_or(derived),
        ),
    };
    findings.fault(
        Place::Segment(segment),
        kind,
        format!("becomes {}", name(domain)),
    );
    let (owner, seal) = domain.map_or((0, 0), |domain| domain.words(segment));
    findings.plan.word(at, owner);
    findings.plan.word(at + 8, seal);
}

/// The domain of an entry in which one bit is flipped.
fn corrected(segment: u32, entry: &SegmentEntry) -> Option<Option<Domain>> {
    let mut words = [entry.owner, entry.seal];
    let read = |words: [u64; 2]| {
        SegmentEntry {
            owner: words[0],
            seal: words[1],
            ..*entry
        }
        .domain(segment)
        .ok()
    };
    (0..128).find_map(|bit| {
        words[bit / 64] ^= 1 << (bit % 64);
        let domain = read(words);
        words[bit / 64] ^= 1 << (bit % 64);
        domain
    })
}

/// Whether a segment of this domain may hold what was found in it.
fn fits(domain: Option<Domain>, derived: Option<Domain>) -> bool {
    match domain {
        None => derived.is_none(),
        Some(Domain::Owner { .. }) => derived != Some(Domain::Metadata),
        Some(_) => true,
    }
}

fn name(domain: Option<Domain>) -> String {
    match domain {
        None => "free".into(),
        Some(Domain::Metadata) => "the file system's".into(),
        Some(Domain::Mixed) => "shared".into(),
        Some(Domain::Owner { uid, gid, class }) => {
            format!("user {uid}, group {gid}, class {class:#o}")
        }
    }
}

/// Whether this program may map a pool of that geometry.
pub(super) fn header_fits(region: &Region, geometry: &Geometry) -> bool {
    region.length() >= geometry.header_blocks * BLOCK_BYTES as u64
}
