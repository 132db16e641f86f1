//! The read cache as users see it: chosen at the mount, watched with `stat`.
//!
//! Files are read with `O_DIRECT`: otherwise the kernel's page cache answers every read but the first.

use crate::common::scene::{Scene, text};
use crate::common::{make_pool, place, run, succeed};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{pread, pwrite};
use serde_json::Value;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: usize = 4;

/// Memory as direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// Copies every block that is read, and does not renew access times.
const EAGER: [&str; 6] = [
    "--read-cache",
    "on,4M",
    "--read-cache-threshold",
    "1",
    "-o",
    "noatime,read_cache_window=60.5",
];

fn direct(scene: &Scene, name: &str) -> OwnedFd {
    let path = scene.mountpoint.join(name);
    fs::write(&path, [1; BLOCK * BLOCKS]).expect("written");
    // Not for the commands that other tests start meanwhile: they would keep the mount busy.
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).expect("opened")
}

fn read(file: &OwnedFd, block: usize) -> [u8; BLOCK] {
    let mut bytes = Aligned([0; BLOCK]);
    let length = pread(file, &mut bytes.0, (block * BLOCK) as u64);
    assert_eq!(length, Ok(BLOCK));
    bytes.0
}

fn cache(scene: &Scene) -> Value {
    scene.status()["server"]["read_cache"].clone()
}

fn number(value: &Value, field: &str) -> u64 {
    value[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} in {value:#}"))
}

/// Reads the file until all its blocks come from DRAM.
fn read_until_copied(scene: &Scene, file: &OwnedFd) {
    let begin = Instant::now();
    loop {
        let before = number(&cache(scene), "hits");
        for block in 0..BLOCKS {
            assert_eq!(read(file, block), [1; BLOCK]);
        }
        if number(&cache(scene), "hits") - before == BLOCKS as u64 {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing copied");
    }
}

#[test]
fn hits_are_counted_and_writes_are_seen() {
    let Some(scene) = Scene::new() else { return };
    let line = scene.mount(&EAGER);
    assert!(line.contains(", read cache of 4 MiB, requests "), "{line}");
    let file = direct(&scene, "file");
    read_until_copied(&scene, &file);
    let before = cache(&scene);
    let written = pwrite(&file, &Aligned([7; BLOCK]).0, BLOCK as u64);
    assert_eq!(written, Ok(BLOCK));
    assert_eq!(read(&file, 1), [7; BLOCK], "seen at once");
    assert_eq!(read(&file, 0), [1; BLOCK]);

    let after = cache(&scene);
    assert_eq!(
        number(&after, "invalidations"),
        number(&before, "invalidations") + 1
    );
    assert_eq!(number(&after, "misses"), number(&before, "misses") + 1);
    assert_eq!(number(&after, "hits"), number(&before, "hits") + 1);
    assert_eq!(number(&after, "budget_bytes"), 4 << 20);
    assert_eq!(number(&after, "files"), 1);
    for field in ["fills", "evictions", "bytes", "limit_bytes", "table_bytes"] {
        number(&after, field);
    }
    let (hits, misses) = (number(&after, "hits"), number(&after, "misses"));
    let ratio = after["hit_ratio"].as_f64().expect("a ratio");
    assert!((ratio - hits as f64 / (hits + misses) as f64).abs() < 1e-9);

    let report = succeed(["stat", text(&scene.mountpoint)]).stdout;
    let percent = format!("hit ratio {:.1} %", ratio * 100.0);
    let counts = format!("{hits} hits, {misses} misses, {percent}");
    for words in [
        "read cache ",
        " of 4.0 MiB held",
        &counts,
        " invalidations, 0 evictions",
    ] {
        assert!(report.contains(words), "{words} in {report}");
    }
    assert!(!report.contains("inode   "), "only with --cached-files");
    drop(file);
    scene.unmount();
    assert_eq!(run(["fsck", text(&scene.pool)]).code, 0);
}

#[test]
fn files_with_copies_are_listed_on_request() {
    let Some(scene) = Scene::new() else { return };
    scene.mount(&EAGER);
    let place = text(&scene.mountpoint);
    let files = |arguments: &[&str]| {
        let said = run(["stat", place, "--json", "--cached-files"]
            .iter()
            .chain(arguments));
        assert_eq!(said.code, 0, "{said:?}");
        let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
        report["read_cache_files"]
            .as_array()
            .expect("files")
            .clone()
    };
    assert!(files(&[]).is_empty());
    let (busy, seldom) = (direct(&scene, "busy"), direct(&scene, "seldom"));
    read_until_copied(&scene, &seldom);
    let hits_of = |files: &[Value], inode: u64| -> u64 {
        let its = files.iter().find(|file| file["inode"] == inode);
        its.map_or(0, |file| number(file, "hits"))
    };
    let inode_of = |name| {
        let metadata = fs::metadata(scene.mountpoint.join(name));
        metadata.expect("metadata").ino()
    };
    let begin = Instant::now();
    loop {
        read_until_copied(&scene, &busy);
        let listed = files(&[]);
        assert!(listed.len() <= 2, "{listed:#?}");
        if hits_of(&listed, inode_of("busy")) > hits_of(&listed, inode_of("seldom")) {
            assert_eq!(listed[0]["inode"], inode_of("busy"), "most hits first");
            assert_eq!(listed[1]["inode"], inode_of("seldom"));
            assert_eq!(number(&listed[0], "bytes"), (BLOCKS * BLOCK) as u64);
            let ratio = listed[0]["hit_ratio"].as_f64().expect("a ratio");
            assert!(ratio > 0.0 && ratio < 1.0, "{listed:#?}");
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{listed:#?}");
    }
    assert_eq!(files(&["--all"]).len(), 2);
    let report = succeed(["stat", place, "--cached-files"]).stdout;
    let row = |line: &str| line.trim_start().starts_with(&inode_of("busy").to_string());
    assert!(report.lines().any(row), "{report}");
    drop((busy, seldom));
    scene.unmount();
}

#[test]
fn a_mount_without_a_cache_says_why() {
    let Some(scene) = Scene::new() else { return };
    let line = scene.mount(&["--read-cache", "off"]);
    assert!(line.contains(", no read cache, requests "), "{line}");
    let status = scene.status();
    assert_eq!(status["server"]["read_cache"], Value::Null);
    assert_eq!(status["read_cache_files"], Value::Null, "not asked for");
    let report = succeed(["stat", text(&scene.mountpoint), "--cached-files"]).stdout;
    assert!(report.contains("read cache none: switched off"), "{report}");
    assert!(report.contains("no file has copies"), "{report}");
    scene.unmount();

    let line = scene.mount(&[]);
    assert!(line.contains("read cache"), "{line}");
    assert!(line.contains("(a block in "), "measured by default: {line}");
    scene.unmount();
}

#[test]
fn wrong_values_are_named_and_refused() {
    let place = place();
    let pool = make_pool(place.path());
    let (pool, mountpoint) = (text(&pool), text(place.path()));
    for (option, value, allowed) in [
        ("--read-cache", "fast", "auto, on, off"),
        ("--read-cache", "off,2G", "auto, on, off"),
        ("--read-cache", "0", "1M or more"),
        ("--read-cache", "on,12Q", "2G"),
        ("--read-cache-threshold", "0", "1 to 63"),
        ("--read-cache-threshold", "64", "1 to 63"),
        ("--read-cache-window", "0", "0.001 to 86400"),
        ("--read-cache-window", "long", "0.001 to 86400"),
    ] {
        let refused = run(["mount", pool, mountpoint, option, value]);
        assert_eq!(refused.code, 2, "{refused:?}");
        let named = refused.stderr.contains(option) && refused.stderr.contains(value);
        assert!(named && refused.stderr.contains(allowed), "{refused:?}");
    }
    let refused = run(["mount", pool, mountpoint, "-o", "ro,read_cache=fast"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let said = &refused.stderr;
    assert!(
        said.contains("`read_cache=fast`") && said.contains("auto, on, off"),
        "{said}"
    );

    assert_eq!(run(["stat", pool, "--all"]).code, 2, "all of what?");
    let closed = run(["stat", pool, "--cached-files"]);
    assert_eq!(closed.code, 1, "{closed:?}");
    assert!(closed.stderr.contains("only a mounted pool"), "{closed:?}");
}
