//! Pools with a disk below their memory.

use crate::common::{run, succeed};
use crate::log::OnDisk;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FILES: u64 = 24;
const FILE_BYTES: usize = 2 << 20;

fn pattern(seed: u64) -> Vec<u8> {
    let byte = |at: usize| (seed as usize * 31 + at * 7 + at / 4096) as u8;
    (0..FILE_BYTES).map(byte).collect()
}

/// A pool of 24 MiB of memory with a home beside it.
fn with_home() -> Option<(OnDisk, PathBuf)> {
    let scene = OnDisk::without_pool()?;
    let home = scene.beside("below");
    let text = home.to_str().expect("a path of text");
    let words = ["--size", "24M", "--home", text, "--home-size", "80M"];
    let made = succeed(["mkfs", scene.pool()].iter().chain(&words)).stdout;
    assert!(
        made.contains("class log") && made.contains("home "),
        "{made}"
    );
    Some((scene, home))
}

fn tier(scene: &OnDisk) -> Value {
    let status = succeed(["stat", scene.mnt(), "--json"]).stdout;
    let status: Value = serde_json::from_str(&status).expect("a report");
    status["server"]["tier"].clone()
}

fn fill(scene: &OnDisk) {
    for number in 0..FILES {
        fs::write(scene.path(&number.to_string()), pattern(number)).expect("room");
    }
}

fn compare(scene: &OnDisk) {
    for number in 0..FILES {
        let content = fs::read(scene.path(&number.to_string())).expect("a good disk");
        assert!(content == pattern(number), "{number}");
    }
}

#[test]
fn a_pool_holds_more_than_its_memory() {
    let Some(scene) = OnDisk::without_pool() else {
        return;
    };
    let made = succeed(["mkfs", scene.pool(), "--size", "104M", "--memory", "24M"]).stdout;
    assert!(
        made.contains("24.0 MiB in") && made.contains("home "),
        "{made}"
    );
    scene.mount(&["--dirty-age", "200ms"]);
    fill(&scene);
    compare(&scene);
    assert!(tier(&scene)["evicted_bytes"].as_u64() > Some(20 << 20));
    scene.kill_server();
    scene.mount(&["-o", "dirty_max=40%,home_rate=100M"]);
    compare(&scene);
    let said = succeed(["tier", "flush", scene.pool(), "--deadline", "60s"]).stdout;
    assert!(said.contains("the home has everything"), "{said}");
    // Metadata in segments of data counts as well.
    assert!(tier(&scene)["dirty_bytes"].as_u64() < Some(2 << 20));
    assert_eq!(tier(&scene)["state"], "ok");
    let text = succeed(["stat", scene.mnt()]).stdout;
    assert!(text.contains(": ok, "), "{text}");
    scene.unmount();
    let report = succeed(["fsck", scene.pool()]).stdout;
    assert!(report.contains("no faults"), "{report}");
    scene.mount(&["--read-only"]);
    compare(&scene);
    scene.unmount();
    // The home is one of the pool's files.
    succeed(["mkfs", scene.pool(), "--size", "32M", "--force"]);
    let gone = run(["tier", "flush", scene.pool()]);
    assert_eq!(gone.code, 1, "{gone:?}");
}

#[test]
fn a_home_that_is_missing_comes_back() {
    let Some((scene, home)) = with_home() else {
        return;
    };
    scene.mount(&[]);
    fill(&scene);
    succeed(["tier", "flush", scene.pool()]);
    scene.unmount();
    let away = scene.beside("away");
    fs::rename(&home, &away).expect("renamed");
    scene.mount(&[]);
    let read = |number: u64| fs::read(scene.path(&number.to_string()));
    let cold = (0..FILES).find(|&number| read(number).is_err());
    let cold = cold.expect("memory has no room for all of them");
    let error = read(cold).expect_err("it lies on the home");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    assert_eq!(tier(&scene)["state"], "missing");
    fs::write(scene.path("new"), "memory is enough").expect("room");
    assert_eq!(
        fs::read(scene.path("new")).expect("there"),
        b"memory is enough"
    );
    fs::rename(&away, &home).expect("renamed");
    let begun = Instant::now();
    while read(cold).is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "nobody looks for it"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    compare(&scene);
    scene.unmount();
    let report = succeed(["fsck", scene.pool()]).stdout;
    assert!(report.contains("no faults"), "{report}");
    scene.mount(&[]);
    compare(&scene);
    scene.unmount();
}

#[test]
fn only_the_home_of_the_pool_and_of_its_time_is_taken() {
    let Some((scene, home)) = with_home() else {
        return;
    };
    let old = scene.beside("old");
    scene.mount(&[]);
    scene.unmount();
    fs::copy(&home, &old).expect("copied");
    scene.mount(&[]);
    scene.unmount();
    let mount = |home: &str| run(["mount", scene.pool(), scene.mnt(), "--home", home]);
    let refused = |home: &str, why: &str| {
        let outcome = mount(home);
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(outcome.stderr.contains(why), "{outcome:?}");
    };
    let text = |path: &PathBuf| path.to_str().expect("a path of text").to_owned();
    refused(&text(&old), "is older than the pool's memory");
    scene.mount(&["--home", &text(&old), "--force-recovery"]);
    scene.unmount();
    refused(&text(&home), "is older than the pool's memory");
    scene.mount(&["--force-recovery"]);
    scene.unmount();
    let other = scene.beside("other");
    let words = ["--size", "24M", "--home-size", "16M", "--home"];
    let place = text(&scene.beside("other pool"));
    succeed(
        ["mkfs", &place]
            .iter()
            .chain(&words)
            .chain(&[&*text(&other)]),
    );
    refused(&text(&other), "is the home of another pool");
    fs::write(scene.beside("none"), [1; 100_000]).expect("written");
    refused(&text(&scene.beside("none")), "is no home of a pool");
    // A file that holds something is not made a home by accident.
    let again = run([
        "mkfs",
        &text(&scene.beside("third")),
        "--size",
        "24M",
        "--home",
        &text(&other),
    ]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("is not empty"), "{again:?}");
    assert!(!scene.beside("third").exists(), "nothing was made");
    let unknown = run([
        "mkfs",
        &text(&scene.beside("fourth")),
        "--size",
        "24M",
        "--home",
        &text(&scene.beside("new")),
    ]);
    assert!(unknown.stderr.contains("--home-size"), "{unknown:?}");
    scene.mount(&["--home", &text(&home)]);
    scene.unmount();
}
