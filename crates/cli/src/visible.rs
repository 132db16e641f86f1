//! Text of foreign origin: names in a pool, answers of a server, messages of other programs.
//! A terminal must not obey it, so control characters are written out.

use std::fmt::{self, Display, Write};

/// Whether a terminal shows this character instead of obeying it. Marks that turn the direction of
/// text count as control characters: they can make one name look like another.
fn is_harmless(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !turns && !character.is_control()
}

/// Text with its control characters written out (`\x1b`), but for the ends of lines and tabs.
pub(crate) struct Visible<T>(pub(crate) T);

impl<T: Display> Display for Visible<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping { to, line_end: "\n" }, "{}", self.0)
    }
}

/// The same for one message: further lines are indented, so that none looks like another message.
pub(crate) struct Message<T>(pub(crate) T);

impl<T: Display> Display for Message<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line_end = "\n  ";
        write!(Escaping { to, line_end }, "{}", self.0)
    }
}

struct Escaping<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    line_end: &'static str,
}

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '\n' => self.to.write_str(self.line_end)?,
                '\t' => self.to.write_char('\t')?,
                other if is_harmless(other) => self.to.write_char(other)?,
                other => escape(self.to, other)?,
            }
        }
        Ok(())
    }
}

fn escape(to: &mut impl Write, character: char) -> fmt::Result {
    match u32::from(character) {
        number @ 0..=0xff => write!(to, "\\x{number:02x}"),
        number => write!(to, "\\u{{{number:x}}}"),
    }
}

/// One word or line with all control characters written out, ends of lines too.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match is_harmless(character) {
            true => line.push(character),
            // Writing to a string cannot fail.
            false => escape(&mut line, character).unwrap_or_default(),
        }
    }
    line
}

/// A JSON document in which those control characters are written out too that JSON allows.
pub(crate) fn in_json(document: &str) -> String {
    let mut safe = String::with_capacity(document.len());
    for character in document.chars() {
        match character {
            '\n' => safe.push('\n'),
            other if is_harmless(other) => safe.push(other),
            // All of them are below U+10000, and stand in strings only.
            other => safe.push_str(&format!("\\u{:04x}", u32::from(other))),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\x1b[2J\r\u{9b}1m\u{202e}\x07\x7f\tb\nc";

    #[test]
    fn a_terminal_obeys_nothing() {
        assert_eq!(
            Visible(HOSTILE).to_string(),
            "a\\x1b[2J\\x0d\\x9b1m\\u{202e}\\x07\\x7f\tb\nc"
        );
        assert_eq!(
            Message("one\ntwo\x1b").to_string(),
            "one\n  two\\x1b",
            "a second line does not begin as a message"
        );
        assert_eq!(on_one_line("naïve\n\x1b"), "naïve\\x0a\\x1b");
    }

    #[test]
    fn a_document_keeps_its_meaning() {
        let document = serde_json::to_string_pretty(&[HOSTILE]).expect("JSON");
        let safe = in_json(&document);
        assert!(safe.chars().all(|one| one == '\n' || is_harmless(one)));
        let again: Vec<String> = serde_json::from_str(&safe).expect("JSON");
        assert_eq!(again, [HOSTILE]);
    }
}
