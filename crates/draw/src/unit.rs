//! Units, and numbers as people read them.

/// What the numbers of an axis count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Unit {
    /// Things: `12`, `8192`, `1.5 M`.
    #[default]
    Count,
    /// Things with a name, which the axis shows: `operations/s`.
    Named(String),
    /// Bytes, with binary prefixes: `64 KiB`.
    Bytes,
    /// Bytes a second, with binary prefixes: `3 GiB/s`.
    BytesPerSecond,
    /// Seconds: `250 ns`, `1.5 µs`.
    Seconds,
    /// How often one figure is the other: `14.33 ×`.
    Ratio,
}

const DECIMAL: [&str; 11] = ["", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"];
const BINARY: [&str; 11] = [
    "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB", "RiB", "QiB",
];
const SMALL: [&str; 11] = [
    "s", "ms", "µs", "ns", "ps", "fs", "as", "zs", "ys", "rs", "qs",
];

/// Below this, counts are written out.
const PREFIX_FROM: f64 = 10_000.0;

/// A factor and the name it gets: 1,024 and `KiB`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prefix {
    factor: f64,
    name: &'static str,
}

impl Unit {
    /// A unit with a name.
    pub fn named(name: impl Into<String>) -> Unit {
        Unit::Named(name.into())
    }

    /// `value` with four significant digits and its unit.
    #[must_use]
    pub fn text(&self, value: f64) -> String {
        let prefix = self.prefix(value.abs());
        let name = match self {
            Unit::Named(name) if prefix.name.is_empty() => name.clone(),
            Unit::Named(name) => format!("{}\u{a0}{name}", prefix.name),
            Unit::BytesPerSecond => format!("{}/s", prefix.name),
            _ => prefix.name.to_owned(),
        };
        join(&significant(value / prefix.factor), &name)
    }

    /// `value` with all its digits where it counts things: `32,768`.
    pub(crate) fn exact(&self, value: f64) -> String {
        let counts = matches!(self, Unit::Count | Unit::Named(_));
        if !counts || value.fract() != 0.0 || value.abs() >= 1e9 {
            return match self {
                Unit::Named(_) => Unit::Count.text(value),
                _ => self.text(value),
            };
        }
        let digits = format!("{:.0}", value.abs());
        let mut text = if value < 0.0 { "-" } else { "" }.to_owned();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }

    /// The name that an axis shows once instead of at each tick.
    pub(crate) fn axis_name(&self) -> Option<&str> {
        match self {
            Unit::Named(name) => Some(name),
            _ => None,
        }
    }

    /// The label of an axis with its unit, where the ticks do not show it.
    pub(crate) fn axis_label(&self, label: &str) -> String {
        let unit = match self {
            Unit::Ratio => "×",
            _ => self.axis_name().unwrap_or_default(),
        };
        match (label, unit) {
            (label, "") => label.to_owned(),
            ("", unit) => unit.to_owned(),
            (label, unit) if label == unit => label.to_owned(),
            (label, unit) => format!("{label} ({unit})"),
        }
    }

    /// The prefix that suits numbers up to `magnitude`.
    pub(crate) fn prefix(&self, magnitude: f64) -> Prefix {
        match self {
            Unit::Ratio => Prefix {
                factor: 1.0,
                name: "×",
            },
            Unit::Count | Unit::Named(_) if magnitude < PREFIX_FROM => Prefix {
                factor: 1.0,
                name: "",
            },
            Unit::Count | Unit::Named(_) => above(magnitude, 1000.0, &DECIMAL),
            Unit::Bytes | Unit::BytesPerSecond => above(magnitude, 1024.0, &BINARY),
            Unit::Seconds if magnitude == 0.0 || magnitude >= 1.0 => Prefix {
                factor: 1.0,
                name: "s",
            },
            Unit::Seconds => {
                let mut steps = 0;
                // A nanosecond in binary may be a little less than one.
                while steps + 1 < SMALL.len() && magnitude * power(1000.0, steps) < 1.0 - 1e-9 {
                    steps += 1;
                }
                Prefix {
                    factor: power(1000.0, steps).recip(),
                    name: SMALL[steps],
                }
            }
        }
    }

    /// A tick of an axis whose ticks stand `step` apart and share `prefix`.
    pub(crate) fn tick(&self, value: f64, step: f64, prefix: Prefix) -> String {
        let step = step / prefix.factor;
        let decimals = (0..12)
            .find(|decimals| {
                let scaled = step * 10f64.powi(*decimals);
                (scaled - scaled.round()).abs() < 1e-6 * scaled
            })
            .unwrap_or(12);
        let number = format!("{:.*}", decimals as usize, value / prefix.factor);
        let number = if number
            .trim_start_matches('-')
            .chars()
            .all(|digit| matches!(digit, '0' | '.'))
        {
            "0".to_owned()
        } else {
            number
        };
        match self {
            // The same at every tick: the axis' label is enough.
            Unit::Ratio => number,
            Unit::BytesPerSecond => join(&number, &format!("{}/s", prefix.name)),
            _ if number == "0" => number,
            _ => join(&number, prefix.name),
        }
    }

    /// Whether round numbers are powers of two.
    pub(crate) fn is_binary(&self) -> bool {
        matches!(self, Unit::Bytes | Unit::BytesPerSecond)
    }
}

fn power(base: f64, steps: usize) -> f64 {
    base.powi(i32::try_from(steps).unwrap_or(i32::MAX))
}

fn above(magnitude: f64, base: f64, names: &[&'static str; 11]) -> Prefix {
    let mut steps = 0;
    while steps + 1 < names.len() && magnitude >= power(base, steps + 1) {
        steps += 1;
    }
    Prefix {
        factor: power(base, steps),
        name: names[steps],
    }
}

fn join(number: &str, unit: &str) -> String {
    if unit.is_empty() {
        number.to_owned()
    } else {
        // The number and its unit stay on one line.
        format!("{number}\u{a0}{unit}")
    }
}

/// Four significant digits, all digits before the point, no zeros that say nothing.
fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e15).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let whole_digits = if magnitude < 1.0 {
        0
    } else {
        magnitude.log10().floor() as usize + 1
    };
    let leading_zeros = if magnitude > 0.0 && magnitude < 1.0 {
        (-magnitude.log10()).floor() as usize
    } else {
        0
    };
    let decimals = 4usize.saturating_sub(whole_digits) + leading_zeros;
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_prefix_that_suits() {
        for (unit, value, text) in [
            (Unit::Count, 0.0, "0"),
            (Unit::Count, 8192.0, "8192"),
            (Unit::Count, 1_234_567.0, "1.235\u{a0}M"),
            (Unit::Count, 0.000_5, "0.0005"),
            (
                Unit::named("operations/s"),
                48_123.0,
                "48.12\u{a0}k\u{a0}operations/s",
            ),
            (Unit::Bytes, 65_536.0, "64\u{a0}KiB"),
            (Unit::Bytes, 3.0, "3\u{a0}B"),
            (
                Unit::BytesPerSecond,
                1.5 * 1024.0 * 1024.0 * 1024.0,
                "1.5\u{a0}GiB/s",
            ),
            (Unit::Seconds, 250e-9, "250\u{a0}ns"),
            (Unit::Seconds, 1e-9, "1\u{a0}ns"),
            (Unit::Seconds, 90.0, "90\u{a0}s"),
            (Unit::Ratio, 14.33, "14.33\u{a0}×"),
            (Unit::Ratio, -0.0, "0\u{a0}×"),
        ] {
            assert_eq!(unit.text(value), text, "{value} {unit:?}");
        }
    }

    #[test]
    fn exact_counts_have_groups_of_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (8.0, "8"),
            (32_768.0, "32,768"),
            (1_000_000.0, "1,000,000"),
            (-1234.0, "-1,234"),
            (0.5, "0.5"),
        ] {
            assert_eq!(Unit::Count.exact(value), text);
        }
    }

    #[test]
    fn an_axis_names_its_unit_once() {
        let unit = Unit::named("operations/s");
        assert_eq!(unit.axis_label("throughput"), "throughput (operations/s)");
        assert_eq!(unit.axis_label("operations/s"), "operations/s");
        assert_eq!(unit.axis_label(""), "operations/s");
        assert_eq!(Unit::Bytes.axis_label("written"), "written");
        assert_eq!(Unit::Ratio.axis_label("speed-up"), "speed-up (×)");
    }

    #[test]
    fn ticks_of_one_axis_have_the_same_decimals() {
        let unit = Unit::Count;
        let prefix = unit.prefix(1_200_000.0);
        assert_eq!(unit.tick(0.0, 200_000.0, prefix), "0");
        assert_eq!(unit.tick(200_000.0, 200_000.0, prefix), "0.2\u{a0}M");
        assert_eq!(unit.tick(1_000_000.0, 200_000.0, prefix), "1.0\u{a0}M");
    }
}
