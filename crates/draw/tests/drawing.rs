//! What comes out is well-formed, complete and inside its frame, whatever goes in; what cannot be drawn is refused.

use perdure_draw::{Bars, Chart, ChartError, HeatMap, Lines, Page, Unit};
use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};
use std::path::Path;

const NASTY: &str = "<script>alert(\"&amp;\")</script> ' ]]> \u{0}\u{1b}\u{ffff} <!--";

/// Parses a chart and checks what all charts promise.
fn parse(svg: &str) -> Document<'_> {
    let document = Document::parse(svg).expect("well-formed");
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "svg");
    assert_eq!(
        root.tag_name().namespace(),
        Some("http://www.w3.org/2000/svg")
    );
    check_names(&root);
    check_numbers(&root);
    document
}

/// `<title>` and `<desc>` are there, not empty, and what the label refers to.
fn check_names(svg: &Node<'_, '_>) {
    let labels = svg.attribute("aria-labelledby").expect("a label");
    let mut seen = Vec::new();
    for name in ["title", "desc"] {
        let child = svg
            .children()
            .find(|child| child.has_tag_name(("http://www.w3.org/2000/svg", name)));
        seen.push(child.and_then(|child| child.attribute("id")).expect(name));
    }
    assert_eq!(labels.split(' ').collect::<Vec<_>>(), seen);
}

/// Every coordinate is a number, and every rectangle and text starts inside the view.
fn check_numbers(svg: &Node<'_, '_>) {
    let view: Vec<f64> = svg
        .attribute("viewBox")
        .expect("a view")
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    for node in svg.descendants() {
        for name in [
            "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height",
        ] {
            let Some(text) = node.attribute(name) else {
                continue;
            };
            let value: f64 = text.parse().expect(name);
            let limit = match name {
                "x" | "x1" | "x2" | "cx" | "width" => view[2],
                _ => view[3],
            };
            assert!(
                value.is_finite() && (0.0..=limit + 0.01).contains(&value),
                "{name}={text}"
            );
        }
        if let Some(path) = node.attribute("d") {
            assert!(!path.contains("NaN") && !path.contains("inf"), "{path}");
        }
    }
}

fn texts(document: &Document<'_>) -> Vec<String> {
    document
        .descendants()
        .filter(|node| node.tag_name().name() == "text")
        .map(|node| node.text().unwrap_or("").replace('\u{a0}', " "))
        .collect()
}

fn count(document: &Document<'_>, name: &str, class: &str) -> usize {
    document
        .descendants()
        .filter(|node| node.tag_name().name() == name && node.attribute("class") == Some(class))
        .count()
}

fn bars(values: &[f64]) -> Chart {
    Bars::new("bars")
        .series("one", values.iter().copied())
        .reference("limit", 2.0)
        .panels()
        .means()
        .build()
        .expect("can be drawn")
}

fn lines(points: &[(f64, f64)]) -> Chart {
    Lines::new("lines")
        .series("one", points.iter().copied())
        .x_ticks_at_points()
        .build()
        .expect("can be drawn")
}

fn heat(values: &[f64]) -> Chart {
    HeatMap::new("heat")
        .cells("segment", values.iter().copied(), Unit::Count)
        .build()
        .expect("can be drawn")
}

#[test]
fn a_bar_chart_has_a_bar_for_each_value() {
    let values: Vec<f64> = (0..128).map(f64::from).collect();
    let svg = Bars::new("Wear")
        .x_label("interval")
        .y_label("written", Unit::Bytes)
        .series("ours", values.clone())
        .series("baseline", values)
        .build()
        .expect("can be drawn")
        .svg();
    let document = parse(&svg);
    let bars = document
        .descendants()
        .filter(|node| node.tag_name().name() == "title")
        .filter(|node| {
            node.parent()
                .is_some_and(|up| up.tag_name().name() == "rect")
        })
        .count();
    assert_eq!(bars, 256);
    let texts = texts(&document);
    for text in ["Wear", "ours", "baseline", "interval", "0", "128", "128 B"] {
        assert!(texts.iter().any(|seen| seen == text), "{text} in {texts:?}");
    }
}

#[test]
fn a_gap_interrupts_a_line() {
    let svg = Lines::new("gap")
        .x_categories(["a", "b", "c", "d", "e"])
        .values("one", [Some(1.0), Some(2.0), None, Some(3.0), Some(4.0)])
        .build()
        .expect("can be drawn")
        .svg();
    let document = parse(&svg);
    assert_eq!(count(&document, "path", "pd-line pd-s0"), 2);
    assert_eq!(count(&document, "circle", "pd-f0"), 4);
}

#[test]
fn companions_share_a_colour_and_others_do_not() {
    let point = [(1.0, 1.0), (2.0, 2.0)];
    let svg = Lines::new("pairs")
        .series("a", point)
        .series("a's peer", point)
        .like(0)
        .series("b", point)
        .series("b's peer", point)
        .like(2)
        .build()
        .expect("can be drawn")
        .svg();
    let document = parse(&svg);
    // Each in the plot and in the legend.
    for class in ["pd-line pd-s0", "pd-line pd-s1"] {
        assert_eq!(count(&document, "path", class), 4, "{class}");
    }
}

#[test]
fn more_series_than_colours_differ_by_their_dashes() {
    let mut chart = Lines::new("many");
    for index in 0..14 {
        chart = chart.series(index.to_string(), [(0.0, 1.0), (1.0, f64::from(index))]);
    }
    let svg = chart.build().expect("can be drawn").svg();
    let document = parse(&svg);
    let mut looks: Vec<_> = document
        .descendants()
        .filter(|node| node.tag_name().name() == "path")
        .map(|node| (node.attribute("class"), node.attribute("stroke-dasharray")))
        .collect();
    looks.sort();
    looks.dedup();
    assert_eq!(looks.len(), 14);
}

#[test]
fn a_map_names_each_segment() {
    let svg = HeatMap::new("Wear")
        .cells("segment", (0..20).map(f64::from), Unit::named("blocks"))
        .mark('m', "metadata", [0])
        .build()
        .expect("can be drawn")
        .svg();
    parse(&svg);
    for text in [
        "segment 0: 0\u{a0}blocks, metadata",
        "segment 19: 19\u{a0}blocks",
        "Least: segment 0",
        "Most: segment 19",
    ] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn degenerate_numbers_are_drawn() {
    for values in [
        &[][..],
        &[0.0],
        &[5.0],
        &[-3.0],
        &[0.0, 0.0],
        &[7.0, 7.0, 7.0],
        &[1e30, -1e30],
        &[1e-30, 0.0],
        &[1e15, 1e15 + 0.125],
        &[f64::MIN_POSITIVE, 1.0],
    ] {
        let points: Vec<(f64, f64)> = values.iter().map(|value| (*value, *value)).collect();
        for chart in [bars(values), lines(&points), heat(values)] {
            parse(&chart.svg());
        }
    }
    let empty = Lines::new("").build().expect("can be drawn").svg();
    assert!(texts(&parse(&empty)).contains(&"no data".to_owned()));
    let empty = Bars::new("").panels().build().expect("can be drawn").svg();
    assert!(texts(&parse(&empty)).contains(&"no data".to_owned()));
    let logarithmic = Lines::new("").x_logarithmic().y_logarithmic();
    parse(&logarithmic.clone().build().expect("can be drawn").svg());
    let one = logarithmic.series("one", [(3.0, 3.0)]);
    parse(&one.build().expect("can be drawn").svg());
}

#[test]
fn what_is_no_number_is_refused() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e31] {
        let charts = [
            Bars::new("c").series("s", [1.0, value]).build(),
            Lines::new("c")
                .series("s", [(1.0, 1.0), (2.0, value)])
                .build(),
            Lines::new("c")
                .series("s", [(1.0, 1.0), (value, 2.0)])
                .build(),
            HeatMap::new("c")
                .cells("s", [1.0, value], Unit::Count)
                .build(),
        ];
        for chart in charts {
            let error = chart.expect_err("refused");
            assert!(
                matches!(&error, ChartError::NotDrawable { position: 1, .. }),
                "{error}"
            );
            assert!(
                error
                    .to_string()
                    .starts_with("chart \"c\", series \"s\": value 1 is")
            );
        }
    }
    let reference = Bars::new("c").reference("limit", f64::NAN).build();
    assert!(matches!(reference, Err(ChartError::NotDrawable { .. })));
    let zero = Lines::new("c").y_logarithmic().series("s", [(0.0, 0.0)]);
    assert!(matches!(zero.build(), Err(ChartError::NotPositive { .. })));
}

#[test]
fn what_does_not_fit_is_refused() {
    let unlike = Bars::new("c").series("a", [1.0]).series("b", [1.0, 2.0]);
    assert!(matches!(
        unlike.build(),
        Err(ChartError::Length {
            expected: 1,
            found: 2,
            ..
        })
    ));
    let unnamed = Lines::new("c").x_categories(["a", "b"]).values("s", [1.0]);
    assert!(matches!(
        unnamed.build(),
        Err(ChartError::Length {
            expected: 2,
            found: 1,
            ..
        })
    ));
    for chart in [
        Lines::new("c").x_categories(["a"]).x_logarithmic().build(),
        HeatMap::new("c").columns(0).build(),
        HeatMap::new("c").range(1.0, 1.0).build(),
    ] {
        assert!(matches!(chart, Err(ChartError::Option { .. })));
    }
}

#[test]
fn text_stays_text() {
    let charts = [
        Bars::new(NASTY)
            .description(NASTY)
            .x_label(NASTY)
            .y_label(NASTY, Unit::named(NASTY))
            .categories([NASTY])
            .series(NASTY, [1.0])
            .series(NASTY, [2.0])
            .reference(NASTY, 1.0)
            .build(),
        Lines::new(NASTY)
            .x_label(NASTY, Unit::named(NASTY))
            .x_categories([NASTY])
            .values(NASTY, [1.0])
            .values(NASTY, [2.0])
            .reference(NASTY, 1.0)
            .build(),
        HeatMap::new(NASTY)
            .cells(NASTY, [1.0], Unit::named(NASTY))
            .mark('<', NASTY, [0])
            .build(),
    ];
    let mut page = Page::new(NASTY)
        .heading(NASTY)
        .paragraph(NASTY)
        .preformatted(NASTY)
        .table([NASTY], [[NASTY]]);
    for chart in charts {
        let chart = chart.expect("can be drawn");
        let svg = chart.svg();
        parse(&svg);
        assert!(!svg.contains("<script"));
        page = page.chart(chart);
    }
    let html = page.html();
    assert!(!html.contains("<script") && !html.contains("<!--"));
    parse_page(&html);
}

fn parse_page(html: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(html, options).expect("well-formed")
}

#[test]
fn a_page_has_everything_in_it() {
    let html = Page::new("Report")
        .heading("Figures")
        .paragraph("What was measured.")
        .table(
            ["row", "ours"],
            [vec!["a", "1.5"], vec!["b"], vec!["c", "2", "3"]],
        )
        .chart(bars(&[1.0, 2.0]))
        .chart(lines(&[(1.0, 2.0)]))
        .html();
    let document = parse_page(&html);
    let all = |name: &str| {
        let nodes = document.descendants();
        nodes.filter(|node| node.tag_name().name() == name).count()
    };
    assert_eq!((all("h1"), all("h2"), all("p"), all("svg")), (1, 1, 1, 2));
    assert_eq!((all("th"), all("td")), (3, 9));
    assert_eq!((all("script"), all("link"), all("img")), (0, 0, 0));
    // Nothing is fetched: the only addresses are names of XML's.
    let addresses = html.matches("http").count();
    assert_eq!(
        addresses,
        html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
    );
    assert!(!html.contains("url(") && !html.contains("@import"));
    for rule in [
        "prefers-color-scheme:dark",
        "@media print",
        "width=device-width",
    ] {
        assert!(html.contains(rule), "{rule}");
    }
    let mut names: Vec<_> = document
        .descendants()
        .filter_map(|node| node.attribute("id"))
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!((count, names.len()), (4, 4));
}

/// A change of looks is made on purpose: `UPDATE_GOLDEN=1 cargo test -p perdure-draw` writes the file anew; look at it.
#[test]
fn one_chart_looks_as_it_did() {
    let svg = Lines::new("Throughput over threads")
        .x_label("threads", Unit::Count)
        .x_logarithmic()
        .x_ticks_at_points()
        .y_label("throughput", Unit::named("operations/s"))
        .series("ours", [(1.0, 210e3), (2.0, 401e3), (4.0, 409e3)])
        .series("baseline", [(1.0, 150e3), (2.0, 178e3), (4.0, 172e3)])
        .reference("1.7 × one thread", 1.7 * 210e3)
        .build()
        .expect("can be drawn")
        .svg();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/threads.svg");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &svg).expect("written");
    }
    let golden = std::fs::read_to_string(&file).expect("read");
    assert!(svg == golden, "looks other than {}", file.display());
}

proptest! {
    #[test]
    fn any_numbers_can_be_drawn_or_are_refused(
        values in prop::collection::vec(prop::num::f64::ANY, 0..200),
        exponents in prop::collection::vec(-29.0f64..29.0, 1..50),
        unit in prop::sample::select(vec![
            Unit::Count, Unit::Bytes, Unit::Seconds, Unit::Ratio, Unit::BytesPerSecond, Unit::named("a/s"),
        ]),
    ) {
        let good: Vec<f64> = values.iter().copied().filter(|value| value.abs() <= 1e30).collect();
        let refused = good.len() < values.len();
        let chart = Bars::new("any").y_label("", unit.clone()).series("all", values).build();
        prop_assert_eq!(chart.is_err(), refused);
        let chart = Bars::new("any").y_label("", unit.clone()).series("good", good.clone()).build();
        parse(&chart.expect("can be drawn").svg());
        let chart = HeatMap::new("any").cells("cell", good, unit.clone()).build();
        parse(&chart.expect("can be drawn").svg());
        let points = exponents.iter().map(|exponent| (10f64.powf(*exponent), 10f64.powf(-exponent)));
        let chart = Lines::new("any")
            .x_label("", unit.clone())
            .y_label("", unit)
            .x_logarithmic()
            .y_logarithmic()
            .series("powers", points)
            .build();
        parse(&chart.expect("can be drawn").svg());
    }
}
