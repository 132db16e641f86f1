//! Does everything agree? For tests, and for experiments after a measurement.

use std::collections::{BTreeMap, BTreeSet};

use super::Volume;
use super::cache::{BlockRead, Kind};
use super::error::{Corruption, FsError};
use super::inode::{Inode, record};
use super::journal::Journal;
use super::layout::{BLOCK, FileKind, InodeNumber};
use super::namespace::orphans_in_use;

/// Compares block maps, bitmaps, names and link counts, and looks behind the end of each file.
///
/// Inodes are read from the inode table and from the cache's blocks, not from those in memory.
pub(super) fn verify(volume: &Volume) -> Result<(), FsError> {
    let mut journal = volume.journal.lock();
    // Blocks that were freed are in use in memory until the commit.
    journal.commit()?;
    let mut used = BTreeSet::new();
    let mut names: BTreeMap<InodeNumber, u16> = BTreeMap::from([(InodeNumber::ROOT, 1)]);
    let mut links = Vec::new();
    let orphans: BTreeSet<InodeNumber> = orphans_in_use(&journal)
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    for number in (1..journal.superblock.inodes as u32).map(InodeNumber::new) {
        if !is_marked(&mut journal, number)? {
            continue;
        }
        let inode = Inode::load(&mut journal, number)?;
        let state = inode.state.read();
        for block in state.map.all() {
            if !used.insert(block.get()) {
                let number = block.get();
                return Err(Corruption::SharedBlock { number }.into());
            }
        }
        for (_, named) in state.directory.iter() {
            *names.entry(named.inode).or_insert(0) += 1;
        }
        if inode.kind == FileKind::Regular {
            look_beyond_end(volume, &inode)?;
        }
        links.push((number, record(&journal, number).links));
    }
    for (number, links) in links {
        let names = names.remove(&number).unwrap_or(0);
        let is_open = orphans.contains(&number);
        if links != names || (names == 0) != is_open {
            return Err(Corruption::Links { number, names }.into());
        }
    }
    if let Some(&number) = names.keys().next() {
        return Err(Corruption::Inode { number }.into());
    }
    compare_bitmap(&journal, &used)?;
    Ok(volume.cache.verify().map_err(Corruption::Cache)?)
}

/// Is an inode in use, by the bitmap on the disk and in memory alike?
fn is_marked(journal: &mut Journal, number: InodeNumber) -> Result<bool, FsError> {
    let index = u64::from(number.get());
    let (block, byte, bit) = journal.inodes.place(index);
    let is_marked = journal.content(block)[byte] >> bit & 1 == 1;
    match is_marked == journal.inodes.is_used(index) {
        true => Ok(is_marked),
        false => Err(Corruption::Inode { number }.into()),
    }
}

fn look_beyond_end(volume: &Volume, inode: &Inode) -> Result<(), FsError> {
    let state = inode.state.read();
    let used = (state.size_bytes % BLOCK) as usize;
    let Some(block) = state.map.get((state.size_bytes / BLOCK) as usize) else {
        return Ok(());
    };
    if used == 0 {
        return Ok(());
    }
    let mut tail = vec![0; BLOCK as usize - used];
    let request = BlockRead {
        block,
        at: used,
        into: &mut tail,
    };
    volume.cache.read(Kind::Data, &mut [request])?;
    match tail.iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => Err(Corruption::Tail {
            number: inode.number,
        }
        .into()),
    }
}

fn compare_bitmap(journal: &Journal, used: &BTreeSet<u64>) -> Result<(), Corruption> {
    for number in 0..journal.superblock.disk_blocks {
        let (block, byte, bit) = journal.blocks.place(number);
        let is_marked = journal.content(block)[byte] >> bit & 1 == 1;
        let is_used = number < journal.superblock.data_at || used.contains(&number);
        if is_marked != is_used || is_marked != journal.blocks.is_used(number) {
            return Err(Corruption::BlockBitmap { number, is_marked });
        }
    }
    Ok(())
}
