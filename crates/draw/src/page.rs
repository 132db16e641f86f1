//! One HTML document with everything in it.

use crate::chart::Chart;
use crate::theme;
use crate::xml::Xml;

/// A page in the making: paragraphs, tables and charts, in order.
///
/// The document needs no network and no script, follows the reader's choice of light or dark, can be read on a phone (wide
/// tables and charts scroll by themselves) and be printed.
///
/// ```
/// use perdure_draw::Page;
/// let page = Page::new("Wear")
///     .paragraph("Bytes that reached the medium.")
///     .table(["segment", "blocks written"], [["0", "12"], ["1", "13"]])
///     .html();
/// assert!(page.starts_with("<!DOCTYPE html>"));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Page {
    title: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Heading(String),
    Paragraph(String),
    Preformatted(String),
    Table {
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    Chart(Chart),
}

impl Page {
    /// A page with a title and nothing below it.
    pub fn new(title: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            parts: Vec::new(),
        }
    }

    /// The title of what follows.
    pub fn heading(self, text: impl Into<String>) -> Page {
        self.with(Part::Heading(text.into()))
    }

    /// A paragraph of plain text.
    pub fn paragraph(self, text: impl Into<String>) -> Page {
        self.with(Part::Paragraph(text.into()))
    }

    /// Text whose lines and spaces stay: a command and what it printed.
    pub fn preformatted(self, text: impl Into<String>) -> Page {
        self.with(Part::Preformatted(text.into()))
    }

    /// A table. Columns of numbers stand right-aligned; short rows are filled up, and cells without a header get an empty one.
    pub fn table<Header, Rows>(self, header: Header, rows: Rows) -> Page
    where
        Header: IntoIterator<Item: Into<String>>,
        Rows: IntoIterator<Item: IntoIterator<Item: Into<String>>>,
    {
        let row = |row: <Rows as IntoIterator>::Item| row.into_iter().map(Into::into).collect();
        self.with(Part::Table {
            header: header.into_iter().map(Into::into).collect(),
            rows: rows.into_iter().map(row).collect(),
        })
    }

    /// A chart.
    pub fn chart(self, chart: Chart) -> Page {
        self.with(Part::Chart(chart))
    }

    fn with(mut self, part: Part) -> Page {
        self.parts.push(part);
        self
    }

    /// The document: HTML that is well-formed XML too.
    #[must_use]
    pub fn html(&self) -> String {
        let mut xml = Xml::default();
        xml.raw("<!DOCTYPE html>\n");
        xml.start("html", &[("lang", &"en")]);
        xml.start("head", &[]);
        xml.line();
        xml.empty("meta", &[("charset", &"utf-8")]);
        xml.empty(
            "meta",
            &[
                ("name", &"viewport"),
                ("content", &"width=device-width, initial-scale=1"),
            ],
        );
        xml.leaf("title", &[], &self.title);
        xml.line();
        xml.start("style", &[]);
        xml.raw(&theme::page_style());
        xml.raw(&theme::chart_style());
        xml.end();
        xml.line();
        xml.end();
        xml.start("body", &[]);
        xml.line();
        xml.leaf("h1", &[], &self.title);
        xml.line();
        for (index, part) in self.parts.iter().enumerate() {
            write_part(&mut xml, part, index);
            xml.line();
        }
        xml.end();
        xml.end();
        xml.line();
        xml.finish()
    }
}

/// Writes one part. Boxes that scroll on a narrow screen can be reached by keyboard.
fn write_part(xml: &mut Xml, part: &Part, index: usize) {
    match part {
        Part::Heading(text) => xml.leaf("h2", &[], text),
        Part::Paragraph(text) => xml.leaf("p", &[], text),
        Part::Preformatted(text) => xml.leaf("pre", &[], text),
        Part::Table { header, rows } => write_table(xml, header, rows),
        Part::Chart(chart) => {
            xml.start("figure", &[("tabindex", &"0")]);
            xml.line();
            xml.raw(&chart.inline_svg(&format!("chart-{index}")));
            xml.end();
        }
    }
}

fn write_table(xml: &mut Xml, header: &[String], rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).fold(header.len(), usize::max);
    let classes: Vec<&str> = (0..columns).map(|column| class_of(rows, column)).collect();
    xml.start("div", &[("class", &"wide"), ("tabindex", &"0")]);
    xml.start("table", &[]);
    xml.start("thead", &[]);
    xml.start("tr", &[]);
    for (column, class) in classes.iter().enumerate() {
        let text = header.get(column).map_or("", String::as_str);
        xml.leaf("th", &[("scope", &"col"), ("class", class)], text);
    }
    xml.end();
    xml.end();
    xml.line();
    xml.start("tbody", &[]);
    xml.line();
    for row in rows {
        xml.start("tr", &[]);
        for (column, class) in classes.iter().enumerate() {
            let text = row.get(column).map_or("", String::as_str);
            xml.leaf("td", &[("class", class)], text);
        }
        xml.end();
        xml.line();
    }
    xml.end();
    xml.end();
    xml.end();
}

/// `n` for a column of numbers, with or without units.
fn class_of(rows: &[Vec<String>], column: usize) -> &'static str {
    let mut cells = rows
        .iter()
        .filter_map(|row| row.get(column))
        .filter(|cell| !matches!(cell.as_str(), "" | "-" | "–"))
        .peekable();
    let is_number = |cell: &String| {
        cell.trim_start_matches(['-', '+', '−', '±', '<', '>', '≤', '≥', '~', ' '])
            .starts_with(|first: char| first.is_ascii_digit())
    };
    match cells.peek().is_some() && cells.all(is_number) {
        true => "n",
        false => "t",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_are_recognised() {
        let rows = [["a", "1,024", "-", "", "3 ns"], ["1b", "-2", "5", "", "x"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let classes: Vec<&str> = (0..5).map(|column| class_of(&rows, column)).collect();
        assert_eq!(classes, ["t", "n", "n", "t", "t"]);
    }
}
