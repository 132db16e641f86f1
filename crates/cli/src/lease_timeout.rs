//! The lease timeout on the command line: seconds, or 0 for never.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

/// Less would take files from programs in every pause between two writes.
const SECONDS_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 86_400.0;

/// After how long without a write a lease ends by itself; `None`: never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LeaseTimeout(pub(crate) Option<Duration>);

impl FromStr for LeaseTimeout {
    type Err = String;

    fn from_str(text: &str) -> Result<LeaseTimeout, String> {
        let seconds: Option<f64> = text.parse().ok();
        match seconds {
            Some(0.0) => Ok(LeaseTimeout(None)),
            Some(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => {
                Ok(LeaseTimeout(Some(Duration::from_secs_f64(seconds))))
            }
            _ => Err(format!(
                "give seconds from {SECONDS_MIN} to {SECONDS_MAX}, or 0 for never"
            )),
        }
    }
}

impl Display for LeaseTimeout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.map_or(0.0, |timeout| timeout.as_secs_f64());
        write!(out, "{seconds}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_and_written() {
        let milliseconds = |text: &str| {
            let timeout: LeaseTimeout = text.parse().expect(text);
            assert_eq!(timeout.to_string().parse(), Ok(timeout), "{text}");
            timeout.0.map(|timeout| timeout.as_millis())
        };
        assert_eq!(milliseconds("60"), Some(60_000));
        assert_eq!(milliseconds("0.1"), Some(100));
        assert_eq!(milliseconds("86400"), Some(86_400_000));
        assert_eq!(milliseconds("0"), None);
        assert_eq!(milliseconds("0.0"), None);
        for text in ["0.09", "-1", "86401", "nan", "inf", "", "1s", "never"] {
            let refused = text.parse::<LeaseTimeout>().expect_err(text);
            assert!(refused.contains("0.1 to 86400, or 0"), "{refused}");
        }
    }
}
