//! Line charts: how a figure grows with another, or from name to name.

use crate::canvas::{Anchor, Canvas, MARGIN, Plot, Swatch, WIDTH, axis_width};
use crate::chart::{Chart, ChartError, Reference, check};
use crate::scale::Scale;
use crate::theme::SERIES_COLOURS;
use crate::unit::Unit;

const HEIGHT: f64 = 280.0;
/// More points than this get no markers: they would hide the line.
const MARKED_POINTS_MAX: usize = 40;
/// More places than this cannot all have a tick.
const OWN_TICKS_MAX: usize = 10;

/// A line chart with markers and a legend.
///
/// ```
/// use perdure_draw::{Lines, Unit};
/// let chart = Lines::new("Throughput over threads")
///     .x_label("threads", Unit::Count)
///     .x_logarithmic()
///     .x_ticks_at_points()
///     .y_label("throughput", Unit::named("operations/s"))
///     .series("ours", [(1.0, 410e3), (2.0, 790e3), (4.0, 800e3)])
///     .series("baseline", [(1.0, 60e3), (2.0, 58e3), (4.0, 51e3)])
///     .build()?;
/// assert!(chart.svg().contains("baseline"));
/// # Ok::<(), perdure_draw::ChartError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Lines {
    title: String,
    description: String,
    x_label: String,
    x_unit: Unit,
    y_label: String,
    y_unit: Unit,
    categories: Option<Vec<String>>,
    series: Vec<Series>,
    references: Vec<Reference>,
    x_is_logarithmic: bool,
    y_is_logarithmic: bool,
    has_own_ticks: bool,
}

#[derive(Debug, Clone)]
struct Series {
    label: String,
    points: Vec<(f64, Option<f64>)>,
    colour: usize,
    dash: usize,
    is_companion: bool,
}

impl Lines {
    /// An empty chart.
    pub fn new(title: impl Into<String>) -> Lines {
        Lines {
            title: title.into(),
            description: String::new(),
            x_label: String::new(),
            x_unit: Unit::Count,
            y_label: String::new(),
            y_unit: Unit::Count,
            categories: None,
            series: Vec::new(),
            references: Vec::new(),
            x_is_logarithmic: false,
            y_is_logarithmic: false,
            has_own_ticks: false,
        }
    }

    /// What the chart shows, for those who do not see it; a summary of its numbers is added.
    pub fn description(mut self, text: impl Into<String>) -> Lines {
        self.description = text.into();
        self
    }

    /// What is varied.
    pub fn x_label(mut self, label: impl Into<String>, unit: Unit) -> Lines {
        self.x_label = label.into();
        self.x_unit = unit;
        self
    }

    /// What is measured.
    pub fn y_label(mut self, label: impl Into<String>, unit: Unit) -> Lines {
        self.y_label = label.into();
        self.y_unit = unit;
        self
    }

    /// Names instead of numbers on the horizontal axis; the series are then given by [`Lines::values`].
    pub fn x_categories(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Lines {
        self.categories = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Equal ratios are equally far apart on the horizontal axis.
    pub fn x_logarithmic(mut self) -> Lines {
        self.x_is_logarithmic = true;
        self
    }

    /// Equal ratios are equally far apart on the vertical axis. Without this it starts at zero.
    pub fn y_logarithmic(mut self) -> Lines {
        self.y_is_logarithmic = true;
        self
    }

    /// Ticks of the horizontal axis stand at the points (1, 2, 4, 8 threads) instead of at round numbers, unless the points are many.
    pub fn x_ticks_at_points(mut self) -> Lines {
        self.has_own_ticks = true;
        self
    }

    /// A line through points (x, y), drawn from left to right.
    pub fn series(
        self,
        label: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Lines {
        let points = points.into_iter().map(|(x, y)| (x, Some(y))).collect();
        let (colour, dash) = self.next_colour();
        self.push(label.into(), points, colour, dash)
    }

    /// A line with a value for each category; `None`, for what was not measured, interrupts it.
    pub fn values(
        self,
        label: impl Into<String>,
        values: impl IntoIterator<Item = impl Into<Option<f64>>>,
    ) -> Lines {
        let points = values
            .into_iter()
            .enumerate()
            .map(|(place, value)| (place as f64 + 0.5, value.into()))
            .collect();
        let (colour, dash) = self.next_colour();
        self.push(label.into(), points, colour, dash)
    }

    /// Makes the series that was added last a dashed companion of series `of` (counted from 0), with its colour and marker: the peer
    /// in a comparison.
    pub fn like(mut self, of: usize) -> Lines {
        let colour = self.series.get(of).map(|series| series.colour);
        if let (Some(colour), Some(last)) = (colour, self.series.last_mut()) {
            (last.colour, last.dash) = (colour, 1);
            last.is_companion = true;
        }
        self
    }

    /// A dashed line across the plot.
    pub fn reference(mut self, name: impl Into<String>, value: f64) -> Lines {
        let name = name.into();
        self.references.push(Reference { name, value });
        self
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// A number is none, or not above zero on a logarithmic axis, or a series has not one value for each category.
    pub fn build(mut self) -> Result<Chart, ChartError> {
        let option = |reason| ChartError::Option {
            chart: self.title.clone(),
            reason,
        };
        if self.categories.is_some() && (self.x_is_logarithmic || self.has_own_ticks) {
            return Err(option("names have no logarithm and no ticks of their own"));
        }
        for series in &self.series {
            let x = series.points.iter().map(|(x, _)| Some(*x));
            check(&self.title, &series.label, x, self.x_is_logarithmic)?;
            let y = series.points.iter().map(|(_, y)| *y);
            check(&self.title, &series.label, y, self.y_is_logarithmic)?;
            if let Some(names) = &self.categories
                && names.len() != series.points.len()
            {
                return Err(ChartError::Length {
                    chart: self.title.clone(),
                    series: series.label.clone(),
                    expected: names.len(),
                    found: series.points.len(),
                });
            }
        }
        for reference in &self.references {
            let value = [Some(reference.value)];
            check(&self.title, &reference.name, value, self.y_is_logarithmic)?;
        }
        for series in &mut self.series {
            series
                .points
                .sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        Ok(Chart::of_lines(self))
    }

    /// The first colour that no line has; when all are taken, the same with dashes.
    fn next_colour(&self) -> (usize, usize) {
        let taken = self.series.iter().filter(|series| !series.is_companion);
        let index = taken.count();
        match index / SERIES_COLOURS {
            0 => (index, 0),
            // Companions have the first kind of dash.
            turn => (index % SERIES_COLOURS, turn + 1),
        }
    }

    fn push(
        mut self,
        label: String,
        points: Vec<(f64, Option<f64>)>,
        colour: usize,
        dash: usize,
    ) -> Lines {
        self.series.push(Series {
            label,
            points,
            colour,
            dash,
            is_companion: false,
        });
        self
    }

    pub(crate) fn draw(&self, id: &str, alone: bool) -> String {
        let mut canvas = Canvas::new(&self.title);
        if self.series.len() > 1 {
            let entries: Vec<_> = self
                .series
                .iter()
                .map(|series| {
                    let (colour, dash) = (series.colour, series.dash);
                    (Swatch::Line { colour, dash }, series.label.as_str())
                })
                .collect();
            canvas.legend(&entries);
        }
        let label = self.y_unit.axis_label(&self.y_label);
        if !label.is_empty() {
            canvas.bottom += 20.0;
            let y = canvas.bottom - 4.0;
            canvas.text(MARGIN, y, "pd-muted", Anchor::Start, &label);
        }
        let (x_scale, y_scale) = (self.x_scale(), self.y_scale());
        let top = canvas.bottom + 10.0;
        let plot = Plot {
            left: axis_width(&y_scale),
            right: WIDTH - MARGIN - 12.0,
            top,
            bottom: top + HEIGHT,
        };
        canvas.bottom = plot.bottom;
        plot.draw_y_axis(&mut canvas, &y_scale);
        if self.values_of_y().next().is_none() {
            plot.draw_no_data(&mut canvas);
        }
        let mut obstacles = Vec::new();
        for series in &self.series {
            let scales = (&x_scale, &y_scale);
            draw_series(&mut canvas, &plot, scales, series, &mut obstacles);
        }
        for reference in &self.references {
            plot.draw_reference(&mut canvas, &y_scale, reference, &obstacles);
        }
        let label = self.x_unit.axis_label(&self.x_label);
        plot.draw_x_axis(&mut canvas, &x_scale, &label);
        canvas.finish(&self.title, &self.summary(), id, alone)
    }

    fn values_of_y(&self) -> impl Iterator<Item = f64> {
        self.series
            .iter()
            .flat_map(|series| series.points.iter().filter_map(|(_, y)| *y))
    }

    fn x_scale(&self) -> Scale {
        if let Some(names) = &self.categories {
            return Scale::bands(names);
        }
        let mut places: Vec<f64> = self
            .series
            .iter()
            .flat_map(|series| series.points.iter().map(|(x, _)| *x))
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let low = places.first().copied();
        let high = places.last().copied();
        let (low, high) = match (low, high) {
            (Some(low), Some(high)) => (low, high),
            _ if self.x_is_logarithmic => (1.0, 10.0),
            _ => (0.0, 1.0),
        };
        if self.has_own_ticks && (2..=OWN_TICKS_MAX).contains(&places.len()) {
            return Scale::at(&places, self.x_is_logarithmic, &self.x_unit);
        }
        match self.x_is_logarithmic {
            true => Scale::logarithmic(low, high, &self.x_unit),
            false => Scale::linear(low, high, &self.x_unit, 7),
        }
    }

    fn y_scale(&self) -> Scale {
        let all = self
            .values_of_y()
            .chain(self.references.iter().map(|reference| reference.value));
        if !self.y_is_logarithmic {
            let (low, high) = all.fold((0f64, 0f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
            return Scale::linear(low, high, &self.y_unit, 5);
        }
        let (low, high) = all.fold((f64::INFINITY, 0f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        match low.is_finite() {
            true => Scale::logarithmic(low, high, &self.y_unit),
            false => Scale::logarithmic(1.0, 10.0, &self.y_unit),
        }
    }

    fn summary(&self) -> String {
        let mut text = self.description.clone();
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&format!("Line chart with {} lines.", self.series.len()));
        for series in &self.series {
            let name_of = |x: f64| match &self.categories {
                Some(names) => names[x as usize].clone(),
                None => self.x_unit.text(x),
            };
            let measured = series.points.iter().filter_map(|(x, y)| y.map(|y| (*x, y)));
            let points: Vec<String> = measured
                .take(MARKED_POINTS_MAX)
                .map(|(x, y)| format!("{} at {}", self.y_unit.text(y), name_of(x)))
                .collect();
            match points.is_empty() {
                true => text.push_str(&format!(" {}: no data.", series.label)),
                false => text.push_str(&format!(" {}: {}.", series.label, points.join(", "))),
            }
        }
        for reference in &self.references {
            let value = self.y_unit.text(reference.value);
            text.push_str(&format!(" Line at {value}: {}.", reference.name));
        }
        text
    }
}

/// Draws one line; points along it are added to `obstacles`.
fn draw_series(
    canvas: &mut Canvas,
    plot: &Plot,
    (x, y): (&Scale, &Scale),
    series: &Series,
    obstacles: &mut Vec<(f64, f64)>,
) {
    let place =
        |(at, value): &(f64, Option<f64>)| value.map(|value| (plot.x(x, *at), plot.y(y, value)));
    let places: Vec<Option<(f64, f64)>> = series.points.iter().map(place).collect();
    for stretch in places.split(Option::is_none) {
        let stretch: Vec<(f64, f64)> = stretch.iter().flatten().copied().collect();
        obstacles.extend(stretch.iter().copied());
        for ends in stretch.windows(2) {
            obstacles.extend((1..20).map(|step| between(ends[0], ends[1], f64::from(step) / 20.0)));
        }
        if stretch.len() > 1 {
            canvas.line(stretch, series.colour, series.dash);
        }
    }
    // A single point would be invisible without its marker.
    let has_markers = places.len() <= MARKED_POINTS_MAX;
    for (index, place) in places.iter().enumerate() {
        let Some(place) = place else { continue };
        let lonely = (index == 0 || places[index - 1].is_none())
            && places.get(index + 1).is_none_or(Option::is_none);
        if has_markers || lonely {
            canvas.marker(*place, series.colour);
        }
    }
}

fn between(from: (f64, f64), to: (f64, f64), share: f64) -> (f64, f64) {
    let mix = |from: f64, to: f64| from + (to - from) * share;
    (mix(from.0, to.0), mix(from.1, to.1))
}
