//! Wear: how much was written into each segment, as a summary, a table and a map.

use super::report::access_text;
use crate::failure::Failure;
use draw::{Chart, HeatMap, Unit};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use txn::Domain;
use txn::layout::SegmentEntry;

/// More segments than this are folded in the table unless all are asked for.
const ROWS_MAX: usize = 20;
/// Rows at either end of a folded table.
const ROWS_AT_ENDS: usize = 8;
/// Owners that have a letter in the map; the others share one.
const LETTERS: &[u8] = b"ABCDEFGH";

/// Blocks written since mkfs; as of the last clean unmount unless the server of a mount was asked.
#[derive(Debug, Serialize)]
pub(super) struct Wear {
    written_blocks: u64,
    segment_min: u64,
    segment_max: u64,
    segment_mean: f64,
    /// Most worn segment against the mean; 1 is even.
    spread: f64,
    /// Least worn segment against the mean; 1 is even.
    least_of_mean: f64,
}

/// A segment's row of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SegmentWear {
    segment: u32,
    #[serde(flatten)]
    domain: SegmentDomain,
    /// Blocks that hold something now, those included that were freed and that a journal still needs; unknown while a program other
    /// than the server has the pool open.
    blocks_used: Option<u64>,
    /// Blocks written since mkfs.
    blocks_written: u64,
    /// Blocks written against the mean of all segments.
    of_mean: f64,
}

/// Whom a segment belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "domain", rename_all = "lowercase")]
enum SegmentDomain {
    Free,
    Metadata,
    Mixed,
    Owner { uid: u32, gid: u32, access: String },
    Unreadable,
}

impl Wear {
    pub(super) fn of(rows: &[SegmentWear]) -> Wear {
        let written = || rows.iter().map(|row| row.blocks_written);
        let written_blocks: u64 = written().sum();
        let segment_min = written().min().unwrap_or(0);
        let segment_max = written().max().unwrap_or(0);
        let segment_mean = written_blocks as f64 / rows.len().max(1) as f64;
        Wear {
            written_blocks,
            segment_min,
            segment_max,
            segment_mean,
            spread: of_mean(segment_max, segment_mean),
            least_of_mean: of_mean(segment_min, segment_mean),
        }
    }
}

/// Where nothing was written, everything is even.
fn of_mean(written: u64, mean: f64) -> f64 {
    if mean == 0.0 {
        1.0
    } else {
        written as f64 / mean
    }
}

impl fmt::Display for Wear {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} blocks written; per segment {} to {}, mean {:.0}, spread {:.2}, least {:.2} of the mean",
            self.written_blocks,
            self.segment_min,
            self.segment_max,
            self.segment_mean,
            self.spread,
            self.least_of_mean,
        )
    }
}

/// The rows of a pool whose segment table has these entries.
pub(super) fn rows(entries: &[SegmentEntry]) -> Vec<SegmentWear> {
    let row = |(entry, segment): (&SegmentEntry, u32)| SegmentWear {
        segment,
        domain: SegmentDomain::of(entry, segment),
        blocks_used: None,
        blocks_written: entry.wear(segment),
        of_mean: 1.0,
    };
    let mut rows: Vec<SegmentWear> = entries.iter().zip(0..).map(row).collect();
    relate(&mut rows);
    rows
}

/// Puts what a server counts in place of what the medium says; who counts other segments is not believed.
pub(super) fn set_written(rows: &mut [SegmentWear], written: &[u64]) {
    if written.len() == rows.len() {
        for (row, written) in rows.iter_mut().zip(written) {
            row.blocks_written = *written;
        }
        relate(rows);
    }
}

/// Adds how many blocks of each segment hold something.
pub(super) fn set_used(rows: &mut [SegmentWear], used: &[u64]) {
    if used.len() == rows.len() {
        for (row, used) in rows.iter_mut().zip(used) {
            row.blocks_used = Some(*used);
        }
    }
}

fn relate(rows: &mut [SegmentWear]) {
    let mean = Wear::of(rows).segment_mean;
    for row in rows {
        row.of_mean = of_mean(row.blocks_written, mean);
    }
}

impl SegmentDomain {
    fn of(entry: &SegmentEntry, segment: u32) -> SegmentDomain {
        match entry.domain(segment) {
            Ok(None) => SegmentDomain::Free,
            Ok(Some(Domain::Metadata)) => SegmentDomain::Metadata,
            Ok(Some(Domain::Mixed)) => SegmentDomain::Mixed,
            Ok(Some(Domain::Owner { uid, gid, class })) => SegmentDomain::Owner {
                uid,
                gid,
                access: access_text(class),
            },
            Err(_) => SegmentDomain::Unreadable,
        }
    }
}

impl fmt::Display for SegmentDomain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            SegmentDomain::Free => "free".to_owned(),
            SegmentDomain::Metadata => "metadata".to_owned(),
            SegmentDomain::Mixed => "mixed".to_owned(),
            SegmentDomain::Owner { uid, gid, access } => {
                format!("user {uid}, group {gid}, {access}")
            }
            SegmentDomain::Unreadable => "unreadable".to_owned(),
        };
        out.pad(&text)
    }
}

/// The rows as text: in order, or, if they are many and not `all` are asked for, the most and the least worn ones.
pub(super) struct Table<'a> {
    pub(super) rows: &'a [SegmentWear],
    pub(super) all: bool,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domain_width = self.rows.iter().map(|row| row.domain.to_string().len());
        let width = domain_width.max().unwrap_or(0).max("domain".len());
        writeln!(
            out,
            "  segment  {:width$}    in use       written  of mean",
            "domain"
        )?;
        if self.all || self.rows.len() <= ROWS_MAX {
            return self.rows.iter().try_for_each(|row| row.fmt_row(out, width));
        }
        let mut sorted: Vec<&SegmentWear> = self.rows.iter().collect();
        sorted.sort_by_key(|row| (std::cmp::Reverse(row.blocks_written), row.segment));
        let (most, rest) = sorted.split_at(ROWS_AT_ENDS);
        let (between, least) = rest.split_at(rest.len() - ROWS_AT_ENDS);
        most.iter().try_for_each(|row| row.fmt_row(out, width))?;
        writeln!(
            out,
            "        …  {} segments between the most and the least worn; --all shows them",
            between.len()
        )?;
        least.iter().try_for_each(|row| row.fmt_row(out, width))
    }
}

impl SegmentWear {
    /// Blocks written since mkfs.
    pub(super) fn written(&self) -> u64 {
        self.blocks_written
    }

    fn fmt_row(&self, out: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let used = self
            .blocks_used
            .map_or("-".to_owned(), |used| used.to_string());
        writeln!(
            out,
            "  {:>7}  {:width$}  {used:>8}  {:>12}  {:>7.2}",
            self.segment, self.domain, self.blocks_written, self.of_mean
        )
    }
}

/// The map of a pool's wear. An even pool has the middle colour everywhere: the scale reaches to twice the mean at least.
pub(super) fn map(pool: &str, rows: &[SegmentWear]) -> Result<Chart, Failure> {
    let wear = Wear::of(rows);
    let written = rows.iter().map(|row| row.blocks_written as f64);
    let limit = (2.0 * wear.segment_mean).max(wear.segment_max as f64);
    let title = format!(
        "Wear of {pool}: peak {:.2}, least {:.2} of the mean segment",
        wear.spread, wear.least_of_mean
    );
    let mut map = HeatMap::new(title)
        .description("Blocks written in each segment since the pool was made.")
        .cells("segment", written, Unit::named("blocks written"));
    if limit > 0.0 {
        map = map.range(0.0, limit);
    }
    for (letter, meaning, segments) in legend(rows) {
        map = map.mark(letter, meaning, segments);
    }
    map.build().map_err(Failure::failed)
}

/// Letters for the domains: owners with the most segments get their own.
fn legend(rows: &[SegmentWear]) -> Vec<(char, String, Vec<usize>)> {
    let mut domains: BTreeMap<&SegmentDomain, Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        domains.entry(&row.domain).or_default().push(index);
    }
    let mut domains: Vec<_> = domains.into_iter().collect();
    // Stable: equals stay in the order of their domains.
    domains.sort_by_key(|(_, segments)| std::cmp::Reverse(segments.len()));
    let mut letters = LETTERS.iter();
    let mut others = Vec::new();
    let mut legend = Vec::new();
    for (domain, segments) in domains {
        let letter = match domain {
            // The many without a letter.
            SegmentDomain::Free => continue,
            SegmentDomain::Metadata => 'm',
            SegmentDomain::Mixed => 'x',
            SegmentDomain::Unreadable => '!',
            SegmentDomain::Owner { .. } => match letters.next() {
                Some(letter) => char::from(*letter),
                None => {
                    others.extend(segments);
                    continue;
                }
            },
        };
        legend.push((letter, domain.to_string(), segments));
    }
    if !others.is_empty() {
        legend.push(('o', "other owners".to_owned(), others));
    }
    legend
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(written: &[u64]) -> Vec<SegmentWear> {
        let mut rows = rows(&vec![SegmentEntry::default(); written.len()]);
        set_written(&mut rows, written);
        rows
    }

    #[test]
    fn even_wear_has_spread_one() {
        assert_eq!(Wear::of(&rows_of(&[0, 0])).spread, 1.0);
        assert_eq!(Wear::of(&rows_of(&[5, 5])).spread, 1.0);
        assert_eq!(Wear::of(&rows_of(&[0, 10])).spread, 2.0);
        assert_eq!(Wear::of(&rows_of(&[5, 15])).least_of_mean, 0.5);
        assert_eq!(Wear::of(&[]).spread, 1.0);
    }

    #[test]
    fn a_server_of_another_pool_is_not_believed() {
        let mut rows = rows_of(&[1, 2]);
        set_written(&mut rows, &[]);
        set_used(&mut rows, &[7]);
        assert_eq!(rows[1].blocks_written, 2);
        assert_eq!(rows[1].blocks_used, None);
    }

    #[test]
    fn a_long_table_folds_to_its_ends() {
        let written: Vec<u64> = (0..100).collect();
        let rows = rows_of(&written);
        let folded = Table {
            rows: &rows,
            all: false,
        };
        let folded = folded.to_string();
        let lines: Vec<&str> = folded.lines().collect();
        assert_eq!(lines.len(), 1 + 8 + 1 + 8);
        assert!(lines[1].starts_with("       99  free"), "{folded}");
        assert!(lines[9].contains("84 segments between"), "{folded}");
        assert!(lines[17].starts_with("        0  free"), "{folded}");
        let all = Table {
            rows: &rows,
            all: true,
        };
        assert_eq!(all.to_string().lines().count(), 101);
    }

    #[test]
    fn many_owners_share_a_letter() {
        let mut rows = rows_of(&[1; 20]);
        for (row, uid) in rows.iter_mut().zip(0..10) {
            row.domain = SegmentDomain::Owner {
                uid,
                gid: uid,
                access: "rw----".to_owned(),
            };
        }
        let legend = legend(&rows);
        let letters: String = legend.iter().map(|(letter, ..)| *letter).collect();
        assert_eq!(letters, "ABCDEFGHo");
        assert_eq!(legend[8].2, [8, 9]);
        assert!(map("p", &rows).is_ok());
        assert!(map("p", &rows_of(&[])).is_ok());
        assert!(map("p", &rows_of(&[0, 0])).is_ok());
    }
}
