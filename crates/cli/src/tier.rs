//! How data moves to the disk below a pool, on the command line.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

/// A part of the memory: `60%` or `60`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Percent(pub(crate) u8);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
        number
            .filter(|percent| (1..=90).contains(percent))
            .map(Percent)
            .ok_or_else(|| "give a percentage from 1% to 90%".to_owned())
    }
}

impl Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.0)
    }
}

/// A time: `30s`, `500ms`, `10m`, or seconds without a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DirtyAge(pub(crate) Duration);

/// Longest age: a day.
const AGE_MAX: Duration = Duration::from_secs(86_400);

impl FromStr for DirtyAge {
    type Err = String;

    fn from_str(text: &str) -> Result<DirtyAge, String> {
        let units = [
            ("ms", 1),
            ("m", 60_000),
            ("h", 3_600_000),
            ("s", 1000),
            ("", 1000),
        ];
        let read = units.iter().find_map(|(unit, factor)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            Some(Duration::from_millis(number.checked_mul(*factor)?))
        });
        read.filter(|age| *age <= AGE_MAX)
            .map(DirtyAge)
            .ok_or_else(|| "give a time up to a day, such as 30s, 500ms or 10m".to_owned())
    }
}

impl Display for DirtyAge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}ms", self.0.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_percentages_are_read_and_written() {
        let age = |text: &str| text.parse::<DirtyAge>().map(|age| age.0.as_millis() as u64);
        for (text, milliseconds) in [
            ("30s", 30_000),
            ("7", 7_000),
            ("500ms", 500),
            ("10m", 600_000),
        ] {
            assert_eq!(age(text), Ok(milliseconds), "{text}");
            let read: DirtyAge = text.parse().expect(text);
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in ["", "s", "-1s", "25h", "30x", "99999999999999999999"] {
            assert!(age(text).expect_err(text).contains("30s"), "{text}");
        }
        assert_eq!("60%".parse(), Ok(Percent(60)));
        assert_eq!(Percent(5).to_string().parse(), Ok(Percent(5)));
        for text in ["0", "91%", "%", "six", "-5"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }
}
