//! The copy itself: walks the source, writes the target, reads back what it wrote.

use super::place::{Content, Entry, Kind, Side};
use crate::failure::Failure;
use crate::output;
use indicatif::ProgressBar;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes moved at a time; a write of this size is one transaction in the pool.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Clone, Copy)]
pub(super) struct Options {
    /// Copy directories.
    pub(super) recursive: bool,
    /// Read back and compare.
    pub(super) verify: bool,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) directories: u64,
    /// Symbolic links, and further names of files that were copied already.
    pub(super) links: u64,
    /// Bytes of content that were written, without holes.
    pub(super) bytes: u64,
    /// Bytes of the target that were read back and are right.
    pub(super) verified_bytes: u64,
    /// Objects that could not be copied.
    pub(super) failed: u64,
    /// Extended attributes that the target cannot hold.
    pub(super) lost_xattrs: u64,
}

pub(super) struct Transfer<'a> {
    source: &'a dyn Side,
    target: &'a dyn Side,
    options: Options,
    /// Where the first name of a file with several names was copied to.
    first_names: HashMap<(u64, u64), PathBuf>,
    counts: Counts,
    progress: ProgressBar,
    buffer: Vec<u8>,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(
        source: &'a dyn Side,
        target: &'a dyn Side,
        options: Options,
    ) -> Transfer<'a> {
        Transfer {
            source,
            target,
            options,
            first_names: HashMap::new(),
            counts: Counts::default(),
            progress: output::byte_bar(0),
            buffer: vec![0; CHUNK_BYTES],
        }
    }

    /// Copies the object at `from`, with all that is in it, to `to`. A failure of the object itself is an error,
    /// failures inside a tree are reported, counted and passed over.
    pub(super) fn run(&mut self, from: &Path, to: &Path) -> Result<(), Failure> {
        if !self.progress.is_hidden() {
            self.progress.set_length(self.total_bytes(from)?);
        }
        self.copy(from, to)
    }

    pub(super) fn finish(self) -> Counts {
        self.progress.finish_and_clear();
        if self.counts.lost_xattrs > 0 {
            let lost = self.counts.lost_xattrs;
            output::complain(format_args!(
                "cp: {lost} extended attributes were left out: the target cannot hold them"
            ));
        }
        self.counts
    }

    fn total_bytes(&self, from: &Path) -> Result<u64, Failure> {
        let Some(entry) = self.source.entry(from)? else {
            return Ok(0);
        };
        match entry.kind {
            Kind::File => Ok(entry.size_bytes),
            Kind::Directory => {
                let children = self.source.children(from)?;
                children
                    .iter()
                    .map(|name| self.total_bytes(&from.join(name)))
                    .sum()
            }
            Kind::Symlink | Kind::Special => Ok(0),
        }
    }

    fn copy(&mut self, from: &Path, to: &Path) -> Result<(), Failure> {
        let entry = self.source.entry(from)?.ok_or_else(|| {
            Failure::failed(format_args!(
                "{}: vanished during the copy",
                self.source.describe(from)
            ))
        })?;
        let existing = self.target.entry(to)?;
        self.check_types(&entry, existing.as_ref(), to)?;
        if entry.kind != Kind::Directory && entry.links > 1 {
            if let Some(first) = self.first_names.get(&entry.identity) {
                if existing.is_some() {
                    self.target.remove(to)?;
                }
                self.target.hard_link(first, to)?;
                self.counts.links += 1;
                return Ok(());
            }
            self.first_names.insert(entry.identity, to.to_owned());
        }
        match entry.kind {
            Kind::Directory => return self.copy_directory(from, to, &entry, existing.is_some()),
            Kind::File => self.copy_file(from, to, &entry, existing.as_ref())?,
            Kind::Symlink => {
                if existing.is_some() {
                    self.target.remove(to)?;
                }
                let text = self.source.read_link(from)?;
                self.target.make_symlink(&text, to)?;
                self.counts.links += 1;
            }
            Kind::Special => {
                if existing.is_some() {
                    self.target.remove(to)?;
                }
                self.target.make_special(to, &entry)?;
                self.counts.files += 1;
            }
        }
        self.keep_attributes(from, to, &entry)
    }

    /// A directory is merged into a directory; anything else replaces anything but a directory.
    fn check_types(
        &self,
        entry: &Entry,
        existing: Option<&Entry>,
        to: &Path,
    ) -> Result<(), Failure> {
        let Some(existing) = existing else {
            return Ok(());
        };
        let place = self.target.describe(to);
        match (
            entry.kind == Kind::Directory,
            existing.kind == Kind::Directory,
        ) {
            (true, false) => Err(Failure::failed(format_args!(
                "{place}: is there and not a directory; remove it first"
            ))),
            (false, true) => Err(Failure::failed(format_args!(
                "{place}: is a directory there; remove it first"
            ))),
            _ if entry.identity == existing.identity
                && self.source.identity() == self.target.identity() =>
            {
                Err(Failure::failed(format_args!(
                    "{place}: is the source itself"
                )))
            }
            _ => Ok(()),
        }
    }

    fn copy_directory(
        &mut self,
        from: &Path,
        to: &Path,
        entry: &Entry,
        exists: bool,
    ) -> Result<(), Failure> {
        if !exists {
            self.target.make_directory(to)?;
        }
        self.counts.directories += 1;
        for name in self.source.children(from)? {
            if let Err(failure) = self.copy(&from.join(&name), &to.join(&name)) {
                self.progress.suspend(|| failure.report("cp"));
                self.counts.failed += 1;
            }
        }
        // Last: the children changed the time, and a mode without `w` would have kept them out.
        self.keep_attributes(from, to, entry)
    }

    fn copy_file(
        &mut self,
        from: &Path,
        to: &Path,
        entry: &Entry,
        existing: Option<&Entry>,
    ) -> Result<(), Failure> {
        if existing.is_some_and(|existing| existing.kind != Kind::File) {
            self.target.remove(to)?;
        }
        let source = self.source.open(from)?;
        let target = self.target.create(to)?;
        let place = self.target.describe(to);
        let written = self
            .copy_content(&*source, &*target)
            .map_err(|error| describe_io(&place, "cannot copy", &error))?;
        target
            .set_len(entry.size_bytes)
            .map_err(|error| describe_io(&place, "cannot set the size", &error))?;
        if self.options.verify {
            let read = self.checksum(&*target, &written.ranges);
            let read = read.map_err(|error| describe_io(&place, "cannot read back", &error))?;
            if read != written.checksum {
                let remedy = "copy it again, and check the pool with perdure fsck";
                return Err(Failure::failed(format_args!(
                    "{place}: what was written reads back differently; {remedy}"
                )));
            }
            self.counts.verified_bytes += written.bytes;
        }
        self.counts.files += 1;
        self.counts.bytes += written.bytes;
        Ok(())
    }

    /// Copies what is not a hole.
    fn copy_content(&mut self, source: &dyn Content, target: &dyn Content) -> io::Result<Written> {
        let mut written = Written::default();
        let mut digest = digest();
        let mut offset = 0;
        while let Some(range) = source.next_data(offset)? {
            let mut at = range.start;
            while at < range.end {
                let count = source.read_at(chunk(&mut self.buffer, range.end - at), at)?;
                if count == 0 {
                    break;
                }
                digest.update(&self.buffer[..count]);
                target.write_all_at(&self.buffer[..count], at)?;
                at += count as u64;
                self.progress.inc(count as u64);
            }
            written.bytes += at - range.start;
            written.ranges.push(range.start..at);
            if at < range.end {
                break;
            }
            offset = range.end;
        }
        written.checksum = digest.finalize();
        Ok(written)
    }

    fn checksum(&mut self, content: &dyn Content, ranges: &[Range<u64>]) -> io::Result<u64> {
        let mut digest = digest();
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                match content.read_at(chunk(&mut self.buffer, range.end - at), at)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => {
                        digest.update(&self.buffer[..count]);
                        at += count as u64;
                    }
                }
            }
        }
        Ok(digest.finalize())
    }

    fn keep_attributes(&mut self, from: &Path, to: &Path, entry: &Entry) -> Result<(), Failure> {
        for (name, value) in self.source.xattrs(from)? {
            if !self.target.set_xattr(to, &name, &value)? {
                self.counts.lost_xattrs += 1;
            }
        }
        self.target.set_entry(to, entry)
    }
}

/// Content that was written.
#[derive(Default)]
struct Written {
    bytes: u64,
    ranges: Vec<Range<u64>>,
    checksum: u64,
}

fn digest() -> crc_fast::Digest {
    crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)
}

fn chunk(buffer: &mut [u8], left: u64) -> &mut [u8] {
    let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
    &mut buffer[..length]
}

/// A message of the pool names the operation and the inode; the path comes from here.
fn describe_io(place: &str, action: &str, error: &io::Error) -> Failure {
    Failure::failed(format_args!("{place}: {action}: {error}"))
}
