//! Rows, and their two forms: a table for people, JSON for programs.

use crate::collector::{Found, Plan};
use crate::error::BenchError;
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
pub struct Compared {
    /// Name of the row; scripts rely on it.
    pub name: &'static str,
    /// Our side: median of the rounds.
    pub value: Option<f64>,
    /// Unit of both sides.
    pub unit: &'static str,
    /// Our side is compared with this.
    pub against: &'static str,
    /// The other side: median of the rounds.
    pub against_value: Option<f64>,
    /// The bar is about this: the median of the rounds' ratios.
    pub ratio: Option<f64>,
    /// Limit of the ratio.
    pub bar: f64,
    /// Whether the bar is an upper or a lower limit.
    pub better: Better,
    /// How it was measured, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Compared {
    pub(crate) fn new(plan: &Plan, found: Option<Found>, error: Option<String>) -> Compared {
        let known = found.as_ref();
        Compared {
            name: plan.name,
            value: known.map(|found| found.value),
            unit: plan.unit,
            against: plan.against,
            against_value: known.map(|found| found.against_value),
            ratio: known.map(|found| found.ratio),
            bar: plan.bar,
            better: plan.better,
            note: found.and_then(|found| found.note),
            error,
        }
    }

    /// Whether the ratio keeps its bar; `None` if it was not measured.
    pub(crate) fn keeps_bar(&self) -> Option<bool> {
        Some(self.better.keeps(self.ratio?, self.bar))
    }

    /// The first columns of a table: name, both sides, ratio, limit.
    pub(crate) fn cells(&self) -> [String; 5] {
        [
            self.name.to_owned(),
            figure(self.value, self.unit),
            figure(self.against_value, self.unit),
            figure(self.ratio, ""),
            self.better.limit(self.bar),
        ]
    }

    /// Remarks are the note and the failure.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> {
        let failed = self.error.iter().map(|error| format!("FAILED: {error}"));
        self.note.iter().cloned().chain(failed)
    }
}

/// A row of the experiment `ops`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Rows of every experiment have these columns.
    #[serde(flatten)]
    pub compared: Compared,
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
}

impl Row {
    /// Makes a row of a plan and the result of its measurement.
    pub(crate) fn of(plan: &Plan, result: Result<Found, BenchError>) -> Row {
        let (found, error) = match result {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let known = found.as_ref();
        let work = known.and_then(|found| found.work);
        Row {
            flushes: work.map(|work| work.flushes),
            fences: work.map(|work| work.fences),
            lines: work.map(|work| work.lines),
            fences_bar: plan.fences_bar,
            best_value: known.and_then(|found| found.best_value),
            ratio_range: known.and_then(|found| found.ratio_range),
            latencies: known.and_then(|found| found.latencies),
            against_latencies: known.and_then(|found| found.against_latencies),
            compared: Compared::new(plan, found, error),
        }
    }

    /// Whether ratio and fences keep their bars; `None` if the row was not measured.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let ratio_met = self.compared.keeps_bar()?;
        let fences_met = match (self.fences, self.fences_bar) {
            (Some(fences), Some(bar)) => fences <= bar,
            _ => true,
        };
        Some(ratio_met && fences_met)
    }

    fn cells(&self) -> [String; 10] {
        let [name, ours, theirs, ratio, limit] = self.compared.cells();
        let count =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let fences_bar = self
            .fences_bar
            .map_or(String::new(), |bar| format!(" ≤ {bar}"));
        [
            name,
            ours,
            theirs,
            ratio,
            limit,
            mark(self.is_met()),
            count(self.flushes),
            format!("{}{fences_bar}", count(self.fences)),
            count(self.lines),
            self.compared.against.to_owned(),
        ]
    }

    /// Lines of text below the table.
    fn remarks(&self) -> Vec<String> {
        let latencies = [
            ("", self.latencies),
            (" of the other side", self.against_latencies),
        ];
        let latencies = latencies.into_iter().filter_map(|(whose, latencies)| {
            let Latencies { p50_ns, p99_ns } = latencies?;
            Some(format!("p50 {p50_ns} ns, p99 {p99_ns} ns{whose}"))
        });
        let name = self.compared.name;
        let remarks = latencies.chain(self.compared.remarks());
        remarks
            .map(|remark| format!("{name}: {remark}\n"))
            .collect()
    }
}

/// Where and how an experiment was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Name of the media model.
    pub media: String,
    /// The machine that the experiment ran on.
    pub machine: Machine,
    /// Sizes and counts that the figures depend on.
    pub setup: Map<String, Value>,
}

impl Setting {
    /// This machine as it is before the experiment begins; sizes and counts are still to be added.
    pub(crate) fn here(experiment: &'static str, media: impl Into<String>) -> Setting {
        Setting {
            experiment,
            media: media.into(),
            machine: Machine::this(),
            setup: Map::new(),
        }
    }

    /// Adds a size or a count.
    pub(crate) fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.setup.insert(name.to_owned(), value.into());
    }

    /// Two lines say where the rows were measured, and with which sizes and counts.
    pub(crate) fn heading(&self) -> [String; 2] {
        let machine = &self.machine;
        let place = format!(
            "{} on {} memory; {}, {} processors, kernel {}, {}, {}, load {:.1}",
            self.experiment,
            self.media,
            machine.processor,
            machine.processors,
            machine.kernel,
            machine.flush,
            machine.stream,
            machine.load_average,
        );
        let setup = self
            .setup
            .iter()
            .map(|(name, value)| format!("{name} {value}"));
        [place, setup.collect::<Vec<_>>().join("   ")]
    }
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where and how it was measured.
    #[serde(flatten)]
    pub setting: Setting,
    /// Depends on the data that both sides moved: proof that the work was done.
    pub hash: String,
    /// The measurements.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether every row was measured, bar met or not.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.compared.error.is_none())
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
        let [place, setup] = self.setting.heading();
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
        let cells: Vec<[String; 10]> = self.rows.iter().map(Row::cells).collect();
        text.push_str(&aligned(head, &cells, &[0, 4, 5, 9]));
        let remarks: Vec<String> = self.rows.iter().flat_map(Row::remarks).collect();
        if !remarks.is_empty() {
            let _ = write!(text, "\n{}", remarks.concat());
        }
        text
    }
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

    fn compared() -> Compared {
        Compared {
            name: "overwrite_4k",
            value: Some(812.4),
            unit: "ns",
            against: "4 KiB streaming copy + fence",
            against_value: Some(560.0),
            ratio: Some(1.4507),
            bar: 1.5,
            better: Better::Lower,
            note: None,
            error: None,
        }
    }

    fn row() -> Row {
        Row {
            compared: compared(),
            flushes: Some(0.1),
            fences: Some(2.0),
            lines: Some(66.25),
            fences_bar: Some(2.0),
            best_value: None,
            ratio_range: None,
            latencies: None,
            against_latencies: None,
        }
    }

    fn row_of(compared: Compared) -> Row {
        Row { compared, ..row() }
    }

    #[test]
    fn bars_are_kept_or_not() {
        assert_eq!(row().is_met(), Some(true));
        let over = row_of(Compared {
            ratio: Some(1.51),
            ..compared()
        });
        assert_eq!(over.is_met(), Some(false));
        let fenced = Row {
            fences: Some(2.01),
            ..row()
        };
        assert_eq!(fenced.is_met(), Some(false));
        let under = row_of(Compared {
            better: Better::Higher,
            ..compared()
        });
        assert_eq!(under.is_met(), Some(false));
        let missing = row_of(Compared {
            ratio: None,
            ..compared()
        });
        assert_eq!(missing.is_met(), None);
    }

    #[test]
    fn the_table_is_aligned_and_says_what_failed() {
        let failed = row_of(Compared {
            value: None,
            ratio: None,
            error: Some("no mount".to_owned()),
            name: "fuse_read_4k",
            ..compared()
        });
        let report = Report {
            setting: Setting::here("ops", "dram"),
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
