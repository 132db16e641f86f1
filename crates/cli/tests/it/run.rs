//! `perdure run`: a program gets a mount, the library, and signals; its end is the command's, and nothing is left behind.

use crate::common::scene::{Scene, text};
use crate::common::{Outcome, perdure};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A library that is loaded anyway: what is tested here is that it is loaded first, not what it does.
fn any_library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings");
    let paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let mut libraries = paths.filter(|path| path.contains("/libc.so"));
    libraries.next().expect("the C library").to_owned()
}

/// `perdure run` on the scene's pool, with directories made in the scene.
fn command(scene: &Scene, options: &[&str], program: &[&str]) -> Command {
    let mut command = perdure();
    command
        .arg("run")
        .arg(&scene.pool)
        .args(options)
        .arg("--")
        .args(program)
        .env("PERDURE_PRELOAD", any_library())
        .env("XDG_RUNTIME_DIR", scene.place.path());
    command
}

#[track_caller]
fn run(scene: &Scene, options: &[&str], program: &[&str]) -> Outcome {
    let output = command(scene, options, program).output();
    output.expect("the command starts").into()
}

fn mounted_at(place: &Path) -> bool {
    server::pool_mounted_at(place).is_ok_and(|pool| pool.is_some())
}

/// Names in the scene's directory that no test made.
fn left_behind(scene: &Scene) -> Vec<String> {
    let names = fs::read_dir(scene.place.path()).expect("listed");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("perdure-")).collect()
}

#[test]
fn a_mount_lives_as_long_as_the_program() {
    let Some(scene) = Scene::new() else { return };
    let script =
        "echo content >$PERDURE_MNT/file; cat $PERDURE_MNT/file; echo $PERDURE_MNT; exit 7";
    let outcome = run(&scene, &[], &["sh", "-c", script]);
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (7, ""),
        "{outcome:#?}"
    );
    let (content, place) = outcome.stdout.split_once('\n').expect("two lines");
    assert_eq!(content, "content");
    assert!(place.starts_with(text(scene.place.path())), "{place}");
    assert_eq!(left_behind(&scene), [""; 0]);

    let at = text(&scene.mountpoint);
    let outcome = run(&scene, &["--at", at, "-v"], &["cat", &format!("{at}/file")]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "content\n"));
    for said in ["mounted", at, "preloading", "is saved"] {
        assert!(outcome.stderr.contains(said), "{outcome:#?}");
    }
    assert!(scene.mountpoint.exists() && !mounted_at(&scene.mountpoint));
}

#[test]
fn a_mount_that_is_there_is_used_and_stays() {
    let Some(scene) = Scene::new() else { return };
    scene.mount(&[]);
    let outcome = run(&scene, &[], &["sh", "-c", "echo $PERDURE_MNT"]);
    let place = scene.mountpoint.canonicalize().expect("its path");
    assert_eq!(outcome.stdout.trim_end(), text(&place), "{outcome:#?}");
    let outcome = run(&scene, &["--at", text(scene.place.path())], &["true"]);
    assert_eq!(outcome.code, 4, "{outcome:#?}");
    let said = format!("is mounted at {}, not at", text(&place));
    assert!(outcome.stderr.contains(&said), "{outcome:#?}");
    assert!(mounted_at(&scene.mountpoint));
    scene.unmount();
}

#[test]
fn a_mount_that_cannot_be_seen_is_not_used() {
    let Some(scene) = Scene::new() else { return };
    scene.mount(&[]);
    let at = text(&scene.mountpoint);
    let cover = Command::new("mount")
        .args(["-t", "tmpfs", "none", at])
        .status();
    assert!(cover.expect("started").success());
    for options in [&[][..], &["--at", at]] {
        let outcome = run(
            &scene,
            options,
            &["sh", "-c", "echo lost >$PERDURE_MNT/lost"],
        );
        assert_eq!(outcome.code, 4, "{outcome:#?}");
        assert!(outcome.stderr.contains("cannot be seen"), "{outcome:#?}");
    }
    assert!(!scene.mountpoint.join("lost").exists());
    let uncover = Command::new("umount").arg(at).status();
    assert!(uncover.expect("started").success());

    // By its mount point, and held meanwhile.
    let outcome = perdure()
        .args([
            "run",
            at,
            "--",
            "sh",
            "-c",
            "umount $PERDURE_MNT; echo x >$PERDURE_MNT/file",
        ])
        .env("PERDURE_PRELOAD", any_library())
        .output();
    let outcome = Outcome::from(outcome.expect("started"));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stderr.contains("busy"), "{outcome:#?}");
    scene.unmount();
    assert!(!scene.mountpoint.join("file").exists());
}

#[test]
fn the_last_program_takes_the_mount_away() {
    let Some(scene) = Scene::new() else { return };
    let script = "echo ready; sleep $1; echo x >$PERDURE_MNT/$1; echo $PERDURE_MNT";
    for at in [&[][..], &["--at", text(&scene.mountpoint)]] {
        let start = |options, seconds| {
            let program = ["sh", "-c", script, "sh", seconds];
            let mut child = command(&scene, options, &program)
                .stdout(Stdio::piped())
                .spawn()
                .expect("started");
            let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            assert_eq!(lines.next().expect("a line").expect("read"), "ready");
            (child, lines)
        };
        let both = [start(at, "0.3"), start(&[], "0.9")];
        let places = both.map(|(mut child, mut lines)| {
            let place = lines.next().expect("a line").expect("read");
            assert!(child.wait().expect("ended").success());
            place
        });
        assert_eq!(places[0], places[1]);
        assert!(!mounted_at(&scene.mountpoint));
        assert_eq!(left_behind(&scene), [""; 0]);
    }
    let names = run(&scene, &[], &["sh", "-c", "ls $PERDURE_MNT"]);
    assert_eq!(names.stdout, "0.3\n0.9\n");
    assert_eq!(fs::read_dir(&scene.mountpoint).expect("listed").count(), 0);
}

#[test]
fn programs_that_start_together_share_a_mount() {
    let Some(scene) = Scene::new() else { return };
    let at = ["--at", text(&scene.mountpoint)];
    let children: Vec<_> = (0..4)
        .map(|_| {
            command(&scene, &at, &["sleep", "0.1"])
                .spawn()
                .expect("started")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("ended").success());
    }
    assert!(!mounted_at(&scene.mountpoint));
}

#[test]
fn a_program_may_unmount_its_pool() {
    let Some(scene) = Scene::new() else { return };
    let script = format!("{} umount $PERDURE_MNT", env!("CARGO_BIN_EXE_perdure"));
    let outcome = run(&scene, &[], &["sh", "-c", &script]);
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (0, ""),
        "{outcome:#?}"
    );
    assert_eq!(left_behind(&scene), [""; 0]);
}

#[test]
fn a_mount_point_whose_server_is_dead_is_used_again() {
    let Some(scene) = Scene::new() else { return };
    scene.mount(&[]);
    let server = scene.status()["process"].as_i64().expect("a process");
    let server = rustix::process::Pid::from_raw(server as i32).expect("a process");
    rustix::process::kill_process(server, rustix::process::Signal::KILL).expect("killed");
    let output = perdure()
        .arg("run")
        .arg(&scene.mountpoint)
        .args(["--", "sh", "-c", "echo $PERDURE_MNT"])
        .env("PERDURE_PRELOAD", any_library())
        .output();
    let outcome: Outcome = output.expect("the command starts").into();
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.stdout.trim(), text(&scene.mountpoint));
    assert!(!mounted_at(&scene.mountpoint), "as it was found");
}

#[test]
fn other_libraries_are_loaded_too() {
    let Some(scene) = Scene::new() else { return };
    let program = ["sh", "-c", "echo $LD_PRELOAD"];
    let library = any_library();
    let output = command(&scene, &[], &program)
        .env("LD_PRELOAD", &library)
        .output();
    let outcome = Outcome::from(output.expect("started"));
    assert_eq!(outcome.stdout.trim_end(), format!("{library}:{library}"));
}

#[test]
fn programs_that_cannot_be_run_leave_nothing_behind() {
    let Some(scene) = Scene::new() else { return };
    for (program, code) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let outcome = run(&scene, &[], &[program]);
        assert_eq!(outcome.code, code, "{outcome:#?}");
        let said = format!("run: {program}: cannot be run");
        assert!(outcome.stderr.contains(&said), "{outcome:#?}");
        assert_eq!(left_behind(&scene), [""; 0]);
    }
}

#[test]
fn the_program_gets_the_signals_and_its_end_is_told() {
    let Some(scene) = Scene::new() else { return };
    let traps = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let plain = "echo ready; exec sleep 60";
    let cases = [
        (traps, rustix::process::Signal::TERM, 3, "asked"),
        (plain, rustix::process::Signal::TERM, 128 + 15, ""),
        (plain, rustix::process::Signal::HUP, 128 + 1, ""),
        (plain, rustix::process::Signal::INT, 128 + 2, ""),
        (plain, rustix::process::Signal::USR1, 128 + 10, ""),
        (plain, rustix::process::Signal::ALARM, 128 + 14, ""),
    ];
    for (script, signal, code, said) in cases {
        let mut child = command(&scene, &[], &["sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), "ready");
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, signal).expect("told");
        let rest: Vec<String> = lines.map(|line| line.expect("read")).collect();
        assert_eq!(rest.concat(), said);
        let ended = child.wait().expect("ended");
        assert_eq!(ended.code(), Some(code), "{script} {signal:?}");
        assert_eq!(left_behind(&scene), [""; 0]);
    }
}

#[test]
fn the_library_must_be_there() {
    let Some(scene) = Scene::new() else { return };
    let output = command(&scene, &[], &["true"])
        .env("PERDURE_PRELOAD", "/no/such/library")
        .output();
    let outcome = Outcome::from(output.expect("started"));
    assert_eq!(outcome.code, 1, "{outcome:#?}");
    assert!(outcome.stderr.contains("/no/such/library"), "{outcome:#?}");
    let copy = scene.place.path().join("perdure");
    fs::copy(env!("CARGO_BIN_EXE_perdure"), &copy).expect("copied");
    let mut alone = Command::new(&copy);
    let output = alone.arg("run").arg(&scene.pool).args(["--", "true"]);
    let outcome = Outcome::from(output.output().expect("started"));
    assert_eq!(outcome.code, 1, "{outcome:#?}");
    for said in ["libperdure_preload.so", "../lib/perdure/", "make install"] {
        assert!(outcome.stderr.contains(said), "{outcome:#?}");
    }
}
