//! Rows, and their two forms: a table for people, JSON for programs.

use crate::machine::Machine;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Which side of the bar is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The ratio should be at most the bar.
    Lower,
    /// The ratio should be at least the bar.
    Higher,
}

impl Better {
    pub(crate) fn keeps(self, ratio: f64, bar: f64) -> bool {
        match self {
            Better::Lower => ratio <= bar,
            Better::Higher => ratio >= bar,
        }
    }

    /// The bar as people write it.
    pub(crate) fn limit(self, bar: f64) -> String {
        let sign = match self {
            Better::Lower => "≤",
            Better::Higher => "≥",
        };
        format!("{sign} {bar}")
    }
}

/// Wall time of single operations, one by one, the clock's own cost (some 40 ns) included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latencies {
    /// Half of the operations took at most this.
    pub p50_ns: u64,
    /// 99 of 100 operations took at most this.
    pub p99_ns: u64,
}

/// One measurement beside what it is compared with. Numbers are absent when the row failed, or where they mean nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the row; scripts rely on it.
    pub name: &'static str,
    /// Our side: median of the rounds.
    pub value: Option<f64>,
    /// Unit of both sides.
    pub unit: &'static str,
    /// What it is compared with.
    pub against: &'static str,
    /// The other side: median of the rounds.
    pub against_value: Option<f64>,
    /// Our side divided by the other: median of the rounds' ratios.
    pub ratio: Option<f64>,
    /// Limit of the ratio.
    pub bar: f64,
    /// Whether the bar is an upper or a lower limit.
    pub better: Better,
    /// Flush instructions of one of our operations.
    pub flushes: Option<f64>,
    /// Fences of one of our operations.
    pub fences: Option<f64>,
    /// Lines that one of our operations sends to the medium.
    pub lines: Option<f64>,
    /// Limit of the fences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fences_bar: Option<f64>,
    /// Our side in the best round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_value: Option<f64>,
    /// Least and greatest of the rounds' ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_range: Option<[f64; 2]>,
    /// Latencies of our side, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latencies: Option<Latencies>,
    /// Latencies of the other side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_latencies: Option<Latencies>,
    /// How it was measured, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Row {
    /// Whether ratio and fences keep their bars; `None` if the row was not measured.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let ratio = self.ratio?;
        let ratio_met = self.better.keeps(ratio, self.bar);
        let fences_met = match (self.fences, self.fences_bar) {
            (Some(fences), Some(bar)) => fences <= bar,
            _ => true,
        };
        Some(ratio_met && fences_met)
    }
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Name of the media model.
    pub media: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Sizes and counts that the figures depend on.
    pub setup: Map<String, Value>,
    /// Depends on the data that both sides moved: proof that the work was done.
    pub hash: String,
    /// The measurements.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether every row was measured, bar met or not.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.error.is_none())
    }

    /// The report as a JSON document.
    #[must_use]
    pub fn json(&self) -> Value {
        // Strings, numbers and lists only: nothing that JSON lacks.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// The report as text for people, one line for each row and below each the note, if any.
    #[must_use]
    pub fn table(&self) -> String {
        let [place, setup] = heading(self.experiment, &self.media, &self.machine, &self.setup);
        let mut text = format!("{place}\n{setup}   hash {}\n\n", self.hash);
        let head = [
            "row",
            "ours",
            "against",
            "ratio",
            "bar",
            "",
            "flushes",
            "fences",
            "lines",
            "compared with",
        ];
        let cells: Vec<[String; 10]> = self.rows.iter().map(cells).collect();
        text.push_str(&aligned(head, &cells, &[0, 4, 5, 9]));
        let remarks: Vec<String> = self.rows.iter().flat_map(remarks).collect();
        if !remarks.is_empty() {
            let _ = write!(text, "\n{}", remarks.concat());
        }
        text
    }
}

fn cells(row: &Row) -> [String; 10] {
    let fences_bar = row
        .fences_bar
        .map_or(String::new(), |bar| format!(" ≤ {bar}"));
    let count = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
    [
        row.name.to_owned(),
        figure(row.value, row.unit),
        figure(row.against_value, row.unit),
        figure(row.ratio, ""),
        row.better.limit(row.bar),
        mark(row.is_met()),
        count(row.flushes),
        format!("{}{fences_bar}", count(row.fences)),
        count(row.lines),
        row.against.to_owned(),
    ]
}

fn remarks(row: &Row) -> Vec<String> {
    let mut lines = Vec::new();
    let latencies = [
        ("", row.latencies),
        (" of the other side", row.against_latencies),
    ];
    for (whose, latencies) in latencies {
        if let Some(Latencies { p50_ns, p99_ns }) = latencies {
            lines.push(format!(
                "{}: p50 {p50_ns} ns, p99 {p99_ns} ns{whose}\n",
                row.name
            ));
        }
    }
    lines.extend(
        row.note
            .iter()
            .map(|note| format!("{}: {note}\n", row.name)),
    );
    lines.extend(
        row.error
            .iter()
            .map(|error| format!("{}: FAILED: {error}\n", row.name)),
    );
    lines
}

/// Two lines: where it was measured, and with which sizes and counts.
pub(crate) fn heading(
    experiment: &str,
    media: &str,
    machine: &Machine,
    setup: &Map<String, Value>,
) -> [String; 2] {
    let place = format!(
        "{experiment} on {media} memory; {}, {} processors, kernel {}, {}, {}, load {:.1}",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.flush,
        machine.stream,
        machine.load_average,
    );
    let setup = setup.iter().map(|(name, value)| format!("{name} {value}"));
    [place, setup.collect::<Vec<_>>().join("   ")]
}

/// A number that may be missing.
pub(crate) fn figure(value: Option<f64>, unit: &str) -> String {
    value.map_or("–".to_owned(), |value| quantity(value, unit))
}

/// What became of a bar.
pub(crate) fn mark(is_met: Option<bool>) -> String {
    match is_met {
        Some(true) => "met".to_owned(),
        Some(false) => "MISSED".to_owned(),
        None => "FAILED".to_owned(),
    }
}

/// Three significant digits are all that such measurements have; bytes in MiB, because nobody counts the digits.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    if unit == "bytes" {
        return quantity(value / f64::from(1 << 20), "MiB");
    }
    let space = if unit.is_empty() { "" } else { " " };
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{space}{unit}")
}

/// Columns as wide as their widest cell; those of `left` have text, the others numbers.
pub(crate) fn aligned<const N: usize>(
    head: [&str; N],
    rows: &[[String; N]],
    left: &[usize],
) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in std::iter::once(head.map(str::to_owned)).chain(rows.iter().cloned()) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let wide = widths[column];
            let _ = if left.contains(&column) {
                write!(line, "{cell:<wide$}  ")
            } else {
                write!(line, "{cell:>wide$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            name: "overwrite_4k",
            value: Some(812.4),
            unit: "ns",
            against: "4 KiB streaming copy + fence",
            against_value: Some(560.0),
            ratio: Some(1.4507),
            bar: 1.5,
            better: Better::Lower,
            flushes: Some(0.1),
            fences: Some(2.0),
            lines: Some(66.25),
            fences_bar: Some(2.0),
            best_value: None,
            ratio_range: None,
            latencies: None,
            against_latencies: None,
            note: None,
            error: None,
        }
    }

    #[test]
    fn bars_are_kept_or_not() {
        assert_eq!(row().is_met(), Some(true));
        assert_eq!(
            Row {
                ratio: Some(1.51),
                ..row()
            }
            .is_met(),
            Some(false)
        );
        assert_eq!(
            Row {
                fences: Some(2.01),
                ..row()
            }
            .is_met(),
            Some(false)
        );
        assert_eq!(
            Row {
                better: Better::Higher,
                ..row()
            }
            .is_met(),
            Some(false)
        );
        assert_eq!(
            Row {
                ratio: None,
                ..row()
            }
            .is_met(),
            None
        );
    }

    #[test]
    fn the_table_is_aligned_and_says_what_failed() {
        let failed = Row {
            value: None,
            ratio: None,
            error: Some("no mount".to_owned()),
            name: "fuse_read_4k",
            ..row()
        };
        let report = Report {
            experiment: "ops",
            media: "dram".to_owned(),
            machine: Machine::this(),
            setup: Map::new(),
            hash: "0".to_owned(),
            rows: vec![row(), failed],
        };
        let table = report.table();
        assert!(
            table.contains(
                "overwrite_4k  812 ns   560 ns   1.45  ≤ 1.5  met        0.10  2.00 ≤ 2  66.25"
            ),
            "{table}"
        );
        assert!(
            table.contains("\nfuse_read_4k: FAILED: no mount\n"),
            "{table}"
        );
        assert!(!report.is_complete());
        let json = report.json();
        assert_eq!(json["rows"][0]["better"], "lower");
        assert_eq!(json["rows"][1]["value"], Value::Null);
    }

    #[test]
    fn quantities_have_three_digits() {
        assert_eq!(quantity(1234.6, "ns"), "1235 ns");
        assert_eq!(quantity(12.345, ""), "12.3");
        assert_eq!(quantity(0.4567, "s"), "0.46 s");
        assert_eq!(quantity(1_572_864.0, "bytes"), "1.50 MiB");
    }
}
