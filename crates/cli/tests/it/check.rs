//! `perdure fsck`: what it says of a sound pool and of damaged ones, and what repairing leaves.

use crate::common::{make_pool, place, run, succeed};
use perdure::Pool;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Runs `fsck --json` with these further arguments, and expects this exit code.
#[track_caller]
fn check(pool: &Path, arguments: &[&str], code: i32) -> Value {
    let outcome = run([&["fsck", text(pool), "--json"], arguments].concat());
    assert_eq!(outcome.code, code, "{outcome:#?}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:#?}"))
}

/// A pool with a few files, closed cleanly.
fn filled(directory: &Path) -> std::path::PathBuf {
    let path = make_pool(directory);
    let pool = Pool::open(&path).expect("opened");
    pool.create_dir_all("a/b").expect("made");
    pool.write("a/file", vec![7; 100_000]).expect("written");
    pool.write("a/b/other", "text").expect("written");
    pool.symlink("file", "a/link").expect("made");
    pool.close().expect("closed");
    path
}

#[test]
fn a_sound_pool() {
    let place = place();
    let pool = filled(place.path());
    let report = check(&pool, &[], 0);
    assert_eq!(report["clean"], true, "{report:#}");
    assert_eq!(report["complete"], true);
    assert_eq!(report["faults_total"], 0);
    assert_eq!(report["faults"], Value::Array(Vec::new()));
    assert_eq!(report["counts"]["files"], 2);
    assert_eq!(report["counts"]["directories"], 3);
    assert_eq!(report["counts"]["symlinks"], 1);
    assert_eq!(report["counts"]["bytes"], 100_004);
    let shown = succeed(["fsck", text(&pool)]).stdout;
    assert!(
        shown.contains("no faults; 2 files, 3 directories"),
        "{shown}"
    );
    assert_eq!(check(&pool, &["--repair", "-y"], 0)["clean"], true);
}

#[test]
fn a_pool_that_was_not_closed_has_no_faults() {
    let place = place();
    let path = filled(place.path());
    let pool = Pool::open(&path).expect("opened");
    pool.write("late", "acknowledged").expect("written");
    // The lock goes, the clean mark does not come: as after kill -9.
    let crashed = place.path().join("crashed");
    fs::create_dir(&crashed).expect("made");
    for entry in fs::read_dir(&path).expect("the pool's files") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), crashed.join(entry.file_name())).expect("copied");
    }
    let report = check(&crashed, &[], 0);
    assert_eq!(report["counts"]["files"], 3, "{report:#}");
}

#[test]
fn a_superblock_is_repaired_from_the_other() {
    let place = place();
    let pool = filled(place.path());
    let head = File::options()
        .write(true)
        .open(pool.join("super"))
        .expect("the header");
    head.write_all_at(&[0xff; 8], 40).expect("damaged");
    let before = fs::read(pool.join("super")).expect("the header");
    let report = check(&pool, &[], 4);
    assert_eq!(
        report["faults"][0]["kind"], "superblock-damaged",
        "{report:#}"
    );
    assert_eq!(report["faults"][0]["place"], "superblock, copy 1");
    for field in ["severity", "fault", "consequence", "repair"] {
        assert!(
            report["faults"][0][field]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{field}: {report:#}"
        );
    }
    assert_eq!(
        fs::read(pool.join("super")).expect("the header"),
        before,
        "a check writes nothing"
    );

    let shown = run(["fsck", text(&pool)]);
    assert_eq!(shown.code, 4);
    assert!(
        shown
            .stdout
            .contains("consequence: losing the other copy too"),
        "{shown:#?}"
    );

    let report = check(&pool, &["--repair"], 1);
    assert_eq!(report["faults"][0]["repaired"], true, "{report:#}");
    assert_eq!(report["faults_left"], 0);
    check(&pool, &[], 0);
    assert_eq!(
        Pool::open(&pool)
            .expect("opened")
            .read("a/b/other")
            .expect("read"),
        b"text"
    );
}

#[test]
fn lost_files_of_the_pool_are_named_and_made_anew() {
    let place = place();
    let pool = filled(place.path());
    let (missing, short) = (pool.join("segment-0012"), pool.join("segment-0014"));
    fs::remove_file(&missing).expect("removed");
    File::options()
        .write(true)
        .open(&short)
        .and_then(|file| file.set_len(8192))
        .expect("truncated");
    let shown = run(["fsck", text(&pool)]);
    assert_eq!(shown.code, 4, "{shown:#?}");
    for path in [&missing, &short] {
        assert!(shown.stdout.contains(text(path)), "{shown:#?}");
    }
    assert!(!missing.exists(), "a check makes no files");
    assert_eq!(check(&pool, &["--repair", "-y"], 1)["clean"], true);
    check(&pool, &[], 0);
    let open = Pool::open(&pool).expect("opened");
    assert!(open.exists("a").expect("looked up"));
}

#[test]
fn a_pool_without_superblocks_is_beyond_repair() {
    let place = place();
    let pool = filled(place.path());
    let head = File::options()
        .write(true)
        .read(true)
        .open(pool.join("super"))
        .expect("the header");
    let length = head.metadata().expect("its length").len();
    for copy in [0, length - 4096] {
        head.write_all_at(&[0xff; 4], copy + 40).expect("damaged");
    }
    for arguments in [
        &["fsck", text(&pool)][..],
        &["fsck", text(&pool), "--repair", "-y"],
    ] {
        let shown = run(arguments);
        assert_eq!(shown.code, 8, "{shown:#?}");
        assert!(
            shown.stderr.contains("both superblocks are damaged")
                && shown.stderr.contains("restore"),
            "{shown:#?}"
        );
    }
}

#[test]
fn damage_anywhere_in_the_header_is_found_and_repaired() {
    let place = place();
    let pool = filled(place.path());
    let sound = fs::read(pool.join("super")).expect("the header");
    let head = File::options()
        .write(true)
        .open(pool.join("super"))
        .expect("the header");
    let mut found = 0;
    for at in (0..sound.len()).step_by(1021) {
        head.write_all_at(&sound, 0).expect("restored");
        head.write_all_at(&[sound[at] ^ 0x10], at as u64)
            .expect("flipped");
        let outcome = run(["fsck", text(&pool), "--json"]);
        assert!(matches!(outcome.code, 0 | 4), "byte {at}: {outcome:#?}");
        assert!(
            !outcome.stderr.contains("panicked"),
            "byte {at}: {outcome:#?}"
        );
        found += usize::from(outcome.code == 4);
    }
    assert!(found > 0, "some of these bytes matter");
    let repaired = run(["fsck", text(&pool), "--repair", "-y"]);
    assert!(matches!(repaired.code, 0 | 1), "{repaired:#?}");
}
