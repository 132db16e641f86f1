//! Extended attributes: pointer, header, blob.

use super::claims::{Owner, Use};
use super::context::{Findings, Scan};
use super::kind::FaultKind;
use super::map::{Read, read_pointer};
use super::report::Place;
use super::single_bit;
use crate::format::xattr::{self, AttributeHeader, BLOB_BLOCKS_MAX, HEADER_BYTES};
use crate::format::{InodeNumber, Pointer, Position};
use pmem::{BLOCK_BYTES, BlockNumber, Offset};
use txn::checksum::crc32c;
use zerocopy::{FromBytes, IntoBytes};

/// Checks the attributes that `word` points to. Returns the word that should stand there and the blocks owned.
pub(super) fn check(
    scan: &Scan<'_>,
    findings: &mut Findings,
    number: InodeNumber,
    word: u64,
) -> (u64, u64) {
    let mut check = Check {
        scan,
        findings,
        number,
        owned: 0,
    };
    match check.run(word) {
        Ok(word) => (word, check.owned),
        Err(detail) => {
            check.fault(detail);
            (0, 0)
        }
    }
}

struct Check<'s, 'f> {
    scan: &'s Scan<'s>,
    findings: &'f mut Findings,
    number: InodeNumber,
    owned: u64,
}

/// What cannot be corrected, in words.
type Lost = String;

impl Check<'_, '_> {
    fn fault(&mut self, detail: impl Into<String>) {
        self.findings.fault(
            Place::Attributes(self.number),
            FaultKind::AttributesDamaged,
            detail,
        );
    }

    fn run(&mut self, word: u64) -> Result<u64, Lost> {
        let Some((word, root)) = self.pointer(word, 0)? else {
            return Ok(0);
        };
        let header: AttributeHeader = self.scan.region.load(root.offset());
        let header = self.header(root, header)?;
        let mut places = Vec::new();
        if header.blocks == 0 {
            places.push(root.offset() + HEADER_BYTES as u64);
        }
        for index in 0..u64::from(header.blocks) {
            let at = root.offset() + HEADER_BYTES as u64 + index * 8;
            let stored = self.scan.region.load_u64(at);
            let (should, block) = self
                .pointer(stored, index + 1)?
                .ok_or("a pointer is missing")?;
            if should != stored {
                self.findings.plan.word(at, should);
            }
            places.push(block.offset());
        }
        self.blob(root, &header, &places)?;
        Ok(word)
    }

    /// Reads and claims the block of pointer `index`.
    fn pointer(&mut self, word: u64, index: u64) -> Result<Option<(u64, BlockNumber)>, Lost> {
        let position = Position {
            inode: self.number,
            level: Position::ATTRIBUTES,
            index,
        };
        let (mut word, pointer) = match read_pointer(self.scan, word, position, false) {
            Read::Hole => return Ok(None),
            Read::Sound(pointer) => (word, pointer),
            Read::Corrected(word, pointer) => {
                let block = pointer.memory().map_or(0, BlockNumber::get);
                self.fault(format!(
                    "one bit of pointer {index} is flipped; it points to block {block}"
                ));
                (word, pointer)
            }
            Read::Damaged => return Err(format!("pointer {index} is damaged: {word:#018x}")),
        };
        let block = match pointer {
            Pointer::Written(block) => block,
            Pointer::Unwritten(block) => {
                self.fault(format!("pointer {index} is marked unwritten"));
                word = Pointer::Written(block).word(position);
                block
            }
            Pointer::Device(_) => return Err(format!("pointer {index} leads to the device")),
        };
        let claims = self.scan.claims;
        let claim = claims.claim(block, Owner::Inode(self.number), Use::Metadata);
        claim.map_err(|taken| {
            let other = taken
                .0
                .map(|owner| format!(", which {owner} has"))
                .unwrap_or_default();
            format!("pointer {index} leads to block {block}{other}")
        })?;
        self.owned += 1;
        Ok(Some((word, block)))
    }

    /// The header, with a flipped bit corrected if it makes no sense as it is.
    fn header(
        &mut self,
        root: BlockNumber,
        header: AttributeHeader,
    ) -> Result<AttributeHeader, Lost> {
        if is_sensible(&header) {
            return Ok(header);
        }
        let corrected = self
            .correct_header(root, &header)
            .ok_or("the header makes no sense")?;
        self.fault("one bit of the header is flipped");
        self.findings
            .plan
            .bytes(root.offset(), corrected.as_bytes().to_vec());
        Ok(corrected)
    }

    /// The header that differs in one bit and whose blob has the right checksum.
    fn correct_header(
        &self,
        root: BlockNumber,
        header: &AttributeHeader,
    ) -> Option<AttributeHeader> {
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(header.as_bytes());
        let fits = |bytes: &[u8]| {
            AttributeHeader::read_from_bytes(bytes)
                .is_ok_and(|header| is_sensible(&header) && self.fits(root, &header))
        };
        if !single_bit::correct(&mut bytes, HEADER_BYTES * 8, fits) {
            return None;
        }
        AttributeHeader::read_from_bytes(&bytes[..]).ok()
    }

    /// Whether the blob that the header describes has its checksum. Claims nothing.
    fn fits(&self, root: BlockNumber, header: &AttributeHeader) -> bool {
        let inline = root.offset() + HEADER_BYTES as u64;
        let mut places = if header.blocks == 0 {
            vec![inline]
        } else {
            Vec::new()
        };
        for index in 0..u64::from(header.blocks) {
            let position = Position {
                inode: self.number,
                level: Position::ATTRIBUTES,
                index: index + 1,
            };
            let word = self.scan.region.load_u64(inline + index * 8);
            match Pointer::read_metadata(word, position) {
                Ok(Some(block)) if self.scan.claims.contains(block) => places.push(block.offset()),
                _ => return false,
            }
        }
        crc32c(&self.read(&places, header.length as usize)) == header.checksum
    }

    fn read(&self, places: &[Offset], length: usize) -> Vec<u8> {
        let mut blob = vec![0; length];
        for (part, at) in blob.chunks_mut(BLOCK_BYTES).zip(places) {
            self.scan.region.read(*at, part);
        }
        blob
    }

    /// Checks the blob, corrects one flipped bit in it or in its header.
    fn blob(
        &mut self,
        root: BlockNumber,
        header: &AttributeHeader,
        places: &[Offset],
    ) -> Result<(), Lost> {
        let mut blob = self.read(places, header.length as usize);
        let difference = crc32c(&blob) ^ header.checksum;
        if difference != 0 {
            if let Some(bit) = single_bit::locate(blob.len(), difference) {
                blob[bit / 8] ^= 1 << (bit % 8);
                let at = places[bit / 8 / BLOCK_BYTES] + (bit / 8 % BLOCK_BYTES) as u64;
                self.findings.plan.bytes(at, vec![blob[bit / 8]]);
            } else if difference.is_power_of_two() {
                self.findings
                    .plan
                    .bytes(root.offset(), crc32c(&blob).to_le_bytes().to_vec());
            } else {
                let header = self
                    .correct_header(root, header)
                    .ok_or("the checksum does not match")?;
                self.findings
                    .plan
                    .bytes(root.offset(), header.as_bytes().to_vec());
            }
            self.fault("one bit is flipped");
            return Ok(());
        }
        let attributes = xattr::decode(&blob).ok_or("they cannot be read")?;
        let mut names: Vec<&[u8]> = attributes.iter().map(|(name, _)| name.as_slice()).collect();
        names.sort_unstable();
        let twice = names.windows(2).any(|pair| pair[0] == pair[1]);
        let sizes = attributes.iter().all(|(name, value)| {
            (1..=xattr::NAME_BYTES_MAX).contains(&name.len())
                && value.len() <= xattr::VALUE_BYTES_MAX
        });
        if twice || !sizes {
            Err("a name or value is impossible".into())
        } else {
            Ok(())
        }
    }
}

fn is_sensible(header: &AttributeHeader) -> bool {
    let length = header.length as usize;
    let blocks = if length <= BLOCK_BYTES - HEADER_BYTES {
        0
    } else {
        length.div_ceil(BLOCK_BYTES)
    };
    header.reserved == 0
        && header.blocks as usize == blocks
        && blocks <= BLOB_BLOCKS_MAX
        && length > 0
}
