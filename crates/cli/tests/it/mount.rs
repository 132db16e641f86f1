//! `perdure mount` and `umount`: in the background, asked while it lives, killed, taken over, read-only.

use crate::common::scene::{Scene, text};
use crate::common::{perdure, run, succeed};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_mount_lives_and_is_taken_over_after_a_kill() {
    let Some(scene) = Scene::new() else { return };
    let line = scene.mount(&[]);
    let start = format!(
        "mounted {} at {}: class volatile",
        scene.pool.display(),
        scene.mountpoint.display()
    );
    assert!(line.starts_with(&start), "{line}");
    fs::write(scene.mountpoint.join("file"), "content").expect("written");

    let status = scene.status();
    assert_eq!(status["state"], "mounted", "{status:#}");
    assert_eq!(status["mountpoint"], text(&scene.mountpoint));
    assert_eq!(status["class"], "volatile");
    assert!(
        status["available_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0),
        "{status:#}"
    );
    assert!(
        status["server"]["statistics"]["written_bytes"] == 7,
        "{status:#}"
    );
    // The server counts; the medium says 0 until it is unmounted.
    assert_ne!(status["wear"]["written_blocks"], 0, "{status:#}");
    assert_eq!(status["segment_wear"], Value::Null, "only with --wear");
    assert_eq!(status["wear_by_segment"], Value::Null, "only with --wear");
    assert_eq!(
        run(["mount", text(&scene.pool), text(&scene.mountpoint)]).code,
        4
    );
    let busy = {
        let _inside = fs::File::open(scene.mountpoint.join("file")).expect("opened");
        run(["umount", text(&scene.mountpoint)])
    };
    assert!(
        busy.code == 4 && busy.stderr.contains("is in use"),
        "{busy:#?}"
    );

    let process = status["process"]
        .as_i64()
        .and_then(|process| i32::try_from(process).ok());
    let process = process
        .and_then(rustix::process::Pid::from_raw)
        .expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("killed");
    let start = Instant::now();
    while fs::read(scene.mountpoint.join("file")).is_ok() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "the server survived SIGKILL"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let line = scene.mount(&[]);
    assert!(line.contains("recovered"), "{line}");
    assert_eq!(
        fs::read(scene.mountpoint.join("file")).expect("read"),
        b"content"
    );
    scene.unmount();
    assert_eq!(run(["fsck", text(&scene.pool)]).code, 0);
    assert!(scene.mount(&["--read-only"]).contains("clean"));
    assert_eq!(
        fs::write(scene.mountpoint.join("other"), "")
            .expect_err("read-only")
            .kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
    scene.unmount();
}

/// Debug lines for each request, a warning when the mount is in use as it is to end, and nowhere to write them.
#[test]
fn a_log_that_cannot_be_written_is_lost_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let mut server = perdure()
        .args(["mount", "--foreground"])
        .args([&scene.pool, &scene.mountpoint])
        .env("RUST_LOG", "debug")
        .stdout(Stdio::null())
        .stderr(full.expect("/dev/full"))
        .spawn()
        .expect("started");
    let start = Instant::now();
    let is_late = || start.elapsed() > Duration::from_secs(20);
    let file = scene.mountpoint.join("file");
    while !server::pool_mounted_at(&scene.mountpoint).is_ok_and(|pool| pool.is_some()) {
        assert!(!is_late(), "no mount");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::write(&file, "content").expect("written");
    let in_use = fs::File::open(&file).expect("opened");
    let process = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("asked");
    let ended = loop {
        match server.try_wait().expect("asked") {
            Some(ended) => break ended,
            None if is_late() => {
                server.kill().expect("killed");
                panic!("it did not end");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    drop(in_use);
    assert!(ended.success(), "{ended}");
}

/// A new pool was never unmounted, and has nothing to recover.
#[test]
fn messages_name_what_is_there_and_what_to_do() {
    let Some(scene) = Scene::new() else { return };
    let line = scene.mount(&[]);
    assert!(line.contains(", clean, ready"), "{line}");
    let (pool, place) = (text(&scene.pool), text(&scene.mountpoint));
    let elsewhere = text(scene.place.path());
    for words in [&["fsck", place][..], &["mount", place, elsewhere]] {
        let outcome = run(words);
        let wanted = format!("{place}: is where {pool} is mounted; give that name");
        assert!(outcome.stderr.contains(&wanted), "{outcome:#?}");
    }
    let outcome = run(["umount", pool]);
    let wanted = format!("it is a pool that is mounted at {place}");
    assert!(outcome.stderr.contains(&wanted), "{outcome:#?}");
}

#[test]
fn read_only_mounts_of_one_pool_do_not_disturb_each_other() {
    let Some(scene) = Scene::new() else { return };
    let second = scene.place.path().join("second");
    fs::create_dir(&second).expect("made");
    scene.mount(&["--read-only"]);
    let status = scene.status();
    assert_eq!(status["state"], "mounted", "{status:#}");
    assert_eq!(status["mountpoint"], text(&scene.mountpoint));
    let clients = succeed(["stat", text(&scene.pool), "--clients"]).stdout;
    assert!(
        clients.contains("read-only") || clients.contains("no process"),
        "{clients}"
    );
    succeed(["mount", "-r", text(&scene.pool), text(&second)]);
    assert_eq!(scene.status()["mountpoint"], text(&scene.mountpoint));
    for place in [&second, &scene.mountpoint] {
        let begin = Instant::now();
        let ended = succeed(["umount", text(place)]).stdout;
        assert!(ended.contains("is as it was"), "{ended}");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
    let status: Value =
        serde_json::from_str(&succeed(["stat", text(&scene.pool), "--json"]).stdout).expect("JSON");
    assert_eq!(status["state"], "closed");
    assert_eq!(status["clean"], true, "as new: {status:#}");
}

#[test]
fn what_cannot_be_mounted_is_not_announced() {
    let Some(scene) = Scene::new() else { return };
    let (pool, at) = (text(&scene.pool), text(&scene.mountpoint));
    let limited = "ulimit -n 256; exec \"$@\" --threads 300";
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        limited,
        "sh",
        env!("CARGO_BIN_EXE_perdure"),
        "mount",
        pool,
        at,
    ]);
    let ended = command.output().expect("started");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(
        said.contains("300 threads are too many") && ended.stdout.is_empty(),
        "{said}"
    );
    assert_eq!(run(["mount", pool, at, "-o", "fake"]).code, 0);
    assert!(server::pool_mounted_at(&scene.mountpoint).is_ok_and(|pool| pool.is_none()));
}

#[test]
fn a_mount_is_restricted_from_the_beginning() {
    let Some(scene) = Scene::new() else { return };
    scene.mount(&["-o", "nosuid,nodev,noexec"]);
    let table = fs::read_to_string("/proc/self/mounts").expect("read");
    let line = table
        .lines()
        .find(|line| line.contains(text(&scene.mountpoint)));
    let line = line.expect("mounted");
    for restriction in ["nosuid", "nodev", "noexec"] {
        assert!(line.contains(restriction), "{line}");
    }
    scene.unmount();
}

#[test]
fn the_wear_of_a_mount_is_live() {
    let Some(scene) = Scene::new() else { return };
    scene.mount(&[]);
    let sums = || {
        let said = succeed(["stat", text(&scene.mountpoint), "--json", "--wear"]).stdout;
        let status: Value = serde_json::from_str(&said).expect("JSON");
        let rows = status["wear_by_segment"].as_array().expect("rows").clone();
        assert_eq!(rows.len(), 16, "{status:#}");
        assert_eq!(status["server"]["segment_used"], Value::Null, "said once");
        let sum = |name: &str| {
            let numbers = rows.iter().map(|row| row[name].as_u64());
            numbers.sum::<Option<u64>>().expect(name)
        };
        let block_bytes = status["server"]["space"]["block_bytes"].as_u64();
        let free = status["free_bytes"].as_u64().expect("bytes") / block_bytes.expect("bytes");
        // Freed blocks that a journal still needs are both.
        assert!(sum("blocks_used") + free >= 16 * 256, "{status:#}");
        (sum("blocks_used"), sum("blocks_written"))
    };
    let (used, written) = sums();
    let file = scene.mountpoint.join("file");
    for round in 0..4 {
        fs::write(&file, vec![round; 400_000]).expect("written");
    }
    let (used_after, written_after) = sums();
    assert!(used_after >= used + 97, "{used} {used_after}");
    assert!(
        written_after >= written + 4 * 97,
        "{written} {written_after}"
    );
    let map = scene.place.path().join("map.svg");
    succeed([
        "stat",
        text(&scene.mountpoint),
        "--wear",
        "--svg",
        text(&map),
    ]);
    assert!(
        fs::read_to_string(&map)
            .expect("a map")
            .contains("segment 15: ")
    );
    scene.unmount();
}

#[test]
fn a_background_server_lets_go_of_the_caller() {
    let Some(scene) = Scene::new() else { return };
    let log = scene.pool.with_file_name("log");
    // `output` reads both pipes to their ends: it would wait for ever if the server kept them.
    let arguments = [
        text(&scene.pool),
        text(&scene.mountpoint),
        "-o",
        "noatime,nosuid",
        "--log",
        text(&log),
    ];
    let output = perdure()
        .arg("mount")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("started");
    assert!(output.status.success(), "{output:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let line = mounts
        .lines()
        .find(|line| line.contains(text(&scene.mountpoint)))
        .expect("mounted");
    assert!(
        line.contains("nosuid") && line.contains("fuse.perdure"),
        "{line}"
    );
    assert!(log.exists());
    scene.unmount();
    let again = run(["umount", text(&scene.mountpoint)]);
    assert!(
        again.code == 1 && again.stderr.contains("no Perdure pool is mounted"),
        "{again:#?}"
    );
}

#[test]
fn a_mount_turns_read_only_and_back() {
    let Some(scene) = Scene::new() else { return };
    assert_eq!(scene.mount(&["--quiet"]), "");
    let (pool, place) = (text(&scene.pool), text(&scene.mountpoint));
    let remount = |options: &str| run(["mount", "-o", options, pool, place]);
    let file = scene.mountpoint.join("file");
    let write = || fs::write(&file, "content").map_err(|error| error.kind());
    write().expect("writable");
    if !rustix::process::geteuid().is_root() {
        let refused = remount("remount,ro");
        let wanted = "only root can remount";
        assert!(
            refused.code == 1 && refused.stderr.contains(wanted),
            "{refused:#?}"
        );
        return;
    }
    let open = fs::OpenOptions::new().write(true).open(&file);
    let busy = remount("remount,ro");
    let wanted = "open for writing";
    assert!(busy.code == 4 && busy.stderr.contains(wanted), "{busy:#?}");
    drop(open.expect("opened"));
    let begin = Instant::now();
    let line = loop {
        let outcome = remount("remount,ro,noexec");
        // A command that another test starts at this moment holds our open file until it executes.
        if outcome.code != 4 || begin.elapsed() > Duration::from_secs(5) {
            break outcome.stdout;
        }
    };
    assert_eq!(line, format!("remounted {pool} at {place}: read-only\n"));
    let kind = std::io::ErrorKind::ReadOnlyFilesystem;
    assert_eq!(write().expect_err("read-only"), kind);
    assert_eq!(fs::read(&file).expect("readable"), b"content");
    let options = || {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("a table");
        let line = table.lines().find(|line| line.contains(place));
        line.expect("a mount").to_owned()
    };
    assert!(options().contains(" ro,") && options().contains("noexec"));
    // Options that it does not name stay.
    assert_eq!(remount("remount").code, 0);
    assert!(options().contains(" rw,") && options().contains("noexec"));
    assert_eq!(remount("remount,exec").code, 0);
    assert!(!options().contains("noexec"));
    write().expect("writable");
    scene.unmount();
    let none = remount("remount,ro");
    assert!(
        none.code == 1 && none.stderr.contains("is not mounted there"),
        "{none:#?}"
    );
    scene.mount(&["--read-only"]);
    let refused = remount("remount,rw");
    assert!(
        refused.code == 4 && refused.stderr.contains("was mounted read-only"),
        "{refused:#?}"
    );
    scene.unmount();
}

/// As umount(8) does it, and a server that has no time to end at once.
#[test]
fn a_pool_that_its_former_server_still_saves_is_waited_for() {
    let Some(scene) = Scene::new() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: umount2 needs root");
        return;
    }
    let file = format!("{}:/file", text(&scene.pool));
    let copy = scene.place.path().join("copy");
    let nexts: [&[&str]; 3] = [
        &["mount", text(&scene.pool), text(&scene.mountpoint)],
        &["fsck", text(&scene.pool)],
        &["cp", &file, text(&copy)],
    ];
    for next in nexts {
        scene.mount(&["--quiet"]);
        fs::write(scene.mountpoint.join("file"), "content").expect("written");
        let process = scene.status()["process"].as_u64().expect("a number");
        let process = Pid::from_raw(process as i32).expect("a process");
        kill_process(process, Signal::STOP).expect("stopped");
        unmount(&scene.mountpoint, UnmountFlags::DETACH).expect("unmounted");
        let mut waiting = perdure();
        waiting
            .args(next)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut waiting = waiting.spawn().expect("the command starts");
        std::thread::sleep(Duration::from_millis(300));
        let ended = waiting.try_wait().expect("asked");
        kill_process(process, Signal::CONT).expect("goes on");
        let outcome = waiting.wait_with_output().expect("ended");
        assert!(
            ended.is_none() && outcome.status.success(),
            "{next:?}: {outcome:#?}"
        );
        if next[0] == "mount" {
            scene.unmount();
        }
    }
    assert_eq!(fs::read(&copy).expect("copied"), b"content");
}
