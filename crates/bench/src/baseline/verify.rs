//! Does everything agree? For tests and for experiments that want to be sure of what they measured.

use std::collections::HashMap;

use super::directory;
use super::error::Corruption;
use super::layout::{BLOCK, FileType, InodeNumber};
use super::recover::{Usage, count_data};
use super::volume::Volume;

/// Compares block maps, in-use list, names and link counts. Nobody may change anything meanwhile.
pub(super) fn verify(volume: &Volume) -> Result<(), Corruption> {
    let medium = &volume.medium;
    let table_record = *volume.table.lock().record();
    let usage = Usage::of(medium, &table_record)?;
    compare_in_use_list(volume, &usage)?;
    let believed = volume.table.lock().free();
    if believed != usage.free_inodes {
        return Err(Corruption::FreeInodes {
            believed,
            counted: usage.free_inodes,
        });
    }
    let mut names = count_names(volume, &usage)?;
    let mut nameless = 0;
    for (number, record) in &usage.inodes {
        let found = names.remove(number).unwrap_or(0);
        nameless += usize::from(found == 0);
        if record.links != found {
            return Err(Corruption::Links {
                number: *number,
                links: record.links,
                names: found,
            });
        }
        let data_blocks = count_data(medium, record)?;
        if data_blocks != record.data_blocks || data_blocks > record.size_bytes.div_ceil(BLOCK) {
            let at = volume.table.lock().address(medium, *number)?;
            return Err(Corruption::Inode { at });
        }
    }
    if let Some(&number) = names.keys().next() {
        return Err(Corruption::NoInode { number });
    }
    match volume.truncations.lock().len() == nameless {
        true => Ok(()),
        false => Err(Corruption::TruncateList),
    }
}

fn compare_in_use_list(volume: &Volume, usage: &Usage) -> Result<(), Corruption> {
    let end = volume.medium.geometry.region_blocks;
    let in_use = volume.in_use.lock();
    let mut next = 0;
    let mut expect = |until: u64, is_listed: bool| {
        let wrong = (next..until).find(|&number| usage.is_used(number) != is_listed);
        next = until;
        match wrong {
            Some(number) => Err(Corruption::InUseList { number, is_listed }),
            None => Ok(()),
        }
    };
    for (low, high) in in_use.iter() {
        expect(low, false)?;
        expect(high + 1, true)?;
    }
    expect(end, false)
}

/// How many entries lead to each inode; `.` and `..` are counted as link counts have them.
fn count_names(volume: &Volume, usage: &Usage) -> Result<HashMap<InodeNumber, u16>, Corruption> {
    let mut names = HashMap::new();
    for (_, record) in &usage.inodes {
        if record.file_type == Some(FileType::Directory) {
            for entry in directory::entries(&volume.medium, record)? {
                *names.entry(entry.inode).or_insert(0) += 1;
            }
        }
    }
    Ok(names)
}
