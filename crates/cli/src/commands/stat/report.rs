//! The report of `perdure stat`, as text and as JSON. The names of the JSON fields are stable.

use super::direct::{self, Clients};
use super::header::Header;
use super::log;
use super::read_cache::{self, CachedFiles};
use super::tier;
use super::wear::{self, SegmentWear, Table, Wear};
use crate::output::Bytes;
use crate::visible::on_one_line;
use fs::quota::{Limits, Subject, Usage};
use serde::Serialize;
use server::control::Status as ServerStatus;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use txn::Domain;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) pool: String,
    /// `closed`, `in use` or `mounted`.
    pub(super) state: &'static str,
    pub(super) mountpoint: Option<String>,
    /// The process that has the pool open.
    pub(super) process: Option<u32>,
    program_version: &'static str,
    format_version: u32,
    uuid: String,
    pub(super) class: String,
    /// Whether the last owner closed the pool; unknown while it is open.
    pub(super) clean: Option<bool>,
    size_bytes: u64,
    free_bytes: Option<u64>,
    /// Free bytes that files can take; the rest is kept so that a full pool can be written.
    pub(super) available_bytes: Option<u64>,
    inodes: Option<u64>,
    free_inodes: Option<u64>,
    segments: Segments,
    pub(super) journals: Journals,
    /// Acknowledged changes that the last mount, or this look at the pool, could not recover.
    pub(super) losses: Vec<String>,
    /// Limits per user and group; unknown while another process has the pool open.
    pub(super) quotas: Option<Vec<Quota>>,
    wear: Wear,
    /// Blocks written in each segment, only with `--wear`.
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_wear: Option<Vec<u64>>,
    /// The same with what is known of each segment, only with `--wear`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) wear_by_segment: Vec<SegmentWear>,
    /// Whether the printed table has every segment, however many they are.
    #[serde(skip)]
    has_all_rows: bool,
    /// Files with copies in the read cache, only with `--cached-files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) read_cache_files: Option<CachedFiles>,
    /// Processes that use files directly, only with `--clients`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<Clients>,
    /// What the server of a mounted pool says of itself.
    pub(super) server: Option<ServerStatus>,
}

/// Segments by protection domain.
#[derive(Debug, Serialize)]
struct Segments {
    count: u32,
    bytes: u64,
    free: u32,
    metadata: u32,
    mixed: u32,
    /// Entries that are damaged, or were changing at that moment.
    unreadable: u32,
    owners: Vec<Owner>,
}

#[derive(Debug, Serialize)]
struct Owner {
    uid: u32,
    gid: u32,
    /// Read and write bits of user, group and others: `rw-r--`.
    access: String,
    segments: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Journals {
    count: u32,
    bytes: u64,
    /// Sequence number of the newest record.
    pub(super) newest_record: Option<u64>,
    /// Sequence number up to which records are retired.
    pub(super) checkpoint: Option<u64>,
    /// Records that the next mount has to apply.
    pub(super) unretired_records: Option<u64>,
}

/// The limits of a user or a group, and what it uses.
#[derive(Debug, Serialize)]
pub(super) struct Quota {
    /// `user 1000` or `group 100`.
    subject: String,
    blocks_used: u64,
    blocks_limit: Option<u64>,
    inodes_used: u64,
    inodes_limit: Option<u64>,
}

impl Quota {
    pub(super) fn new((subject, limits, usage): &(Subject, Limits, Usage)) -> Quota {
        Quota {
            subject: subject.to_string(),
            blocks_used: usage.blocks,
            blocks_limit: limits.blocks,
            inodes_used: usage.inodes,
            inodes_limit: limits.inodes,
        }
    }
}

impl Report {
    pub(super) fn new(pool: &Path, header: &Header) -> Report {
        let superblock = &header.superblock;
        let geometry = superblock.geometry();
        let rows = wear::rows(&header.entries);
        Report {
            pool: pool.display().to_string(),
            state: "closed",
            mountpoint: None,
            process: None,
            program_version: env!("CARGO_PKG_VERSION"),
            format_version: superblock.version,
            uuid: uuid_text(&superblock.uuid),
            class: if superblock.is_volatile() {
                "volatile"
            } else {
                "dax"
            }
            .to_owned(),
            clean: None,
            size_bytes: geometry.total_bytes()
                + u64::from(superblock.device_blocks) * pmem::BLOCK_BYTES as u64,
            free_bytes: None,
            available_bytes: None,
            inodes: None,
            free_inodes: None,
            segments: Segments::count(header),
            journals: Journals {
                count: superblock.journals,
                bytes: superblock.journal_blocks * pmem::BLOCK_BYTES as u64,
                newest_record: None,
                checkpoint: None,
                unretired_records: None,
            },
            losses: Vec::new(),
            quotas: None,
            wear: Wear::of(&rows),
            segment_wear: None,
            wear_by_segment: rows,
            has_all_rows: false,
            read_cache_files: None,
            clients: None,
            server: None,
        }
    }

    /// What the server of a mount counts, in place of what the medium says.
    pub(super) fn set_wear(&mut self, written: &[u64], used: &[u64]) {
        wear::set_written(&mut self.wear_by_segment, written);
        self.set_used(used);
        self.wear = Wear::of(&self.wear_by_segment);
    }

    /// Blocks of each segment that hold something.
    pub(super) fn set_used(&mut self, used: &[u64]) {
        wear::set_used(&mut self.wear_by_segment, used);
    }

    /// Puts each text that the pool's owner can choose on one line: a server answers anything.
    pub(super) fn make_visible(&mut self) {
        for text in [&mut self.pool, &mut self.class] {
            *text = on_one_line(text);
        }
        if let Some(mountpoint) = &mut self.mountpoint {
            *mountpoint = on_one_line(mountpoint);
        }
        if let Some(server) = &mut self.server {
            server.read_cache_state = on_one_line(&server.read_cache_state);
            for operation in &mut server.statistics.operations {
                operation.operation = on_one_line(&operation.operation);
            }
        }
    }

    /// Shows each segment; in print, where they are many, only with `all`.
    pub(super) fn show_segments(&mut self, all: bool) {
        let written = self.wear_by_segment.iter().map(SegmentWear::written);
        self.segment_wear = Some(written.collect());
        self.has_all_rows = all;
    }

    /// Leaves the summary only.
    pub(super) fn hide_segments(&mut self) {
        self.wear_by_segment.clear();
    }

    pub(super) fn set_space(
        &mut self,
        block_bytes: u32,
        free_blocks: u64,
        inodes: u64,
        free_inodes: u64,
    ) {
        self.free_bytes = Some(free_blocks.saturating_mul(block_bytes.into()));
        self.inodes = Some(inodes);
        self.free_inodes = Some(free_inodes);
    }
}

impl Segments {
    fn count(header: &Header) -> Segments {
        let geometry = header.superblock.geometry();
        let mut segments = Segments {
            count: geometry.segments,
            bytes: geometry.segment_bytes(),
            free: 0,
            metadata: 0,
            mixed: 0,
            unreadable: 0,
            owners: Vec::new(),
        };
        let mut owners: BTreeMap<(u32, u32, u8), u32> = BTreeMap::new();
        for (entry, segment) in header.entries.iter().zip(0..) {
            match entry.domain(segment) {
                Ok(None) => segments.free += 1,
                Ok(Some(Domain::Metadata)) => segments.metadata += 1,
                Ok(Some(Domain::Mixed)) => segments.mixed += 1,
                Ok(Some(Domain::Owner { uid, gid, class })) => {
                    *owners.entry((uid, gid, class)).or_default() += 1
                }
                Err(_) => segments.unreadable += 1,
            }
        }
        let owner = |((uid, gid, class), segments)| Owner {
            uid,
            gid,
            access: access_text(class),
            segments,
        };
        segments.owners = owners.into_iter().map(owner).collect();
        segments
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "pool       {} (format {}, {})",
            self.pool, self.format_version, self.uuid
        )?;
        writeln!(out, "class      {}", self.class)?;
        write!(out, "state      {}", self.state)?;
        if let Some(mountpoint) = &self.mountpoint {
            write!(out, " at {mountpoint}")?;
        }
        if let Some(process) = self.process {
            write!(out, " by process {process}")?;
        }
        match self.clean {
            Some(true) => writeln!(out, ", clean")?,
            Some(false) => writeln!(out, ", not clean: the next mount recovers it")?,
            None => writeln!(out)?,
        }
        write!(out, "size       {}", Bytes(self.size_bytes))?;
        match self.free_bytes {
            Some(free) => writeln!(out, ", {} free", Bytes(free))?,
            None => writeln!(out)?,
        }
        if let (Some(inodes), Some(free)) = (self.inodes, self.free_inodes) {
            writeln!(
                out,
                "inodes     {} used, {free} free",
                inodes - free.min(inodes)
            )?;
        }
        self.fmt_segments(out)?;
        write!(
            out,
            "journals   {} of {}",
            self.journals.count,
            Bytes(self.journals.bytes)
        )?;
        match self.journals.unretired_records {
            Some(records) => writeln!(out, ", {records} records to apply")?,
            None => writeln!(out)?,
        }
        writeln!(out, "wear       {}", self.wear)?;
        for quota in self.quotas.iter().flatten() {
            let limit =
                |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
            writeln!(
                out,
                "quota      {}: {} of {} blocks, {} of {} inodes",
                quota.subject,
                quota.blocks_used,
                limit(quota.blocks_limit),
                quota.inodes_used,
                limit(quota.inodes_limit),
            )?;
        }
        if !self.wear_by_segment.is_empty() {
            let (rows, all) = (&self.wear_by_segment, self.has_all_rows);
            write!(out, "{}", Table { rows, all })?;
        }
        self.fmt_server(out)
    }
}

impl Report {
    fn fmt_losses(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut losses = self.losses.iter();
        losses.try_for_each(|loss| writeln!(out, "damage     {loss}"))
    }

    fn fmt_segments(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_losses(out)?;
        let segments = &self.segments;
        write!(
            out,
            "segments   {} of {}: {} free, {} metadata, {} mixed",
            segments.count,
            Bytes(segments.bytes),
            segments.free,
            segments.metadata,
            segments.mixed,
        )?;
        if segments.unreadable > 0 {
            write!(out, ", {} unreadable", segments.unreadable)?;
        }
        writeln!(out)?;
        for owner in &segments.owners {
            let Owner {
                uid,
                gid,
                access,
                segments,
            } = owner;
            writeln!(
                out,
                "           {segments} of user {uid}, group {gid}, {access}"
            )?;
        }
        Ok(())
    }

    fn fmt_server(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(server) = &self.server else {
            return Ok(());
        };
        writeln!(
            out,
            "server     {} threads{}, up {} s, {} inodes in use by the kernel",
            server.threads,
            match server.transport.as_str() {
                "io_uring" => " over io_uring",
                _ => "",
            },
            server.uptime_seconds,
            server.cached_inodes,
        )?;
        write!(out, "{}", tier::Lines(server))?;
        write!(out, "{}", log::Lines(server))?;
        write!(out, "{}", read_cache::Lines(server))?;
        if let Some(files) = &self.read_cache_files {
            write!(out, "{files}")?;
        }
        if let Some(direct) = &server.direct {
            write!(out, "{}", direct::Line(direct))?;
        }
        for kept in &server.kept {
            write!(out, "{}", direct::KeptLine(kept))?;
        }
        if let Some(clients) = &self.clients {
            write!(out, "{clients}")?;
        }
        let statistics = &server.statistics;
        writeln!(
            out,
            "requests   {} read, {} written",
            Bytes(statistics.read_bytes),
            Bytes(statistics.written_bytes),
        )?;
        for operation in &statistics.operations {
            writeln!(
                out,
                "  {:16} {:>12} {:>8} errors   p50 < {} ns, p99 < {} ns",
                operation.operation,
                operation.count,
                operation.errors,
                operation.p50_below_nanoseconds,
                operation.p99_below_nanoseconds,
            )?;
        }
        Ok(())
    }
}

/// The six read and write bits of a domain: `rw-r--`.
pub(super) fn access_text(class: u8) -> String {
    let letters = ['r', 'w', 'r', 'w', 'r', 'w'];
    let shown = letters.iter().enumerate().map(|(index, letter)| {
        if class & (1 << (5 - index)) != 0 {
            *letter
        } else {
            '-'
        }
    });
    shown.collect()
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_bits_read_like_a_mode() {
        assert_eq!(access_text(0b111010), "rwr-r-");
        assert_eq!(access_text(0b110000), "rw----");
        assert_eq!(access_text(0), "------");
    }

    #[test]
    fn uuids_have_dashes() {
        assert_eq!(
            uuid_text(&[0xab; 16]),
            "abababab-abab-abab-abab-abababababab"
        );
    }
}
