//! Heat maps: one cell for each of many things, coloured by a number.

use crate::canvas::{Anchor, Canvas, MARGIN, WIDTH, text_width};
use crate::chart::{Chart, ChartError, check};
use crate::scale::Scale;
use crate::theme;
use crate::unit::Unit;
use crate::xml::At;
use std::collections::BTreeSet;

/// Width left of the cells, for the number of each row's first one.
const NUMBERS: f64 = 44.0;
const CELL_MAX: f64 = 36.0;
/// A smaller cell has no room for a letter.
const LETTER_FROM: f64 = 15.0;
const KEY_STEPS: usize = 40;

/// A heat map: the wear of a pool's segments, say. Cells are laid out in rows, like text.
///
/// ```
/// use perdure_draw::{HeatMap, Unit};
/// let chart = HeatMap::new("Blocks written in each segment")
///     .cells("segment", [10.0, 12.0, 11.0, 9.0], Unit::named("blocks"))
///     .build()?;
/// assert!(chart.svg().contains("segment 3: 9"));
/// # Ok::<(), perdure_draw::ChartError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct HeatMap {
    title: String,
    description: String,
    cell: String,
    unit: Unit,
    values: Vec<Option<f64>>,
    marks: Vec<Mark>,
    columns: Option<usize>,
    range: Option<(f64, f64)>,
}

#[derive(Debug, Clone)]
struct Mark {
    letter: char,
    meaning: String,
    cells: BTreeSet<usize>,
}

impl HeatMap {
    /// An empty map.
    pub fn new(title: impl Into<String>) -> HeatMap {
        HeatMap {
            title: title.into(),
            description: String::new(),
            cell: "cell".to_owned(),
            unit: Unit::Count,
            values: Vec::new(),
            marks: Vec::new(),
            columns: None,
            range: None,
        }
    }

    /// What the map shows, for those who do not see it; a summary of its numbers is added.
    pub fn description(mut self, text: impl Into<String>) -> HeatMap {
        self.description = text.into();
        self
    }

    /// What a cell stands for (`segment`), and the number of each, in order; `None` leaves a cell empty.
    pub fn cells(
        mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = impl Into<Option<f64>>>,
        unit: Unit,
    ) -> HeatMap {
        self.cell = name.into();
        self.values = values.into_iter().map(Into::into).collect();
        self.unit = unit;
        self
    }

    /// A letter in some cells, and what it means. Cells that are too small for letters have the meaning in their tool tips only.
    pub fn mark(
        mut self,
        letter: char,
        meaning: impl Into<String>,
        cells: impl IntoIterator<Item = usize>,
    ) -> HeatMap {
        self.marks.push(Mark {
            letter,
            meaning: meaning.into(),
            cells: cells.into_iter().collect(),
        });
        self
    }

    /// Cells in a row; without this, a power of two that suits their number.
    pub fn columns(mut self, columns: usize) -> HeatMap {
        self.columns = Some(columns);
        self
    }

    /// Numbers at the dark and the light end of the scale, instead of 0 and the greatest. What lies outside has the end's colour.
    pub fn range(mut self, low: f64, high: f64) -> HeatMap {
        self.range = Some((low, high));
        self
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// A number is none, a range is empty, or there are no columns.
    pub fn build(self) -> Result<Chart, ChartError> {
        check(&self.title, &self.cell, self.values.iter().copied(), false)?;
        let option = |reason| ChartError::Option {
            chart: self.title.clone(),
            reason,
        };
        if let Some((low, high)) = self.range {
            check(&self.title, "range", [Some(low), Some(high)], false)?;
            if low >= high {
                return Err(option("the range's low end must be below its high end"));
            }
        }
        if self.columns == Some(0) {
            return Err(option("a row needs a column"));
        }
        Ok(Chart::of_heat(self))
    }

    pub(crate) fn draw(&self, id: &str, alone: bool) -> String {
        let mut canvas = Canvas::new(&self.title);
        self.draw_key(&mut canvas);
        if self.values.is_empty() {
            canvas.bottom += 40.0;
            let (x, y) = (WIDTH / 2.0, canvas.bottom);
            canvas.text(x, y, "pd-muted", Anchor::Middle, "no data");
        } else {
            self.draw_cells(&mut canvas);
        }
        canvas.finish(&self.title, &self.summary(), id, alone)
    }

    fn limits(&self) -> (f64, f64) {
        if let Some(range) = self.range {
            return range;
        }
        let values = self.values.iter().flatten().copied();
        let (low, high) = values.fold((0f64, 0f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low == high { (0.0, 1.0) } else { (low, high) }
    }

    /// The scale of colours with its numbers, and the letters with their meaning.
    fn draw_key(&self, canvas: &mut Canvas) {
        let (low, high) = self.limits();
        let left = MARGIN + NUMBERS;
        let width = 260.0;
        let top = canvas.bottom + 10.0;
        for step in 0..KEY_STEPS {
            let share = (step as f64 + 0.5) / KEY_STEPS as f64;
            let step_width = width / KEY_STEPS as f64;
            canvas.body.empty(
                "rect",
                &[
                    ("x", &At(left + step as f64 * step_width)),
                    ("y", &At(top)),
                    // A little more than its share, so that no seam shows.
                    ("width", &At(step_width + 0.4)),
                    ("height", &12),
                    ("fill", &theme::heat(share)),
                ],
            );
        }
        canvas.body.line();
        let scale = Scale::linear(low, high, &self.unit, 4);
        for tick in &scale.ticks {
            let share = (tick.value - low) / (high - low);
            if (-1e-9..=1.0 + 1e-9).contains(&share) {
                let x = left + share * width;
                canvas.text(x, top + 26.0, "pd-muted", Anchor::Middle, &tick.label);
            }
        }
        let mut x = left + width + 24.0;
        if let Some(name) = self.unit.axis_name() {
            canvas.text(x, top + 11.0, "pd-name", Anchor::Start, name);
        }
        canvas.bottom = top + 34.0;
        x = left;
        for mark in &self.marks {
            let text = format!("{} {}", mark.letter, mark.meaning);
            if x == left || x + text_width(&text) > WIDTH - MARGIN {
                canvas.bottom += 16.0;
                x = left;
            }
            let y = canvas.bottom;
            canvas.text(x, y, "pd-muted", Anchor::Start, &text);
            x += text_width(&text) + 20.0;
        }
        canvas.bottom += 12.0;
    }

    fn columns_of_map(&self) -> usize {
        self.columns.unwrap_or(match self.values.len() {
            0..=16 => 8,
            17..=128 => 16,
            129..=1024 => 32,
            _ => 64,
        })
    }

    fn draw_cells(&self, canvas: &mut Canvas) {
        let columns = self.columns_of_map();
        let left = MARGIN + NUMBERS;
        let side = ((WIDTH - MARGIN - left) / columns as f64).min(CELL_MAX);
        let top = canvas.bottom;
        for (index, value) in self.values.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let x = left + column as f64 * side;
            let y = top + row as f64 * side;
            // Rows closer than lines of text are numbered now and then.
            let rows_per_number = (14.0 / side).ceil() as usize;
            if column == 0 && row.is_multiple_of(rows_per_number) {
                let number = index.to_string();
                canvas.text(
                    left - 6.0,
                    y + side / 2.0 + 4.0,
                    "pd-muted",
                    Anchor::End,
                    &number,
                );
            }
            self.draw_cell(canvas, index, *value, (x, y), side);
        }
        let rows = self.values.len().div_ceil(columns);
        canvas.bottom = top + rows as f64 * side;
    }

    fn draw_cell(
        &self,
        canvas: &mut Canvas,
        index: usize,
        value: Option<f64>,
        (x, y): (f64, f64),
        side: f64,
    ) {
        let (low, high) = self.limits();
        let share = value.map(|value| (value - low) / (high - low));
        let gap = if side > 8.0 { 1.0 } else { 0.5 };
        let inner = At((side - gap).max(0.1));
        let (x_at, y_at) = (At(x), At(y));
        let colour = share.map(theme::heat);
        let mut attributes: Vec<crate::xml::Attribute<'_>> = vec![
            ("x", &x_at),
            ("y", &y_at),
            ("width", &inner),
            ("height", &inner),
        ];
        match &colour {
            Some(colour) => attributes.push(("fill", colour)),
            None => attributes.push(("class", &"pd-none")),
        }
        canvas.body.start("rect", &attributes);
        canvas
            .body
            .leaf("title", &[], &self.cell_text(index, value));
        canvas.body.end();
        canvas.body.line();
        if side < LETTER_FROM {
            return;
        }
        for mark in self.marks.iter().filter(|mark| mark.cells.contains(&index)) {
            let ink = if share.is_some_and(|share| share > 0.5) {
                "fill:#000"
            } else {
                "fill:#fff"
            };
            canvas.body.leaf(
                "text",
                &[
                    ("style", &ink),
                    ("x", &At(x + side / 2.0)),
                    ("y", &At(y + side / 2.0 + 4.0)),
                    ("text-anchor", &"middle"),
                ],
                &mark.letter.to_string(),
            );
            canvas.body.line();
        }
    }

    fn cell_text(&self, index: usize, value: Option<f64>) -> String {
        let value = value.map_or("no data".to_owned(), |value| self.unit.text(value));
        let mut text = format!("{} {index}: {value}", self.cell);
        for mark in self.marks.iter().filter(|mark| mark.cells.contains(&index)) {
            text.push_str(", ");
            text.push_str(&mark.meaning);
        }
        text
    }

    fn summary(&self) -> String {
        let mut text = self.description.clone();
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&format!("Heat map of {} cells.", self.values.len()));
        let known = || {
            self.values
                .iter()
                .enumerate()
                .filter_map(|(index, value)| value.map(|value| (index, value)))
        };
        let least = known().min_by(|one, other| one.1.total_cmp(&other.1));
        let most = known().max_by(|one, other| one.1.total_cmp(&other.1));
        if let (Some(least), Some(most)) = (least, most) {
            let mean = known().map(|(_, value)| value).sum::<f64>() / known().count() as f64;
            text.push_str(&format!(
                " Least: {} {} with {}. Most: {} {} with {}. Mean: {}.",
                self.cell,
                least.0,
                self.unit.text(least.1),
                self.cell,
                most.0,
                self.unit.text(most.1),
                self.unit.text(mean),
            ));
        }
        text
    }
}
