//! Limits of space and inodes per user and per group, and their text.
//!
//! Limits are text in the attribute [`ATTRIBUTE`] of the root directory, so they need no format of their own and
//! change in one transaction.

use std::fmt;

/// Attribute of the root directory that holds the limits, one per line: `user 1000 blocks 25600 inodes 10000`.
pub const ATTRIBUTE: &[u8] = b"trusted.perdure.quota";

/// Who is limited.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    /// Files that belong to this user.
    User(u32),
    /// Files that belong to this group.
    Group(u32),
}

/// Limits; `None` = unlimited.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Most blocks of 4 KiB: data, block maps and attributes.
    pub blocks: Option<u64>,
    /// Most inodes.
    pub inodes: Option<u64>,
}

/// What a subject uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Blocks of 4 KiB.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u64,
}

/// A line of the limits' text that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "quota line {line}: expected `user|group ID blocks N inodes N` (either limit may be left out), found `{text}`"
)]
pub struct LimitsError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// Reads the text of [`ATTRIBUTE`].
///
/// # Errors
///
/// The first line that cannot be read.
pub fn parse(text: &str) -> Result<Vec<(Subject, Limits)>, LimitsError> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            parse_line(line).ok_or_else(|| LimitsError {
                line: index + 1,
                text: line.to_string(),
            })
        })
        .collect()
}

fn parse_line(line: &str) -> Option<(Subject, Limits)> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let id = words.next()?.parse().ok()?;
    let subject = match kind {
        "user" => Subject::User(id),
        "group" => Subject::Group(id),
        _ => return None,
    };
    let mut limits = Limits::default();
    while let Some(word) = words.next() {
        let value = Some(words.next()?.parse().ok()?);
        match word {
            "blocks" => limits.blocks = value,
            "inodes" => limits.inodes = value,
            _ => return None,
        }
    }
    Some((subject, limits))
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(id) => write!(formatter, "user {id}"),
            Subject::Group(id) => write!(formatter, "group {id}"),
        }
    }
}

/// Writes limits as the text of [`ATTRIBUTE`].
pub fn format(limits: &[(Subject, Limits)]) -> String {
    let line = |(subject, limits): &(Subject, Limits)| {
        let blocks = limits
            .blocks
            .map(|blocks| format!(" blocks {blocks}"))
            .unwrap_or_default();
        let inodes = limits
            .inodes
            .map(|inodes| format!(" inodes {inodes}"))
            .unwrap_or_default();
        format!("{subject}{blocks}{inodes}\n")
    };
    limits.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_back_as_written() {
        let limits = vec![
            (
                Subject::User(1000),
                Limits {
                    blocks: Some(5),
                    inodes: None,
                },
            ),
            (
                Subject::Group(7),
                Limits {
                    blocks: None,
                    inodes: Some(9),
                },
            ),
        ];
        assert_eq!(parse(&format(&limits)), Ok(limits));
        assert_eq!(parse("user x").unwrap_err().line, 1);
        assert_eq!(parse("\nuser 1 blocks").unwrap_err().line, 2);
        assert!(parse("world 1 blocks 2").is_err());
    }
}
