//! What a chart is once its numbers were checked.

use crate::bars::Bars;
use crate::heat::HeatMap;
use crate::lines::Lines;

/// Greater numbers than this have no name, and drawing them would overflow.
const MAGNITUDE_MAX: f64 = 1e30;

/// A chart whose numbers can all be drawn; made by [`Bars::build`], [`Lines::build`] and [`HeatMap::build`].
#[derive(Debug, Clone)]
pub struct Chart(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Bars(Bars),
    Lines(Lines),
    Heat(HeatMap),
}

/// Why numbers cannot be drawn: a mistake of the caller.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChartError {
    /// NaN, an infinity, or a number beyond 10^30.
    #[error(
        "chart \"{chart}\", series \"{series}\": value {position} is {value}; leave out what was not measured"
    )]
    NotDrawable {
        /// Title of the chart.
        chart: String,
        /// Label of the series.
        series: String,
        /// Which value, counted from 0.
        position: usize,
        /// The value.
        value: f64,
    },
    /// Zero or less on a logarithmic axis.
    #[error(
        "chart \"{chart}\", series \"{series}\": value {position} is {value}, which has no place on a logarithmic axis; use a linear one"
    )]
    NotPositive {
        /// Title of the chart.
        chart: String,
        /// Label of the series.
        series: String,
        /// Which value, counted from 0.
        position: usize,
        /// The value.
        value: f64,
    },
    /// A series does not fit the names on the axis or the other series.
    #[error(
        "chart \"{chart}\", series \"{series}\" has {found} values for {expected} places; give one for each, or none for what was not measured"
    )]
    Length {
        /// Title of the chart.
        chart: String,
        /// Label of the series.
        series: String,
        /// Places on the axis.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// A chart option that makes no sense.
    #[error("chart \"{chart}\": {reason}")]
    Option {
        /// Title of the chart.
        chart: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Chart {
    pub(crate) fn of_bars(bars: Bars) -> Chart {
        Chart(Kind::Bars(bars))
    }

    pub(crate) fn of_lines(lines: Lines) -> Chart {
        Chart(Kind::Lines(lines))
    }

    pub(crate) fn of_heat(heat: HeatMap) -> Chart {
        Chart(Kind::Heat(heat))
    }

    /// The chart as an SVG file of its own.
    #[must_use]
    pub fn svg(&self) -> String {
        self.draw("chart", true)
    }

    /// The chart inside a page that has the style sheet already.
    pub(crate) fn inline_svg(&self, id: &str) -> String {
        self.draw(id, false)
    }

    fn draw(&self, id: &str, alone: bool) -> String {
        match &self.0 {
            Kind::Bars(bars) => bars.draw(id, alone),
            Kind::Lines(lines) => lines.draw(id, alone),
            Kind::Heat(heat) => heat.draw(id, alone),
        }
    }
}

/// Refuses what cannot be drawn; what was not measured can.
pub(crate) fn check(
    chart: &str,
    series: &str,
    values: impl IntoIterator<Item = Option<f64>>,
    logarithmic: bool,
) -> Result<(), ChartError> {
    for (position, value) in values.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let (chart, series) = (chart.to_owned(), series.to_owned());
        if value.is_nan() || value.abs() > MAGNITUDE_MAX {
            return Err(ChartError::NotDrawable {
                chart,
                series,
                position,
                value,
            });
        }
        if logarithmic && value <= 0.0 {
            return Err(ChartError::NotPositive {
                chart,
                series,
                position,
                value,
            });
        }
    }
    Ok(())
}

/// A horizontal line to compare with: a published figure, a limit.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) value: f64,
}

impl Reference {
    pub(crate) fn nameless(value: f64) -> Reference {
        let name = String::new();
        Reference { name, value }
    }
}
