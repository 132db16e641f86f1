//! Printing: a closed pipe ends a command quietly, colour and progress only on a terminal.

use crate::failure::Failure;
use crate::visible::{self, Message, Visible};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use txn::PoolDirectory;

/// Prints text on stdout.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    write!(stdout, "{}", Visible(text))?;
    stdout.flush()?;
    Ok(())
}

/// Opens a file for output. In another user's directory, that user's links are not followed.
pub(crate) fn report_file(path: &Path, appends: bool) -> io::Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    PoolDirectory::open(parent)?.report(name, appends)
}

/// A path as it can be typed in a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Prints a value as one JSON document on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    print(format_args!("{}\n", visible::in_json(&text)))
}

/// Prints `perdure: TEXT` on stderr; nobody is left to tell if that fails.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let (on, off) = if stderr_has_colour() {
        ("\x1b[31;1m", "\x1b[0m")
    } else {
        ("", "")
    };
    let _ = writeln!(io::stderr().lock(), "{on}perdure:{off} {}", Message(text));
}

/// Whether stderr is a terminal whose owner does not object to colour.
pub(crate) fn stderr_has_colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A bar on stderr that counts bytes; draws nothing unless stderr is a terminal.
pub(crate) fn byte_bar(total_bytes: u64) -> ProgressBar {
    bar(
        total_bytes,
        "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg}",
    )
}

/// A bar on stderr that counts steps.
pub(crate) fn step_bar(total: u64) -> ProgressBar {
    bar(total, "{msg:24} {wide_bar} {pos}/{len}")
}

fn bar(total: u64, template: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(total), target).with_style(style)
}

/// A number of bytes as people read it: `4.0 GiB`.
pub(crate) struct Bytes(pub(crate) u64);

impl Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        match unit {
            0 => write!(formatter, "{} B", self.0),
            _ => write!(formatter, "{value:.1} {}", UNITS[unit]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(4 << 30).to_string(), "4.0 GiB");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
    }
}
