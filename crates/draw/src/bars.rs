//! Bar charts: a row of intervals or names, for one series or several.

use crate::canvas::{Anchor, Canvas, MARGIN, Plot, Swatch, WIDTH, axis_width};
use crate::chart::{Chart, ChartError, Reference, check};
use crate::scale::Scale;
use crate::theme::SERIES_COLOURS;
use crate::unit::Unit;
use crate::xml::At;

/// Height of a plot that all series share.
const SHARED_HEIGHT: f64 = 240.0;
/// Height of the plot of one series among several.
const PANEL_HEIGHT: f64 = 110.0;

/// A bar chart.
///
/// Each place on the horizontal axis (an interval, or a name given by [`Bars::categories`]) has a bar of each series. The bars stand
/// side by side, or each series has a panel of its own below the others ([`Bars::panels`]), which suits many intervals.
///
/// ```
/// use perdure_draw::{Bars, Unit};
/// let chart = Bars::new("Bytes written in each of 4 intervals")
///     .x_label("interval of the pool")
///     .y_label("written", Unit::Bytes)
///     .series("ours", [1e6, 1.1e6, 1e6, 0.9e6])
///     .series("baseline", [4e6, 0.0, 0.0, 0.0])
///     .panels()
///     .means()
///     .build()?;
/// assert!(chart.svg().starts_with("<svg"));
/// # Ok::<(), perdure_draw::ChartError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Bars {
    title: String,
    description: String,
    x_label: String,
    y_label: String,
    unit: Unit,
    categories: Option<Vec<String>>,
    series: Vec<Series>,
    references: Vec<Reference>,
    layout: Layout,
    has_means: bool,
}

#[derive(Debug, Clone)]
struct Series {
    label: String,
    values: Vec<Option<f64>>,
}

/// A series and its colour.
type Member<'a> = (usize, &'a Series);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    SideBySide,
    Panels,
    PanelsOfOwnScale,
}

impl Bars {
    /// An empty chart.
    pub fn new(title: impl Into<String>) -> Bars {
        Bars {
            title: title.into(),
            description: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            unit: Unit::Count,
            categories: None,
            series: Vec::new(),
            references: Vec::new(),
            layout: Layout::SideBySide,
            has_means: false,
        }
    }

    /// What the chart shows, for those who do not see it; a summary of its numbers is added.
    pub fn description(mut self, text: impl Into<String>) -> Bars {
        self.description = text.into();
        self
    }

    /// What the places stand for.
    pub fn x_label(mut self, label: impl Into<String>) -> Bars {
        self.x_label = label.into();
        self
    }

    /// What the heights stand for.
    pub fn y_label(mut self, label: impl Into<String>, unit: Unit) -> Bars {
        self.y_label = label.into();
        self.unit = unit;
        self
    }

    /// Names of the places; without them, the places are numbered from 0.
    pub fn categories(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Bars {
        self.categories = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// A bar for each place: a number, or `None` for what was not measured.
    pub fn series(
        mut self,
        label: impl Into<String>,
        values: impl IntoIterator<Item = impl Into<Option<f64>>>,
    ) -> Bars {
        self.series.push(Series {
            label: label.into(),
            values: values.into_iter().map(Into::into).collect(),
        });
        self
    }

    /// A dashed line across the plot, in every panel.
    pub fn reference(mut self, name: impl Into<String>, value: f64) -> Bars {
        let name = name.into();
        self.references.push(Reference { name, value });
        self
    }

    /// One panel for each series, all on one scale, so that heights can be compared.
    pub fn panels(mut self) -> Bars {
        self.layout = Layout::Panels;
        self
    }

    /// One panel for each series, each on its own scale, so that shapes can be compared.
    pub fn panels_of_own_scale(mut self) -> Bars {
        self.layout = Layout::PanelsOfOwnScale;
        self
    }

    /// Marks the mean where a plot has one series; a panel also says how the peak relates to it.
    pub fn means(mut self) -> Bars {
        self.has_means = true;
        self
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// A number is none, or a series has not one value for each place.
    pub fn build(self) -> Result<Chart, ChartError> {
        let expected = self.places();
        for series in &self.series {
            check(
                &self.title,
                &series.label,
                series.values.iter().copied(),
                false,
            )?;
            if series.values.len() != expected {
                return Err(ChartError::Length {
                    chart: self.title,
                    series: series.label.clone(),
                    expected,
                    found: series.values.len(),
                });
            }
        }
        for reference in &self.references {
            check(&self.title, &reference.name, [Some(reference.value)], false)?;
        }
        Ok(Chart::of_bars(self))
    }

    fn places(&self) -> usize {
        match &self.categories {
            Some(names) => names.len(),
            None => self.series.first().map_or(0, |series| series.values.len()),
        }
    }

    pub(crate) fn draw(&self, id: &str, alone: bool) -> String {
        let mut canvas = Canvas::new(&self.title);
        match self.layout {
            Layout::SideBySide => self.draw_side_by_side(&mut canvas),
            Layout::Panels | Layout::PanelsOfOwnScale => self.draw_panels(&mut canvas),
        }
        canvas.finish(&self.title, &self.summary(), id, alone)
    }

    fn draw_side_by_side(&self, canvas: &mut Canvas) {
        if self.series.len() > 1 {
            let entries: Vec<_> = self
                .series
                .iter()
                .enumerate()
                .map(|(colour, series)| (Swatch::Bar { colour }, series.label.as_str()))
                .collect();
            canvas.legend(&entries);
        }
        self.draw_y_label(canvas);
        let members: Vec<_> = self.series.iter().enumerate().collect();
        self.draw_plot(canvas, &members, SHARED_HEIGHT, true);
    }

    fn draw_panels(&self, canvas: &mut Canvas) {
        self.draw_y_label(canvas);
        for (index, series) in self.series.iter().enumerate() {
            canvas.bottom += 22.0;
            let y = canvas.bottom - 4.0;
            canvas.text(MARGIN, y, "pd-name", Anchor::Start, &series.label);
            if let Some(text) = self.mean_text(series) {
                canvas.text(WIDTH - MARGIN, y, "pd-muted", Anchor::End, &text);
            }
            let is_last = index + 1 == self.series.len();
            self.draw_plot(canvas, &[(index, series)], PANEL_HEIGHT, is_last);
        }
        if self.series.is_empty() {
            self.draw_plot(canvas, &[], PANEL_HEIGHT, true);
        }
    }

    fn draw_y_label(&self, canvas: &mut Canvas) {
        let label = self.unit.axis_label(&self.y_label);
        if label.is_empty() {
            return;
        }
        canvas.bottom += 20.0;
        let y = canvas.bottom - 4.0;
        canvas.text(MARGIN, y, "pd-muted", Anchor::Start, &label);
    }

    /// A plot of some of the series, with their numbers; the last one has the horizontal axis' labels.
    fn draw_plot(&self, canvas: &mut Canvas, members: &[Member<'_>], height: f64, is_last: bool) {
        let y_scale = match self.layout {
            Layout::PanelsOfOwnScale => self.y_scale(members.iter().map(|(_, series)| *series)),
            Layout::SideBySide | Layout::Panels => self.y_scale(&self.series),
        };
        let top = canvas.bottom + 10.0;
        canvas.bottom = top + height;
        let plot = Plot {
            left: axis_width(&y_scale),
            right: WIDTH - MARGIN - 6.0,
            top,
            bottom: top + height,
        };
        plot.draw_y_axis(canvas, &y_scale);
        let mut obstacles = Vec::new();
        for (slot, member) in members.iter().enumerate() {
            let slots = (slot, members.len());
            self.draw_series(canvas, &plot, &y_scale, *member, slots, &mut obstacles);
        }
        if let ([(_, series)], true) = (members, self.has_means)
            && let Some(Statistics { mean, .. }) = Statistics::of(series)
        {
            plot.draw_reference(canvas, &y_scale, &Reference::nameless(mean), &[]);
        }
        for reference in &self.references {
            plot.draw_reference(canvas, &y_scale, reference, &obstacles);
        }
        if self.places() == 0 || members.is_empty() {
            plot.draw_no_data(canvas);
        }
        match is_last {
            true => plot.draw_x_axis(canvas, &self.x_scale(), &self.x_label),
            false => plot.draw_base_line(canvas, &self.x_scale()),
        }
    }

    fn x_scale(&self) -> Scale {
        match &self.categories {
            Some(names) => Scale::bands(names),
            None => Scale::positions(self.places(), 8),
        }
    }

    fn y_scale<'a>(&self, series: impl IntoIterator<Item = &'a Series>) -> Scale {
        let values = series
            .into_iter()
            .flat_map(|series| series.values.iter().flatten().copied());
        let all = values.chain(self.references.iter().map(|reference| reference.value));
        let (low, high) = all.fold((0f64, 0f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let steps = if self.layout == Layout::SideBySide {
            5
        } else {
            3
        };
        Scale::linear(low, high, &self.unit, steps)
    }

    /// The bars of one series; it is number `slot` of the `slots` that share a place. Points on them are added to `obstacles`.
    fn draw_series(
        &self,
        canvas: &mut Canvas,
        plot: &Plot,
        y_scale: &Scale,
        (colour, series): Member<'_>,
        (slot, slots): (usize, usize),
        obstacles: &mut Vec<(f64, f64)>,
    ) {
        let band = (plot.right - plot.left) / self.places().max(1) as f64;
        let gap = band * if band > 24.0 { 0.25 } else { 0.12 };
        let width = (band - gap) / slots as f64;
        let zero = plot.y(y_scale, 0.0);
        let class = format!("pd-f{}", colour % SERIES_COLOURS);
        canvas.body.start("g", &[("class", &class)]);
        canvas.body.line();
        for (place, value) in series.values.iter().enumerate() {
            let Some(value) = *value else { continue };
            let left = plot.left + place as f64 * band + gap / 2.0 + slot as f64 * width;
            let end = plot.y(y_scale, value);
            let (top, height) = (end.min(zero), (end - zero).abs());
            let text = format!(
                "{}, {}: {}",
                series.label,
                self.place_name(place),
                self.unit.text(value)
            );
            canvas.body.start(
                "rect",
                &[
                    ("x", &At(left)),
                    ("y", &At(top)),
                    ("width", &At(width)),
                    ("height", &At(height)),
                ],
            );
            canvas.body.leaf("title", &[], &text);
            canvas.body.end();
            canvas.body.line();
            let steps = (height / 10.0) as usize;
            obstacles.extend((0..=steps).map(|step| (left, top + step as f64 * 10.0)));
        }
        canvas.body.end();
        canvas.body.line();
    }

    fn place_name(&self, place: usize) -> String {
        match &self.categories {
            Some(names) => names[place].clone(),
            None => place.to_string(),
        }
    }

    fn mean_text(&self, series: &Series) -> Option<String> {
        let statistics = self.has_means.then(|| Statistics::of(series)).flatten()?;
        let mean = self.unit.text(statistics.mean);
        Some(match statistics.mean {
            0.0 => format!("mean {mean}"),
            _ => format!(
                "mean {mean}, peak {} the mean",
                Unit::Ratio.text(round(statistics.most / statistics.mean)),
            ),
        })
    }

    fn summary(&self) -> String {
        let mut text = self.description.clone();
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&format!("Bar chart with {} places.", self.places()));
        for series in &self.series {
            match Statistics::of(series) {
                Some(Statistics { least, mean, most }) => text.push_str(&format!(
                    " {}: {} to {}, mean {}.",
                    series.label,
                    self.unit.text(least),
                    self.unit.text(most),
                    self.unit.text(mean)
                )),
                None => text.push_str(&format!(" {}: no data.", series.label)),
            }
        }
        for reference in &self.references {
            let value = self.unit.text(reference.value);
            text.push_str(&format!(" Line at {value}: {}.", reference.name));
        }
        text
    }
}

/// Two decimals say enough of a ratio.
fn round(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

struct Statistics {
    least: f64,
    mean: f64,
    most: f64,
}

impl Statistics {
    fn of(series: &Series) -> Option<Statistics> {
        let values: Vec<f64> = series.values.iter().flatten().copied().collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some(Statistics {
            least,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            most,
        })
    }
}
