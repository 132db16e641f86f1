//! An ordinary user plants things in a pool directory that root then opens. Every command refuses
//! them, naming object and remedy; none hangs, and root's files keep their bytes and flags.

use crate::common::{Outcome, inside, make_pool, perdure, place};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags, mknodat};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The user that owns the pool, and another one.
const OWNER: u32 = 12_345;
const OTHER: u32 = 12_346;
const SECRET: &str = "root's own words\n";
const PATIENCE: Duration = Duration::from_secs(30);

/// All names that a pool's directory can have.
const NAMES: [&str; 9] = [
    "super",
    "segment-0003",
    "owner.pid",
    "control",
    "direct",
    "direct/epoch",
    "direct/given",
    "direct/process-77-1",
    "direct/former-77-1",
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Plant {
    Link,
    DanglingLink,
    HardLink,
    Fifo,
    Socket,
    Directory,
    OtherOwner,
}

const PLANTS: [Plant; 7] = [
    Plant::Link,
    Plant::DanglingLink,
    Plant::HardLink,
    Plant::Fifo,
    Plant::Socket,
    Plant::Directory,
    Plant::OtherOwner,
];

/// A pool of an ordinary user, and files of root beside it.
struct Scene {
    place: tempfile::TempDir,
    pool: PathBuf,
    /// A link can lead to it; it only grows, where files can have that flag.
    marked: PathBuf,
    /// A hard link can be made to it.
    linked: PathBuf,
    mountpoint: PathBuf,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root, to open the pool of another user");
            return None;
        }
        let place = place();
        let pool = make_pool(place.path());
        fs::create_dir(pool.join("direct")).expect("a folder");
        let scene = Scene {
            marked: place.path().join("marked"),
            linked: place.path().join("linked"),
            mountpoint: place.path().join("mnt"),
            place,
            pool,
        };
        fs::write(&scene.marked, SECRET).expect("a file of root");
        fs::write(&scene.linked, SECRET).expect("a file of root");
        fs::create_dir(&scene.mountpoint).expect("a mount point");
        scene.mark(true);
        give(&scene.pool, OWNER);
        Some(scene)
    }

    /// Where files cannot have the flag, its bytes are looked at alone.
    fn mark(&self, is_marked: bool) -> bool {
        let file = File::open(&self.marked).expect("opened");
        let flags = ioctl_getflags(&file).unwrap_or(IFlags::empty());
        let wanted = match is_marked {
            true => flags | IFlags::APPEND,
            false => flags - IFlags::APPEND,
        };
        ioctl_setflags(&file, wanted).is_ok() && flags.contains(IFlags::APPEND)
    }

    fn plant(&self, at: &Path, plant: Plant) {
        match plant {
            Plant::Link => symlink(&self.marked, at).expect("a link"),
            Plant::DanglingLink => symlink(self.place.path().join("new"), at).expect("a link"),
            Plant::HardLink => fs::hard_link(&self.linked, at).expect("a hard link"),
            Plant::Fifo => mknodat(
                rustix::fs::CWD,
                at,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RWXU,
                0,
            )
            .expect("a FIFO"),
            Plant::Socket => drop(UnixListener::bind(at).expect("a socket")),
            Plant::Directory => fs::create_dir(at).expect("a directory"),
            Plant::OtherOwner if at.ends_with("direct") => {
                fs::create_dir(at).expect("a directory");
            }
            Plant::OtherOwner => fs::write(at, "1\n").expect("a file"),
        }
        match plant {
            Plant::HardLink => {}
            Plant::OtherOwner => chown(at, Some(OTHER), None).expect("chown"),
            _ => std::os::unix::fs::lchown(at, Some(OWNER), None).expect("chown"),
        }
    }

    fn check_victims(&self, what: &str) {
        for file in [&self.marked, &self.linked] {
            assert_eq!(fs::read_to_string(file).expect("read"), SECRET, "{what}");
            let metadata = fs::metadata(file).expect("metadata");
            assert_eq!(
                (metadata.uid(), metadata.mode() & 0o777),
                (0, 0o644),
                "{what}"
            );
        }
        let flags = ioctl_getflags(File::open(&self.marked).expect("opened"));
        if let (Ok(flags), true) = (flags, self.can_mark()) {
            assert!(flags.contains(IFlags::APPEND), "{what}: the flag is gone");
        }
        assert!(!self.place.path().join("new").exists(), "{what}: made");
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the mount table");
        let place = self.mountpoint.to_str().expect("text");
        assert!(!mounts.contains(place), "{what}: mounted");
    }

    fn can_mark(&self) -> bool {
        let probe = self.place.path().join("probe");
        fs::write(&probe, "").expect("a file");
        let file = File::open(&probe).expect("opened");
        let can = ioctl_setflags(&file, IFlags::APPEND).is_ok();
        let _ = ioctl_setflags(&file, IFlags::empty());
        fs::remove_file(&probe).expect("removed");
        can
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.mark(false);
    }
}

fn give(tree: &Path, owner: u32) {
    let status = Command::new("chown")
        .args(["-R", "-h", &owner.to_string()])
        .arg(tree)
        .status()
        .expect("chown");
    assert!(status.success());
}

/// Runs a command that has to end by itself.
fn run(arguments: &[&str]) -> Outcome {
    let mut child = perdure()
        .args(arguments)
        // `run` looks for a library before it opens the pool; it starts no program with this one.
        .env("PERDURE_PRELOAD", env!("CARGO_BIN_EXE_perdure"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let begin = Instant::now();
    while child.try_wait().expect("waited").is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().expect("killed");
            panic!("{arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("its output").into()
}

/// Objects that belong in a pool: a socket left by a killed server, and the folder of processes.
fn is_a_pools(name: &str, plant: Plant) -> bool {
    matches!(
        (name, plant),
        ("control", Plant::Socket) | ("direct", Plant::Directory)
    )
}

/// `mkfs --force` may remove the planted object, not its target; `mkfs` alone touches nothing.
fn mkfs(scene: &Scene, what: &str, at: &Path) {
    let pool = scene.pool.to_str().expect("text");
    let words = [
        "mkfs",
        pool,
        "--size",
        "17M",
        "--segment-size",
        "1M",
        "--volatile",
    ];
    let refused = run(&words);
    assert_eq!(refused.code, 1, "{what}: {refused:#?}");
    assert!(at.symlink_metadata().is_ok(), "{what}: removed");
    let forced = run(&[&words[..], &["--force"]].concat());
    assert!([0, 1].contains(&forced.code), "{what}: {forced:#?}");
    assert!(!forced.stderr.contains("panicked"), "{what}: {forced:#?}");
    scene.check_victims(what);
}

#[test]
fn nothing_that_is_planted_in_a_pool_is_followed() {
    let Some(scene) = Scene::new() else { return };
    let kept = scene.place.path().join("kept");
    let source = inside(&scene.pool, "/file");
    let copy = scene.place.path().join("copy");
    let [pool, mountpoint, copy] = [&scene.pool, &scene.mountpoint, &copy];
    let [pool, mountpoint, copy] =
        [pool, mountpoint, copy].map(|path| path.to_str().expect("text"));
    let commands: [(&[&str], i32); 8] = [
        (&["mount", pool, mountpoint], 3),
        (&["mount", "--read-only", pool, mountpoint], 3),
        (&["fsck", pool], 8),
        (&["fsck", "--repair", "-y", pool], 8),
        (&["stat", pool], 3),
        (&["stat", pool, "--clients"], 3),
        (&["cp", &source, copy], 3),
        (&["run", pool, "--at", mountpoint, "--", "true"], 3),
    ];
    for name in NAMES {
        let at = scene.pool.join(name);
        for plant in PLANTS.into_iter().filter(|plant| !is_a_pools(name, *plant)) {
            let was_there = fs::rename(&at, &kept).is_ok();
            scene.plant(&at, plant);
            let planted = fs::symlink_metadata(&at).expect("planted").ino();
            for (words, code) in commands {
                let what = format!("{name}, {plant:?}: {words:?}");
                let outcome = run(words);
                assert_eq!(outcome.code, code, "{what}: {outcome:#?}");
                let (path, said) = (at.to_str().expect("text"), &outcome.stderr);
                assert!(said.contains(path), "{what}: names nothing: {outcome:#?}");
                let has_remedy = ["remove", "chown"].iter().any(|word| said.contains(word));
                assert!(has_remedy, "{what}: no remedy: {outcome:#?}");
                scene.check_victims(&what);
                let now = fs::symlink_metadata(&at).expect("still there").ino();
                assert_eq!(now, planted, "{what}: replaced");
            }
            match fs::symlink_metadata(&at).expect("planted").is_dir() {
                true => fs::remove_dir(&at).expect("removed"),
                false => fs::remove_file(&at).expect("removed"),
            }
            if was_there {
                fs::rename(&kept, &at).expect("put back");
            }
        }
    }
    let clean = run(&["fsck", pool]);
    assert_eq!(clean.code, 0, "nothing was changed: {clean:#?}");
}

#[test]
fn a_new_pool_follows_nothing_that_is_planted() {
    let Some(scene) = Scene::new() else { return };
    let original = scene.place.path().join("original");
    fs::rename(&scene.pool, &original).expect("kept");
    for name in NAMES {
        for plant in PLANTS.into_iter().filter(|plant| !is_a_pools(name, *plant)) {
            let copied = Command::new("cp")
                .arg("-a")
                .args([&original, &scene.pool])
                .status();
            assert!(copied.expect("cp").success());
            let at = scene.pool.join(name);
            match fs::symlink_metadata(&at).map(|metadata| metadata.is_dir()) {
                Ok(true) => fs::remove_dir(&at).expect("removed"),
                Ok(false) => fs::remove_file(&at).expect("removed"),
                Err(_) => {}
            }
            scene.plant(&at, plant);
            mkfs(&scene, &format!("{name}, {plant:?}: mkfs"), &at);
            fs::remove_dir_all(&scene.pool).expect("removed");
        }
    }
}
