//! Pools of class `log` that are used while they are read into memory, through kills and power
//! failures.

use crate::common::{perdure, run, succeed};
use crate::log::OnDisk;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
#[cfg(feature = "deliberate-bugs")]
use std::process::Stdio;
use std::time::{Duration, Instant};

const FILES: u8 = 40;
const BYTES: usize = 200_000;

fn content(number: u8) -> Vec<u8> {
    (0..BYTES).map(|at| number ^ (at / 7) as u8).collect()
}

/// A pool with files whose content only the image has, after a power failure.
fn filled() -> Option<OnDisk> {
    let scene = OnDisk::new()?;
    scene.mount(&[]);
    for number in 0..FILES {
        fs::write(scene.path(&format!("file{number}")), content(number)).expect("written");
    }
    scene.unmount();
    scene.mount(&[]);
    scene.fail_power();
    Some(scene)
}

fn unloaded(scene: &OnDisk) -> u64 {
    let status = succeed(["stat", scene.mnt(), "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).expect("a report");
    let log = &status["server"]["log"];
    log["unloaded_bytes"].as_u64().expect("a number")
}

fn wait_until_loaded(scene: &OnDisk) {
    let begin = Instant::now();
    while unloaded(scene) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never is");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The content that the files should have.
struct Expected(Vec<Vec<u8>>);

impl Expected {
    fn new() -> Expected {
        Expected((0..FILES).map(content).collect())
    }

    fn check(&self, scene: &OnDisk) {
        // In an order that has nothing to do with their places.
        for step in 0..FILES {
            let number = usize::from(step.wrapping_mul(7) % FILES);
            let found = fs::read(scene.path(&format!("file{number}"))).expect("read");
            assert!(found == self.0[number], "file{number}");
        }
    }

    /// Changes a file in the middle of blocks that nobody has looked at.
    fn change(&mut self, scene: &OnDisk, number: usize) {
        let path = scene.path(&format!("file{number}"));
        let file = File::options().write(true).open(path).expect("open");
        let at = 70_000 + number;
        file.write_all_at(b"changed", at as u64).expect("written");
        self.0[number][at..at + 7].copy_from_slice(b"changed");
        file.sync_all().expect("durable");
    }
}

#[test]
fn a_pool_is_right_while_it_is_loaded_through_kills_and_power_failures() {
    let Some(scene) = filled() else { return };
    let mut expected = Expected::new();
    let line = scene.mount(&["-o", "load=demand"]);
    assert!(line.contains("of memory not loaded yet"), "{line}");
    let at_first = unloaded(&scene);
    expected.change(&scene, 3);
    scene.kill_server();
    // A command that only looks sees all, and makes no zeros of blocks that are not loaded.
    let report = succeed(["fsck", scene.pool()]).stdout;
    assert!(report.contains("no faults"), "{report}");
    scene.mount(&["--read-only"]);
    expected.check(&scene);
    scene.unmount();
    for number in [9, 20, 31] {
        scene.mount(&["--load", "demand"]);
        let before = unloaded(&scene);
        assert!(0 < before && before < at_first);
        expected.change(&scene, number);
        scene.kill_server();
    }
    scene.mount(&["--load", "demand"]);
    expected.check(&scene);
    assert!(unloaded(&scene) > 0, "free blocks are not loaded");
    scene.fail_power();
    let line = scene.mount(&[]);
    assert!(line.contains("recovered"), "{line}");
    expected.check(&scene);
    wait_until_loaded(&scene);
    let report = succeed(["stat", scene.mnt()]).stdout;
    assert!(!report.contains("not loaded"), "{report}");
    expected.check(&scene);
    expected.change(&scene, 39);
    scene.kill_server();
    let line = scene.mount(&[]);
    assert!(!line.contains("not loaded"), "memory was whole: {line}");
    expected.check(&scene);
    scene.fail_power();
    let line = scene.mount(&["-o", "load=first"]);
    assert!(!line.contains("not loaded"), "{line}");
    expected.check(&scene);
    scene.unmount();
    assert_eq!(
        run(["mount", scene.pool(), scene.mnt(), "-o", "load=x"]).code,
        2
    );
}

#[test]
fn memory_of_a_killed_server_is_completed_before_its_use_if_asked() {
    let Some(scene) = filled() else { return };
    let mut expected = Expected::new();
    scene.mount(&["-o", "load=demand"]);
    expected.change(&scene, 11);
    fs::write(scene.path("kept"), "only in memory").expect("written");
    scene.kill_server();
    let line = scene.mount(&["-o", "load=first"]);
    assert!(!line.contains("not loaded"), "{line}");
    expected.check(&scene);
    assert_eq!(
        fs::read(scene.path("kept")).expect("read"),
        b"only in memory"
    );
    scene.unmount();
}

#[test]
fn an_unmount_does_not_wait_until_all_is_loaded() {
    let Some(scene) = filled() else { return };
    let mut expected = Expected::new();
    scene.mount(&["-o", "load=demand"]);
    expected.change(&scene, 5);
    assert!(unloaded(&scene) > 0);
    scene.unmount();
    let line = scene.mount(&[]);
    assert!(line.contains("clean"), "{line}");
    expected.check(&scene);
    scene.unmount();
}

/// As in most containers: a program that waits for pages is refused (seccomp).
fn forbid_faults(command: &mut Command) {
    let look = |code: u32, k: u32, (jt, jf): (u8, u8)| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let call = libc::SYS_userfaultfd as u32;
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut program = [
        look(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, (0, 0)),
        look(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call, (0, 1)),
        look(libc::BPF_RET | libc::BPF_K, refusal, (0, 0)),
        look(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, (0, 0)),
    ];
    let forbid = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the filter and its program live until the call returns.
        match unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(forbid) };
}

#[test]
fn where_waiting_for_pages_is_forbidden_a_pool_is_loaded_before_its_use() {
    let Some(scene) = filled() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: such a filter needs root");
        return;
    }
    let mut expected = Expected::new();
    for was_killed in [false, true] {
        if was_killed {
            scene.mount(&["-o", "load=demand"]);
            expected.change(&scene, 17);
            scene.kill_server();
        }
        let mut command = perdure();
        command.args(["mount", scene.pool(), scene.mnt()]);
        forbid_faults(&mut command);
        let outcome = command.output().expect("a program");
        let line = String::from_utf8_lossy(&outcome.stdout);
        assert!(outcome.status.success(), "{outcome:?}");
        assert!(!line.contains("not loaded"), "{line}");
        expected.check(&scene);
        scene.unmount();
    }
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn a_server_that_takes_what_is_not_loaded_for_zeros_is_noticed() {
    let Some(scene) = filled() else { return };
    scene.mount(&["-o", "load=demand"]);
    scene.kill_server();
    let mut command = perdure();
    command.args(["mount", scene.pool(), scene.mnt()]);
    command.env("PERDURE_DELIBERATE_BUG", "TakeHolesForZeros");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let is_mounted = command.status().expect("a program").success();
    let path = |number: u8| scene.path(&format!("file{number}"));
    let is_right = |number| fs::read(path(number)).is_ok_and(|it| it == content(number));
    assert!(!is_mounted || !(0..FILES).all(is_right));
}
