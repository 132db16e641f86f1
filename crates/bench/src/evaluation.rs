//! What an evaluation found: bars that were to be reached, and figures in the paper's terms; as JSON, as text, as one HTML page.

use crate::error::BenchError;
use crate::machine::Machine;
use crate::measure::Rounds;
use crate::ops::guarded;
use crate::report::{Better, aligned, figure, heading, mark, quantity};
use draw::{Bars, Chart, ChartError, Lines, Page, Unit};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A bar, before it is measured.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Unit of both sides; that of the ratio is none.
    pub(crate) unit: &'static str,
    /// What our side is compared with.
    pub(crate) against: &'static str,
    pub(crate) bar: f64,
    pub(crate) better: Better,
    /// The ratio that the paper gives.
    pub(crate) paper: Option<f64>,
}

impl Plan {
    /// The ratio is to be this or more.
    pub(crate) const fn at_least(
        name: &'static str,
        unit: &'static str,
        against: &'static str,
        bar: f64,
        paper: Option<f64>,
    ) -> Plan {
        Plan {
            name,
            unit,
            against,
            bar,
            better: Better::Higher,
            paper,
        }
    }
}

/// One bar beside what was measured. Numbers are absent when it could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// Name; scripts rely on it.
    pub name: &'static str,
    /// Our side: median of the rounds.
    pub value: Option<f64>,
    /// Unit of both sides.
    pub unit: &'static str,
    /// What it is compared with.
    pub against: &'static str,
    /// The other side: median of the rounds.
    pub against_value: Option<f64>,
    /// What the bar is about: median of the rounds.
    pub ratio: Option<f64>,
    /// Least and greatest of the rounds.
    pub ratio_range: Option<[f64; 2]>,
    /// Limit of the ratio.
    pub bar: f64,
    /// Whether the bar is an upper or a lower limit.
    pub better: Better,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// How it was measured, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What is missing, so that there are no numbers although nothing failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Bar {
    /// Whether the bar is reached; `None` if it was not measured.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let ratio = self.ratio?;
        Some(self.better.keeps(ratio, self.bar))
    }
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A line for each series.
    Lines,
    /// Bars side by side.
    Bars,
    /// A panel of bars for each series.
    Panels,
}

/// Numbers of one kind at several places.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Whose numbers.
    pub label: String,
    /// One for each place; absent where nothing was measured.
    pub values: Vec<Option<f64>>,
}

/// A figure as plain data.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name; scripts rely on it.
    pub name: String,
    /// Title.
    pub title: String,
    /// How it is drawn.
    pub shape: Shape,
    /// What the places are.
    pub x_label: &'static str,
    /// The places.
    pub places: Vec<String>,
    /// What the numbers are.
    pub y_label: &'static str,
    /// The numbers.
    pub series: Vec<Series>,
}

impl Figure {
    fn unit(&self) -> Unit {
        match self.y_label {
            "operations/s" => Unit::named("operations/s"),
            "bytes written" => Unit::Bytes,
            "bytes/s" => Unit::BytesPerSecond,
            "seconds" => Unit::Seconds,
            "ns" | "%" => Unit::named(self.y_label),
            _ => Unit::Count,
        }
    }

    fn chart(&self) -> Result<Chart, ChartError> {
        let unit = self.unit();
        if self.shape == Shape::Lines {
            let mut lines = Lines::new(self.title.clone())
                .x_label(self.x_label, Unit::Count)
                .y_label(self.y_label, unit)
                .x_categories(self.places.iter().cloned());
            for series in &self.series {
                lines = lines.values(series.label.clone(), series.values.iter().copied());
            }
            return lines.build();
        }
        let mut bars = Bars::new(self.title.clone())
            .x_label(self.x_label)
            .y_label(self.y_label, unit)
            .categories(self.places.iter().cloned());
        for series in &self.series {
            bars = bars.series(series.label.clone(), series.values.iter().copied());
        }
        if self.shape == Shape::Panels {
            bars = bars.panels().means();
        }
        bars.build()
    }

    /// As lines of text; panels, whose places are many, by their summary.
    fn text(&self) -> String {
        let mut text = format!("\n{}: {}\n", self.name, self.title);
        if self.shape == Shape::Panels {
            let rows: Vec<[String; 4]> = self.series.iter().map(summary).collect();
            text.push_str(&aligned(["", "peak", "mean", "peak/mean"], &rows, &[0]));
            return text;
        }
        let unit = self.unit();
        for series in &self.series {
            let _ = write!(text, "  {:<24}", series.label);
            for (place, value) in self.places.iter().zip(&series.values) {
                let number = |value| match unit {
                    Unit::BytesPerSecond | Unit::Seconds => unit.text(value),
                    _ => quantity(value, ""),
                };
                let value = value.map_or("–".to_owned(), number);
                let _ = write!(text, "  {place}: {value}");
            }
            text.push('\n');
        }
        text
    }
}

fn summary(series: &Series) -> [String; 4] {
    let values: Vec<f64> = series.values.iter().flatten().copied().collect();
    let peak = values.iter().copied().fold(0.0, f64::max);
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let megabytes = |bytes: f64| quantity(bytes / f64::from(1 << 20), "MiB");
    [
        format!("  {}", series.label),
        megabytes(peak),
        megabytes(mean),
        quantity(peak / mean, ""),
    ]
}

/// The result of an evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Name of the media model.
    pub media: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Sizes and counts that the figures depend on.
    pub setup: Map<String, Value>,
    /// The bars.
    pub rows: Vec<Bar>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What else was found out, by topic.
    pub details: Map<String, Value>,
}

impl Evaluation {
    /// Whether no bar failed: each was measured, reached or not, but for those that need what this machine does not have.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.error.is_none())
    }

    /// The evaluation as a JSON document.
    #[must_use]
    pub fn json(&self) -> Value {
        // Strings, numbers and lists only: nothing that JSON lacks.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// The evaluation as text for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.heading().join("\n");
        let head = [
            "row",
            "ours",
            "against",
            "ratio",
            "bar",
            "",
            "paper",
            "compared with",
        ];
        let cells: Vec<[String; 8]> = self.rows.iter().map(cells).collect();
        let _ = write!(text, "\n\n{}", aligned(head, &cells, &[0, 4, 5, 7]));
        for (name, remark) in self.rows.iter().flat_map(remarks) {
            let _ = writeln!(text, "{name}: {remark}");
        }
        text.extend(self.figures.iter().map(Figure::text));
        for (topic, value) in &self.details {
            if let Value::String(value) = value {
                let _ = writeln!(text, "\n{topic}: {value}");
            }
        }
        text
    }

    fn heading(&self) -> [String; 2] {
        heading(self.experiment, &self.media, &self.machine, &self.setup)
    }

    /// The evaluation as one HTML document that needs nothing else.
    ///
    /// # Errors
    /// A number cannot be drawn.
    pub fn page(&self) -> Result<String, ChartError> {
        let head = [
            "bar",
            "ours",
            "against",
            "ratio",
            "limit",
            "",
            "paper",
            "compared with",
        ];
        let rows = self.rows.iter().map(cells);
        let [place, setup] = self.heading();
        let mut page = Page::new(format!("Perdure: {}", self.experiment))
            .paragraph(place)
            .paragraph(setup)
            .heading("Bars")
            .table(head, rows);
        let remarks = self.rows.iter().flat_map(remarks);
        let mut remarks = remarks
            .map(|(name, remark)| [name.to_owned(), remark])
            .peekable();
        if remarks.peek().is_some() {
            page = page.heading("Remarks").table(["bar", ""], remarks);
        }
        for figure in &self.figures {
            page = page.chart(figure.chart()?);
        }
        Ok(page.html())
    }

    /// Writes `EXPERIMENT.json` and `EXPERIMENT.html` into `directory`, which is made if it is not there, and returns their paths.
    ///
    /// # Errors
    /// A file cannot be written, or a number cannot be drawn.
    pub fn write(&self, directory: &Path) -> Result<[PathBuf; 2], BenchError> {
        std::fs::create_dir_all(directory).map_err(BenchError::io("make", directory))?;
        let page = self
            .page()
            .map_err(|error| BenchError::Setup(error.to_string()))?;
        let path = |suffix| directory.join(format!("{}.{suffix}", self.experiment));
        let paths = [path("json"), path("html")];
        for (path, text) in paths.iter().zip([format!("{:#}\n", self.json()), page]) {
            std::fs::write(path, text).map_err(BenchError::io("write", path))?;
        }
        Ok(paths)
    }
}

fn cells(row: &Bar) -> [String; 8] {
    [
        row.name.to_owned(),
        figure(row.value, row.unit),
        figure(row.against_value, row.unit),
        figure(row.ratio, ""),
        row.better.limit(row.bar),
        match row.not_measured {
            Some(_) => "not measured".to_owned(),
            None => mark(row.is_met()),
        },
        figure(row.paper, ""),
        row.against.to_owned(),
    ]
}

fn remarks(row: &Bar) -> Vec<(&'static str, String)> {
    let failed = row.error.iter().map(|error| format!("FAILED: {error}"));
    let missing = row.not_measured.iter();
    let missing = missing.map(|reason| format!("not measured: {reason}"));
    let remarks = row.note.iter().cloned().chain(missing).chain(failed);
    remarks.map(|remark| (row.name, remark)).collect()
}

/// What measuring a bar gave.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) value: f64,
    pub(crate) against_value: f64,
    pub(crate) ratio: f64,
    pub(crate) ratio_range: Option<[f64; 2]>,
    pub(crate) note: Option<String>,
}

impl Found {
    /// Ours over theirs.
    pub(crate) fn of(rounds: &Rounds) -> Found {
        let [least, ratio, greatest] = rounds.ratios();
        Found {
            value: rounds.ours(),
            against_value: rounds.theirs(),
            ratio,
            ratio_range: Some([least, greatest]),
            note: None,
        }
    }

    /// For bars about speed where the rounds are times: theirs over ours.
    pub(crate) fn speed_of(rounds: &Rounds) -> Found {
        let [least, ratio, greatest] = rounds.ratios();
        Found {
            ratio: 1.0 / ratio,
            ratio_range: Some([1.0 / greatest, 1.0 / least]),
            ..Found::of(rounds)
        }
    }

    pub(crate) fn noted(mut self, note: String) -> Found {
        self.note = Some(note);
        self
    }
}

/// Refuses names that are none of the known ones.
pub(crate) fn check_rows(only: &[String], known: &[&str]) -> Result<(), BenchError> {
    match only.iter().find(|row| !known.contains(&row.as_str())) {
        None => Ok(()),
        Some(row) => Err(BenchError::UnknownRow {
            row: row.clone(),
            known: known.join(", "),
        }),
    }
}

/// Collects what an evaluation finds. Whatever fails takes only its own bars along.
pub(crate) struct Collector {
    plans: Vec<&'static Plan>,
    progress: Option<fn(&str)>,
    found: BTreeMap<&'static str, Result<Found, BenchError>>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) details: Map<String, Value>,
}

impl Collector {
    /// For those of the plans that are named in `only`; for all if it is empty.
    pub(crate) fn new(
        plans: impl IntoIterator<Item = &'static Plan>,
        only: &[String],
        progress: Option<fn(&str)>,
    ) -> Collector {
        let wanted = |plan: &&Plan| only.is_empty() || only.iter().any(|name| name == plan.name);
        Collector {
            plans: plans.into_iter().filter(wanted).collect(),
            progress,
            found: BTreeMap::new(),
            figures: Vec::new(),
            details: Map::new(),
        }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.plans.iter().any(|plan| plan.name == name)
    }

    pub(crate) fn tell(&self, what: &str) {
        if let Some(progress) = self.progress {
            progress(what);
        }
    }

    /// Measures a bar if it is wanted; an error or a panic is its result.
    pub(crate) fn row(
        &mut self,
        name: &'static str,
        measure: impl FnOnce() -> Result<Found, BenchError>,
    ) {
        if self.wants(name) {
            self.tell(name);
            self.found.insert(name, guarded(measure));
        }
    }

    /// Does what several bars need, if one is wanted; an error is the result of all bars that were not reached.
    pub(crate) fn group(
        &mut self,
        names: &[&'static str],
        measure: impl FnOnce(&mut Collector) -> Result<(), BenchError>,
    ) {
        let wanted = names.iter().copied().filter(|name| self.wants(name));
        let wanted: Vec<&'static str> = wanted.collect();
        if wanted.is_empty() {
            return;
        }
        if let Err(error) = guarded(|| measure(self)) {
            for name in wanted {
                self.found
                    .entry(name)
                    .or_insert_with(|| Err(error.for_another()));
            }
        }
    }

    pub(crate) fn finish(
        mut self,
        experiment: &'static str,
        media: String,
        machine: Machine,
        setup: Map<String, Value>,
    ) -> Evaluation {
        let rows = self.plans.iter().map(|plan| {
            let missing = || Err(BenchError::Setup("it was not reached".to_owned()));
            plan.bar(self.found.remove(plan.name).unwrap_or_else(missing))
        });
        Evaluation {
            experiment,
            media,
            machine,
            setup,
            rows: rows.collect(),
            figures: self.figures,
            details: self.details,
        }
    }
}

impl Plan {
    fn bar(&self, result: Result<Found, BenchError>) -> Bar {
        let (found, not_measured, error) = match result {
            Ok(found) => (Some(found), None, None),
            Err(error) if error.is_absence() => (None, Some(error.to_string()), None),
            Err(error) => (None, None, Some(error.to_string())),
        };
        let known = found.as_ref();
        Bar {
            name: self.name,
            value: known.map(|found| found.value),
            unit: self.unit,
            against: self.against,
            against_value: known.map(|found| found.against_value),
            ratio: known.map(|found| found.ratio),
            ratio_range: known.and_then(|found| found.ratio_range),
            bar: self.bar,
            better: self.better,
            paper: self.paper,
            note: found.and_then(|found| found.note),
            not_measured,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::PLANS;

    #[test]
    fn what_several_rows_lack_is_an_absence_in_each() {
        let names = ["fio_randwrite", "fio_randread"];
        let only = names.map(str::to_owned);
        let mut collector = Collector::new(&PLANS, &only, None);
        collector.group(&names, |_| {
            Err(BenchError::NotInstalled {
                program: "fio",
                package: "fio",
            })
        });
        let machine = Machine::this();
        let evaluation = collector.finish("direct", String::new(), machine, Map::new());
        assert_eq!(evaluation.rows.len(), names.len());
        for row in &evaluation.rows {
            let said = row.not_measured.as_deref();
            assert_eq!(said, Some("fio is not installed (apt install fio)"));
            assert_eq!(row.error, None);
        }
    }
}
