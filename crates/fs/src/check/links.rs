//! Names against inodes: links, parents, and whether every directory hangs on the root.

use super::context::{Scan, State};
use super::kind::FaultKind;
use super::names::Names;
use super::report::Place;
use crate::format::{FileType, InodeNumber, RawInode};
use std::collections::HashMap;

/// Compares what inodes say of their names with the names.
pub(super) fn check(scan: &Scan<'_>, names: &mut Names<'_>, is_clean: bool) {
    if names.inodes().is_incomplete() {
        // Names in the missing part may be right: their faults show when the hole is filled.
        return;
    }
    break_cycles(names);
    let children: Vec<InodeNumber> = names
        .directory_names
        .iter()
        .map(|(_, (place, _))| place.0)
        .collect();
    for parent in children {
        if let Some(summary) = names.inodes().get_mut(parent) {
            summary.subdirectories += 1;
        }
    }
    for number in 1..names.inodes().summaries.len() as u64 {
        let number = InodeNumber::new(number);
        check_inode(scan, names, number, is_clean);
    }
}

fn check_inode(scan: &Scan<'_>, names: &mut Names<'_>, number: InodeNumber, is_clean: bool) {
    let Some(summary) = names.inodes().get(number).copied() else {
        return;
    };
    let is_root = number == InodeNumber::ROOT;
    let is_directory = summary.state == State::Used(FileType::Directory);
    if is_root && !is_directory {
        names
            .findings()
            .fault(Place::Inode(number), FaultKind::RootLost, String::new());
        if let Some(at) = names.inodes().offset(number) {
            names.findings().plan.inode(number, at, new_root());
        }
        return;
    }
    let State::Used(_) = summary.state else {
        return;
    };
    let parent = match is_root {
        true => Some(number),
        false => names.directory_names.get(&number).map(|(place, _)| place.0),
    };
    let has_name = if is_directory {
        parent.is_some()
    } else {
        summary.names > 0
    };
    if !has_name && summary.links == 0 && names.is_empty(number) {
        names.findings().report.counts.orphans += 1;
        if is_clean {
            names.findings().fault(
                Place::Inode(number),
                FaultKind::OrphanAfterUnmount,
                String::new(),
            );
        }
        return;
    }
    let links = if is_directory {
        2 + summary.subdirectories
    } else {
        summary.names
    };
    if !has_name && summary.links == 0 {
        names.findings().fault(
            Place::Inode(number),
            FaultKind::OrphanNotEmpty,
            String::new(),
        );
        return change(scan, names, number, |raw| raw.links = links);
    }
    if !has_name {
        names.findings().fault(
            Place::Inode(number),
            FaultKind::InodeUnnamed,
            format!("{} links", summary.links),
        );
        names.findings().plan.lost.push(number);
    } else if summary.links != links {
        let detail = format!("{}, should be {links}", summary.links);
        names
            .findings()
            .fault(Place::Inode(number), FaultKind::LinkCount, detail);
        change(scan, names, number, |raw| raw.links = links);
    }
    if let (true, Some(parent)) = (is_directory, parent)
        && u64::from(summary.parent) != parent.get()
    {
        let detail = format!("{}, should be {parent}", summary.parent);
        names
            .findings()
            .fault(Place::Inode(number), FaultKind::ParentWrong, detail);
        change(scan, names, number, |raw| raw.parent = parent.get());
    }
}

/// The root directory of a pool that lost it.
fn new_root() -> RawInode {
    RawInode {
        mode: FileType::Directory.mode_bits() | 0o755,
        links: 2,
        generation: 1,
        parent: InodeNumber::ROOT.get(),
        ..RawInode::ZERO
    }
}

/// Plans a change of an inode on top of what is planned for it already.
fn change(
    scan: &Scan<'_>,
    names: &mut Names<'_>,
    number: InodeNumber,
    change: impl FnOnce(&mut RawInode),
) {
    let Some(at) = names.inodes().offset(number) else {
        return;
    };
    let mut raw = names
        .findings()
        .plan
        .planned(number)
        .unwrap_or_else(|| scan.region.load(at));
    change(&mut raw);
    names.findings().plan.inode(number, at, raw);
}

/// Takes the lowest directory out of every circle.
fn break_cycles(names: &mut Names<'_>) {
    let mut round = HashMap::new();
    let mut numbers: Vec<InodeNumber> = names.directory_names.keys().copied().collect();
    numbers.sort_unstable();
    for &start in &numbers {
        let mut number = start;
        // Each directory is entered once, so the whole is linear.
        while !round.contains_key(&number) {
            let Some((place, _)) = names.directory_names.get(&number) else {
                break;
            };
            round.insert(number, start);
            number = place.0;
        }
        if round.get(&number) == Some(&start) && names.directory_names.contains_key(&number) {
            let detail = format!("in directory {}", names.directory_names[&number].0.0);
            names
                .findings()
                .fault(Place::Inode(number), FaultKind::DirectoryCycle, detail);
            names.detach(number);
        }
    }
}
