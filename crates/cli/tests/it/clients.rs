//! Processes that use files of a mount directly, as `stat` shows them: here this one is such a process.

use crate::common::scene::{Scene, text};
use crate::common::{make_pool, place, run, succeed};
use direct::Client;
use serde_json::Value;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

const BLOCK: usize = 4096;

/// Writes so many blocks, by the kernel where it cannot be done directly: how many directly.
fn write(file: &File, direct: &direct::File, blocks: u64) -> u64 {
    let is_direct = |block: &u64| {
        let (data, offset) = ([1; BLOCK], block * BLOCK as u64);
        let written = direct.write_at(file.as_fd(), &[IoSlice::new(&data)], offset);
        if written.is_none() {
            file.write_all_at(&data, offset).expect("written");
        }
        written.is_some()
    };
    (0..blocks).filter(is_direct).count() as u64
}

#[test]
fn a_process_is_listed_with_what_it_does() {
    let Some(scene) = Scene::new() else { return };
    scene.mount(&[]);
    let place = text(&scene.mountpoint);
    let report = succeed(["stat", place, "--clients"]).stdout;
    assert!(
        report.contains("no process uses files directly"),
        "{report}"
    );
    assert_eq!(scene.status()["clients"], Value::Null, "not asked for");

    let file = File::create_new(scene.mountpoint.join("file")).expect("created");
    let client = Client::default();
    let direct = client.look(file.as_fd()).expect("a file of the mount");
    let written = write(&file, &direct, 40);
    assert!(written > 0, "nothing directly");
    let said = succeed(["stat", place, "--clients", "--json"]).stdout;
    let report: Value = serde_json::from_str(&said).expect("JSON");
    let clients = report["clients"].as_array().expect("a list");
    assert_eq!(clients.len(), 1, "{clients:#?}");
    let this = &clients[0];
    assert_eq!(this["process"], std::process::id());
    assert_eq!(this["writes"], written);
    assert_eq!(this["kernel_operations"], 40 - written);
    assert_eq!(this["direct_ratio"], written as f64 / 40.0);
    let inode = file.metadata().expect("metadata").ino();
    assert_eq!(this["files_leased"], Value::from(vec![inode]));
    let status = &report["server"]["direct"];
    assert_eq!(
        (&status["processes"], &status["leases"]),
        (&1.into(), &1.into())
    );

    let report = succeed(["stat", place, "--clients"]).stdout;
    let begin = format!("  {:>8}  {:>8}  ", std::process::id(), 0);
    for words in [
        "direct     1 process, 1 lease, 0 files read; 1 attached, 0 taken back, 0 forced",
        "   process      user  command",
        &begin,
        &format!("leased inodes {inode}\n"),
        " before the file was attached",
    ] {
        assert!(report.contains(words), "{words} in {report}");
    }
    let report = succeed(["stat", place]).stdout;
    assert!(!report.contains("leased inodes"), "{report}");
    direct.close();
    drop(file);
    scene.unmount();
}

#[test]
fn only_a_server_knows() {
    let place = place();
    let pool = make_pool(place.path());
    let closed = run(["stat", text(&pool), "--clients"]);
    assert_eq!(closed.code, 1, "{closed:?}");
    for words in ["only a mounted pool has processes", "--clients"] {
        assert!(closed.stderr.contains(words), "{closed:?}");
    }
}
