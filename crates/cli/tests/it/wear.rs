//! `perdure stat --wear`: the table, its JSON and the map, of pools that nobody has open, that a program has open.

use crate::common::{make_pool, place, run, succeed};
use perdure::Pool;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A pool of 64 segments in which one was written much more than the others.
fn large_pool(directory: &Path) -> PathBuf {
    let pool = directory.join("large");
    let path = text(&pool);
    succeed([
        "mkfs",
        path,
        "--size",
        "65M",
        "--segment-size",
        "1M",
        "--journals",
        "2",
        "--volatile",
    ]);
    let open = Pool::open(&pool).expect("opened");
    for round in 0..50u8 {
        let content = vec![round; 300_000];
        open.write("file", content).expect("written");
    }
    open.close().expect("closed");
    pool
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

fn wear_of(pool: &Path) -> Value {
    let said = succeed(["stat", text(pool), "--wear", "--json"]).stdout;
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn rows(report: &Value) -> &[Value] {
    report["wear_by_segment"].as_array().expect("rows")
}

/// The lines of the table, without its header.
fn table(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines
        .skip_while(|line| !line.starts_with("  segment"))
        .skip(1)
        .take_while(|line| line.starts_with("   "))
        .collect()
}

#[test]
fn a_closed_pool_says_where_it_was_written() {
    let place = place();
    let pool = large_pool(place.path());
    let report = wear_of(&pool);
    let rows = rows(&report);
    assert_eq!(rows.len(), 64);
    let sum = |name: &str| rows.iter().map(|row| number(&row[name])).sum::<u64>();
    let written = number(&report["wear"]["written_blocks"]);
    assert_eq!(sum("blocks_written"), written);
    assert!(written >= 50 * 74, "{report:#}");
    let free = number(&report["free_bytes"]) / 4096;
    assert_eq!(sum("blocks_used") + free, 64 * 256);
    let of_mean: f64 = rows
        .iter()
        .map(|row| row["of_mean"].as_f64().expect("a number"))
        .sum();
    assert!((of_mean / 64.0 - 1.0).abs() < 1e-9, "{of_mean}");
    for (row, segment) in rows.iter().zip(0..) {
        assert_eq!(number(&row["segment"]), segment);
        assert_eq!(
            row["blocks_written"],
            report["segment_wear"][segment as usize]
        );
        assert!(number(&row["blocks_used"]) <= 256);
    }
    let uid = u64::from(rustix::process::geteuid().as_raw());
    let has = |domain: &str| rows.iter().any(|row| row["domain"] == domain);
    assert!(has("metadata"), "{report:#}");
    assert!(
        has("mixed")
            || rows
                .iter()
                .any(|row| row["domain"] == "owner" && row["uid"] == uid),
        "{report:#}"
    );
}

#[test]
fn looking_changes_nothing() {
    let place = place();
    let pool = large_pool(place.path());
    let content = || {
        let files = std::fs::read_dir(&pool).expect("a directory");
        let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        let read = |file: PathBuf| {
            let bytes = std::fs::read(&file).expect("read");
            (file, bytes)
        };
        files.into_iter().map(read).collect::<Vec<_>>()
    };
    let before = content();
    let map = place.path().join("map.svg");
    succeed(["stat", text(&pool), "--wear", "--svg", text(&map)]);
    assert!(before == content());
}

#[test]
fn the_table_folds_unless_all_is_asked_for() {
    let place = place();
    let pool = large_pool(place.path());
    let folded = succeed(["stat", text(&pool), "--wear"]).stdout;
    let lines = table(&folded);
    assert_eq!(lines.len(), 17, "{folded}");
    assert!(lines[8].contains("48 segments between"), "{folded}");
    let written: Vec<u64> = lines
        .iter()
        .filter(|line| !line.contains('…'))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[words.len() - 2].parse().expect("blocks written")
        })
        .collect();
    assert!(written.iter().rev().is_sorted(), "{folded}");

    let all = succeed(["stat", text(&pool), "--wear", "--all"]).stdout;
    assert_eq!(table(&all).len(), 64, "{all}");
    let small = make_pool(place.path());
    let few = succeed(["stat", text(&small), "--wear"]).stdout;
    assert_eq!(table(&few).len(), 16, "{few}");
    let none = succeed(["stat", text(&small)]).stdout;
    assert_eq!(table(&none).len(), 0, "{none}");
    assert!(none.contains("least "), "{none}");
}

#[test]
fn the_map_has_each_segment() {
    let place = place();
    let pool = large_pool(place.path());
    let map = place.path().join("map.svg");
    let said = succeed(["stat", text(&pool), "--wear", "--json", "--svg", text(&map)]).stdout;
    let report: Value = serde_json::from_str(&said).expect("still JSON");
    let svg = std::fs::read_to_string(&map).expect("written");
    let document = roxmltree::Document::parse(&svg).expect("well-formed");
    let cells: Vec<&str> = document
        .descendants()
        .filter(|node| node.tag_name().name() == "title")
        .filter_map(|node| node.text())
        .filter(|text| text.starts_with("segment "))
        .collect();
    assert_eq!(cells.len(), 64);
    let last = &rows(&report)[63];
    let written = number(&last["blocks_written"]);
    assert!(
        cells[63].starts_with("segment 63: ")
            && (written >= 10_000 || cells[63].contains(&written.to_string())),
        "{} {written}",
        cells[63]
    );
    assert!(svg.contains("metadata"));
}

#[test]
fn a_pool_that_a_program_has_open_says_what_is_saved() {
    let place = place();
    let pool = make_pool(place.path());
    let open = Pool::open(&pool).expect("opened");
    open.write("file", vec![1; 300_000]).expect("written");
    open.close().expect("closed");
    let saved = wear_of(&pool);
    let open = Pool::open(&pool).expect("opened");
    open.write("file", vec![2; 300_000]).expect("written");
    let report = wear_of(&pool);
    assert_eq!(report["state"], "in use");
    assert_eq!(report["segment_wear"], saved["segment_wear"]);
    assert!(rows(&report).iter().all(|row| row["blocks_used"].is_null()));
    let printed = succeed(["stat", text(&pool), "--wear"]).stdout;
    assert!(
        table(&printed).iter().all(|line| line.contains(" - ")),
        "{printed}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = place();
    let pool = make_pool(place.path());
    for option in ["--all", "--svg=map.svg"] {
        assert_eq!(run(["stat", text(&pool), option]).code, 2, "{option}");
    }
    let map = place.path().join("missing/map.svg");
    let outcome = run(["stat", text(&pool), "--wear", "--svg", text(&map)]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.stderr.contains(text(&map)) && outcome.stderr.contains("cannot write the map"),
        "{outcome:#?}"
    );
}
