//! When a call is durable.

use super::loader::Loading;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The moment at which a call is durable, in class `log`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// Every call is durable when it returns, and an answer waits for the changes that it shows.
    Call,
    /// Calls are durable at the next `fsync`, or after this time at the latest.
    Fsync(Duration),
}

const BOUND_DEFAULT: Duration = Duration::from_millis(5);
const BOUND_MIN: Duration = Duration::from_millis(1);
const BOUND_MAX: Duration = Duration::from_secs(60);

impl Default for Durability {
    fn default() -> Durability {
        Durability::Fsync(BOUND_DEFAULT)
    }
}

/// How a pool of class `log` is opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogOptions {
    /// When calls are durable.
    pub durability: Durability,
    /// When it is read into memory.
    pub loading: Loading,
}

impl From<Durability> for LogOptions {
    fn from(durability: Durability) -> LogOptions {
        LogOptions {
            durability,
            ..LogOptions::default()
        }
    }
}

/// Why a text is no policy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{0}` is not known; give call, fsync, or fsync:TIME with a time from 1ms to 60s, such as fsync:20ms"
)]
pub struct ParseDurabilityError(String);

impl FromStr for Durability {
    type Err = ParseDurabilityError;

    fn from_str(text: &str) -> Result<Durability, ParseDurabilityError> {
        let unknown = || ParseDurabilityError(text.to_owned());
        match text.split_once(':') {
            None if text == "call" => Ok(Durability::Call),
            None if text == "fsync" => Ok(Durability::default()),
            Some(("fsync", time)) => {
                let milliseconds = match (time.strip_suffix("ms"), time.strip_suffix('s')) {
                    (Some(number), _) => number.parse::<f64>().ok(),
                    (None, Some(number)) => number.parse::<f64>().ok().map(|seconds| seconds * 1e3),
                    (None, None) => None,
                };
                let bounds = BOUND_MIN.as_secs_f64() * 1e3..=BOUND_MAX.as_secs_f64() * 1e3;
                let milliseconds = milliseconds.filter(|time| bounds.contains(time));
                let seconds = milliseconds.ok_or_else(unknown)? / 1e3;
                Ok(Durability::Fsync(Duration::from_secs_f64(seconds)))
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Call => to.pad("call"),
            Durability::Fsync(bound) => write!(to, "fsync:{}ms", bound.as_secs_f64() * 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_back_as_they_print() {
        for text in [
            "call",
            "fsync:5ms",
            "fsync:20ms",
            "fsync:1.5ms",
            "fsync:2000ms",
        ] {
            let policy: Durability = text.parse().expect(text);
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!("fsync".parse(), Ok(Durability::default()));
        assert_eq!(
            "fsync:2s".parse(),
            Ok(Durability::Fsync(Duration::from_secs(2)))
        );
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        for text in [
            "",
            "never",
            "call:5ms",
            "fsync:",
            "fsync:5",
            "fsync:0ms",
            "fsync:-1ms",
            "fsync:NaNms",
            "fsync:61s",
        ] {
            let error = text.parse::<Durability>().expect_err(text).to_string();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("fsync:20ms"),
                "{error}"
            );
        }
    }
}
