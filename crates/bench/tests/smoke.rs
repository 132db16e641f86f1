//! The whole experiment, so small that the figures mean nothing: every row is there, and its numbers are numbers.

use perdure_bench::{BenchError, OpsOptions, run_ops};
use serde_json::Value;
use std::process::ExitCode;

const ROWS: [&str; 14] = [
    "overwrite_4k",
    "append_4k",
    "overwrite_64b",
    "read_4k",
    "create_unlink",
    "open_close",
    "dir_1m_create",
    "dir_1m_lookup",
    "recovery",
    "threads_overwrite",
    "threads_create",
    "idle_memory",
    "fuse_read_4k",
    "fuse_write_4k",
];
/// Rows that cannot be measured without a mount.
const MOUNTED: [&str; 3] = ["idle_memory", "fuse_read_4k", "fuse_write_4k"];

fn main() -> ExitCode {
    if let Some(code) = perdure_bench::serve_child() {
        return code;
    }
    every_row_is_measured();
    slow_media_are_slower();
    impossible_sizes_are_refused();
    println!("smoke: ok");
    ExitCode::SUCCESS
}

fn every_row_is_measured() {
    let report = run_ops(&OpsOptions::smoke()).expect("the experiment runs");
    let table = report.table();
    let text = report.json().to_string();
    let json: Value = serde_json::from_str(&text).expect("the report is JSON");
    assert_eq!(
        (json["experiment"].as_str(), json["media"].as_str()),
        (Some("ops"), Some("dram"))
    );
    let rows = json["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ROWS);
    let can_mount = std::fs::File::open("/dev/fuse").is_ok();
    for row in rows {
        let name = row["name"].as_str().unwrap_or_default();
        if MOUNTED.contains(&name) && !can_mount {
            assert!(row["error"].is_string(), "{table}");
            continue;
        }
        assert!(row.get("error").is_none(), "{table}");
        for key in ["value", "against_value", "ratio", "bar"] {
            let number = row[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{name} has no {key}\n{table}"));
            assert!(
                number.is_finite() && number > 0.0,
                "{name}: {key} is {number}\n{table}"
            );
        }
        for key in ["unit", "against", "better"] {
            assert!(row[key].is_string(), "{name} has no {key}\n{table}");
        }
        for key in ["flushes", "fences", "lines"] {
            assert!(row.get(key).is_some(), "{name} has no {key}\n{table}");
        }
        assert!(table.contains(name), "{table}");
    }
    let fences = |name: &str| {
        rows.iter()
            .find(|row| row["name"] == name)
            .and_then(|row| row["fences"].as_f64())
    };
    // The work is counted, not timed, so it can be asserted anywhere: a durable write has a fence, a read has none.
    assert!(fences("overwrite_4k") >= Some(1.0), "{table}");
    assert_eq!(fences("read_4k"), Some(0.0), "{table}");
}

fn slow_media_are_slower() {
    let only = vec!["read_4k".to_owned()];
    let options = OpsOptions {
        only,
        ..OpsOptions::smoke()
    };
    let slow = OpsOptions {
        media: "read=20000".parse().expect("a model"),
        ..options
    };
    let report = run_ops(&slow).expect("the experiment runs");
    assert_eq!(report.rows.len(), 1);
    let row = &report.rows[0];
    // The model is laid over both sides.
    assert!(
        row.value > Some(20_000.0) && row.against_value > Some(20_000.0),
        "{}",
        report.table()
    );
}

fn impossible_sizes_are_refused() {
    let small = OpsOptions {
        pool_bytes: 1 << 20,
        ..OpsOptions::smoke()
    };
    assert!(matches!(run_ops(&small), Err(BenchError::TooSmall { .. })));
    let large = OpsOptions {
        pool_bytes: 1 << 60,
        ..OpsOptions::smoke()
    };
    assert!(matches!(run_ops(&large), Err(BenchError::NoRoom { .. })));
}
