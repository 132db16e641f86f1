//! What the holder of a lease can reach, and how arbitrary bytes become records that get past the first check.

use fs::lease::Grant;
use lease::{NO_SLOT, RECORD_BYTES, RECORDS_PER_BLOCK, Record, Ring, Salt, Spare, Terms, Trust};
use pmem::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Offset, Region, crc32c};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use zerocopy::IntoBytes;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes of one mutation in an input.
pub const MUTATION_BYTES: usize = 12;

/// One change.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Which.
    pub kind: u8,
    /// How.
    pub flags: u8,
    /// Where.
    pub place: u16,
    /// What.
    pub value: u64,
}

impl Mutation {
    /// Those that the bytes describe.
    pub fn all_in(input: &[u8]) -> impl Iterator<Item = Mutation> + '_ {
        input.chunks_exact(MUTATION_BYTES).map(|bytes| Mutation {
            kind: bytes[0],
            flags: bytes[1],
            place: u16::from_le_bytes([bytes[2], bytes[3]]),
            value: u64::from_le_bytes([4, 5, 6, 7, 8, 9, 10, 11].map(|index| bytes[index])),
        })
    }
}

/// What a holder has, and what he thinks that his records have made of it: he knows, because he wrote them.
#[derive(Clone, Debug)]
pub(super) struct Hand {
    ring: Ring,
    salt: Salt,
    /// Number of the next record.
    next: u64,
    size_bytes: u64,
    spares: Vec<Option<BlockNumber>>,
    blocks: BTreeMap<u64, BlockNumber>,
    /// Blocks that hold data: the file's and the spare ones.
    data: BTreeSet<BlockNumber>,
}

impl Hand {
    pub(super) fn new(grant: &Grant, blocks: &BTreeMap<u64, BlockNumber>) -> Hand {
        let mut hand = Hand {
            ring: grant.ring.clone(),
            salt: grant.salt,
            next: grant.next,
            size_bytes: grant.size_bytes,
            spares: Vec::new(),
            blocks: blocks.clone(),
            data: blocks.values().copied().collect(),
        };
        hand.refill(&grant.spares);
        hand
    }

    /// Slots have a block again.
    pub(super) fn refill(&mut self, refilled: &[Spare]) {
        for &Spare { slot, block } in refilled {
            let slot = slot as usize;
            self.spares.resize(self.spares.len().max(slot + 1), None);
            self.spares[slot] = Some(block);
            self.data.insert(block);
        }
    }

    /// Takes over what the records in the ring say: they are honest ones.
    pub(super) fn catch_up(&mut self, region: &Region) {
        let terms = Terms {
            ring: &self.ring,
            salt: self.salt,
            next: self.next,
            spares: &self.spares,
            size_bytes: self.size_bytes,
            size_bytes_max: u64::MAX,
            records_max: self.ring.records(),
        };
        let block_of = |index| Ok::<_, Infallible>(self.blocks.get(&index).copied());
        let Ok(effects) = lease::judge(region, &terms, Trust::All, block_of);
        self.next = effects.next;
        self.size_bytes = effects.size_bytes;
        self.blocks.extend(effects.placed);
        for (slot, block) in effects.slots {
            self.spares[slot as usize] = block;
        }
    }

    /// Whether the block can be one of the file's, whatever the holder writes down.
    pub(super) fn may_hold_data(&self, block: BlockNumber) -> bool {
        self.data.contains(&block)
    }

    /// Whether the holder can store here.
    pub(super) fn reaches(&self, at: usize) -> bool {
        let block = BlockNumber::new((at / BLOCK_BYTES) as u64);
        self.data.contains(&block) || self.ring.blocks().contains(&block)
    }

    /// Does what the holder could do.
    pub(super) fn apply(&mut self, region: &Region, mutation: &Mutation) {
        let Mutation {
            kind,
            flags,
            place,
            value,
        } = *mutation;
        let line = self.ring.place(u64::from(place));
        match kind % 16 {
            // Mostly records that fit what was before.
            0..=8 => {
                let record = self.record(region, mutation);
                self.put(region, record);
            }
            9 | 10 => {
                let mut record = self.record(region, mutation);
                spoil(&mut record, place, value);
                self.put(region, record);
            }
            11 => store(
                region,
                line + u64::from(flags % 8) * 8,
                &value.to_le_bytes(),
            ),
            12 => {
                let mut bytes = [0; RECORD_BYTES];
                region.read(self.ring.place(value), &mut bytes);
                store(region, line, &bytes);
            }
            13 => {
                if let Some(block) = self.data_block(value as usize) {
                    let at = u64::from(place) % (BLOCK - 8);
                    store(region, block.offset() + at, &[flags; 8]);
                }
            }
            14 => {
                self.next = self
                    .next
                    .saturating_sub(u64::from(place) % (2 * RECORDS_PER_BLOCK))
            }
            _ => store(region, line, &[flags; LINE_BYTES]),
        }
    }

    fn data_block(&self, number: usize) -> Option<BlockNumber> {
        self.data
            .iter()
            .nth(number % self.data.len().max(1))
            .copied()
    }

    /// A record that is possible, or nearly so.
    fn record(&self, region: &Region, mutation: &Mutation) -> Record {
        let Mutation { flags, value, .. } = *mutation;
        let slots = self.spares.len() as u64;
        let slot = match value % (slots + 2) {
            slot if slot < slots => slot as u32,
            _ => NO_SLOT,
        };
        let behind_end = self.size_bytes.div_ceil(BLOCK);
        let index = match flags & 3 {
            _ if slot == NO_SLOT => behind_end.saturating_sub(1),
            0 => behind_end,
            _ => (value >> 8) % (behind_end + 2),
        };
        let size = match flags >> 2 & 3 {
            // The end of a block: of this one, or of the one before.
            _ if flags & 0x80 != 0 => (index + (value >> 16 & 1)) * BLOCK,
            _ if index >= behind_end => index * BLOCK + 1 + (value >> 16) % BLOCK,
            0 | 1 => self.size_bytes,
            2 => (index + 1) * BLOCK,
            _ => self.size_bytes + (value >> 16) % BLOCK,
        };
        let data_at = (value >> 32) as u32 % 4096;
        let data_bytes = match flags & 16 {
            0 => 0,
            _ => (value >> 48) as u32 % (4097 - data_at),
        };
        let block = match slot {
            NO_SLOT => self.blocks.get(&index).copied(),
            slot => self.spares[slot as usize],
        };
        let mut data = vec![0; data_bytes as usize];
        if let Some(block) = block {
            region.read(block.offset() + u64::from(data_at), &mut data);
        }
        Record {
            sequence: self.next,
            index,
            size,
            modified: value as i64,
            slot,
            continues: u32::from(flags & 0x60 == 0x60),
            data_at,
            data_bytes,
            // One of eight does not fit.
            data_checksum: crc32c(&data) ^ u32::from(value >> 61 == 0),
            checksum: 0,
            reserved: 0,
        }
    }

    /// Writes a record with the checksum that fits, and goes on behind it.
    fn put(&mut self, region: &Region, record: Record) {
        let record = record.sealed(self.salt);
        store(region, self.ring.place(self.next), record.as_bytes());
        self.next += 1;
        self.size_bytes = self.size_bytes.max(record.size.min(1 << 20));
        let slot = self.spares.get_mut(record.slot as usize);
        if let Some(slot) = slot
            && let Some(block) = *slot
        {
            *slot = self.blocks.insert(record.index, block);
        }
    }
}

/// Gives a field of the record any value, one of four times one of the largest.
fn spoil(record: &mut Record, field: u16, value: u64) {
    let value = match field >> 14 {
        0 => u64::MAX - value % 3,
        _ => value,
    };
    match field % 11 {
        0 => record.sequence = value,
        1 => record.index = value,
        2 => record.size = value,
        3 => record.slot = value as u32,
        4 => record.continues = value as u32,
        5 => record.data_at = value as u32,
        6 => record.data_bytes = value as u32,
        7 => record.index = value % 1024,
        8 => record.size = value % (1 << 22),
        9 => record.reserved = value,
        _ => record.modified = value as i64,
    }
}

fn store(region: &Region, at: Offset, bytes: &[u8]) {
    let _ = region.write_streaming(at, bytes);
}
