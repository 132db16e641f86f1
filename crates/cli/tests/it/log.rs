//! Pools of class `log`: memory that a log on an ordinary disk follows, through kills and power
//! failures.

use crate::common::{Outcome, run, succeed};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A pool on the disk of the build directory, and a mount point.
pub(crate) struct OnDisk {
    place: TempDir,
    pool: PathBuf,
    mountpoint: PathBuf,
}

impl OnDisk {
    /// `None` if nothing can be mounted here, or there is no disk.
    pub(crate) fn new() -> Option<OnDisk> {
        let scene = OnDisk::without_pool()?;
        let made = succeed(["mkfs", scene.pool(), "--size", "32M"]).stdout;
        assert!(made.contains("class log"), "{made}");
        Some(scene)
    }

    /// The same place without a pool.
    pub(crate) fn without_pool() -> Option<OnDisk> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let pool = place.path().join("pool");
        if !txn::pool::needs_log(&pool) {
            eprintln!("skipped: the build directory is not on an ordinary disk");
            return None;
        }
        let mountpoint = place.path().join("mnt");
        fs::create_dir(&mountpoint).expect("a mount point");
        Some(OnDisk {
            place,
            pool,
            mountpoint,
        })
    }

    /// A name beside the pool.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn pool(&self) -> &str {
        self.pool.to_str().expect("a path of text")
    }

    pub(crate) fn mnt(&self) -> &str {
        self.mountpoint.to_str().expect("a path of text")
    }

    pub(crate) fn mount(&self, options: &[&str]) -> String {
        let words = ["mount", self.pool(), self.mnt()];
        succeed(words.iter().chain(options)).stdout
    }

    pub(crate) fn unmount(&self) {
        let begin = Instant::now();
        // A command that another test starts at this moment holds our open files until it executes.
        while run(["umount", self.mnt()]).code == 4 {
            assert!(begin.elapsed() < Duration::from_secs(5), "it is in use");
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// Where the memory is while the pool is mounted.
    fn memory(&self) -> PathBuf {
        let mut uuid = [0; 16];
        let Ok(header) = File::open(self.pool.join("super")) else {
            return PathBuf::from("/dev/shm/perdure-none");
        };
        header.read_exact_at(&mut uuid, 16).expect("an identity");
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Path::new("/dev/shm").join(format!("perdure-{name}"))
    }

    pub(crate) fn kill_server(&self) {
        let status = succeed(["stat", self.mnt(), "--json"]).stdout;
        let status: serde_json::Value = serde_json::from_str(&status).expect("a report");
        let process = status["process"].as_i64().expect("a process") as i32;
        let process = rustix::process::Pid::from_raw(process).expect("a process");
        rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("killed");
        let start = Instant::now();
        while fs::metadata(self.path("x")).is_ok_and(|_| true)
            || rustix::process::test_kill_process(process).is_ok()
        {
            assert!(start.elapsed() < Duration::from_secs(20), "it lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All that is not on the disk is gone.
    pub(crate) fn fail_power(&self) {
        self.kill_server();
        fs::remove_dir_all(self.memory()).expect("memory");
    }

    fn content(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        if server::pool_mounted_at(&self.mountpoint).is_ok_and(|pool| pool.is_some()) {
            run(["umount", self.mnt()]);
        }
        let _ = fs::remove_dir_all(self.memory());
    }
}

#[test]
fn what_returned_survives_a_kill_and_what_was_synced_a_power_failure() {
    let Some(scene) = OnDisk::new() else { return };
    let line = scene.mount(&[]);
    assert!(
        line.contains("class log (durable at fsync or after 5 ms, a sync in "),
        "{line}"
    );
    fs::write(scene.path("a"), "one").expect("written");
    scene.kill_server();
    let line = scene.mount(&["--durable", "fsync:60s"]);
    assert!(line.contains("recovered"), "{line}");
    assert_eq!(scene.content("a"), "one");
    fs::create_dir(scene.path("folder")).expect("made");
    fs::write(scene.path("folder/b"), "two".repeat(100_000)).expect("written");
    // A synced change has all changes that came before it.
    let file = File::create(scene.path("c")).expect("made");
    file.sync_all().expect("durable");
    drop(file);
    fs::write(scene.path("lost"), "perhaps").expect("written");
    scene.fail_power();
    let report = succeed(["fsck", scene.pool()]).stdout;
    assert!(report.contains("no faults"), "{report}");
    scene.mount(&[]);
    assert_eq!(scene.content("a"), "one");
    assert_eq!(scene.content("folder/b"), "two".repeat(100_000));
    assert_eq!(scene.content("c"), "");
    assert!(
        !scene.path("lost").exists(),
        "nobody waited for it, and no time had passed"
    );
    scene.unmount();
    assert!(!scene.memory().exists(), "it is given back");
    let line = scene.mount(&["--read-only"]);
    assert!(line.contains("clean"), "{line}");
    assert_eq!(scene.content("a"), "one");
    scene.unmount();
}

#[test]
fn with_the_policy_call_nothing_that_returned_is_lost() {
    let Some(scene) = OnDisk::new() else { return };
    let line = scene.mount(&["-o", "durable=call"]);
    assert!(
        line.contains("durable when the call returns, a sync"),
        "{line}"
    );
    for number in 0..50 {
        fs::write(scene.path(&format!("file{number}")), number.to_string()).expect("written");
    }
    fs::rename(scene.path("file7"), scene.path("moved")).expect("renamed");
    fs::remove_file(scene.path("file8")).expect("removed");
    scene.fail_power();
    scene.mount(&[]);
    for number in (0..50).filter(|number| ![7, 8].contains(number)) {
        assert_eq!(scene.content(&format!("file{number}")), number.to_string());
    }
    assert_eq!(scene.content("moved"), "7");
    assert!(!scene.path("file7").exists() && !scene.path("file8").exists());
    scene.unmount();
}

/// The log's durable writes so far.
fn syncs(scene: &OnDisk) -> u64 {
    let status = succeed(["stat", scene.mnt(), "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).expect("a report");
    status["server"]["log"]["syncs"].as_u64().expect("a count")
}

#[test]
fn a_write_behind_a_sync_becomes_durable_by_itself() {
    let Some(scene) = OnDisk::new() else { return };
    for round in 0..5 {
        scene.mount(&[]);
        let file = File::create(scene.path("synced")).expect("made");
        file.sync_all().expect("durable");
        let before = syncs(&scene);
        fs::write(scene.path("later"), round.to_string()).expect("written");
        let begin = Instant::now();
        while syncs(&scene) == before || begin.elapsed() < Duration::from_millis(100) {
            assert!(begin.elapsed() < Duration::from_secs(20), "it never is");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(file);
        scene.fail_power();
        scene.mount(&[]);
        assert_eq!(scene.content("later"), round.to_string());
        scene.unmount();
    }
}

#[test]
fn writes_that_ask_for_it_are_durable_when_they_return() {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let Some(scene) = OnDisk::new() else { return };
    for (name, flag) in [("sync", libc::O_SYNC), ("dsync", libc::O_DSYNC)] {
        scene.mount(&["--durable", "fsync:60s"]);
        let mut options = fs::OpenOptions::new();
        let options = options.create(true).append(true).custom_flags(flag);
        let mut file = options.open(scene.path(name)).expect("made");
        file.write_all(b"durable").expect("written");
        drop(file);
        scene.fail_power();
        scene.mount(&[]);
        assert_eq!(scene.content(name), "durable");
        scene.unmount();
    }
    scene.mount(&["--durable", "fsync:60s"]);
    let directory = scene.path("directory");
    fs::create_dir(&directory).expect("made");
    let opened = File::open(&scene.mountpoint).expect("opened");
    opened.sync_all().expect("durable");
    drop(opened);
    scene.fail_power();
    scene.mount(&[]);
    assert!(directory.is_dir(), "the directory above was synced");
    scene.unmount();
}

/// All bytes of the pool's files.
fn bytes_of(pool: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let names = fs::read_dir(pool).expect("a directory");
    let mut files: Vec<PathBuf> = names.map(|name| name.expect("a name").path()).collect();
    files.retain(|file| file.is_file() && !file.ends_with("owner.pid"));
    files.sort();
    files
        .into_iter()
        .map(|file| (file.clone(), fs::read(file).expect("readable")))
        .collect()
}

#[test]
fn who_only_looks_changes_no_byte() {
    let Some(scene) = OnDisk::new() else { return };
    scene.mount(&["--durable", "call"]);
    fs::write(scene.path("a"), "one").expect("written");
    scene.fail_power();
    let before = bytes_of(&scene.pool);
    succeed(["fsck", scene.pool()]);
    succeed(["stat", scene.pool()]);
    let copy = scene.place.path().join("copy");
    let copy = copy.to_str().expect("text");
    scene.mount(&["--read-only"]);
    assert_eq!(scene.content("a"), "one");
    scene.unmount();
    assert!(before == bytes_of(&scene.pool), "a byte changed");
    succeed(["cp", &format!("{}:/a", scene.pool()), copy]);
    assert_eq!(fs::read_to_string(copy).expect("copied"), "one");
}

fn refused(outcome: &Outcome, code: i32, text: &str) {
    assert!(
        outcome.code == code && outcome.stderr.contains(text),
        "{outcome:#?}"
    );
}

#[test]
fn logs_that_do_not_fit_are_refused() {
    let Some(scene) = OnDisk::new() else { return };
    let log = scene.pool.join("log");
    let whole = fs::read(&log).expect("readable");
    fs::remove_file(&log).expect("removed");
    let mount = || run(["mount", scene.pool(), scene.mnt()]);
    refused(&mount(), 3, "log");
    fs::write(&log, &whole[..whole.len() / 2]).expect("shorter");
    refused(&mount(), 3, "log");
    let other = OnDisk::new().expect("as the first");
    fs::copy(other.pool.join("log"), &log).expect("copied");
    refused(&mount(), 3, "log");
    refused(&run(["fsck", scene.pool()]), 8, "log");
    fs::write(&log, &whole).expect("whole again");
    scene.mount(&[]);
    scene.unmount();
    succeed(["mkfs", scene.pool(), "--size", "32M", "--force"]);
    scene.mount(&[]);
    scene.unmount();
}

#[test]
fn shared_memory_needs_a_word() {
    let place = crate::common::place();
    let pool = place.path().join("pool");
    let pool = pool.to_str().expect("text");
    let outcome = run(["mkfs", pool, "--size", "32M"]);
    refused(&outcome, 1, "--volatile");
    assert!(!Path::new(pool).exists());
}

/// A copy of the pool by name and content, as `cp -r` makes it.
fn copy_of(scene: &OnDisk, name: &str) -> PathBuf {
    let copy = scene.place.path().join(name);
    let mut command = std::process::Command::new("cp");
    let copied = command.arg("-r").args([&scene.pool, &copy]).output();
    // A file that goes away meanwhile is no file of the image.
    assert!(copied.is_ok() && copy.join("log").exists());
    let _ = fs::remove_file(copy.join("owner.pid"));
    copy
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

#[test]
fn copies_of_a_mounted_pool_are_refused() {
    let Some(scene) = OnDisk::new() else { return };
    scene.mount(&[]);
    let ends = std::sync::atomic::AtomicBool::new(false);
    let copies = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..).take_while(|_| !ends.load(std::sync::atomic::Ordering::Relaxed)) {
                let name = scene.path(&format!("file{}", number % 50));
                fs::write(&name, vec![number as u8; 100_000]).expect("written");
            }
        });
        let copies = [1, 2, 3].map(|number| copy_of(&scene, &format!("copy{number}")));
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        copies
    });
    for copy in copies {
        let advice = "unmount the original and copy it again";
        for options in [&[][..], &["--read-only"]] {
            let words = ["mount", text(&copy), scene.mnt()];
            let outcome = run(words.iter().chain(options));
            refused(&outcome, 3, advice);
        }
        refused(&run(["fsck", text(&copy)]), 8, advice);
    }
    fs::write(scene.path("last"), "word").expect("written");
    scene.unmount();
    let copy = copy_of(&scene, "sound");
    let report = succeed(["fsck", text(&copy)]).stdout;
    assert!(report.contains("no faults"), "{report}");
    succeed(["mount", text(&copy), scene.mnt()]);
    assert_eq!(scene.content("last"), "word");
    scene.unmount();
}

#[test]
fn a_copy_after_a_crash_opens_on_demand() {
    let Some(scene) = OnDisk::new() else { return };
    scene.mount(&["--durable", "call"]);
    fs::write(scene.path("a"), "one").expect("written");
    scene.fail_power();
    let copies = [1, 2].map(|number| copy_of(&scene, &format!("copy{number}")));
    let [forced, repaired] = copies.each_ref().map(|copy| text(copy));
    refused(&run(["mount", forced, scene.mnt()]), 3, "copied");
    succeed(["mount", forced, scene.mnt(), "--force-recovery"]);
    assert_eq!(scene.content("a"), "one");
    scene.unmount();
    succeed(["mount", forced, scene.mnt()]);
    scene.unmount();
    succeed(["fsck", "--repair", repaired]);
    succeed(["mount", repaired, scene.mnt()]);
    assert_eq!(scene.content("a"), "one");
    scene.unmount();
    // The files themselves are no copies.
    scene.mount(&[]);
    assert_eq!(scene.content("a"), "one");
    scene.unmount();
}

#[test]
fn files_of_different_moments_are_refused() {
    let Some(scene) = OnDisk::new() else { return };
    scene.mount(&[]);
    fs::write(scene.path("a"), "one").expect("written");
    scene.unmount();
    let before = bytes_of(&scene.pool);
    scene.mount(&[]);
    for number in 0..20 {
        fs::write(scene.path(&format!("file{number}")), "two".repeat(10_000)).expect("written");
    }
    scene.unmount();
    let after = bytes_of(&scene.pool);
    let put = |files: &[(PathBuf, Vec<u8>)], is_wanted: fn(&Path) -> bool| {
        for (path, content) in files.iter().filter(|(path, _)| is_wanted(path)) {
            fs::write(path, content).expect("written");
        }
    };
    let advice = "put all files of one copy";
    for mixture in [[&before, &after], [&after, &before]] {
        let [log, image] = mixture;
        put(log, |path| path.ends_with("log"));
        put(image, |path| !path.ends_with("log"));
        let mixed = bytes_of(&scene.pool);
        refused(&run(["mount", scene.pool(), scene.mnt()]), 3, advice);
        let read_only = ["mount", scene.pool(), scene.mnt(), "--read-only"];
        refused(&run(read_only), 3, advice);
        refused(&run(["fsck", scene.pool()]), 8, advice);
        assert!(mixed == bytes_of(&scene.pool), "a refusal changed a byte");
    }
    for files in [&before, &after] {
        put(files, |_| true);
        scene.mount(&[]);
        assert_eq!(scene.content("a"), "one");
        scene.unmount();
    }
    // A repair takes what is there.
    put(&before, |path| path.ends_with("log"));
    let repair = run(["fsck", "--repair", scene.pool()]);
    assert!([0, 1].contains(&repair.code), "{repair:#?}");
    scene.mount(&[]);
    assert_eq!(scene.content("a"), "one");
    scene.unmount();
}

#[test]
fn a_copy_does_not_take_the_memory_of_the_original() {
    let Some(scene) = OnDisk::new() else { return };
    let copy = copy_of(&scene, "copy");
    scene.mount(&[]);
    fs::write(scene.path("a"), "one").expect("written");
    let beside = scene.place.path().join("beside");
    fs::create_dir(&beside).expect("a mount point");
    let mount = ["mount", text(&copy), text(&beside)];
    refused(&run(mount), 4, "a copy of the pool is mounted");
    scene.kill_server();
    scene.mount(&[]);
    assert_eq!(scene.content("a"), "one");
    scene.unmount();
    succeed(mount);
    succeed(["umount", text(&beside)]);
}

#[test]
fn a_pool_that_needs_more_memory_than_allowed_is_not_made() {
    let Some(scene) = OnDisk::new() else { return };
    let pool = scene.place.path().join("large");
    let made = |memory: &str, more: &[&str]| {
        let words = [
            "mkfs",
            text(&pool),
            "--volatile",
            "--size",
            "64M",
            "--memory",
            memory,
        ];
        run(words.iter().chain(more))
    };
    let outcome = made("32M", &[]);
    refused(&outcome, 1, "33554432 are allowed");
    assert!(outcome.stderr.contains("--size"), "{outcome:#?}");
    assert!(!pool.exists(), "nothing was made");
    assert_eq!(made("64M", &[]).code, 0);
    // The old pool is not touched.
    refused(&made("32M", &["--force"]), 1, "are allowed");
    succeed(["fsck", text(&pool)]);
}
