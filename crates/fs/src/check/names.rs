//! All names of all directories: records, uniqueness, targets.

use super::context::{DirectoryBlocks, Findings, Inodes, Scan, State};
use super::kind::FaultKind;
use super::records::{self, Name};
use super::report::Place;
use crate::directory::{BLOCK_BYTES, FaultKind as RecordFault};
use crate::format::{FileType, InodeNumber};
use pmem::BlockNumber;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A block of a directory: directory and index.
type Block = (InodeNumber, u64);

/// What shall change in one block of a directory.
#[derive(Default)]
struct Change {
    /// Bytes of names that go.
    remove: Vec<usize>,
    /// Bytes of uncertain names that stay.
    keep: Vec<usize>,
    /// Bytes of names whose type is wrong, and the right one.
    retype: Vec<(usize, FileType)>,
}

/// The second half of the check: names.
pub(super) struct Names<'s> {
    scan: &'s Scan<'s>,
    inodes: &'s mut Inodes,
    findings: &'s mut Findings,
    /// All directories, by number.
    directories: Vec<DirectoryBlocks>,
    /// The name of every directory but the root: block and byte.
    pub(super) directory_names: HashMap<InodeNumber, (Block, usize)>,
    changes: BTreeMap<Block, Change>,
    uncertain: Vec<(Block, Name)>,
}

impl<'s> Names<'s> {
    pub(super) fn new(
        scan: &'s Scan<'s>,
        inodes: &'s mut Inodes,
        findings: &'s mut Findings,
    ) -> Names<'s> {
        let directories = std::mem::take(&mut inodes.directories);
        let (directory_names, changes) = (HashMap::new(), BTreeMap::new());
        Names {
            scan,
            inodes,
            findings,
            directories,
            directory_names,
            changes,
            uncertain: Vec::new(),
        }
    }

    /// Reads every directory; `progress` is called after each.
    pub(super) fn read(&mut self, mut progress: impl FnMut()) {
        let directories = std::mem::take(&mut self.directories);
        for directory in &directories {
            let mut known = HashSet::new();
            for &(index, block) in &directory.blocks {
                self.read_block((directory.number, index), block, &mut known);
            }
            progress();
        }
        self.directories = directories;
        self.settle_uncertain();
    }

    fn read_block(&mut self, place: Block, block: BlockNumber, known: &mut HashSet<Vec<u8>>) {
        let mut bytes = [0; BLOCK_BYTES];
        self.scan.region.read(block.offset(), &mut bytes);
        let parsed = records::parse(place.0, place.1, &mut bytes);
        for (byte, fault, corrected) in parsed.faults {
            let (kind, detail) = match fault {
                RecordFault::Unmerged => (FaultKind::FreeRangesSplit, String::new()),
                _ if corrected => (
                    FaultKind::RecordDamaged,
                    format!("one bit is flipped: {fault}"),
                ),
                _ => (FaultKind::RecordDamaged, fault.to_string()),
            };
            self.fault(place, byte, kind, detail);
            self.change(place);
        }
        for name in parsed.names {
            self.take(place, name, known);
        }
        self.uncertain
            .extend(parsed.uncertain.into_iter().map(|name| (place, name)));
    }

    fn fault(
        &mut self,
        (directory, index): Block,
        byte: usize,
        kind: FaultKind,
        detail: impl Into<String>,
    ) {
        let byte = index * BLOCK_BYTES as u64 + byte as u64;
        self.findings
            .fault(Place::Record { directory, byte }, kind, detail);
    }

    fn change(&mut self, place: Block) -> &mut Change {
        self.changes.entry(place).or_default()
    }

    fn remove(&mut self, place: Block, byte: usize, kind: FaultKind, detail: String) {
        self.fault(place, byte, kind, detail);
        self.change(place).remove.push(byte);
    }

    /// Counts a name for its inode, unless it must go.
    fn take(&mut self, place: Block, name: Name, known: &mut HashSet<Vec<u8>>) {
        let shown = || format!("`{}`, inode {}", name.name.escape_ascii(), name.inode);
        let found = match self.inodes.get(name.inode).map(|summary| summary.state) {
            Some(State::Used(file_type)) => Some(file_type),
            Some(State::Unknown) | None if self.inodes.is_incomplete() => {
                let place = Place::Inode(name.inode);
                self.findings
                    .fault(place, FaultKind::NameUnknown, String::new());
                None
            }
            Some(State::Unknown) => None,
            Some(State::Free) | None => {
                return self.remove(place, name.byte, FaultKind::NameDangling, shown());
            }
        };
        if name.inode == InodeNumber::ROOT {
            return self.remove(place, name.byte, FaultKind::DirectoryNamedTwice, shown());
        }
        if self.findings.exiled.contains(&name.inode) {
            self.change(place).remove.push(name.byte);
            return;
        }
        if known.contains(&name.name) {
            return self.remove(place, name.byte, FaultKind::NameTwice, shown());
        }
        if let Some(file_type) = found.filter(|&found| found != name.file_type) {
            self.fault(place, name.byte, FaultKind::NameType, shown());
            self.change(place).retype.push((name.byte, file_type));
        }
        if found == Some(FileType::Directory) && !self.take_directory(place, &name) {
            return;
        }
        if let Some(summary) = self.inodes.get_mut(name.inode) {
            summary.names = summary.names.saturating_add(1);
        }
        self.findings.report.counts.names += 1;
        known.insert(name.name);
    }

    /// A directory has one name: the one in its parent, else the first. Whether this one stays.
    fn take_directory(&mut self, place: Block, name: &Name) -> bool {
        let Some(&(other, byte)) = self.directory_names.get(&name.inode) else {
            self.directory_names.insert(name.inode, (place, name.byte));
            return true;
        };
        let parent = self
            .inodes
            .get(name.inode)
            .map_or(0, |summary| u64::from(summary.parent));
        let detail = format!("`{}`, inode {}", name.name.escape_ascii(), name.inode);
        if place.0.get() == parent && other.0.get() != parent {
            self.remove(other, byte, FaultKind::DirectoryNamedTwice, detail);
            self.directory_names.insert(name.inode, (place, name.byte));
            // The other one's count becomes this one's.
            return false;
        }
        self.remove(place, name.byte, FaultKind::DirectoryNamedTwice, detail);
        false
    }

    /// Removes the name of a directory.
    pub(super) fn detach(&mut self, number: InodeNumber) {
        if let Some((place, byte)) = self.directory_names.remove(&number) {
            self.change(place).remove.push(byte);
        }
    }

    fn blocks_of(&self, directory: InodeNumber) -> &[(u64, BlockNumber)] {
        let position = self
            .directories
            .binary_search_by_key(&directory, |directory| directory.number);
        position.map_or(&[], |position| &self.directories[position].blocks)
    }

    /// Visits every name that can be read, with its directory.
    pub(super) fn each_name(&self, mut visit: impl FnMut(InodeNumber, Name)) {
        for directory in &self.directories {
            for &(index, block) in &directory.blocks {
                let mut bytes = [0; BLOCK_BYTES];
                self.scan.region.read(block.offset(), &mut bytes);
                let parsed = records::parse(directory.number, index, &mut bytes);
                let names = parsed.names.into_iter().chain(parsed.uncertain);
                names.for_each(|name| visit(directory.number, name));
            }
        }
    }

    /// Whether no name is in the inode, which may be anything.
    pub(super) fn is_empty(&self, number: InodeNumber) -> bool {
        self.blocks_of(number).iter().all(|&(index, block)| {
            let mut bytes = [0; BLOCK_BYTES];
            self.scan.region.read(block.offset(), &mut bytes);
            records::parse(number, index, &mut bytes).names.is_empty()
        })
    }

    /// An uncertain name stays if its inode misses one: then it was not removed, but hidden by the damage.
    fn settle_uncertain(&mut self) {
        let uncertain = std::mem::take(&mut self.uncertain);
        if self.inodes.is_incomplete() {
            // Nobody knows yet: such blocks wait until the table is whole.
            uncertain
                .iter()
                .for_each(|(place, _)| drop(self.changes.remove(place)));
            return;
        }
        for (place, name) in uncertain {
            let Some(summary) = self.inodes.get(name.inode).copied() else {
                continue;
            };
            let misses = match summary.state {
                State::Used(FileType::Directory) => {
                    summary.names == 0 && u64::from(summary.parent) == place.0.get()
                }
                State::Used(_) => summary.names < summary.links,
                _ => false,
            };
            if !misses
                || summary.state != State::Used(name.file_type)
                || name.inode == InodeNumber::ROOT
            {
                continue;
            }
            if let Some(summary) = self.inodes.get_mut(name.inode) {
                summary.names += 1;
            }
            if name.file_type == FileType::Directory {
                self.directory_names.insert(name.inode, (place, name.byte));
            }
            self.findings.report.counts.names += 1;
            self.change(place).keep.push(name.byte);
        }
    }

    /// Links between inodes and directories are known; the rest of the check may use them.
    pub(super) fn inodes(&mut self) -> &mut Inodes {
        self.inodes
    }

    pub(super) fn findings(&mut self) -> &mut Findings {
        self.findings
    }

    /// Plans the new content of all blocks that change.
    pub(super) fn finish(mut self) {
        for (place, change) in std::mem::take(&mut self.changes) {
            let Some(block) = self
                .blocks_of(place.0)
                .iter()
                .find(|(index, _)| *index == place.1)
            else {
                continue;
            };
            let at = block.1.offset();
            let mut bytes = [0; BLOCK_BYTES];
            self.scan.region.read(at, &mut bytes);
            let parsed = records::parse(place.0, place.1, &mut bytes);
            let mut names = parsed.names;
            names.extend(
                parsed
                    .uncertain
                    .into_iter()
                    .filter(|name| change.keep.contains(&name.byte)),
            );
            names.retain(|name| !change.remove.contains(&name.byte));
            names.sort_by_key(|name| name.byte);
            for name in &mut names {
                let retyped = change.retype.iter().find(|(byte, _)| *byte == name.byte);
                name.file_type = retyped.map_or(name.file_type, |(_, file_type)| *file_type);
            }
            self.findings
                .plan
                .bytes(at, records::build(place.0, place.1, &names));
        }
    }
}
