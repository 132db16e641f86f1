//! Bad input gets a message that names the object and the remedy, and an exit code that scripts can rely on. Never a panic.

use crate::common::{Outcome, inside, make_pool, perdure, place, run, succeed};
use perdure::Pool;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Expects this exit code, and each of these texts in the message.
#[track_caller]
pub(crate) fn refuse(arguments: &[&str], code: i32, texts: &[&str]) -> Outcome {
    let outcome = run(arguments);
    check_refusal(&outcome, code, texts);
    outcome
}

#[track_caller]
fn check_refusal(outcome: &Outcome, code: i32, texts: &[&str]) {
    assert_eq!(outcome.code, code, "{outcome:#?}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome:#?}");
    for text in texts {
        assert!(
            outcome.stderr.contains(text),
            "`{text}` is missing in {outcome:#?}"
        );
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// All commands that open a pool, but fsck, refuse this one with the same message.
#[track_caller]
pub(crate) fn refuse_everywhere(pool: &Path, code: i32, texts: &[&str]) {
    let place = place();
    let mountpoint = place.path().join("mnt");
    fs::create_dir(&mountpoint).expect("a mount point");
    let source = inside(pool, "/file");
    let target = place.path().join("copy");
    let openers: [&[&str]; 3] = [
        &["mount", text(pool), text(&mountpoint)],
        &["stat", text(pool)],
        &["cp", &source, text(&target)],
    ];
    for arguments in openers {
        let prefix = format!("perdure: {}: ", arguments[0]);
        refuse(arguments, code, &[&[prefix.as_str()], texts].concat());
    }
}

#[test]
fn pool_missing() {
    let place = place();
    let pool = place.path().join("missing");
    refuse_everywhere(&pool, 3, &[text(&pool), "no such pool", "perdure mkfs"]);
    refuse(&["fsck", text(&pool)], 8, &[text(&pool), "no such pool"]);
}

#[test]
fn not_a_pool() {
    let place = place();
    refuse_everywhere(
        place.path(),
        3,
        &[text(place.path()), "is not a Perdure pool"],
    );
    refuse(&["fsck", text(place.path())], 8, &["is not a Perdure pool"]);
    let file = place.path().join("file");
    fs::write(&file, "text").expect("a file");
    refuse_everywhere(&file, 3, &[text(&file), "is not a Perdure pool"]);
    fs::write(place.path().join("super"), [7; 100_000]).expect("a file");
    refuse_everywhere(place.path(), 3, &["is not a Perdure pool", "magic"]);
}

#[test]
fn other_version() {
    let place = place();
    let pool = make_pool(place.path());
    let head = File::options()
        .write(true)
        .read(true)
        .open(pool.join("super"))
        .expect("the header");
    let length = head.metadata().expect("its length").len();
    for copy in [0, length - 4096] {
        head.write_all_at(&77u32.to_le_bytes(), copy + 8)
            .expect("patched");
    }
    refuse_everywhere(&pool, 3, &[text(&pool), "version 77", "matching release"]);
}

#[test]
fn superblocks_damaged() {
    let place = place();
    let pool = make_pool(place.path());
    let head = File::options()
        .write(true)
        .read(true)
        .open(pool.join("super"))
        .expect("the header");
    let length = head.metadata().expect("its length").len();
    head.write_all_at(&[0xff; 4], 40).expect("patched");
    // One copy is enough to go on.
    succeed(["stat", text(&pool)]);
    head.write_all_at(&[0xff; 4], length - 4096 + 40)
        .expect("patched");
    refuse_everywhere(
        &pool,
        3,
        &[text(&pool), "both superblocks are damaged", "restore"],
    );
}

#[test]
fn segment_truncated_or_missing() {
    let place = place();
    let pool = make_pool(place.path());
    let segment = pool.join("segment-0003");
    File::options()
        .write(true)
        .open(&segment)
        .and_then(|file| file.set_len(4096))
        .expect("truncated");
    refuse_everywhere(&pool, 3, &[text(&segment), "truncated", "restore"]);
    fs::remove_file(&segment).expect("removed");
    refuse_everywhere(&pool, 3, &[text(&segment), "missing", "restore"]);
}

#[test]
fn pool_in_use() {
    let place = place();
    let pool = make_pool(place.path());
    let owner = Pool::open(&pool).expect("opened by this process");
    let process = format!("by process {}", std::process::id());
    let mountpoint = place.path().join("mnt");
    fs::create_dir(&mountpoint).expect("a mount point");
    let (source, copy) = (inside(&pool, "/file"), place.path().join("copy"));
    refuse(
        &["mount", text(&pool), text(&mountpoint)],
        4,
        &[text(&pool), "in use", &process, "unmount"],
    );
    refuse(
        &["cp", &source, text(&copy)],
        4,
        &[text(&pool), "in use", &process],
    );
    refuse(
        &["fsck", text(&pool)],
        8,
        &[text(&pool), "in use", &process],
    );
    let again = [
        "mkfs",
        text(&pool),
        "--size",
        "17M",
        "--segment-size",
        "1M",
        "--volatile",
        "--force",
    ];
    refuse(&again, 4, &[text(&pool), "in use", &process]);
    // Looking is allowed.
    let shown = succeed(["stat", text(&pool)]);
    assert!(shown.stdout.contains("in use"), "{shown:#?}");
    owner
        .write("still/there", "")
        .expect_err("no such directory");
    owner.write("there", "yes").expect("the owner goes on");
}

#[test]
fn mkfs_sizes() {
    let place = place();
    let pool = place.path().join("pool");
    let path = text(&pool);
    refuse(
        &["mkfs", path, "--size", "64K", "--volatile"],
        1,
        &["too few", "--size"],
    );
    refuse(
        &["mkfs", path, "--size", "4X", "--volatile"],
        2,
        &["4X", "4G"],
    );
    refuse(&["mkfs", path, "--size", "-3", "--volatile"], 2, &[]);
    refuse(
        &["mkfs", path, "--size", "99999999999T", "--volatile"],
        2,
        &["more than any memory holds"],
    );
    refuse(&["mkfs", path], 2, &["--size"]);
    refuse(
        &[
            "mkfs",
            path,
            "--size",
            "1G",
            "--segment-size",
            "3M",
            "--volatile",
        ],
        2,
        &["segment size", "power of two"],
    );
    refuse(
        &[
            "mkfs",
            path,
            "--size",
            "1G",
            "--journals",
            "65",
            "--volatile",
        ],
        2,
        &["number of journals", "1 to 64"],
    );
    refuse(
        &[
            "mkfs",
            path,
            "--size",
            "1T",
            "--segment-size",
            "16M",
            "--volatile",
        ],
        1,
        &["more than 4096 segments", "--segment-size"],
    );
    let sized = |size, segment| {
        [
            "mkfs",
            path,
            "--size",
            size,
            "--segment-size",
            segment,
            "--volatile",
        ]
    };
    refuse(
        &sized("7T", "2G"),
        1,
        &[path, "do not fit", "are free there", "--size"],
    );
    refuse(&sized("1000T", "2G"), 1, &["too many", "at most", "--size"]);
    refuse(&sized("1T", "4G"), 2, &["segment size", "64K to 2G"]);
    assert!(!pool.exists(), "a refused mkfs leaves nothing");
}

#[test]
fn mkfs_needs_persistent_memory_or_consent() {
    let place = place();
    let pool = place.path().join("pool");
    refuse(
        &["mkfs", text(&pool), "--size", "1G"],
        1,
        &[text(&pool), "MAP_SYNC", "--volatile"],
    );
    assert!(!pool.exists(), "a refused mkfs leaves nothing");
}

#[test]
fn mkfs_replaces_nothing_unasked() {
    let place = place();
    let pool = make_pool(place.path());
    Pool::open(&pool)
        .expect("opened")
        .write("file", "precious")
        .expect("written");
    let size = [
        "mkfs",
        text(&pool),
        "--size",
        "17M",
        "--segment-size",
        "1M",
        "--volatile",
    ];
    refuse(&size, 1, &[text(&pool), "is there already", "--force"]);
    assert_eq!(
        Pool::open(&pool)
            .expect("opened")
            .read("file")
            .expect("untouched"),
        b"precious"
    );
    // A wrong size is found before the old pool is touched.
    refuse(
        &["mkfs", text(&pool), "--size", "1K", "--volatile", "--force"],
        1,
        &["too few"],
    );
    assert_eq!(
        Pool::open(&pool)
            .expect("opened")
            .read("file")
            .expect("untouched"),
        b"precious"
    );
    succeed([&size[..], &["--force"]].concat());
    assert!(
        !Pool::open(&pool)
            .expect("opened")
            .exists("file")
            .expect("looked up")
    );

    let directory = place.path().join("directory");
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("file"), "precious").expect("a file");
    let other = [
        "mkfs",
        text(&directory),
        "--size",
        "17M",
        "--segment-size",
        "1M",
        "--volatile",
        "--force",
    ];
    refuse(&other, 1, &[text(&directory), "exists"]);
    assert!(directory.join("file").exists());
}

#[test]
fn mkfs_in_bad_places() {
    let place = place();
    let long = place.path().join("n".repeat(300));
    refuse(
        &[
            "mkfs",
            text(&long),
            "--size",
            "17M",
            "--segment-size",
            "1M",
            "--volatile",
        ],
        1,
        &["name too long"],
    );
    let nowhere = place.path().join("no/such/directory");
    refuse(
        &[
            "mkfs",
            text(&nowhere),
            "--size",
            "17M",
            "--segment-size",
            "1M",
            "--volatile",
        ],
        1,
        &[text(&nowhere), "No such file"],
    );
}

#[test]
fn mount_points() {
    let place = place();
    let pool = make_pool(place.path());
    let missing = place.path().join("missing");
    refuse(
        &["mount", text(&pool), text(&missing)],
        1,
        &[text(&missing), "does not exist", "create the directory"],
    );
    let file = place.path().join("file");
    fs::write(&file, "").expect("a file");
    refuse(
        &["mount", text(&pool), text(&file)],
        1,
        &[text(&file), "not a directory"],
    );
    refuse(
        &["mount", text(&pool), "/proc"],
        4,
        &["/proc", "busy", "unmount"],
    );
    refuse(
        &["umount", text(place.path())],
        1,
        &[text(place.path()), "no Perdure pool is mounted"],
    );
    refuse(
        &["umount", text(&missing)],
        1,
        &[text(&missing), "No such file"],
    );
    refuse(
        &["mount", text(&pool), text(place.path()), "-o", "fast"],
        2,
        &["`fast`", "--help"],
    );
    // A refused mount leaves a pool that is clean and free.
    let shown = succeed(["stat", text(&pool)]);
    assert!(shown.stdout.contains("closed, clean"), "{shown:#?}");
}

#[test]
fn no_fuse_device() {
    let place = tempfile::tempdir_in("/tmp").expect("a directory outside /dev");
    let pool = make_pool(place.path());
    let mountpoint = place.path().join("mnt");
    fs::create_dir(&mountpoint).expect("a mount point");
    let script = format!(
        "mount -t tmpfs none /dev && touch /dev/null && exec {} mount {} {}",
        env!("CARGO_BIN_EXE_perdure"),
        text(&pool),
        text(&mountpoint),
    );
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .output()
        .expect("unshare starts");
    let outcome = Outcome::from(output);
    if outcome.stderr.contains("Operation not permitted") {
        eprintln!("skipped: a mount name space of its own needs root");
        return;
    }
    check_refusal(&outcome, 1, &["/dev/fuse does not exist", "modprobe fuse"]);
}

#[test]
fn no_permission() {
    let place = place();
    let pool = make_pool(place.path());
    fs::set_permissions(&pool, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("a closed directory");
    fs::set_permissions(
        place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("an open one");
    let as_nobody = |arguments: &[&str]| {
        let mut command = perdure();
        command.args(arguments).uid(65534).gid(65534);
        command.output().map(Outcome::from)
    };
    let new = place.path().join("new");
    let attempts: [(&[&str], i32); 3] = [
        (&["stat", text(&pool)], 1),
        (&["fsck", text(&pool)], 8),
        (
            &[
                "mkfs",
                text(&new),
                "--size",
                "17M",
                "--segment-size",
                "1M",
                "--volatile",
            ],
            1,
        ),
    ];
    for (arguments, code) in attempts {
        match as_nobody(arguments) {
            Ok(outcome) => {
                check_refusal(&outcome, code, &["Permission denied", text(place.path())])
            }
            Err(error) => return eprintln!("skipped: cannot run as another user: {error}"),
        }
    }
}

#[test]
fn copies_that_make_no_sense() {
    let place = place();
    let pool = make_pool(place.path());
    let local = place.path().join("local");
    fs::create_dir(&local).expect("a directory");
    let root = inside(&pool, "/");
    refuse(
        &["cp", "/etc/passwd", "/tmp/x"],
        2,
        &["neither side is in a pool", "POOL:/path"],
    );
    refuse(
        &["cp", text(&local), &root],
        2,
        &[text(&local), "is a directory", "-r"],
    );
    refuse(
        &["cp", &inside(&pool, "/missing"), text(&local)],
        1,
        &["/missing", "no such file"],
    );
    refuse(
        &["cp", "/no/such/file", &root],
        1,
        &["/no/such/file", "No such file"],
    );
    succeed(["cp", "-r", text(&local), &root]);
    refuse(
        &[
            "cp",
            "-r",
            &inside(&pool, "/local"),
            &inside(&pool, "/local/inside"),
        ],
        2,
        &["into itself"],
    );
    let long = inside(&pool, &format!("/{}", "n".repeat(256)));
    refuse(
        &["cp", "/etc/passwd", &long],
        1,
        &["256 bytes is too long", "255"],
    );
    refuse(
        &["cp", "-r", text(&local), &inside(&pool, "/no/parent")],
        1,
        &["/no/parent", "no such file"],
    );
}

#[test]
fn full_pool() {
    let place = place();
    let pool = make_pool(place.path());
    let big = place.path().join("big");
    let content: Vec<u8> = (0..40_000_000u32).map(|index| index as u8).collect();
    fs::write(&big, content).expect("a file larger than the pool");
    let small = place.path().join("small");
    fs::write(&small, "first").expect("a file");
    succeed(["cp", text(&small), &inside(&pool, "/small")]);
    refuse(
        &["cp", text(&big), &inside(&pool, "/big")],
        1,
        &["/big", "no space left"],
    );
    let open = Pool::open(&pool).expect("opened");
    assert_eq!(open.read("small").expect("kept"), b"first");
    open.write("small", "again")
        .expect("overwriting works in a full pool");
    open.remove_file("big")
        .expect("deleting works in a full pool");
    open.close().expect("closed");
    succeed(["cp", text(&small), &inside(&pool, "/other")]);
}

#[test]
fn small_segments() {
    let place = place();
    let pool = place.path().join("pool");
    for size in ["64K", "128K"] {
        let made = ["mkfs", text(&pool), "--size", "16M", "--segment-size", size];
        succeed(made.into_iter().chain(["--volatile", "--force"]));
        assert_eq!(run(["fsck", text(&pool)]).code, 0);
    }
}

#[test]
fn words_that_are_no_commands() {
    refuse(&["frobnicate"], 2, &["frobnicate"]);
    refuse(&[], 2, &["Usage"]);
    refuse(&["fsck"], 16, &["POOL"]);
    refuse(&["fsck", "/pool", "--all"], 16, &["--all"]);
    if cfg!(feature = "bench") {
        refuse(&["bench", "everything"], 2, &["everything"]);
        let known = ["`nope`", "overwrite_4k, "];
        refuse(&["bench", "ops", "--row", "nope"], 2, &known);
    }
}

#[test]
fn closed_pipes_end_quietly() {
    let place = place();
    let pool = make_pool(place.path());
    for arguments in [
        vec!["stat", text(&pool)],
        vec!["completions", "bash"],
        vec!["stat", "--json", text(&pool)],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = perdure();
        command
            .args(&arguments)
            .stdout(Stdio::from(writer))
            .stderr(Stdio::piped());
        let outcome = Outcome::from(command.output().expect("started"));
        assert_eq!(
            (outcome.code, outcome.stderr.as_str()),
            (141, ""),
            "{arguments:?}"
        );
    }
}
