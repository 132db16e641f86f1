//! What an evaluation found: bars that were to be reached, and figures in the paper's terms; as JSON, as text, as one HTML page.

use crate::collector::{Found, Plan};
use crate::error::BenchError;
use crate::report::{Compared, Setting, aligned, figure, mark, quantity};
use draw::{Bars, Chart, ChartError, Lines, Page, Unit};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// One bar beside what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// Rows of every experiment have these columns.
    #[serde(flatten)]
    pub compared: Compared,
    /// Least and greatest of the rounds.
    pub ratio_range: Option<[f64; 2]>,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// What is missing, so that there are no numbers although nothing failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

impl Bar {
    /// Makes a row of a plan and the result of its measurement; an absence is no failure.
    pub(crate) fn of(plan: &Plan, result: Result<Found, BenchError>) -> Bar {
        let (found, not_measured, error) = match result {
            Ok(found) => (Some(found), None, None),
            Err(error) if error.is_absence() => (None, Some(error.to_string()), None),
            Err(error) => (None, None, Some(error.to_string())),
        };
        Bar {
            ratio_range: found.as_ref().and_then(|found| found.ratio_range),
            paper: plan.paper,
            compared: Compared::new(plan, found, error),
            not_measured,
        }
    }

    /// Whether the bar is reached; `None` if it was not measured.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        self.compared.keeps_bar()
    }

    fn cells(&self) -> [String; 8] {
        let [name, ours, theirs, ratio, limit] = self.compared.cells();
        let met = match self.not_measured {
            Some(_) => "not measured".to_owned(),
            None => mark(self.is_met()),
        };
        let against = self.compared.against.to_owned();
        let paper = figure(self.paper, "");
        [name, ours, theirs, ratio, limit, met, paper, against]
    }

    fn remarks(&self) -> Vec<(&'static str, String)> {
        let missing = self.not_measured.iter();
        let missing = missing.map(|reason| format!("not measured: {reason}"));
        let remarks = self.compared.remarks().chain(missing);
        remarks.map(|remark| (self.compared.name, remark)).collect()
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
    /// Where and how it was measured.
    #[serde(flatten)]
    pub setting: Setting,
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
        self.rows.iter().all(|row| row.compared.error.is_none())
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
        let mut text = self.setting.heading().join("\n");
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
        let cells: Vec<[String; 8]> = self.rows.iter().map(Bar::cells).collect();
        let _ = write!(text, "\n\n{}", aligned(head, &cells, &[0, 4, 5, 7]));
        for (name, remark) in self.rows.iter().flat_map(Bar::remarks) {
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
        let rows = self.rows.iter().map(Bar::cells);
        let [place, setup] = self.setting.heading();
        let mut page = Page::new(format!("Perdure: {}", self.setting.experiment))
            .paragraph(place)
            .paragraph(setup)
            .heading("Bars")
            .table(head, rows);
        let remarks = self.rows.iter().flat_map(Bar::remarks);
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
        let path = |suffix| directory.join(format!("{}.{suffix}", self.setting.experiment));
        let paths = [path("json"), path("html")];
        for (path, text) in paths.iter().zip([format!("{:#}\n", self.json()), page]) {
            std::fs::write(path, text).map_err(BenchError::io("write", path))?;
        }
        Ok(paths)
    }
}
