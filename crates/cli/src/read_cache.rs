//! The read cache on the command line: `auto`, `off`, `2G`, `on,2G`.

use crate::size::parse_bytes;
use perdure::ReadCacheMode;
use std::fmt::{self, Display};
use std::str::FromStr;

/// Less would hold a few hundred blocks: a unit was forgotten.
const BUDGET_BYTES_MIN: u64 = 1 << 20;
const WINDOW_SECONDS_MAX: f64 = 86_400.0;
const THRESHOLD_MAX: u32 = 63;

/// Whether hot blocks are copied to DRAM, and into how many bytes at most; 0 = as many as the file system thinks right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ReadCacheChoice {
    pub(crate) mode: ReadCacheMode,
    pub(crate) budget_bytes: u64,
}

impl FromStr for ReadCacheChoice {
    type Err = String;

    /// A colon separates as well as a comma, which ends an option after `-o`.
    fn from_str(text: &str) -> Result<ReadCacheChoice, String> {
        let refused = |_| {
            "give auto, on, off, a size of 1M or more such as 2G (the same as auto,2G), or on,2G; \
             after -o with a colon: read_cache=on:2G"
                .to_owned()
        };
        let (first, size) = match text.split_once([',', ':']) {
            Some((first, size)) => (first, Some(size)),
            None => (text, None),
        };
        let (mode, size) = match (first, size) {
            ("off", None) => (ReadCacheMode::Off, None),
            ("auto", size) => (ReadCacheMode::Auto, size),
            ("on", size) => (ReadCacheMode::On, size),
            (size, None) => (ReadCacheMode::Auto, Some(size)),
            _ => return Err(refused(())),
        };
        let budget_bytes = match size.map(parse_bytes) {
            None => 0,
            Some(Ok(bytes)) if bytes >= BUDGET_BYTES_MIN => bytes,
            Some(_) => return Err(refused(())),
        };
        Ok(ReadCacheChoice { mode, budget_bytes })
    }
}

/// In the form that can stand after `-o`.
impl Display for ReadCacheChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.mode {
            ReadCacheMode::Off => "off",
            ReadCacheMode::Auto => "auto",
            ReadCacheMode::On => "on",
        })?;
        match self.budget_bytes {
            0 => Ok(()),
            bytes => write!(formatter, ":{bytes}"),
        }
    }
}

/// Parses how many reads make a block hot.
pub(crate) fn parse_threshold(text: &str) -> Result<u32, String> {
    let threshold = text.parse().ok();
    let allowed = threshold.filter(|threshold| (1..=THRESHOLD_MAX).contains(threshold));
    allowed.ok_or_else(|| format!("give a number of reads from 1 to {THRESHOLD_MAX}"))
}

/// Parses a span of time in seconds, as milliseconds.
pub(crate) fn parse_window(text: &str) -> Result<u32, String> {
    let seconds: Option<f64> = text.parse().ok();
    let allowed = seconds.filter(|seconds| (0.001..=WINDOW_SECONDS_MAX).contains(seconds));
    let milliseconds = allowed.map(|seconds| (seconds * 1000.0).round() as u32);
    milliseconds
        .ok_or_else(|| format!("give seconds from 0.001 to {WINDOW_SECONDS_MAX}, for example 0.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(mode: ReadCacheMode, budget_bytes: u64) -> Result<ReadCacheChoice, String> {
        Ok(ReadCacheChoice { mode, budget_bytes })
    }

    #[test]
    fn modes_and_sizes_are_read_and_written() {
        let good = [
            ("auto", ReadCacheMode::Auto, 0),
            ("on", ReadCacheMode::On, 0),
            ("off", ReadCacheMode::Off, 0),
            ("2G", ReadCacheMode::Auto, 2 << 30),
            ("auto,2G", ReadCacheMode::Auto, 2 << 30),
            ("on,2G", ReadCacheMode::On, 2 << 30),
            ("on:1M", ReadCacheMode::On, 1 << 20),
            ("1048577", ReadCacheMode::Auto, (1 << 20) + 1),
        ];
        for (text, mode, budget_bytes) in good {
            let read = text.parse();
            assert_eq!(read, choice(mode, budget_bytes), "{text}");
            let written = read.expect("checked").to_string();
            assert!(!written.contains(','), "{written} ends an option after -o");
            assert_eq!(written.parse(), choice(mode, budget_bytes), "{written}");
        }
    }

    #[test]
    fn other_values_are_refused_with_those_that_are_not() {
        for text in [
            "",
            "fast",
            "On",
            "off,2G",
            "off:",
            "2G,on",
            "on,",
            "on,2G,3G",
            "on,auto",
            "0",
            "64K",
            "on,0",
            "auto,4095",
            "-1",
            "1.5G",
            "yes",
            "on;2G",
        ] {
            let refused = text.parse::<ReadCacheChoice>().expect_err(text);
            for allowed in ["auto", "on", "off", "2G", "on,2G"] {
                assert!(refused.contains(allowed), "{refused}");
            }
        }
    }

    #[test]
    fn thresholds_and_windows_have_limits() {
        assert_eq!(parse_threshold("1"), Ok(1));
        assert_eq!(parse_threshold("63"), Ok(63));
        for text in ["0", "64", "-1", "", "two", "1.5"] {
            let refused = parse_threshold(text).expect_err(text);
            assert!(refused.contains("1 to 63"), "{refused}");
        }
        assert_eq!(parse_window("10"), Ok(10_000));
        assert_eq!(parse_window("0.25"), Ok(250));
        assert_eq!(parse_window("86400"), Ok(86_400_000));
        for text in ["0", "0.0009", "-1", "86401", "nan", "inf", "", "1s"] {
            let refused = parse_window(text).expect_err(text);
            assert!(refused.contains("0.001 to 86400"), "{refused}");
        }
    }
}
