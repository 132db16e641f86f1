//! Looks at a pool without writing to it.

use super::report::{Fault, Report};
use crate::failure::{Failure, status_of_open};
use fs::{FileSystem, FileType, FsError, MountOptions, Node};
use std::path::Path;
use txn::{Mode, OpenError, PmemStore};

/// Everything that is wrong with the pool; an error if it cannot be looked at.
pub(super) fn examine(pool: &Path) -> Result<Report, Failure> {
    let mut report = Report::new(pool);
    let opened = PmemStore::open(pool, Mode::ReadOnly, true).and_then(|store| {
        report.class = Some(if store.superblock().is_volatile() { "volatile" } else { "dax" }.to_owned());
        report.closed = Some(store.was_clean());
        report.journal_records = Some(store.recovered_records());
        FileSystem::mount(store, MountOptions { read_only: true, ..MountOptions::default() })
    });
    match opened {
        Ok(filesystem) => walk(&filesystem, &mut report),
        Err(error) => report.add(fault_of_open(pool, error)?),
    }
    Ok(report)
}

/// A pool that is damaged as a whole; an error if it is something else.
fn fault_of_open(pool: &Path, error: OpenError) -> Result<Fault, Failure> {
    let fault = |place: String, fault: String, remedy: &str| Fault {
        place,
        fault,
        consequence: "the pool cannot be mounted".to_owned(),
        remedy: remedy.to_owned(),
        repairable: false,
        repaired: false,
    };
    match error {
        OpenError::MissingSegment { path } => {
            Ok(fault(path.display().to_string(), "the segment file is missing".to_owned(), "restore the file"))
        }
        OpenError::Truncated { path, expected, found } => {
            let text = format!("truncated: {found} bytes instead of {expected}");
            Ok(fault(path.display().to_string(), text, "restore the file from a copy"))
        }
        OpenError::Superblocks { path, first, second } => {
            let text = format!("both superblocks are damaged: {first}; {second}");
            Ok(fault(path.display().to_string(), text, "restore the pool from a copy"))
        }
        OpenError::Corrupt(corruption) => Ok(fault(corruption.object, corruption.detail, "restore the pool from a copy")),
        error => {
            let status = status_of_open(&error);
            Err(Failure::from(perdure::Error::Open { pool: pool.to_owned(), source: error }).with_status(status))
        }
    }
}

fn walk(filesystem: &FileSystem, report: &mut Report) {
    let mut buffer = vec![0; 1 << 20];
    let mut pending = vec![filesystem.root()];
    while let Some(directory) = pending.pop() {
        report.counts.directories += 1;
        let mut children = Vec::new();
        let listed = filesystem.read_directory(&directory, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                children.push(entry.inode);
            }
            true
        });
        note(report, listed, "the names after it in this directory cannot be listed");
        for number in children {
            let Some(node) = note(report, filesystem.node(number), "this file cannot be opened") else { continue };
            match filesystem.attributes(&node).map(|attributes| attributes.file_type()) {
                Ok(FileType::Directory) => pending.push(node),
                Ok(FileType::Regular) => read_all(filesystem, &node, report, &mut buffer),
                _ => report.counts.other_inodes += 1,
            }
        }
    }
}

fn read_all(filesystem: &FileSystem, node: &Node, report: &mut Report, buffer: &mut [u8]) {
    report.counts.files += 1;
    let mut offset = 0;
    while let Some(count @ 1..) = note(report, filesystem.read(node, offset, buffer), "this file cannot be read") {
        offset += count as u64;
        report.counts.bytes += count as u64;
    }
}

fn note<T>(report: &mut Report, outcome: Result<T, FsError>, consequence: &str) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            let (place, fault) = match error {
                FsError::Corrupt(corruption) => (corruption.object, corruption.detail),
                error => ("file system".to_owned(), error.to_string()),
            };
            report.add(Fault {
                place,
                fault,
                consequence: consequence.to_owned(),
                remedy: "restore it from a copy".to_owned(),
                repairable: false,
                repaired: false,
            });
            None
        }
    }
}

pub(super) fn repair(_: &Path, report: Report) -> Result<Report, Failure> {
    Ok(report)
}
