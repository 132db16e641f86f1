//! The whole experiment, so small that the figures mean nothing: every row is there, and its numbers are numbers.

use perdure_bench::{
    AgingOptions, BenchError, DirectOptions, Evaluation, LogOptions, MountOptions, OpsOptions,
    ReadCacheOptions, WearOptions, run_aging, run_direct, run_log, run_mount, run_ops,
    run_readcache, run_wear,
};
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

/// Answers a test runner's question for the list of tests; this program is one.
fn list() -> Option<ExitCode> {
    let asks = |word: &str| std::env::args().any(|argument| argument == word);
    if !asks("--list") {
        return None;
    }
    if !asks("--ignored") {
        println!("smoke: test");
    }
    Some(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    if let Some(code) = perdure_bench::serve_child() {
        return code;
    }
    if let Some(code) = list() {
        return code;
    }
    every_row_is_measured();
    slow_media_are_slower();
    impossible_sizes_are_refused();
    aging_in_small();
    wear_in_small();
    readcache_in_small();
    direct_in_small();
    log_in_small();
    mount_without_a_program();
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
    // The work is counted, not timed, so it can be asserted anywhere: a durable write has a fence,
    // a read has none.
    assert!(fences("overwrite_4k") >= Some(1.0), "{table}");
    assert_eq!(fences("read_4k"), Some(0.0), "{table}");
}

const AGING_BARS: [&str; 15] = [
    "webproxy_32k",
    "varmail_32k",
    "webproxy_8k",
    "varmail_8k",
    "webproxy_1m",
    "varmail_1m",
    "threads_fileserver",
    "threads_webproxy",
    "threads_webserver",
    "threads_varmail",
    "aged_overwrite_4k",
    "aged_read_1m",
    "aged_create",
    "aged_free_2m",
    "rmdir_1m",
];

fn aging_in_small() {
    let evaluation = run_aging(&AgingOptions::smoke()).expect("the experiment runs");
    let figures = |prefix| {
        [prefix; 4]
            .iter()
            .zip(PERSONALITIES)
            .map(|(prefix, name)| format!("{prefix}_{name}"))
            .collect::<Vec<_>>()
    };
    let mut expected = Vec::new();
    for (of_files, of_threads) in figures("fig8").into_iter().zip(figures("fig9")) {
        expected.extend([of_threads, of_files]);
    }
    expected.push("beside".to_owned());
    holds_together(&evaluation, &AGING_BARS, &expected);
    let beside = evaluation.figures.last().expect("a figure");
    for series in &beside.series {
        let measured = series.values.iter().all(Option::is_some);
        // Those two need no rights.
        assert!(
            measured || !["library", "tmpfs"].contains(&series.label.as_str()),
            "{beside:?}"
        );
    }

    let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let target = Some(place.path().to_owned());
    let options = AgingOptions {
        target,
        ..AgingOptions::smoke()
    };
    let evaluation = run_aging(&options).expect("the experiment runs");
    holds_together(&evaluation, &[], &["target".to_owned()]);
    let left = std::fs::read_dir(place.path()).expect("listed").count();
    assert_eq!(left, 0, "nothing stays behind");
}

const PERSONALITIES: [&str; 4] = ["fileserver", "webproxy", "webserver", "varmail"];

fn wear_in_small() {
    let evaluation = run_wear(&WearOptions::smoke()).expect("the experiment runs");
    let bars: Vec<String> = ["peak", "wear_data", "wear_all"]
        .iter()
        .flat_map(|bar| PERSONALITIES.map(|personality| format!("{bar}_{personality}")))
        .collect();
    let bars: Vec<&str> = bars.iter().map(String::as_str).collect();
    let figures: Vec<String> = PERSONALITIES
        .iter()
        .flat_map(|personality| {
            ["fig7", "peak_over_turns"].map(|kind| format!("{kind}_{personality}"))
        })
        .collect();
    holds_together(&evaluation, &bars, &figures);
    for pair in evaluation.figures.chunks(2) {
        let [intervals, growth] = pair else {
            panic!("two figures for each personality");
        };
        assert_eq!(intervals.places.len(), 128);
        // The baseline, ours, our data, the same two after the long run.
        assert_eq!(intervals.series.len(), 5, "{intervals:?}");
        for series in &growth.series {
            assert!(
                series.values.is_sorted(),
                "writes are never taken back: {series:?}"
            );
        }
    }
}

const READCACHE_BARS: [&str; 13] = [
    "hot_seq",
    "hot_skewed",
    "hit_vs_dram",
    "miss",
    "overwrite_cold",
    "overwrite_hot",
    "append",
    "append_hot",
    "mix_50",
    "drbm_2",
    "drbl_2",
    "auto_dram",
    "scan_hit_ratio",
];

fn readcache_in_small() {
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
    for directory in [None, Some(place.path().to_owned())] {
        let options = ReadCacheOptions {
            directory,
            ..ReadCacheOptions::smoke()
        };
        let evaluation = run_readcache(&options).expect("the experiment runs");
        let figures = ["miss", "fig4", "fig5", "skew", "drbl", "drbm", "dwal"];
        holds_together(
            &evaluation,
            &READCACHE_BARS,
            &figures.map(|name| name.to_owned()),
        );
        // Direct, page cache, read cache.
        for figure in &evaluation.figures[1..] {
            assert_eq!(figure.series.len(), 3, "{figure:?}");
        }
        let all = evaluation.figures.iter().flat_map(|figure| &figure.series);
        let mut values = all.flat_map(|series| &series.values);
        assert!(values.all(|value| value.is_some_and(|value| value > 0.0)));
        // Counted, not timed, so it can be asserted anywhere.
        let details = &evaluation.details;
        assert!(details["cache_of_hot_seq"]["hit_ratio"].as_f64() > Some(0.9));
        assert!(
            details["cache_of_overwrite_hot"]["statistics_since_mount"]["invalidations"].as_u64()
                > Some(0)
        );
        let small = ReadCacheOptions {
            pool_bytes: 1 << 20,
            ..options
        };
        assert!(matches!(
            run_readcache(&small),
            Err(BenchError::TooSmall { .. })
        ));
    }
}

const DIRECT_BARS: [&str; 15] = [
    "overwrite_4k",
    "overwrite_4k_vs_raw",
    "read_4k",
    "append_4k",
    "fio_randwrite",
    "fio_randread",
    "fio_randwrite_vs_fuse",
    "fio_randread_vs_fuse",
    "permission_check",
    "attach",
    "redis_set",
    "sqlite_full",
    "rocksdb_fillsync",
    "open_close_vs_fuse",
    "processes_2",
];

/// With a library that is loaded anyway, and so with no direct access: the sides run, and the report does not pretend.
fn direct_in_small() {
    if std::fs::File::open("/dev/fuse").is_err() {
        return eprintln!("skipped: mounting needs /dev/fuse");
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
    let mut paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let library = paths.find(|path| path.contains("/libc.so"));
    let options = DirectOptions::smoke(library.expect("the C library").into());
    let evaluation = run_direct(&options).expect("the experiment runs");
    let table = evaluation.table();
    let names: Vec<&str> = evaluation
        .rows
        .iter()
        .map(|row| row.compared.name)
        .collect();
    assert_eq!(names, DIRECT_BARS);
    for row in &evaluation.rows {
        assert_eq!(row.compared.error, None, "{table}");
        assert!(
            row.compared.ratio > Some(0.0) || row.not_measured.is_some(),
            "{table}"
        );
    }
    let check = evaluation
        .rows
        .iter()
        .find(|row| row.compared.name == "permission_check");
    let reason = check.and_then(|row| row.not_measured.as_deref());
    assert!(
        reason.is_some_and(|reason| reason.contains("no direct access")),
        "{table}"
    );
    let figures: Vec<&str> = evaluation
        .figures
        .iter()
        .map(|figure| figure.name.as_str())
        .collect();
    assert_eq!(figures, ["cost_write", "cost_read", "software"], "{table}");
    for figure in &evaluation.figures[..2] {
        assert!(
            figure.places.iter().any(|place| place == "FUSE mount"),
            "{figure:?}"
        );
        assert!(
            !figure.places.iter().any(|place| place == "preload"),
            "{figure:?}"
        );
    }
    evaluation.page().expect("it can be drawn");
}

/// All but pgbench: two servers take ten seconds to make. tests/bench.sh has it.
const LOG_BARS: [&str; 13] = [
    "append_fdatasync",
    "create_fsync",
    "sync_vs_raw",
    "group_16",
    "overwrite_fsync_policy",
    "untar",
    "redis_always",
    "rocksdb_fillsync",
    "sqlite_delete",
    "sqlite_wal",
    "log_bytes",
    "checkpoint_p99",
    "recovery",
];
/// Rows of the library: they need no mount, no rights and no program.
const LOG_LIBRARY_BARS: [&str; 6] = [
    "sync_vs_raw",
    "group_16",
    "overwrite_fsync_policy",
    "log_bytes",
    "checkpoint_p99",
    "recovery",
];

/// On the disk of /var/tmp; rows that need ext4, and are measured by root, say so otherwise.
fn log_in_small() {
    let options = LogOptions {
        only: LOG_BARS.map(str::to_owned).to_vec(),
        ..LogOptions::smoke()
    };
    if !txn::pool::needs_log(&options.directory.join("pool")) {
        return eprintln!("skipped: /var/tmp is no ordinary disk");
    }
    let evaluation = run_log(&options).expect("the experiment runs");
    let table = evaluation.table();
    let names: Vec<&str> = evaluation
        .rows
        .iter()
        .map(|row| row.compared.name)
        .collect();
    assert_eq!(names, LOG_BARS);
    for row in &evaluation.rows {
        let needs_nothing = LOG_LIBRARY_BARS.contains(&row.compared.name);
        if std::fs::File::open("/dev/fuse").is_err() && !needs_nothing {
            continue;
        }
        assert_eq!(row.compared.error, None, "{table}");
        let is_number = row.compared.ratio.is_some_and(f64::is_finite);
        let is_absent = row.not_measured.is_some() && !needs_nothing;
        assert!(is_number || is_absent, "{table}");
    }
    // Counted, not timed, so it can be asserted anywhere: a block is logged once, and little more.
    let logged = evaluation
        .rows
        .iter()
        .find(|row| row.compared.name == "log_bytes");
    let ratio = logged.and_then(|row| row.compared.ratio);
    assert!(ratio > Some(0.0) && ratio <= Some(1.0), "{table}");
    evaluation.page().expect("it can be drawn");
}

/// A kernel that does not allow io_uring is named with the remedy. Otherwise each row says that the
/// program, which is none, mounts nothing; tests/bench.sh has the rows with a real one.
fn mount_without_a_program() {
    let options = MountOptions::new("/bin/true".into(), "/nothing.so".into());
    let options = options.lasting(0.01, None);
    let other = MountOptions {
        only: vec!["no_such_row".to_owned()],
        ..options.clone()
    };
    assert!(matches!(
        run_mount(&other),
        Err(BenchError::UnknownRow { .. })
    ));
    match run_mount(&options) {
        Ok(evaluation) => {
            let table = evaluation.table();
            assert_eq!(evaluation.rows.len(), 26, "{table}");
            let failed = |error: &str| error.contains("perdure mount");
            for row in &evaluation.rows {
                assert!(row.compared.error.as_deref().is_some_and(failed), "{table}");
            }
        }
        Err(error) => {
            let text = error.to_string();
            let remedies = ["--enable-uring", "takes Linux 6.14"];
            let has_one = remedies.iter().any(|remedy| text.contains(remedy));
            assert!(has_one, "{text}");
        }
    }
}

/// Every bar was measured, its numbers are numbers, and the evaluation can be written down.
fn holds_together(evaluation: &Evaluation, bars: &[&str], figures: &[String]) {
    let table = evaluation.table();
    let names: Vec<&str> = evaluation
        .rows
        .iter()
        .map(|row| row.compared.name)
        .collect();
    assert_eq!(names, bars);
    for row in &evaluation.rows {
        assert_eq!(row.compared.error, None, "{table}");
        for number in [
            row.compared.value,
            row.compared.against_value,
            row.compared.ratio,
        ] {
            let number =
                number.unwrap_or_else(|| panic!("{} has no number\n{table}", row.compared.name));
            assert!(
                number.is_finite() && number >= 0.0,
                "{}: {number}\n{table}",
                row.compared.name
            );
        }
    }
    let named: Vec<&str> = evaluation
        .figures
        .iter()
        .map(|figure| figure.name.as_str())
        .collect();
    assert_eq!(named, figures);
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let out = place.path().join("out");
    let [json, page] = evaluation.write(&out).expect("written");
    let json = std::fs::read_to_string(json).expect("the JSON");
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(bars.len()));
    let page = std::fs::read_to_string(page).expect("the page");
    assert_eq!(page.matches("<svg").count(), figures.len());
    for network in ["src=\"http", "href=\"http", "@import"] {
        assert!(!page.contains(network), "the page needs nothing else");
    }
    assert!(
        bars.iter()
            .all(|bar| page.contains(bar) && table.contains(bar))
    );
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
    // The model is laid over both sides. It waits by the wall clock, so where others have the processor meanwhile, less of it is our time.
    assert!(
        row.compared.value > Some(10_000.0) && row.compared.against_value > Some(10_000.0),
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
