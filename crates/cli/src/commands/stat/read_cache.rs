//! The read cache of a mount: what it did and holds, and for which files.

use crate::output::Bytes;
use serde::Serialize;
use server::control::{CachedFile, ReadCacheStatus, Status};
use std::fmt;

/// More files than this are shown only if all are asked for.
const ROWS_MAX: usize = 20;

/// What a server says of its read cache, as lines of the report.
pub(super) struct Lines<'a>(pub(super) &'a Status);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(cache) = &self.0.read_cache else {
            // An older server says nothing of it.
            return match self.0.read_cache_state.as_str() {
                "" => Ok(()),
                state => writeln!(out, "read cache {}", reason(state)),
            };
        };
        let counts = &cache.counts;
        write!(
            out,
            "read cache {} of {} held",
            Bytes(counts.bytes),
            Bytes(counts.budget_bytes)
        )?;
        if counts.limit_bytes < counts.budget_bytes {
            let limit = Bytes(counts.limit_bytes);
            write!(out, ", limit {limit} while memory is short")?;
        }
        writeln!(out, ", tables of {}", Bytes(counts.table_bytes))?;
        writeln!(
            out,
            "           {} hits, {} misses, hit ratio {}",
            counts.hits,
            counts.misses,
            Percent(cache.hit_ratio)
        )?;
        fmt_copies(cache, out)
    }
}

fn fmt_copies(cache: &ReadCacheStatus, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counts = &cache.counts;
    writeln!(
        out,
        "           {} fills, {} invalidations, {} evictions, {} files",
        counts.fills, counts.invalidations, counts.evictions, counts.files,
    )
}

/// Why there is no cache: the file system's words, without what the label says already.
fn reason(state: &str) -> String {
    match state.strip_prefix("no read cache") {
        Some("") => "none: switched off".to_owned(),
        Some(failed) if failed.starts_with(", it could not begin") => {
            "none: it could not begin; the log of the mount says why".to_owned()
        }
        Some(speed) => format!("none: the medium is about as fast as DRAM{speed}"),
        None => state.to_owned(),
    }
}

/// A ratio in per cent; a dash before there is anything to relate.
pub(super) struct Percent(pub(super) Option<f64>);

impl fmt::Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ratio) => out.pad(&format!("{:.1} %", ratio * 100.0)),
            None => out.pad("-"),
        }
    }
}

/// Files with copies, those with most hits first.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct CachedFiles {
    rows: Vec<CachedFile>,
    /// How many of them are printed; programs get all.
    #[serde(skip)]
    shown: usize,
}

impl CachedFiles {
    /// The first ones, or `all`.
    pub(super) fn new(rows: Vec<CachedFile>, all: bool) -> CachedFiles {
        let shown = if all { rows.len() } else { ROWS_MAX };
        CachedFiles { rows, shown }
    }
}

impl fmt::Display for CachedFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return writeln!(out, "  no file has copies in DRAM");
        }
        writeln!(
            out,
            "       inode          hits        misses  hit ratio       held"
        )?;
        for file in self.rows.iter().take(self.shown) {
            writeln!(
                out,
                "  {:>10}  {:>12}  {:>12}  {:>9}  {:>9}",
                file.inode,
                file.hits,
                file.misses,
                Percent(file.hit_ratio),
                Bytes(file.bytes).to_string(),
            )?;
        }
        match self.rows.len().saturating_sub(self.shown) {
            0 => Ok(()),
            hidden => writeln!(
                out,
                "           …  {hidden} files with fewer hits; --all shows them"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> CachedFile {
        CachedFile {
            inode,
            hits: 3 * inode,
            misses: inode,
            hit_ratio: Some(0.75),
            fills: 1,
            invalidations: 0,
            bytes: 4096,
            table_bytes: 64,
        }
    }

    #[test]
    fn the_list_ends_after_twenty_unless_all_are_asked_for() {
        let rows: Vec<CachedFile> = (1..=25).map(file).collect();
        let short = CachedFiles::new(rows.clone(), false);
        let text = short.to_string();
        assert_eq!(text.lines().count(), 1 + 20 + 1, "{text}");
        assert!(text.contains(" 5 files with fewer hits"), "{text}");
        assert!(text.contains("75.0 %    4.0 KiB"), "{text}");
        let json = serde_json::to_value(&short).expect("JSON");
        assert_eq!(json.as_array().map(Vec::len), Some(25));
        assert_eq!(json[0]["inode"], 1);
        let all = CachedFiles::new(rows, true).to_string();
        assert_eq!(all.lines().count(), 1 + 25, "{all}");
        let none = CachedFiles::new(Vec::new(), false).to_string();
        assert_eq!(none.lines().count(), 1, "{none}");
    }

    #[test]
    fn a_missing_cache_has_a_reason() {
        let measured = reason("no read cache (a block in 400 ns, DRAM 410)");
        assert!(measured.starts_with("none: "), "{measured}");
        assert!(
            measured.ends_with("(a block in 400 ns, DRAM 410)"),
            "{measured}"
        );
        assert_eq!(reason("no read cache"), "none: switched off");
        let failed = "no read cache, it could not begin (a block in 900 ns, DRAM 410)";
        assert!(reason(failed).starts_with("none: it could not begin;"));
    }
}
