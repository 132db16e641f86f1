//! What all charts share: the sheet with its title and legend, and the plot with its axes.

use crate::chart::Reference;
use crate::scale::{Scale, Tick};
use crate::theme;
use crate::xml::{At, Xml};

/// Width of every chart, in the units of its `viewBox`; a page scales it to the space there is.
pub(crate) const WIDTH: f64 = 680.0;
/// Free space at the sides.
pub(crate) const MARGIN: f64 = 12.0;
const LINE: f64 = 16.0;
/// About the width of a character: nobody knows the reader's fonts.
const CHARACTER: f64 = 6.8;
const LABEL_GAP: f64 = 4.0;

/// Where a text is held.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// How a series looks in the legend.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Swatch {
    Bar { colour: usize },
    Line { colour: usize, dash: usize },
}

impl Swatch {
    fn width(self) -> f64 {
        match self {
            Swatch::Bar { .. } => 12.0,
            Swatch::Line { .. } => 32.0,
        }
    }
}

/// A chart that is being drawn, from its top to its bottom.
#[derive(Debug)]
pub(crate) struct Canvas {
    pub(crate) body: Xml,
    /// Height used so far.
    pub(crate) bottom: f64,
}

impl Canvas {
    /// A canvas with its title.
    pub(crate) fn new(title: &str) -> Canvas {
        let mut canvas = Canvas {
            body: Xml::default(),
            bottom: MARGIN,
        };
        for line in wrap(title, ((WIDTH - 2.0 * MARGIN) / 8.0) as usize) {
            canvas.bottom += LINE + 2.0;
            let at = canvas.bottom - 4.0;
            canvas.text(MARGIN, at, "pd-title", Anchor::Start, &line);
        }
        canvas
    }

    /// A text whose base line is at `y`.
    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, anchor: Anchor, text: &str) {
        self.body.leaf(
            "text",
            &[
                ("class", &class),
                ("x", &At(x)),
                ("y", &At(y)),
                ("text-anchor", &anchor.name()),
            ],
            text,
        );
        self.body.line();
    }

    /// The names of the series beside their colours, in as many lines as they take.
    pub(crate) fn legend(&mut self, entries: &[(Swatch, &str)]) {
        let mut x = MARGIN;
        self.bottom += LINE + 4.0;
        for (index, (swatch, name)) in entries.iter().enumerate() {
            let before = swatch.width() + 6.0;
            let width = before + text_width(name) + 18.0;
            if index > 0 && x + width > WIDTH - MARGIN {
                x = MARGIN;
                self.bottom += LINE + 2.0;
            }
            let y = self.bottom - 8.0;
            self.swatch(*swatch, x, y);
            self.text(x + before, y + 4.0, "pd-name", Anchor::Start, name);
            x += width;
        }
        self.bottom += 4.0;
    }

    fn swatch(&mut self, swatch: Swatch, x: f64, y: f64) {
        match swatch {
            Swatch::Bar { colour } => self.body.empty(
                "rect",
                &[
                    (
                        "class",
                        &format_args!("pd-f{}", colour % theme::SERIES_COLOURS),
                    ),
                    ("x", &At(x)),
                    ("y", &At(y - 6.0)),
                    ("width", &At(swatch.width())),
                    ("height", &12),
                ],
            ),
            Swatch::Line { colour, dash } => {
                self.line([(x, y), (x + swatch.width(), y)], colour, dash);
                self.marker((x + 16.0, y), colour);
            }
        }
    }

    /// A line through `points` in the colour of a series.
    pub(crate) fn line(
        &mut self,
        points: impl IntoIterator<Item = (f64, f64)>,
        colour: usize,
        dash: usize,
    ) {
        let mut path = String::new();
        for (x, y) in points {
            let step = if path.is_empty() { 'M' } else { 'L' };
            path.push_str(&format!("{step}{} {}", At(x), At(y)));
        }
        let class = format!("pd-line pd-s{}", colour % theme::SERIES_COLOURS);
        let dashes = match dash {
            0 => "none",
            1 => "7 4",
            2 => "2 3",
            _ => "9 3 2 3",
        };
        self.body.empty(
            "path",
            &[
                ("class", &class),
                ("stroke-dasharray", &dashes),
                ("d", &path),
            ],
        );
        self.body.line();
    }

    /// The marker of a series at a point.
    pub(crate) fn marker(&mut self, (x, y): (f64, f64), colour: usize) {
        let corners: &[(f64, f64)] = match colour % theme::SERIES_COLOURS {
            0 => {
                self.body.empty(
                    "circle",
                    &[
                        ("class", &"pd-f0"),
                        ("cx", &At(x)),
                        ("cy", &At(y)),
                        ("r", &4),
                    ],
                );
                return;
            }
            1 => &[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)],
            2 => &[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)],
            3 => &[(0.0, -4.8), (4.8, 3.8), (-4.8, 3.8)],
            4 => &[(0.0, 4.8), (4.8, -3.8), (-4.8, -3.8)],
            _ => &[(-5.0, -2.0), (5.0, -2.0), (5.0, 2.0), (-5.0, 2.0)],
        };
        let points: Vec<String> = corners
            .iter()
            .map(|(right, down)| format!("{},{}", At(x + right), At(y + down)))
            .collect();
        self.body.empty(
            "polygon",
            &[
                (
                    "class",
                    &format_args!("pd-f{}", colour % theme::SERIES_COLOURS),
                ),
                ("points", &points.join(" ")),
            ],
        );
    }

    /// The whole document. `id` tells the charts of one page apart; a chart that stands alone brings its style.
    pub(crate) fn finish(self, title: &str, description: &str, id: &str, alone: bool) -> String {
        let height = self.bottom + MARGIN;
        let mut xml = Xml::default();
        let view = format!("0 0 {} {}", At(WIDTH), At(height));
        let labels = format!("{id}-title {id}-desc");
        let (width, tall) = (At(WIDTH), At(height));
        let mut attributes: Vec<crate::xml::Attribute<'_>> = vec![
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("class", &"pd"),
            ("role", &"img"),
            ("aria-labelledby", &labels),
            ("viewBox", &view),
        ];
        if alone {
            attributes.extend([
                ("width", &width as &dyn std::fmt::Display),
                ("height", &tall),
            ]);
        }
        xml.start("svg", &attributes);
        xml.line();
        xml.leaf("title", &[("id", &format_args!("{id}-title"))], title);
        xml.leaf("desc", &[("id", &format_args!("{id}-desc"))], description);
        xml.line();
        if alone {
            xml.start("style", &[]);
            xml.raw(&theme::chart_style());
            xml.end();
            xml.line();
        }
        xml.empty(
            "rect",
            &[("class", &"pd-back"), ("width", &width), ("height", &tall)],
        );
        xml.line();
        xml.raw(&self.body.finish());
        xml.end();
        xml.line();
        xml.finish()
    }
}

/// The rectangle between the axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plot {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Plot {
    pub(crate) fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.share(value) * (self.right - self.left)
    }

    pub(crate) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom - scale.share(value) * (self.bottom - self.top)
    }

    /// Grid lines across the plot, and their numbers left of it.
    pub(crate) fn draw_y_axis(&self, canvas: &mut Canvas, scale: &Scale) {
        for tick in &scale.ticks {
            let y = self.y(scale, tick.value);
            rule(canvas, "pd-grid", (self.left, y), (self.right, y));
            let x = self.left - 6.0;
            canvas.text(x, y + 4.0, "pd-muted", Anchor::End, &tick.label);
        }
    }

    /// The base line with ticks, their labels and the axis' own label.
    pub(crate) fn draw_x_axis(&self, canvas: &mut Canvas, scale: &Scale, label: &str) {
        let labelled = self.labelled(scale);
        self.draw_base_line(canvas, scale);
        let y = self.bottom + LINE + 2.0;
        canvas.bottom = canvas.bottom.max(y + 2.0);
        let slants = touch(&labelled);
        for (x, text) in labelled {
            if slants {
                let down = slanted(canvas, x + 4.0, y - 3.0, text);
                canvas.bottom = canvas.bottom.max(y + 2.0 + down);
            } else {
                canvas.text(x, y, "pd-muted", Anchor::Middle, text);
            }
        }
        if !label.is_empty() {
            canvas.bottom += LINE;
            let (x, y) = ((self.left + self.right) / 2.0, canvas.bottom);
            canvas.text(x, y, "pd-name", Anchor::Middle, label);
        }
    }

    /// The base line with ticks and nothing written below: the panel below has the same axis.
    pub(crate) fn draw_base_line(&self, canvas: &mut Canvas, scale: &Scale) {
        let (left, right) = ((self.left, self.bottom), (self.right, self.bottom));
        rule(canvas, "pd-axis", left, right);
        for (x, _) in self.labelled(scale) {
            rule(canvas, "pd-axis", (x, self.bottom), (x, self.bottom + 4.0));
        }
        canvas.bottom = canvas.bottom.max(self.bottom + 6.0);
    }

    /// Where ticks stand, and their labels. Names that would touch each other may slant as long as they are not too many; of others,
    /// as many are left out as it takes.
    fn labelled<'a>(&self, scale: &'a Scale) -> Vec<(f64, &'a str)> {
        let place = |tick: &'a Tick| (self.x(scale, tick.value), tick.label.as_str());
        let all: Vec<(f64, &str)> = scale.ticks.iter().map(place).collect();
        let room = (self.right - self.left) / all.len().max(1) as f64;
        if !touch(&all) || (scale.has_names && room >= LINE) {
            return all;
        }
        let widest = all.iter().map(|(_, text)| text_width(text));
        let apart = widest.fold(0.0, f64::max) + LABEL_GAP;
        if scale.has_names {
            // Every second, fourth, eighth: the names may be numbers.
            let stride = ((apart / room).ceil() as usize).next_power_of_two();
            return all.into_iter().step_by(stride).collect();
        }
        let mut kept: Vec<(f64, &str)> = Vec::new();
        for tick in all {
            if kept.last().is_none_or(|last| tick.0 - last.0 >= apart) {
                kept.push(tick);
            }
        }
        kept
    }

    /// A dashed line across the plot, with its name at the end and on the side where it hides the fewest of `obstacles`.
    pub(crate) fn draw_reference(
        &self,
        canvas: &mut Canvas,
        scale: &Scale,
        reference: &Reference,
        obstacles: &[(f64, f64)],
    ) {
        let y = self.y(scale, reference.value);
        rule(canvas, "pd-ref", (self.left, y), (self.right, y));
        if reference.name.is_empty() {
            return;
        }
        let width = text_width(&reference.name);
        let hidden = |&(anchor, base): &(Anchor, f64)| {
            let left = match anchor {
                Anchor::Start => self.left,
                _ => self.right - width,
            };
            let inside = |&&(x, at): &&(f64, f64)| {
                (left - 6.0..left + width + 6.0).contains(&x)
                    && (base - 14.0..base + 6.0).contains(&at)
            };
            obstacles.iter().filter(inside).count()
        };
        let (above, below) = (y - 4.0, y + 13.0);
        let places = [
            (Anchor::End, above),
            (Anchor::Start, above),
            (Anchor::End, below),
            (Anchor::Start, below),
        ];
        // The first of those that are equally good.
        if let Some(&(anchor, base)) = places.iter().min_by_key(|place| hidden(place)) {
            let x = match anchor {
                Anchor::Start => self.left + 4.0,
                _ => self.right,
            };
            canvas.text(x, base, "pd-halo", anchor, &reference.name);
        }
    }

    /// Says that there is nothing to see.
    pub(crate) fn draw_no_data(&self, canvas: &mut Canvas) {
        let x = (self.left + self.right) / 2.0;
        let y = (self.top + self.bottom) / 2.0;
        canvas.text(x, y, "pd-muted", Anchor::Middle, "no data");
    }
}

/// Space that the numbers of a vertical axis take.
pub(crate) fn axis_width(scale: &Scale) -> f64 {
    let widest = scale
        .ticks
        .iter()
        .map(|tick| text_width(&tick.label))
        .fold(0.0, f64::max);
    MARGIN + widest + 6.0
}

fn rule(canvas: &mut Canvas, class: &str, from: (f64, f64), to: (f64, f64)) {
    canvas.body.empty(
        "line",
        &[
            ("class", &class),
            ("x1", &At(from.0)),
            ("y1", &At(from.1)),
            ("x2", &At(to.0)),
            ("y2", &At(to.1)),
        ],
    );
    canvas.body.line();
}

/// Whether upright labels would touch each other.
fn touch(labels: &[(f64, &str)]) -> bool {
    labels.windows(2).any(|pair| {
        let width = (text_width(pair[0].1) + text_width(pair[1].1)) / 2.0;
        width + LABEL_GAP > pair[1].0 - pair[0].0
    })
}

/// A slanted label that ends at a point, shortened where it would leave the sheet; how far down it reaches.
fn slanted(canvas: &mut Canvas, x: f64, y: f64, text: &str) -> f64 {
    // The sine is 1/2, the cosine is this:
    const ACROSS: f64 = 0.87;
    let text = shortened(text, ((x / ACROSS) / CHARACTER) as usize);
    let turn = format!("rotate(-30 {} {})", At(x), At(y));
    canvas.body.leaf(
        "text",
        &[
            ("class", &"pd-muted"),
            ("x", &At(x)),
            ("y", &At(y)),
            ("text-anchor", &"end"),
            ("transform", &turn),
        ],
        &text,
    );
    canvas.body.line();
    text_width(&text) / 2.0
}

/// At most `length` characters of a text, the last an ellipsis if some are missing.
fn shortened(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    let start: String = text.chars().take(length.saturating_sub(1)).collect();
    format!("{start}…")
}

/// About how wide a text is.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Breaks a text at spaces into lines of at most `width` characters, where it can be broken.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("there is a line");
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_titles_are_broken_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), [""]);
        assert_eq!(wrap("inseparable word", 4), ["inseparable", "word"]);
    }

    #[test]
    fn what_is_too_long_is_shortened() {
        assert_eq!(shortened("ext4", 4), "ext4");
        assert_eq!(shortened("tmpfs", 4), "tmp…");
        assert_eq!(shortened("tmpfs", 0), "…");
    }

    #[test]
    fn labels_never_touch() {
        let plot = Plot {
            left: 50.0,
            right: 650.0,
            top: 0.0,
            bottom: 100.0,
        };
        let names = |count: usize, text: &str| -> Vec<String> {
            (0..count).map(|index| format!("{text}{index}")).collect()
        };
        // Few long names slant, many are thinned out.
        let few = Scale::bands(&names(12, "a long name "));
        assert_eq!(plot.labelled(&few).len(), 12);
        assert!(touch(&plot.labelled(&few)));
        let many = Scale::bands(&names(128, ""));
        let kept = plot.labelled(&many);
        assert!(!touch(&kept) && kept.len() > 15, "{}", kept.len());
        let numbers = Scale::at(&[1.0, 1.01, 50.0, 90.0], false, &crate::Unit::Count);
        assert_eq!(plot.labelled(&numbers).len(), 3);
    }
}
