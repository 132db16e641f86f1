//! The walk over a block map that takes whatever it finds.
//!
//! It ends on any bytes: a map has at most four levels, and a node is entered only by who claims its block first.

use super::claims::{Owner, Taken, Use};
use super::context::{Findings, Scan};
use super::kind::FaultKind;
use super::report::Place;
use super::single_bit;
use crate::format::map::{FANOUT_BITS, capacity};
use crate::format::{InodeNumber, Pointer, Position};
use pmem::{BLOCK_BYTES, BlockNumber};

/// What a walk needs to know of the file.
pub(super) struct MapWalk<'s, 'f> {
    pub(super) scan: &'s Scan<'s>,
    pub(super) findings: &'f mut Findings,
    pub(super) inode: InodeNumber,
    pub(super) purpose: Use,
    /// Whose data it is; `None` if that is nothing that another user may not see.
    pub(super) user: Option<u32>,
    /// Blocks of the file, as its size says.
    pub(super) end_blocks: u64,
    /// Whether the size is certain: if not, written blocks behind it make the file longer.
    pub(super) size_is_certain: bool,
    /// Whether blocks may be unwritten (regular files only).
    pub(super) may_be_unwritten: bool,
    /// The file block that the caller wants to look at.
    pub(super) wanted: u64,
    /// Whether the blocks are to be listed.
    pub(super) listed: bool,
    pub(super) found: MapFound,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct MapFound {
    /// Blocks that the map owns, nodes included.
    pub(super) owned: u64,
    /// One more than the last written block of the file.
    pub(super) written_end: u64,
    /// One more than the last block of the file, unwritten ones included.
    pub(super) mapped_end: u64,
    /// The first written block of data.
    pub(super) data_block: Option<BlockNumber>,
    /// The wanted block, if it is written.
    pub(super) wanted: Option<BlockNumber>,
    /// All blocks by index in the file, if they were to be listed.
    pub(super) blocks: Vec<(u64, BlockNumber)>,
}

impl MapWalk<'_, '_> {
    /// Walks from `word`, a pointer of `level` to the file blocks from `first` on. Returns the word that should stand there.
    pub(super) fn visit(&mut self, word: u64, level: u8, first: u64) -> u64 {
        let position = Position {
            inode: self.inode,
            level,
            index: first >> (FANOUT_BITS * u32::from(level)),
        };
        let Some((mut word, mut pointer)) = self.read(word, position) else {
            return 0;
        };
        if let Pointer::Unwritten(block) = pointer
            && (level > 0 || !self.may_be_unwritten)
        {
            self.fault(position, FaultKind::PointerFlag, String::new());
            pointer = Pointer::Written(block);
            word = pointer.word(position);
        }
        let is_written = !matches!(pointer, Pointer::Unwritten(_));
        if level == 0 && first >= self.end_blocks && self.size_is_certain && is_written {
            let detail = describe(pointer);
            self.fault(position, FaultKind::DataBeyondEnd, detail);
            return 0;
        }
        if let Err(taken) = self.claim(pointer, level) {
            let other = taken
                .0
                .map(|owner| format!(", which {owner} has"))
                .unwrap_or_default();
            let detail = format!("{}{other}", describe(pointer));
            self.fault(position, FaultKind::BlockShared, detail);
            return 0;
        }
        self.found.owned += 1;
        if level == 0 {
            self.note_data(first, pointer);
        } else if let Some(node) = pointer.memory() {
            self.visit_node(node, level - 1, first);
        }
        word
    }

    fn claim(&self, pointer: Pointer, level: u8) -> Result<(), Taken> {
        let owner = Owner::Inode(self.inode);
        let block = match pointer {
            Pointer::Device(block) => return self.scan.claims.claim_on_device(block, owner),
            Pointer::Written(block) | Pointer::Unwritten(block) => block,
        };
        let is_others = |user| self.scan.is_seen_by_others(block, user);
        let purpose = match level {
            0 if self.user.is_some_and(is_others) => Use::OthersData,
            0 => self.purpose,
            _ => Use::Metadata,
        };
        self.scan.claims.claim(block, owner, purpose)
    }

    /// Notes block `index` of the file.
    fn note_data(&mut self, index: u64, pointer: Pointer) {
        let found = &mut self.found;
        found.mapped_end = found.mapped_end.max(index + 1);
        if let Some(block) = pointer.memory().filter(|_| self.listed) {
            found.blocks.push((index, block));
        }
        match pointer {
            Pointer::Unwritten(_) => {}
            Pointer::Device(_) => found.written_end = found.written_end.max(index + 1),
            Pointer::Written(block) => {
                found.data_block.get_or_insert(block);
                found.written_end = found.written_end.max(index + 1);
                if index == self.wanted {
                    found.wanted = Some(block);
                }
            }
        }
    }

    /// Visits the pointers of a node; they have `level`.
    fn visit_node(&mut self, node: BlockNumber, level: u8, first: u64) {
        let mut bytes = [0; BLOCK_BYTES];
        self.scan.region.read(node.offset(), &mut bytes);
        for (slot, bytes) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*bytes);
            if word == 0 {
                continue;
            }
            let should = self.visit(word, level, first + slot as u64 * capacity(level));
            if should != word {
                self.findings
                    .plan
                    .word(node.offset() + slot as u64 * 8, should);
            }
        }
    }

    /// Reads a pointer, corrected if need be. `None` is a hole.
    fn read(&mut self, word: u64, position: Position) -> Option<(u64, Pointer)> {
        let is_data = position.level == 0 && self.may_be_unwritten;
        match read_pointer(self.scan, word, position, is_data) {
            Read::Hole => None,
            Read::Sound(pointer) => Some((word, pointer)),
            Read::Corrected(word, pointer) => {
                let detail = format!("one bit is flipped; it points to {}", describe(pointer));
                self.fault(position, FaultKind::PointerDamaged, detail);
                Some((word, pointer))
            }
            Read::Damaged => {
                self.fault(position, FaultKind::PointerDamaged, format!("{word:#018x}"));
                None
            }
        }
    }

    fn fault(&mut self, position: Position, kind: FaultKind, detail: String) {
        let Position {
            inode,
            level,
            index,
        } = position;
        self.findings.fault(
            Place::Pointer {
                inode,
                level,
                index,
            },
            kind,
            detail,
        );
    }
}

/// What a pointer's word turned out to be.
pub(super) enum Read {
    Hole,
    Sound(Pointer),
    /// One bit was flipped; the word without the flip.
    Corrected(u64, Pointer),
    Damaged,
}

/// The block that a pointer names.
fn describe(pointer: Pointer) -> String {
    match pointer {
        Pointer::Written(block) | Pointer::Unwritten(block) => format!("block {block}"),
        Pointer::Device(block) => format!("block {block} of the device"),
    }
}

/// Reads a pointer that must lead into the pool: to its memory, or, if it `is_data`, to its device.
pub(super) fn read_pointer(scan: &Scan<'_>, word: u64, position: Position, is_data: bool) -> Read {
    let has_place = |pointer| match pointer {
        Pointer::Written(block) | Pointer::Unwritten(block) => scan.claims.contains(block),
        Pointer::Device(block) => is_data && scan.claims.contains_on_device(block),
    };
    match Pointer::read(word, position) {
        Ok(None) => return Read::Hole,
        Ok(Some(pointer)) if has_place(pointer) => return Read::Sound(pointer),
        _ => {}
    }
    // A pointer's check has its lowest bit set, so a single bit can only come from a hole.
    if word.is_power_of_two() {
        return Read::Damaged;
    }
    let is_claimed = |pointer| match pointer {
        Pointer::Written(block) | Pointer::Unwritten(block) => scan.claims.is_claimed(block),
        Pointer::Device(block) => scan.claims.is_claimed_on_device(block),
    };
    let inside = |word| match Pointer::read(word, position) {
        Ok(Some(pointer)) if has_place(pointer) && !is_claimed(pointer) => Some(pointer),
        _ => None,
    };
    single_bit::correct_word(word, inside).map_or(Read::Damaged, |(word, pointer)| {
        Read::Corrected(word, pointer)
    })
}
