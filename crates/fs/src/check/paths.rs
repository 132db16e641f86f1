//! Paths of damaged files: a fault names more than a number.

use super::names::Names;
use crate::format::{FileType, InodeNumber};
use std::collections::{HashMap, HashSet};

/// Most directories of a path. The kernel's paths have fewer, and circles must end.
const DEPTH_MAX: usize = 2048;

/// Where an inode is named.
type Named = HashMap<InodeNumber, (InodeNumber, Vec<u8>)>;

/// Gives every fault that is about an inode the path of it.
pub(super) fn name_faults(names: &mut Names<'_>) {
    let faults = names.findings().report.faults.iter();
    let wanted: HashSet<InodeNumber> = faults.filter_map(|fault| fault.place.inode()).collect();
    if wanted.is_empty() {
        return;
    }
    let mut named = Named::new();
    names.each_name(|directory, name| {
        if wanted.contains(&name.inode) || name.file_type == FileType::Directory {
            named.entry(name.inode).or_insert((directory, name.name));
        }
    });
    for fault in &mut names.findings().report.faults {
        fault.path = fault.place.inode().and_then(|number| path(&named, number));
    }
}

/// The path of an inode; `None` if none leads to it from the root.
fn path(named: &Named, number: InodeNumber) -> Option<String> {
    let mut parts = Vec::new();
    let mut at = number;
    while at != InodeNumber::ROOT {
        let (parent, name) = named.get(&at)?;
        parts.push(name.escape_ascii().to_string());
        at = *parent;
        if parts.len() > DEPTH_MAX {
            return None;
        }
    }
    parts.reverse();
    Some(format!("/{}", parts.join("/")))
}
