//! The records of one directory block, corrected and rebuilt.

use super::single_bit;
use crate::directory::{
    self, BLOCK_BYTES, DentryOffset, Entry, FaultKind as RecordFault, NAME_BYTES_MAX, Record,
    UNIT_BYTES, record_bytes,
};
use crate::format::{FileType, InodeNumber};

/// A name as it stands in a block.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Name {
    /// Byte in the block.
    pub(super) byte: usize,
    pub(super) inode: InodeNumber,
    pub(super) file_type: FileType,
    pub(super) name: Vec<u8>,
}

/// What a block holds.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Names whose place in the chain of records is certain.
    pub(super) names: Vec<Name>,
    /// Names found behind a record of unknown length. They may have been removed before: free ranges keep old bytes.
    pub(super) uncertain: Vec<Name>,
    /// Faults: byte in the block, what is wrong, whether a flipped bit was corrected.
    pub(super) faults: Vec<(usize, RecordFault, bool)>,
}

/// Reads all records of a block.
pub(super) fn parse(directory: InodeNumber, index: u64, block: &mut [u8; BLOCK_BYTES]) -> Parsed {
    let mut parsed = Parsed::default();
    let (mut at, mut after_free, mut is_certain) = (0, false, true);
    while at < BLOCK_BYTES {
        let offset = DentryOffset::new(index, at / UNIT_BYTES);
        match directory::decode(directory, offset, &block[at..]) {
            Ok((record, length)) => {
                let is_free = matches!(record, Record::Free { .. });
                if is_free && after_free {
                    parsed.faults.push((at, RecordFault::Unmerged, true));
                }
                if let Record::Entry(Entry {
                    inode,
                    file_type,
                    name,
                    ..
                }) = record
                {
                    let name = Name {
                        byte: at,
                        inode,
                        file_type,
                        name: name.to_vec(),
                    };
                    if is_certain {
                        &mut parsed.names
                    } else {
                        &mut parsed.uncertain
                    }
                    .push(name);
                }
                after_free = is_free;
                at += length;
            }
            Err(fault) => {
                if correct(directory, offset, &mut block[at..]) {
                    parsed.faults.push((at, fault, true));
                    continue;
                }
                parsed.faults.push((at, fault, false));
                let length = usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
                let next = at + length;
                let follows = length > 0
                    && length.is_multiple_of(UNIT_BYTES)
                    && chain_ends(directory, index, block, next);
                (at, is_certain) = if follows {
                    (next, is_certain)
                } else {
                    (resume(directory, index, block, at), false)
                };
                after_free = false;
            }
        }
    }
    parsed
}

/// Corrects one flipped bit of the record that starts at `bytes`.
fn correct(directory: InodeNumber, offset: DentryOffset, bytes: &mut [u8]) -> bool {
    let reach = bytes.len().min(record_bytes(NAME_BYTES_MAX));
    single_bit::correct(bytes, reach * 8, |bytes| {
        directory::decode(directory, offset, bytes).is_ok()
    })
}

/// Whether records follow one another from byte `at` to the end of the block.
fn chain_ends(
    directory: InodeNumber,
    index: u64,
    block: &[u8; BLOCK_BYTES],
    mut at: usize,
) -> bool {
    while at < BLOCK_BYTES {
        match directory::decode(
            directory,
            DentryOffset::new(index, at / UNIT_BYTES),
            &block[at..],
        ) {
            Ok((_, length)) => at += length,
            Err(_) => return false,
        }
    }
    at == BLOCK_BYTES
}

/// The first record behind byte `at` that can be read.
fn resume(directory: InodeNumber, index: u64, block: &[u8; BLOCK_BYTES], at: usize) -> usize {
    let units = (at / UNIT_BYTES + 1)..(BLOCK_BYTES / UNIT_BYTES);
    let is_record = |unit: &usize| {
        directory::decode(
            directory,
            DentryOffset::new(index, *unit),
            &block[unit * UNIT_BYTES..],
        )
        .is_ok()
    };
    units
        .clone()
        .find(is_record)
        .map_or(BLOCK_BYTES, |unit| unit * UNIT_BYTES)
}

/// A block with exactly these names, each where it was; the rest is free.
pub(super) fn build(directory: InodeNumber, index: u64, names: &[Name]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut end = 0;
    for name in names {
        fill_free(directory, index, &mut block, end, name.byte);
        let offset = DentryOffset::new(index, name.byte / UNIT_BYTES);
        let entry = Entry {
            offset,
            inode: name.inode,
            file_type: name.file_type,
            name: &name.name,
        };
        end = name.byte + record_bytes(name.name.len());
        directory::write_dentry(directory, &entry, &mut block[name.byte..end]);
    }
    fill_free(directory, index, &mut block, end, BLOCK_BYTES);
    block
}

fn fill_free(directory: InodeNumber, index: u64, block: &mut [u8], start: usize, end: usize) {
    if start < end {
        let header = directory::free_header(
            directory,
            DentryOffset::new(index, start / UNIT_BYTES),
            end - start,
        );
        block[start..start + header.len()].copy_from_slice(&header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: InodeNumber = InodeNumber::new(9);

    fn block() -> [u8; BLOCK_BYTES] {
        let name = |byte, inode, name: &[u8]| Name {
            byte,
            inode: InodeNumber::new(inode),
            file_type: FileType::Regular,
            name: name.to_vec(),
        };
        let names = [
            name(0, 5, b"first"),
            name(64, 6, b"second"),
            name(88, 7, &[b'x'; 255]),
        ];
        build(DIRECTORY, 3, &names).try_into().expect("a block")
    }

    #[test]
    fn what_is_built_reads_back() {
        let mut block = block();
        let parsed = parse(DIRECTORY, 3, &mut block);
        assert!(parsed.faults.is_empty() && parsed.uncertain.is_empty());
        assert_eq!(build(DIRECTORY, 3, &parsed.names), block);
        assert!(directory::records(&block, 3, DIRECTORY).all(|record| record.is_ok()));
    }

    #[test]
    fn every_flipped_bit_of_every_record_is_corrected() {
        let block = block();
        // First record, the free range behind it (header only: the rest is not covered), second, long one.
        let covered = (0..24)
            .chain(24..32)
            .chain(64..88)
            .chain(88..88 + 272)
            .chain(360..368);
        for byte in covered {
            for bit in 0..8 {
                let mut copy = block;
                copy[byte] ^= 1 << bit;
                let parsed = parse(DIRECTORY, 3, &mut copy);
                assert_eq!(parsed.faults.len(), 1, "byte {byte} bit {bit}");
                assert_eq!(copy, block, "byte {byte} bit {bit}");
                assert_eq!(parsed.names.len(), 3);
            }
        }
    }

    #[test]
    fn behind_a_record_of_unknown_length_names_are_uncertain() {
        let mut block = block();
        block[64..72].fill(0xff);
        let parsed = parse(DIRECTORY, 3, &mut block);
        assert_eq!(parsed.names.len(), 1);
        assert_eq!(parsed.uncertain.len(), 1);
        assert_eq!(parsed.uncertain[0].byte, 88);
    }
}
