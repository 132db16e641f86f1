//! Root mounts the pool of an ordinary user, which is trusted with the files in it and no more.

use crate::common::scene::{Scene, text};
use crate::common::{Outcome, perdure, run, succeed};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const OWNER: u32 = 12_345;
const NOBODY: u32 = 65_534;

fn give(tree: &Path) {
    let owner = OWNER.to_string();
    let status = Command::new("chown")
        .args(["-R", &owner])
        .arg(tree)
        .status();
    assert!(status.expect("chown").success());
}

/// The options of the mount, as the kernel has them.
fn mount_options(scene: &Scene) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mount table");
    let place = text(&scene.mountpoint);
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(1) == Some(place));
    let options = line.and_then(|line| line.split(' ').nth(3));
    options.expect("mounted").to_owned()
}

/// Whether a set-user-id program of root's on the mount makes its caller root.
fn set_id_works(scene: &Scene) -> bool {
    let program = scene.mountpoint.join("id");
    fs::copy("/usr/bin/id", &program).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("chmod");
    fs::set_permissions(scene.place.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let said = Command::new(&program)
        .arg("-u")
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    let said = said.expect("runs").stdout;
    String::from_utf8_lossy(&said).trim() == "0"
}

fn device_works(scene: &Scene) -> bool {
    let device = scene.mountpoint.join("null");
    if !device.exists() {
        let made = Command::new("mknod")
            .arg(&device)
            .args(["c", "1", "3"])
            .status();
        assert!(made.expect("mknod").success());
    }
    fs::read(&device).is_ok()
}

#[test]
fn set_id_programs_and_devices_of_a_users_pool_do_not_work() {
    let Some(scene) = Scene::new() else { return };
    // (owner is a user, options, set-id programs work, devices work)
    let rows: [(bool, &[&str], bool, bool); 6] = [
        (false, &[], true, true),
        (false, &["-o", "nosuid"], false, true),
        (true, &[], false, false),
        (true, &["-o", "suid"], true, false),
        (true, &["-o", "dev"], false, true),
        (true, &["-o", "suid,dev"], true, true),
    ];
    for (is_users, options, programs, devices) in rows {
        if is_users {
            give(&scene.pool);
        }
        let said = scene.mount(options);
        let flags = mount_options(&scene);
        let has = |flag| flags.split(',').any(|option| option == flag);
        let what = format!("user's: {is_users}, {options:?}: {flags}; {said}");
        assert_eq!(has("nosuid"), !programs, "{what}");
        assert_eq!(has("nodev"), !devices, "{what}");
        let is_told = said.contains(&format!("because user {OWNER} owns the pool"));
        assert_eq!(is_told, is_users && !(programs && devices), "{what}");
        assert_eq!(set_id_works(&scene), programs, "{what}");
        assert_eq!(device_works(&scene), devices, "{what}");
        scene.unmount();
    }
}

/// Files that root makes in the pool's directory belong to its owner.
#[test]
fn files_that_root_makes_belong_to_the_pools_owner() {
    let Some(scene) = Scene::new() else { return };
    give(&scene.pool);
    scene.mount(&[]);
    for name in ["owner.pid", "direct", "direct/epoch"] {
        let metadata = fs::symlink_metadata(scene.pool.join(name)).expect(name);
        assert_eq!(metadata.uid(), OWNER, "{name}");
    }
    scene.unmount();
    fs::remove_file(scene.pool.join("segment-0003")).expect("removed");
    let repaired = run(["fsck", "--repair", "-y", text(&scene.pool)]);
    assert_eq!(repaired.code, 1, "{repaired:#?}");
    let segment = fs::metadata(scene.pool.join("segment-0003")).expect("made anew");
    assert_eq!(segment.uid(), OWNER);
}

/// Answers one question with this.
fn answer_once(pool: &Path, answer: Vec<u8>) -> std::thread::JoinHandle<()> {
    let socket = UnixListener::bind(pool.join("control")).expect("a socket");
    std::thread::spawn(move || {
        let (mut stream, _) = socket.accept().expect("asked");
        let mut question = [0; 15];
        let _ = stream.read_exact(&mut question);
        // The other side may have had enough.
        let _ = stream.write_all(&answer);
    })
}

fn stat(scene: &Scene, words: &[&str]) -> Outcome {
    let said = perdure()
        .args(["stat", text(&scene.pool)])
        .args(words)
        .output();
    said.expect("runs").into()
}

/// A server of the pool's owner that says what the owner likes: a terminal obeys none of it.
#[test]
fn what_a_foreign_server_says_does_nothing_to_the_terminal() {
    let Some(scene) = Scene::new() else { return };
    let hostile = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\r\nperdure: all is well";
    scene.mount(&[]);
    let mut status = scene.status()["server"].clone();
    scene.unmount();
    for field in ["version", "pool", "mountpoint", "class", "read_cache_state"] {
        status[field] = hostile.into();
    }
    status["statistics"]["operations"][0]["operation"] = hostile.into();
    status["space"]["blocks"] = u64::MAX.into();
    status["space"]["free_blocks"] = u64::MAX.into();
    status["segment_wear"] = vec![u64::MAX; 5000].into();
    let text = status.to_string();
    let good = format!("perdure 1 ok {}\n{text}", text.len());
    let refusal = format!("perdure 1 error {}\n{hostile}", hostile.len());
    let denial = format!("perdure 1 {hostile}\n");
    for answer in [good, refusal, denial, "\u{1b}\u{9b}".repeat(64)] {
        for words in [&[][..], &["--json"], &["--wear"], &["--clients"]] {
            let server = answer_once(&scene.pool, answer.clone().into_bytes());
            let said = stat(&scene, words);
            drop(server);
            fs::remove_file(scene.pool.join("control")).expect("removed");
            let shown = format!("{}{}", said.stdout, said.stderr);
            let is_obeyed = |one: char| (one.is_control() && one != '\n') || one == '\u{202e}';
            assert!(!shown.contains(is_obeyed), "{shown:?}");
            assert!(!shown.contains("\nperdure: all is well"), "{shown:?}");
            assert!(!shown.contains("panicked"), "{said:#?}");
        }
    }
}

/// Names in a pool are its users': messages show them, and nothing more.
#[test]
fn names_in_messages_do_nothing_to_the_terminal() {
    let Some(scene) = Scene::new() else { return };
    let name = "a\u{1b}[2J\u{9b}1m\nperdure: b";
    // Of a pool: in lines of the log, in the text of `stat`, and unchanged in JSON.
    let folder = scene.place.path().join(name);
    fs::create_dir(&folder).expect("a directory");
    let pool = folder.join("pool");
    fs::rename(&scene.pool, &pool).expect("moved");
    let logged = perdure()
        .env("RUST_LOG", "info")
        .args(["stat", text(&pool)])
        .output();
    let logged = Outcome::from(logged.expect("runs"));
    assert!(
        logged.stderr.contains("no server tells of the pool"),
        "{logged:#?}"
    );
    let both = format!("{}{}", logged.stderr, logged.stdout);
    assert!(!both.contains(['\u{1b}', '\u{9b}']), "{both:?}");
    assert!(!both.contains("\nperdure: b"), "{both:?}");
    let json = succeed(["stat", text(&pool), "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["pool"], text(&pool));
    fs::rename(&pool, &scene.pool).expect("moved back");
    let source = format!("{}:/{name}", scene.pool.display());
    let said = run(["cp", &source, text(&scene.place.path().join("copy"))]);
    assert_eq!(said.code, 1, "{said:#?}");
    assert!(said.stderr.contains("\\x1b[2J\\x9b1m"), "{said:#?}");
    assert!(!said.stderr.contains("\nperdure: b"), "{said:#?}");
    succeed(["fsck", text(&scene.pool)]);
}
