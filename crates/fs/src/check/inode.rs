//! One inode: its own bytes, what it owns, what it says of its content.

use super::attributes;
use super::claims::Use;
use super::context::{DirectoryBlocks, Findings, LeaseFound, Scan, State, Summary, Tail};
use super::kind::FaultKind;
use super::map::{MapFound, MapWalk};
use super::owners;
use super::report::Place;
use super::{single_bit, target};
use crate::directory;
use crate::format::inode::{INLINE_BYTES, INODE_BYTES, INODES_PER_BLOCK};
use crate::format::lease::{FLAG_LEASE, RawLease};
use crate::format::map::HEIGHT_MAX;
use crate::format::{
    BLOCK, FILE_BYTES_MAX, FileType, InodeNumber, MODE_PERMISSION_MASK, MODE_TYPE_MASK, Pointer,
    Position, RawInode, SYMLINK_BYTES_MAX,
};
use crate::inode::rights;
use pmem::{BLOCK_BYTES, Offset};
use txn::Domain;
use zerocopy::{FromBytes, IntoBytes};

/// What an inode's bytes turned out to be.
pub(super) enum Examined {
    /// Nothing that can be used; free from now on.
    Free(RawInode),
    /// An inode in use; `certain` says whether its checksum (perhaps after a correction) matches.
    Used {
        raw: RawInode,
        file_type: FileType,
        certain: bool,
    },
}

/// Judges the bytes of inode `number` alone.
pub(super) fn examine(findings: &mut Findings, number: InodeNumber, stored: RawInode) -> Examined {
    let (mut raw, mut certain) = (stored, true);
    if !raw.is_intact(number) {
        let corrected = single_bit::correct(raw.as_mut_bytes(), INODE_BYTES * 8, |bytes| {
            RawInode::read_from_bytes(bytes).is_ok_and(|raw| raw.is_intact(number))
        });
        let plausible = !corrected && is_plausible(&raw, number);
        let (kind, detail) = match (corrected, plausible || raw.is_free()) {
            (true, _) => (FaultKind::InodeChecksum, "one bit is flipped"),
            (false, true) => (FaultKind::InodeChecksum, "the content is plausible"),
            (false, false) => (FaultKind::InodeLost, "wrong checksum, impossible content"),
        };
        findings.fault(Place::Inode(number), kind, detail);
        if kind == FaultKind::InodeLost {
            return Examined::Free(RawInode::ZERO);
        }
        certain = corrected;
    }
    if raw.is_free() {
        let empty = RawInode {
            generation: raw.generation,
            checksum: raw.checksum,
            ..RawInode::ZERO
        };
        if raw != empty && certain {
            findings.fault(
                Place::Inode(number),
                FaultKind::FreeInodeNotEmpty,
                String::new(),
            );
        }
        return Examined::Free(empty);
    }
    match raw.file_type() {
        Some(file_type) => Examined::Used {
            raw,
            file_type,
            certain,
        },
        None => {
            findings.fault(
                Place::Inode(number),
                FaultKind::InodeLost,
                format!("mode {:o} has no known type", raw.mode),
            );
            Examined::Free(RawInode::ZERO)
        }
    }
}

/// Whether an inode with a wrong checksum can be believed: every field that has a check or a range is in order.
fn is_plausible(raw: &RawInode, number: InodeNumber) -> bool {
    let pointer = |word, level| {
        Pointer::read(
            word,
            Position {
                inode: number,
                level,
                index: 0,
            },
        )
        .is_ok()
    };
    raw.file_type().is_some()
        && raw.mode & !(MODE_TYPE_MASK | MODE_PERMISSION_MASK) == 0
        && raw.height <= HEIGHT_MAX
        && (raw.flags == 0 || RawLease::of(raw).is_some())
        && raw.reserved == [0; 3]
        && raw.reserved_words == [0; 5]
        && raw.size <= FILE_BYTES_MAX
        && pointer(raw.root, raw.height)
        && pointer(raw.attributes, Position::ATTRIBUTES)
}

/// Checks the inode at `at`; returns what the second half of the check has to know.
pub(super) fn check(
    scan: &Scan<'_>,
    findings: &mut Findings,
    number: InodeNumber,
    at: Offset,
    stored: RawInode,
) -> (Summary, Option<DirectoryBlocks>) {
    if stored == RawInode::ZERO {
        return free_summary();
    }
    if number == InodeNumber::TABLE {
        findings.fault(
            Place::TableBlock(0),
            FaultKind::FreeInodeNotEmpty,
            "slot 0 is the table's own number",
        );
        findings.plan.inode(number, at, RawInode::ZERO);
        return free_summary();
    }
    let (mut raw, file_type, certain) = match examine(findings, number, stored) {
        Examined::Free(free) => {
            if free != stored || !stored.is_intact(number) {
                findings.plan.inode(number, at, free);
            }
            return free_summary();
        }
        Examined::Used {
            raw,
            file_type,
            certain,
        } => (raw, file_type, certain),
    };
    check_fields(findings, number, &mut raw, file_type);
    let faults = findings.report.faults_total;
    let found = check_map(scan, findings, number, &mut raw, file_type, certain);
    let is_map_whole = findings.report.faults_total == faults;
    if !certain {
        owners::distrust(scan, findings, number, &mut raw, &found);
    }
    if file_type == FileType::Symlink && !target::check(scan, findings, number, &raw, &found) {
        findings.plan.inode(number, at, RawInode::ZERO);
        return free_summary();
    }
    check_tail(scan, findings, number, &raw, &found);
    note_lease(scan, findings, (number, &raw), &found, is_map_whole);
    if file_type == FileType::Directory {
        find_holes(findings, number, &raw, &found);
    }
    let (word, owned) = attributes::check(scan, findings, number, raw.attributes);
    raw.attributes = word;
    check_blocks(findings, number, &mut raw, found.owned + owned);
    if raw != stored || !stored.is_intact(number) {
        findings.plan.inode(number, at, raw);
    }
    match certain {
        true => findings.known.add((raw.uid, raw.gid)),
        false => findings.doubtful.push((number, raw)),
    }
    count(findings, &raw, file_type);
    let summary = Summary {
        state: State::Used(file_type),
        links: raw.links,
        parent: u32::try_from(raw.parent).unwrap_or(0),
        ..Summary::default()
    };
    let blocks = (file_type == FileType::Directory).then_some(DirectoryBlocks {
        number,
        blocks: found.blocks,
    });
    (summary, blocks)
}

/// A free inode, for the second half of the check.
fn free_summary() -> (Summary, Option<DirectoryBlocks>) {
    let state = State::Free;
    let summary = Summary {
        state,
        ..Summary::default()
    };
    (summary, None)
}

/// Fields that must be zero.
pub(super) fn check_fields(
    findings: &mut Findings,
    number: InodeNumber,
    raw: &mut RawInode,
    file_type: FileType,
) {
    let before = *raw;
    raw.mode &= MODE_TYPE_MASK | MODE_PERMISSION_MASK;
    let lease = RawLease::of(raw).filter(|_| file_type == FileType::Regular);
    raw.flags = lease.map_or(0, |_| FLAG_LEASE);
    raw.reserved = [0; 3];
    raw.reserved_words = [0; 5];
    if file_type != FileType::Directory {
        raw.parent = 0;
    }
    let inline = match file_type {
        FileType::Symlink if raw.size <= INLINE_BYTES as u64 => raw.size as usize,
        FileType::Symlink => size_of::<u32>(),
        _ if lease.is_some() => INLINE_BYTES,
        _ => 0,
    };
    raw.inline[inline..].fill(0);
    if *raw != before {
        findings.fault(Place::Inode(number), FaultKind::InodeFields, String::new());
    }
    if let Some(lease) = lease.filter(|lease| lease.ended == 0) {
        findings.leased.push(lease.target);
    }
}

/// Height, size and block map.
pub(super) fn check_map(
    scan: &Scan<'_>,
    findings: &mut Findings,
    number: InodeNumber,
    raw: &mut RawInode,
    file_type: FileType,
    certain: bool,
) -> MapFound {
    check_height(findings, number, raw);
    let is_table = number == InodeNumber::TABLE;
    let is_data = file_type == FileType::Regular && !is_table;
    let rule = SizeRule::of(scan, number, file_type);
    let possible = rule.allows(raw.size) && (certain || !is_table);
    let mut walk = MapWalk {
        scan,
        findings: &mut *findings,
        inode: number,
        purpose: if is_data { Use::Data } else { Use::Metadata },
        // What a lease has are spare blocks, in which is nothing yet.
        user: (is_data && RawLease::of(raw).is_none()).then(|| who_may_write(raw)),
        end_blocks: rule.blocks(raw.size),
        size_is_certain: (certain && possible && !is_table) || !rule.may_grow,
        may_be_unwritten: is_data,
        wanted: raw.size / BLOCK,
        listed: rule.whole_blocks || RawLease::of(raw).is_some(),
        found: MapFound::default(),
    };
    raw.root = walk.visit(raw.root, raw.height, 0);
    let found = walk.found;
    let mapped = found.written_end * BLOCK;
    let size = match (possible, rule.whole_blocks) {
        (false, _) => mapped.min(rule.limit),
        // A directory gives up missing blocks at its end; the table's are searched for.
        (true, true) if !is_table => mapped,
        (true, _) if rule.may_grow && raw.size.div_ceil(BLOCK) < found.written_end => mapped,
        _ => raw.size,
    };
    if size != raw.size {
        let is_hole = possible && size < raw.size;
        let kind = if is_hole {
            FaultKind::DirectoryHole
        } else {
            FaultKind::InodeSize
        };
        let detail = format!("{} bytes, {size} are mapped", raw.size);
        findings.fault(Place::Inode(number), kind, detail);
        raw.size = size;
    }
    found
}

/// The user whose processes may have a file's blocks mapped. A file that gives rights to who executes it must be out of reach of its owner's as well: then that is root only.
fn who_may_write(raw: &RawInode) -> u32 {
    if rights::has_set_id(raw.mode) {
        0
    } else {
        raw.uid
    }
}

/// Which sizes an inode may have.
struct SizeRule {
    file_type: FileType,
    limit: u64,
    /// Only multiples of the block.
    whole_blocks: bool,
    /// Whether blocks behind the end may mean that the size is wrong.
    may_grow: bool,
}

impl SizeRule {
    fn of(scan: &Scan<'_>, number: InodeNumber, file_type: FileType) -> SizeRule {
        let is_table = number == InodeNumber::TABLE;
        let table_blocks = InodeNumber::MAX.get() / INODES_PER_BLOCK;
        SizeRule {
            file_type,
            limit: match file_type {
                FileType::Regular if is_table => scan.claims.blocks().min(table_blocks) * BLOCK,
                FileType::Regular => FILE_BYTES_MAX,
                FileType::Directory => directory::BLOCKS_MAX * BLOCK,
                FileType::Symlink => SYMLINK_BYTES_MAX as u64,
                _ => 0,
            },
            whole_blocks: file_type == FileType::Directory || is_table,
            may_grow: matches!(file_type, FileType::Regular | FileType::Directory),
        }
    }

    fn allows(&self, size: u64) -> bool {
        size <= self.limit && (!self.whole_blocks || size.is_multiple_of(BLOCK))
    }

    /// Blocks of the map that a size covers; the target of a short link is in the inode.
    fn blocks(&self, size: u64) -> u64 {
        match self.file_type {
            FileType::Symlink if size <= INLINE_BYTES as u64 => 0,
            FileType::Regular | FileType::Directory | FileType::Symlink => size.div_ceil(BLOCK),
            _ => 0,
        }
    }
}

/// The root pointer is only valid at the right height, so it tells the height when the field is wrong.
fn check_height(findings: &mut Findings, number: InodeNumber, raw: &mut RawInode) {
    let fits = |height: u8| {
        let position = Position {
            inode: number,
            level: height,
            index: 0,
        };
        matches!(Pointer::read(raw.root, position), Ok(Some(_)))
    };
    if raw.height <= HEIGHT_MAX && (raw.root == 0 || fits(raw.height)) {
        return;
    }
    match (0..=HEIGHT_MAX).find(|&height| fits(height)) {
        Some(height) => {
            findings.fault(
                Place::Inode(number),
                FaultKind::InodeHeight,
                format!("{}, should be {height}", raw.height),
            );
            raw.height = height;
        }
        None if raw.height > HEIGHT_MAX => {
            findings.fault(
                Place::Inode(number),
                FaultKind::InodeHeight,
                format!("{}", raw.height),
            );
            raw.height = 0;
            raw.root = 0;
        }
        // The pointer is damaged, not the height: the walk says so.
        None => {}
    }
}

/// Checks that bytes of the last block beyond the end are zero (R5).
///
/// Skips blocks that processes of the owner may map: a user must not be able to make a pool faulty.
fn check_tail(
    scan: &Scan<'_>,
    findings: &mut Findings,
    number: InodeNumber,
    raw: &RawInode,
    found: &MapFound,
) {
    let used = (raw.size % BLOCK) as usize;
    let wanted = found.wanted.filter(|_| used > 0);
    let Some(block) = wanted.filter(|&block| !scan.is_seen_by_somebody(block)) else {
        return;
    };
    let mut bytes = [0; BLOCK_BYTES];
    scan.region.read(block.offset(), &mut bytes);
    if bytes[used..].iter().any(|&byte| byte != 0) {
        findings.tails.push(Tail {
            inode: number,
            block,
            used,
        });
    }
}

/// A lease that has not ended: its records are looked at when its file is known.
fn note_lease(
    scan: &Scan<'_>,
    findings: &mut Findings,
    (number, raw): (InodeNumber, &RawInode),
    found: &MapFound,
    is_map_whole: bool,
) {
    let Some(words) = RawLease::of(raw).filter(|words| words.ended == 0) else {
        return;
    };
    // Spare blocks lie in segments of the file's owner only.
    let domain = Domain::of_file(raw.mode, raw.uid, raw.gid);
    let is_spare = |index: &u64| (words.first_spare()..words.replaced()).contains(index);
    let spares = found.blocks.iter().filter(|(index, _)| is_spare(index));
    let segments = spares.map(|(_, block)| scan.claims.segment_of(*block) as u32);
    findings
        .leased_segments
        .extend(segments.map(|segment| (segment, domain)));
    let ring = found.blocks.iter();
    let ring = ring.filter(|(index, _)| *index < u64::from(words.ring_blocks));
    findings.leases.push(LeaseFound {
        number,
        raw: *raw,
        words,
        is_map_whole,
        ring: ring.map(|(_, block)| *block).collect(),
    });
}

/// Missing blocks in the middle of a directory.
fn find_holes(findings: &mut Findings, number: InodeNumber, raw: &RawInode, found: &MapFound) {
    let mut expected = 0;
    // The end of the directory stands for one more block behind the last.
    for index in found
        .blocks
        .iter()
        .map(|(index, _)| *index)
        .chain([raw.size / BLOCK])
    {
        for hole in expected..index {
            let place = Place::Record {
                directory: number,
                byte: hole * BLOCK,
            };
            findings.fault(place, FaultKind::DirectoryHole, String::new());
            findings.plan.hole(number, hole);
        }
        expected = index + 1;
    }
}

/// The number of blocks owned.
pub(super) fn check_blocks(
    findings: &mut Findings,
    number: InodeNumber,
    raw: &mut RawInode,
    owned: u64,
) {
    if raw.blocks != owned {
        findings.fault(
            Place::Inode(number),
            FaultKind::BlockCount,
            format!("{}, but {owned} are owned", raw.blocks),
        );
        raw.blocks = owned;
    }
}

fn count(findings: &mut Findings, raw: &RawInode, file_type: FileType) {
    let counts = &mut findings.report.counts;
    counts.inodes += 1;
    match file_type {
        FileType::Directory => counts.directories += 1,
        FileType::Regular => {
            counts.files += 1;
            counts.bytes = counts.bytes.saturating_add(raw.size);
        }
        FileType::Symlink => counts.symlinks += 1,
        _ => counts.others += 1,
    }
}
