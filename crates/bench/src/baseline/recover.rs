//! Making a file system, and finding it again after a power cut.
//!
//! Recovery rolls the journal back, finishes what the truncate list names, and then walks every block map to make the in-use list anew. Every
//! step can be interrupted and done again.

use std::sync::Arc;

use pmem::{Flushed, Region};

use super::Options;
use super::block_map::{self, Part};
use super::error::{Corruption, FormatError, RecoverError};
use super::in_use::InUseList;
use super::inode_table::{self, InodeTable};
use super::journal::{self, Journal};
use super::layout::{
    BLOCK, CUT_IN_INODE, FileType, Geometry, INODE_BYTES, InodeNumber, JOURNAL_BLOCKS_AT, MAGIC,
    MAGIC_AT, NEXT_IN_INODE, REGION_BLOCKS_AT, REGION_BLOCKS_MIN, Record, TABLE_INODE_AT,
    TABLE_UNIT_BLOCKS_AT, TRUNCATE_HEAD_AT, now_seconds,
};
use super::volume::{Medium, Volume};

/// Writes an empty file system. What makes it one, the superblock's first word, is stored last.
pub(super) fn format(region: Arc<Region>, options: Options) -> Result<Arc<Volume>, FormatError> {
    let geometry = Geometry::of_new(region.length());
    let least = REGION_BLOCKS_MIN.max(geometry.first_block() + 2 * geometry.table_unit_blocks);
    if geometry.region_blocks < least {
        return Err(FormatError::TooSmall {
            bytes: region.length(),
            least_bytes: least * BLOCK,
        });
    }
    region.fence(region.store_u64(MAGIC_AT, 0).flush());
    region.fence(region.zero_streaming(MAGIC_AT, BLOCK));
    let mut in_use = InUseList::new(geometry.first_block(), geometry.region_blocks);
    let mut take = |blocks| {
        in_use.allocate(blocks).ok_or(FormatError::TooSmall {
            bytes: region.length(),
            least_bytes: least * BLOCK,
        })
    };
    let mut batch = Journal::format(&region, &geometry);

    let unit = take(geometry.table_unit_blocks)?;
    let unit_bytes = geometry.table_unit_blocks * BLOCK;
    batch.join(region.zero_streaming(unit.offset(), unit_bytes));
    let table_record = Record {
        root: Some(unit),
        size_bytes: unit_bytes,
        data_blocks: geometry.table_unit_blocks,
        ..Record::new(FileType::Regular, 1, now_seconds())
    };
    batch.join(region.store(TABLE_INODE_AT, &table_record.bytes()).flush());

    let first = take(1)?;
    let root_at = unit.offset() + InodeNumber::ROOT.get() * INODE_BYTES;
    let root_record = Record {
        root: Some(first),
        size_bytes: BLOCK,
        data_blocks: 1,
        ..Record::new(FileType::Directory, 2, now_seconds())
    };
    batch.join(region.store(root_at, &root_record.bytes()).flush());
    batch.join(super::directory::write_first(
        &region,
        first,
        InodeNumber::ROOT,
        InodeNumber::ROOT,
    ));

    for (at, word) in [
        (REGION_BLOCKS_AT, geometry.region_blocks),
        (JOURNAL_BLOCKS_AT, geometry.journal_blocks),
        (TABLE_UNIT_BLOCKS_AT, geometry.table_unit_blocks),
    ] {
        batch.join(region.store_u64(at, word).flush());
    }
    region.fence(batch);
    region.fence(region.store_u64(MAGIC_AT, MAGIC).flush());
    let free = geometry.inodes_per_unit() - 2;
    let table = InodeTable::new(table_record, free);
    Ok(Volume::new(
        Medium { region, geometry },
        options,
        in_use,
        table,
    ))
}

/// Opens the file system of a region, after a power cut or not.
pub(super) fn recover(region: Arc<Region>, options: Options) -> Result<Arc<Volume>, RecoverError> {
    let geometry = Geometry::of_new(region.length());
    if geometry.region_blocks < REGION_BLOCKS_MIN || region.load_u64(MAGIC_AT) != MAGIC {
        return Err(RecoverError::NotFormatted);
    }
    let fits = region.load_u64(REGION_BLOCKS_AT) == geometry.region_blocks
        && region.load_u64(JOURNAL_BLOCKS_AT) == geometry.journal_blocks
        && region.load_u64(TABLE_UNIT_BLOCKS_AT) == geometry.table_unit_blocks;
    if !fits {
        return Err(Corruption::Superblock.into());
    }
    journal::roll_back(&region, &geometry)?;
    let medium = Medium { region, geometry };
    let table_record = medium.record(TABLE_INODE_AT)?;
    finish_truncations(&medium, &table_record)?;
    let usage = Usage::of(&medium, &table_record)?;
    let in_use = InUseList::rebuild(geometry.region_blocks, |block| usage.is_used(block));
    let table = InodeTable::new(table_record, usage.free_inodes);
    Ok(Volume::new(medium, options, in_use, table))
}

/// Removes the files without names and cuts those that were being cut.
fn finish_truncations(medium: &Medium, table_record: &Record) -> Result<(), Corruption> {
    let region = &medium.region;
    let mut next = region.load_u64(TRUNCATE_HEAD_AT);
    let mut steps_left = table_record.size_bytes / INODE_BYTES;
    let mut batch = Flushed::nothing(region);
    while next != 0 {
        steps_left = steps_left.checked_sub(1).ok_or(Corruption::TruncateList)?;
        let number = InodeNumber::new(next);
        let at = inode_table::address(medium, table_record, number)?;
        let mut record = medium.record(at)?;
        if record.file_type.is_some() && record.links == 0 {
            let freed = record.freed(now_seconds());
            batch.join(region.store(at, &freed.bytes()).flush());
        } else if record.file_type.is_some() {
            let cut_to_bytes = region.load_u64(at + CUT_IN_INODE).min(record.size_bytes);
            let cut = block_map::cut(medium, &mut record, cut_to_bytes.div_ceil(BLOCK))?;
            record.size_bytes = cut_to_bytes;
            record.data_blocks = count_data(medium, &record)?;
            batch.join(cut.pointers);
            batch.join(region.store(at, &record.bytes()).flush());
        }
        next = region.load_u64(at + NEXT_IN_INODE);
    }
    region.fence(batch);
    region.fence(region.store_u64(TRUNCATE_HEAD_AT, 0).flush());
    Ok(())
}

/// Blocks of data in a map.
pub(super) fn count_data(medium: &Medium, record: &Record) -> Result<u64, Corruption> {
    let mut blocks = 0;
    block_map::visit(medium, record, &mut |part| {
        blocks += u64::from(matches!(part, Part::Data(_)));
        Ok(())
    })?;
    Ok(blocks)
}

/// What the block maps say is in use.
pub(super) struct Usage {
    blocks: Vec<u64>,
    /// The inodes in use, with their records.
    pub(super) inodes: Vec<(InodeNumber, Record)>,
    pub(super) free_inodes: u64,
}

impl Usage {
    /// Walks every block map.
    pub(super) fn of(medium: &Medium, table_record: &Record) -> Result<Usage, Corruption> {
        let words = medium.geometry.region_blocks.div_ceil(64) as usize;
        let mut usage = Usage {
            blocks: vec![0; words],
            inodes: Vec::new(),
            free_inodes: 0,
        };
        for block in 0..medium.geometry.first_block() {
            usage.mark(medium, block)?;
        }
        usage.mark_map(medium, table_record, medium.geometry.table_unit_blocks)?;
        for number in 1..table_record.size_bytes / INODE_BYTES {
            let number = InodeNumber::new(number);
            let at = inode_table::address(medium, table_record, number)?;
            let record = medium.record(at)?;
            if record.file_type.is_none() {
                usage.free_inodes += 1;
            } else {
                usage.mark_map(medium, &record, 1)?;
                usage.inodes.push((number, record));
            }
        }
        Ok(usage)
    }

    pub(super) fn is_used(&self, block: u64) -> bool {
        self.blocks[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    fn mark_map(
        &mut self,
        medium: &Medium,
        record: &Record,
        unit_blocks: u64,
    ) -> Result<(), Corruption> {
        block_map::visit(medium, record, &mut |part| match part {
            Part::Node(node) => self.mark(medium, node.get()),
            Part::Data(first) => {
                (0..unit_blocks).try_for_each(|index| self.mark(medium, first.get() + index))
            }
        })
    }

    fn mark(&mut self, medium: &Medium, number: u64) -> Result<(), Corruption> {
        if number >= medium.geometry.region_blocks {
            return Err(Corruption::Block { number });
        }
        let word = &mut self.blocks[(number / 64) as usize];
        let bit = 1 << (number % 64);
        if *word & bit != 0 {
            return Err(Corruption::SharedBlock { number });
        }
        *word |= bit;
        Ok(())
    }
}
