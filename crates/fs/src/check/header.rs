//! The header: superblocks, state block, segment table.

use super::claims::{Claims, Owner, Use};
use super::context::{Findings, Scan};
use super::halves::derive_checkpoint;
use super::kind::FaultKind;
use super::report::Place;
use super::single_bit;
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use std::sync::Arc;
use txn::checksum::{Seal, seal, unseal};
use txn::domain::{DamagedEntry, Domains};
use txn::layout::{
    CHECKPOINT_AT, CLEAN_AT, HOME_MOUNTS_AT, JOURNALS_AT, ROOT_AREA_AT, SAVED_AT,
    SEGMENT_ENTRY_BYTES, SEGMENT_TABLE_BLOCK, STATE_BLOCK, SavedHeader, SegmentEntry,
};
use txn::places::{HalfName, HalfPlace};
use txn::{Content, Domain, Geometry, Superblock};
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
    /// Where the halves of the journals are, two for each; `None` if nobody can tell any more.
    pub(super) halves: Vec<Option<HalfPlace>>,
}

/// Checks checkpoint, clean mark and journal pointers.
pub(super) fn check_state(
    region: &Region,
    superblock: &Superblock,
    findings: &mut Findings,
) -> State {
    let halves = check_places(region, superblock, findings);
    let checkpoint = check_checkpoint(region, superblock, &halves, findings);
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
        halves,
    }
}

fn check_checkpoint(
    region: &Region,
    superblock: &Superblock,
    halves: &[Option<HalfPlace>],
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
        .unwrap_or_else(|| derive_checkpoint(region, superblock, halves));
    findings.fault(
        Place::StateBlock("checkpoint"),
        FaultKind::CheckpointDamaged,
        format!("should be {sequence}"),
    );
    findings.plan.word(at, seal(sequence, Seal::Checkpoint, 0));
    sequence
}

/// Checks where the halves of the journals are. One that nobody can find any more is empty, and gets a place when everything else is in order.
fn check_places(
    region: &Region,
    superblock: &Superblock,
    findings: &mut Findings,
) -> Vec<Option<HalfPlace>> {
    let mut halves: Vec<Option<HalfPlace>> = Vec::new();
    for name in HalfName::all(superblock.journals) {
        let word = region.load_u64(name.word_at());
        let read = |word| HalfPlace::read(word, name, superblock);
        let is_shared = |place: HalfPlace| {
            let apart = |other: &HalfPlace| {
                other.start.get().abs_diff(place.start.get()) >= superblock.half_blocks()
            };
            !halves.iter().flatten().all(apart)
        };
        let mut fault = |kind, remedy: String| {
            let detail = format!("half {}: {word:#018x}, {remedy}", name.half);
            findings.fault(Place::Journal(name.journal), kind, detail);
        };
        let place = match read(word) {
            Some(place) if !is_shared(place) => Some(place),
            Some(place) => {
                fault(
                    FaultKind::JournalOverlap,
                    format!("block {} belongs to another", place.start),
                );
                None
            }
            None => {
                let corrected =
                    single_bit::correct_word(word, read).filter(|&(_, place)| !is_shared(place));
                let remedy = match corrected {
                    Some((_, place)) => format!("should be block {}", place.start),
                    None => "needs a new place".to_owned(),
                };
                fault(FaultKind::JournalPointerDamaged, remedy);
                corrected.map(|(word, place)| {
                    findings.plan.word(name.word_at(), word);
                    place
                })
            }
        };
        if place.is_none() {
            findings.plan.lost_halves.push(name);
        }
        halves.push(place);
    }
    halves
}

/// Claims the blocks of all journals.
pub(super) fn claim_own(superblock: &Superblock, state: &State, claims: &Claims) {
    for (name, place) in HalfName::all(superblock.journals).zip(&state.halves) {
        let Some(place) = place else { continue };
        let blocks = (0..superblock.half_blocks()).map(|index| place.start + index);
        for block in blocks.filter(|&block| claims.contains(block)) {
            // Overlaps were reported with the places.
            let _ = claims.claim(block, Owner::Journal(name.journal), Use::Metadata);
        }
    }
    if let Some(seals) = superblock.seals() {
        let blocks = (0..u64::from(seals.blocks)).map(|index| seals.start + index);
        for block in blocks.filter(|&block| claims.contains(block)) {
            // A journal that lies there has a wrong place, which was reported.
            let _ = claims.claim(block, Owner::Seals, Use::Metadata);
        }
    }
}

/// Gives halves of journals that lost their place a new one, among blocks that nobody claims.
pub(super) fn place_halves(
    region: &Arc<Region>,
    superblock: &Superblock,
    claims: &Claims,
    lost: &[HalfName],
) -> bool {
    let geometry = superblock.geometry();
    let domains = Domains::new(Arc::clone(region), geometry);
    let segment_of = |block: BlockNumber| {
        ((block.get() - geometry.header_blocks) / geometry.segment_blocks) as u32
    };
    let domain = |block| {
        let segment = segment_of(block);
        domains.entry(segment).domain(segment)
    };
    let is_usable = |&block: &BlockNumber| {
        matches!(
            domain(block),
            Ok(None | Some(Domain::Metadata | Domain::Mixed))
        )
    };
    let (mut lost, mut run) = (lost.iter().peekable(), 0);
    let mut last = None;
    for block in claims.iter(false).filter(is_usable) {
        let Some(&&name) = lost.peek() else { break };
        let starts_segment =
            (block.get() - geometry.header_blocks).is_multiple_of(geometry.segment_blocks);
        let follows = last.is_some_and(|last: BlockNumber| last + 1 == block) && !starts_segment;
        run = if follows { run + 1 } else { 1 };
        last = Some(block);
        if run < superblock.half_blocks() {
            continue;
        }
        let place = HalfPlace {
            start: BlockNumber::new(block.get() + 1 - run),
            generation: 0,
        };
        if domain(block) == Ok(None) {
            domains.write_assignment(segment_of(block), Some(Domain::Metadata));
        }
        region.fence(region.store_u64(name.word_at(), place.word(name)).flush());
        lost.next();
        (run, last) = (0, None);
    }
    lost.peek().is_none()
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
    // Whether the count is true can only be said with the home.
    let home_end = HOME_MOUNTS_AT + 8 * u64::from(superblock.device_blocks > 0);
    let journals_end = JOURNALS_AT + u64::from(superblock.journals) * 16;
    let inode_end = ROOT_AREA_AT + crate::format::inode::INODE_BYTES as u64;
    let mut ranges = vec![
        (CHECKPOINT_AT + 8, CLEAN_AT),
        (CLEAN_AT + 8, HOME_MOUNTS_AT),
        (home_end, SAVED_AT),
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

/// Whose processes may map each segment, as its entry says: its owner's, if that is not root.
pub(super) fn mappers(region: &Region, geometry: &Geometry) -> Vec<Option<u32>> {
    let mapper = |segment| {
        let entry: SegmentEntry = region.load(geometry.segment_entry(segment));
        match entry.domain(segment) {
            Ok(Some(Domain::Owner { uid, .. })) => Some(uid).filter(|&uid| uid != 0),
            _ => None,
        }
    };
    (0..geometry.segments).map(mapper).collect()
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
        check_content(findings, segment, at, &entry);
    }
}

/// Whose content the segment is said to hold: damaged, or not what its domain allows, it may be anybody's.
fn check_content(findings: &mut Findings, segment: u32, at: Offset, entry: &SegmentEntry) {
    let content = entry.content(segment);
    let is_wrong = match (entry.domain(segment), content) {
        (_, Content::Anybodys) => entry.content != 0,
        (Ok(Some(domain)), content) => content.joined_by(domain) != content,
        (Ok(None) | Err(DamagedEntry), _) => false,
    };
    if is_wrong {
        findings.fault(
            Place::Segment(segment),
            FaultKind::ContentWrong,
            format!("{:#018x}", entry.content),
        );
        findings.plan.word(at + 24, Content::Anybodys.word(segment));
    }
}

fn check_segment(
    scan: &Scan<'_>,
    findings: &mut Findings,
    segment: u32,
    at: Offset,
    entry: &SegmentEntry,
) {
    let uses = scan.claims.uses(segment);
    let has_metadata = uses.include(Use::Metadata);
    let derived = match (uses.include(Use::Data), has_metadata) {
        (false, false) => None,
        (false, true) => Some(Domain::Metadata),
        (true, _) => Some(Domain::Mixed),
    };
    let (kind, domain) = match entry.domain(segment) {
        Ok(None) if derived.is_none() => return,
        Ok(None) => (FaultKind::SegmentUnassigned, derived),
        Ok(Some(Domain::Owner { .. })) if has_metadata => (FaultKind::SegmentMismatch, derived),
        Ok(Some(Domain::Owner { .. })) if uses.include(Use::OthersData) => {
            (FaultKind::SegmentForeign, derived)
        }
        Ok(Some(_)) => return,
        Err(DamagedEntry) => (
            FaultKind::SegmentEntryDamaged,
            corrected(segment, entry)
                .or_else(|| findings.leased_segments.get(&segment).copied().map(Some))
                .filter(|&domain| fits(domain, derived))
                .unwrap_or(derived),
        ),
    };
    findings.fault(
        Place::Segment(segment),
        kind,
        format!("becomes {}", name(domain)),
    );
    if domain == Some(Domain::Mixed) {
        // Direct writes count in segments of their owner only.
        for file in findings.written_directly.clone() {
            let detail =
                format!("segment {segment} has lost its owner; records that name it do not count");
            findings.fault(Place::Inode(file), FaultKind::LeaseRecordsLost, detail);
        }
    }
    let (owner, seal) = domain.map_or((0, 0), |domain| domain.words(segment));
    findings.plan.word(at, owner);
    findings.plan.word(at + 8, seal);
    // What was in it under the owner that it had is not known.
    findings.plan.word(at + 24, Content::Anybodys.word(segment));
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
