//! Writing XML: what is opened gets closed, and all text is escaped.

use std::fmt::{self, Display, Write};

/// An attribute's name and its value.
pub(crate) type Attribute<'a> = (&'a str, &'a dyn Display);

/// A growing document.
#[derive(Debug, Default)]
pub(crate) struct Xml {
    text: String,
    open: Vec<&'static str>,
}

impl Xml {
    /// Opens an element; [`Xml::end`] closes it.
    pub(crate) fn start(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.tag(name, attributes);
        self.text.push('>');
        self.open.push(name);
    }

    /// Closes the element that was opened last.
    ///
    /// # Panics
    ///
    /// If none is open: a bug of the caller.
    pub(crate) fn end(&mut self) {
        let name = self.open.pop().expect("an element is open");
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An element without content.
    pub(crate) fn empty(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.tag(name, attributes);
        self.text.push_str("/>");
    }

    /// An element that contains text only.
    pub(crate) fn leaf(&mut self, name: &'static str, attributes: &[Attribute<'_>], text: &str) {
        self.start(name, attributes);
        self.text(text);
        self.end();
    }

    /// Text, escaped.
    pub(crate) fn text(&mut self, text: &str) {
        self.escaped(&text);
    }

    /// What is markup already, or a style sheet without any of XML's own characters.
    pub(crate) fn raw(&mut self, markup: &str) {
        self.text.push_str(markup);
    }

    /// A line break, so that a person can read the result.
    pub(crate) fn line(&mut self) {
        self.text.push('\n');
    }

    /// The document.
    ///
    /// # Panics
    ///
    /// If an element is still open: a bug of the caller.
    pub(crate) fn finish(self) -> String {
        assert!(self.open.is_empty(), "elements are left open");
        self.text
    }

    fn tag(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.escaped(value);
            self.text.push('"');
        }
    }

    fn escaped(&mut self, value: &dyn Display) {
        write!(Escaping(&mut self.text), "{value}").expect("a string takes everything");
    }
}

/// Replaces what XML gives a meaning, and what XML cannot contain at all.
struct Escaping<'a>(&'a mut String);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\t' | '\n' => self.0.push(character),
                '\u{fffe}' | '\u{ffff}' => self.0.push('\u{fffd}'),
                _ if character.is_control() => self.0.push('\u{fffd}'),
                _ => self.0.push(character),
            }
        }
        Ok(())
    }
}

/// A coordinate: two decimals at most, none that say nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub(crate) f64);

impl Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.2}", self.0);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        out.write_str(if text == "-0" { "0" } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_stays_text() {
        let mut xml = Xml::default();
        xml.leaf("a", &[("b", &"\"'<")], "<script>&\u{0}\u{1b}</script>");
        assert_eq!(
            xml.finish(),
            "<a b=\"&quot;&#39;&lt;\">&lt;script&gt;&amp;\u{fffd}\u{fffd}&lt;/script&gt;</a>"
        );
    }

    #[test]
    fn coordinates_are_short() {
        for (value, text) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (1.0 / 3.0, "0.33"),
            (-0.001, "0"),
            (100.0, "100"),
        ] {
            assert_eq!(At(value).to_string(), text);
        }
    }
}
