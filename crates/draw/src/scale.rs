//! From a number to a place on an axis, and the round numbers that the axis shows.

use crate::unit::Unit;

/// More ticks than this are too many, whatever was asked for.
const TICKS_MAX: usize = 64;

/// A round number on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// An axis' range and its ticks, both ends included.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    /// Whether the ticks are names, of which none can be guessed from the others.
    pub(crate) has_names: bool,
    pub(crate) ticks: Vec<Tick>,
}

impl Scale {
    /// A linear scale from a round number at or below `low` to one at or above `high`, with about `wanted` steps between.
    pub(crate) fn linear(low: f64, high: f64, unit: &Unit, wanted: usize) -> Scale {
        Scale::stepped(low, high, unit, round_step, wanted)
    }

    /// A scale of whole numbers that starts and ends exactly at `low` and `high`: positions in a row of things.
    pub(crate) fn positions(count: usize, wanted: usize) -> Scale {
        let step = if count.is_power_of_two() {
            power_of_two_step(count as f64 / wanted as f64)
        } else {
            round_step(count as f64 / wanted as f64, false)
        };
        let step = step.max(1.0);
        let ticks = (0..TICKS_MAX)
            .map(|index| index as f64 * step)
            .take_while(|value| *value <= count as f64)
            .map(|value| Tick {
                value,
                label: format!("{value:.0}"),
            })
            .collect();
        Scale {
            low: 0.0,
            high: count.max(1) as f64,
            is_logarithmic: false,
            has_names: false,
            ticks,
        }
    }

    /// A band of width one for each name; its tick stands in its middle.
    pub(crate) fn bands(names: &[String]) -> Scale {
        let tick = |(index, name): (usize, &String)| Tick {
            value: index as f64 + 0.5,
            label: name.clone(),
        };
        Scale {
            low: 0.0,
            high: names.len().max(1) as f64,
            is_logarithmic: false,
            has_names: true,
            ticks: names.iter().enumerate().map(tick).collect(),
        }
    }

    /// A logarithmic scale between round numbers. Both ends are above zero.
    pub(crate) fn logarithmic(low: f64, high: f64, unit: &Unit) -> Scale {
        let (low, high) = (low.min(high), high.max(low));
        let values = if unit.is_binary() {
            powers(low, high, 2.0)
        } else if high / low <= 30.0 {
            in_decades(low, high, &[1.0, 2.0, 5.0])
        } else {
            powers(low, high, 10.0)
        };
        let tick = |value: &f64| Tick {
            value: *value,
            label: match unit.axis_name() {
                Some(_) => Unit::Count.text(*value),
                None => unit.text(*value),
            },
        };
        Scale {
            low: values.first().copied().unwrap_or(low),
            high: values.last().copied().unwrap_or(high),
            is_logarithmic: true,
            has_names: false,
            ticks: values.iter().map(tick).collect(),
        }
    }

    /// A scale whose ticks are `places`, sorted, two at least, different, and above zero if it is logarithmic.
    pub(crate) fn at(places: &[f64], is_logarithmic: bool, unit: &Unit) -> Scale {
        let tick = |value: &f64| Tick {
            value: *value,
            label: unit.exact(*value),
        };
        Scale {
            low: places[0],
            high: places[places.len() - 1],
            is_logarithmic,
            has_names: false,
            ticks: places.iter().map(tick).collect(),
        }
    }

    fn stepped(
        low: f64,
        high: f64,
        unit: &Unit,
        step_of: fn(f64, bool) -> f64,
        wanted: usize,
    ) -> Scale {
        let (mut low, mut high) = (low.min(high), high.max(low));
        // A range that the numbers' own precision cannot divide is none.
        if high - low <= low.abs().max(high.abs()) * 1e-9 {
            let padding = if low == 0.0 { 1.0 } else { low.abs() / 2.0 };
            (low, high) = match low {
                0.0 => (0.0, padding),
                _ => (low - padding, high + padding),
            };
        }
        let step = step_of((high - low) / wanted.max(1) as f64, unit.is_binary());
        let first = (low / step + 1e-9).floor();
        let last = (high / step - 1e-9).ceil();
        let steps = ((last - first) as usize).min(TICKS_MAX);
        let prefix = unit.prefix((first * step).abs().max((last * step).abs()));
        let tick = |index: usize| {
            let value = (first + index as f64) * step;
            Tick {
                value,
                label: unit.tick(value, step, prefix),
            }
        };
        Scale {
            low: first * step,
            high: last * step,
            is_logarithmic: false,
            has_names: false,
            ticks: (0..=steps).map(tick).collect(),
        }
    }

    /// How far along the axis `value` lies: 0 at its low end, 1 at its high end; what lies outside stays at the end.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// The least of 1, 2, 5 times a power of ten, or of the powers of two, that is at least `least`.
fn round_step(least: f64, is_binary: bool) -> f64 {
    if is_binary {
        return power_of_two_step(least);
    }
    let decade = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * decade)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * decade)
}

fn power_of_two_step(least: f64) -> f64 {
    2f64.powf((least.log2() - 1e-9).ceil())
}

/// Powers of `base` that enclose the range, not more than eight or so.
fn powers(low: f64, high: f64, base: f64) -> Vec<f64> {
    let exponent = |value: f64| value.ln() / base.ln();
    let first = (exponent(low) + 1e-9).floor() as i32;
    let last = ((exponent(high) - 1e-9).ceil() as i32).max(first + 1);
    let stride = (last - first).div_euclid(8) + 1;
    // The last tick must not lie below the highest value.
    let strides = (last - first + stride - 1) / stride;
    (0..=strides)
        .map(|index| base.powi(first + index * stride))
        .collect()
}

/// The factors of each decade that enclose the range.
fn in_decades(low: f64, high: f64, factors: &[f64]) -> Vec<f64> {
    let first = low.log10().floor() as i32;
    let all: Vec<f64> = (first..first + 4)
        .flat_map(|decade| {
            factors
                .iter()
                .map(move |factor| factor * 10f64.powi(decade))
        })
        .collect();
    let from = all
        .iter()
        .rposition(|value| *value <= low * (1.0 + 1e-9))
        .unwrap_or(0);
    let to = all
        .iter()
        .position(|value| *value >= high * (1.0 - 1e-9))
        .unwrap_or(all.len() - 1)
        .max(from + 1);
    all[from..=to.min(all.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale
            .ticks
            .iter()
            .map(|tick| tick.label.replace('\u{a0}', " "))
            .collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        let scale = Scale::linear(0.0, 1_130_000.0, &Unit::Count, 5);
        assert_eq!(labels(&scale), ["0", "0.5 M", "1.0 M", "1.5 M"]);
        let scale = Scale::linear(0.0, 97.0, &Unit::Count, 5);
        assert_eq!(labels(&scale), ["0", "20", "40", "60", "80", "100"]);
        let scale = Scale::linear(0.0, 3.1e-6, &Unit::Seconds, 4);
        assert_eq!(labels(&scale), ["0", "1 µs", "2 µs", "3 µs", "4 µs"]);
        let scale = Scale::linear(0.0, 3_000_000.0, &Unit::Bytes, 4);
        assert_eq!(labels(&scale), ["0", "1 MiB", "2 MiB", "3 MiB"]);
        let scale = Scale::linear(0.97, 1.04, &Unit::Ratio, 4);
        assert_eq!(labels(&scale), ["0.96", "0.98", "1.00", "1.02", "1.04"]);
    }

    #[test]
    fn logarithmic_ticks_enclose_the_values() {
        let scale = Scale::logarithmic(8192.0, 1e6, &Unit::Count);
        assert_eq!(labels(&scale), ["1000", "10 k", "100 k", "1 M"]);
        let scale = Scale::logarithmic(3.0, 40.0, &Unit::Count);
        assert_eq!(labels(&scale), ["2", "5", "10", "20", "50"]);
        let scale = Scale::logarithmic(4096.0, 16384.0, &Unit::Bytes);
        assert_eq!(labels(&scale), ["4 KiB", "8 KiB", "16 KiB"]);
        for value in [1e-20, 1.0, 1e20] {
            let scale = Scale::logarithmic(value, value, &Unit::Count);
            assert!(scale.ticks.len() >= 2 && scale.ticks[0].value <= value * 1.000_001);
        }
    }

    #[test]
    fn positions_of_a_power_of_two_have_steps_of_one() {
        let scale = Scale::positions(128, 8);
        assert_eq!(
            labels(&scale),
            ["0", "16", "32", "48", "64", "80", "96", "112", "128"]
        );
        assert_eq!(labels(&Scale::positions(0, 8)), ["0"]);
        assert_eq!(labels(&Scale::positions(3, 8)), ["0", "1", "2", "3"]);
    }

    #[test]
    fn places_lie_between_the_ends() {
        let scale = Scale::linear(0.0, 100.0, &Unit::Count, 5);
        assert_eq!(scale.share(50.0), 0.5);
        assert_eq!(scale.share(1e9), 1.0);
        let scale = Scale::logarithmic(1.0, 10_000.0, &Unit::Count);
        assert!((scale.share(100.0) - 0.5).abs() < 1e-9);
        assert_eq!(scale.share(0.0), 0.0);
    }
}
