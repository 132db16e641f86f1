//! A mount's beginnings and ends: signals, unmounts by others, killed servers, bad mount points, the control socket.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Mounted, Place, ServerProcess, example, is_mounted};
use perdure_server::control::{AskError, Question, Status, ask};
use perdure_server::null_server::NullServer;
use perdure_server::{Mounting, MountpointError, ServeError, detach_stale, pool_mounted_at, spawn};
use rustix::process::Signal;
use txn::{Mode, PmemStore};

/// Whether the pool was left marked clean.
fn is_clean(place: &Place) -> bool {
    PmemStore::open(&place.pool(), Mode::ReadOnly, true)
        .expect("open the pool")
        .was_clean()
}

#[test]
fn signals_unmount_cleanly() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::new();
        let mut server = ServerProcess::start(&place);
        fs::write(place.mountpoint().join("file"), b"kept").expect("write");
        server.signal(signal);
        assert_eq!(server.line(), "clean");
        assert!(server.wait().success());
        assert!(!is_mounted(&place.mountpoint()));
        assert!(is_clean(&place));
        let _again = ServerProcess::start(&place);
        assert_eq!(
            fs::read(place.mountpoint().join("file")).expect("read"),
            b"kept"
        );
    }
}

#[test]
fn a_mount_in_use_is_ended_after_the_grace() {
    let place = Place::new();
    let mut server = ServerProcess::start(&place);
    let path = place.mountpoint().join("open");
    let mut file = File::create(&path).expect("create");
    file.write_all(b"before").expect("write");
    fs::remove_file(&path).expect("unlink");
    let started = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.line(), "clean");
    assert!(
        started.elapsed() > Duration::from_secs(2),
        "its user had a grace"
    );
    assert!(server.wait().success());
    assert!(file.write_all(b"after").is_err());
    drop(file);
    assert!(
        is_clean(&place),
        "the unlinked file was freed and the pool closed"
    );
}

#[test]
fn a_second_signal_ends_the_grace() {
    let place = Place::new();
    let mut server = ServerProcess::start(&place);
    let _file = File::create(place.mountpoint().join("open")).expect("create");
    let started = Instant::now();
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    server.signal(Signal::INT);
    assert_eq!(server.line(), "clean");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(is_clean(&place));
}

#[test]
fn others_may_unmount() {
    for command in [&["umount"][..], &["fusermount3", "-u"]] {
        let place = Place::new();
        let mut server = ServerProcess::start(&place);
        let status = Command::new(command[0])
            .args(&command[1..])
            .arg(place.mountpoint())
            .status();
        assert!(status.expect("unmount").success());
        assert_eq!(server.line(), "clean");
        assert!(server.wait().success());
        assert!(is_clean(&place));
    }
}

#[test]
fn a_killed_servers_mount_is_replaced() {
    let place = Place::new();
    let mut server = ServerProcess::start(&place);
    fs::write(place.mountpoint().join("file"), b"durable").expect("write");
    server.signal(Signal::KILL);
    server.wait();
    let error = fs::write(place.mountpoint().join("new"), b"").expect_err("nobody answers");
    assert!(perdure_server::is_dead_mount(&error), "{error}");
    assert_eq!(
        pool_mounted_at(&place.mountpoint()).expect("mount table"),
        Some(place.pool())
    );
    let mut second = ServerProcess::start(&place);
    assert_eq!(
        fs::read(place.mountpoint().join("file")).expect("read"),
        b"durable"
    );
    second.signal(Signal::KILL);
    second.wait();
    assert!(detach_stale(&place.mountpoint()).expect("detach"));
    assert!(!is_mounted(&place.mountpoint()));
    assert!(!detach_stale(&place.mountpoint()).expect("nothing to detach"));
}

#[test]
fn bad_mount_points_are_named_and_the_pool_stays_clean() {
    let place = Place::new();
    place.format();
    let attempt = |mountpoint| {
        spawn(place.open(false), &Mounting::new(place.pool(), mountpoint))
            .err()
            .expect("no mount")
    };
    let missing = attempt(place.mountpoint().join("missing"));
    assert!(
        matches!(
            &missing,
            ServeError::Mountpoint(MountpointError::Missing(_))
        ),
        "{missing}"
    );
    fs::write(place.mountpoint().join("file"), b"").expect("write");
    let file = attempt(place.mountpoint().join("file"));
    assert!(
        matches!(
            &file,
            ServeError::Mountpoint(MountpointError::NotADirectory(_))
        ),
        "{file}"
    );
    let busy = attempt("/proc".into());
    assert!(
        matches!(&busy, ServeError::Mountpoint(MountpointError::Busy { .. })),
        "{busy}"
    );
    let inside = place.pool().join("mnt");
    fs::create_dir(&inside).expect("mkdir");
    let inside = attempt(inside);
    assert!(matches!(&inside, ServeError::InsidePool { .. }), "{inside}");
    fs::remove_dir(place.pool().join("mnt")).expect("rmdir");
    assert!(is_clean(&place));
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let mut mounted = Mounted::new();
    fs::write(mounted.path("file"), b"content").expect("write");
    mounted
        .running
        .take()
        .expect("mounted")
        .unmount()
        .expect("unmount");
    let place = &mounted.place;
    let mounting = Mounting {
        read_only: true,
        ..place.mounting()
    };
    let running = spawn(place.open(true), &mounting).expect("mount");
    assert_eq!(
        fs::read(place.mountpoint().join("file")).expect("read"),
        b"content"
    );
    let error = fs::write(place.mountpoint().join("new"), b"").expect_err("read-only");
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    running.unmount().expect("unmount");
}

#[test]
fn a_live_server_answers_questions() {
    let mut mounted = Mounted::new();
    fs::write(mounted.path("file"), vec![1; 100_000]).expect("write");
    assert!(fs::metadata(mounted.path("absent")).is_err());
    let pool = pool_mounted_at(&mounted.path("file"))
        .expect("mount table")
        .expect("our mount");
    assert_eq!(pool, mounted.place.pool());
    let status: Status =
        serde_json::from_str(&ask(&pool, Question::Stat).expect("stat")).expect("JSON");
    assert_eq!(
        (status.process, status.class.as_str(), status.threads),
        (std::process::id(), "volatile", 4)
    );
    assert_eq!(status.statistics.written_bytes, 100_000);
    assert!(status.space.free_blocks < status.space.blocks);
    let lookups = status
        .statistics
        .operations
        .iter()
        .find(|operation| operation.operation == "lookup");
    assert_eq!(
        lookups.expect("lookups").errors,
        0,
        "an absent name is an answer"
    );
    let metrics = ask(&pool, Question::Metrics).expect("metrics");
    let written = metrics
        .lines()
        .find(|line| line.starts_with("perdure_written_bytes_total{"));
    assert!(
        metrics.contains("# TYPE perdure_operations_total counter") && written.is_some(),
        "{metrics}"
    );

    let socket = pool.join("control");
    assert_eq!(
        fs::metadata(&socket).expect("stat").permissions().mode() & 0o777,
        0o600
    );
    mounted
        .running
        .take()
        .expect("mounted")
        .unmount()
        .expect("unmount");
    assert!(!socket.exists());
    assert!(matches!(
        ask(&pool, Question::Stat),
        Err(AskError::NoServer { .. })
    ));
}

#[test]
fn the_control_socket_survives_strange_clients() {
    let mounted = Mounted::new();
    let pool = mounted.place.pool();
    let talk = |question: &[u8]| {
        let mut stream = UnixStream::connect(pool.join("control")).expect("connect");
        // The server may have hung up on what is too long already.
        let _ = stream.write_all(question);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    };
    assert!(talk(b"perdure 1 reboot\n").starts_with("perdure 1 error "));
    assert!(talk(b"perdure 2 stat\n").contains("version"));
    assert!(talk(b"GET / HTTP/1.1\n").starts_with("perdure 1 error "));
    assert!(talk(&[0xff; 60]).is_empty(), "cut off");
    talk(&vec![b'x'; 1 << 20]);
    talk(b"");
    let _silent = UnixStream::connect(pool.join("control")).expect("connect");
    let started = Instant::now();
    assert!(ask(&pool, Question::Stat).is_ok() || started.elapsed() > Duration::from_secs(1));
    assert!(
        ask(&pool, Question::Stat).is_ok(),
        "a silent client delays others by 2 seconds at most"
    );
}

#[test]
fn long_pool_paths_have_a_control_socket_too() {
    let place = Place::new();
    let deep = place
        .mountpoint()
        .parent()
        .expect("parent")
        .join("d".repeat(120));
    let pool = deep.join("pool");
    fs::create_dir(&deep).expect("mkdir");
    place.format();
    fs::rename(place.pool(), &pool).expect("move the pool");
    let store = PmemStore::open(&pool, Mode::ReadWrite, true).expect("open");
    let files = ::fs::FileSystem::mount(store, ::fs::MountOptions::default()).expect("mount");
    let running = spawn(files, &Mounting::new(&pool, place.mountpoint())).expect("mount");
    assert!(ask(&pool, Question::Stat).is_ok());
    running.unmount().expect("unmount");
}

#[test]
fn the_null_server_moves_bytes() {
    let place = Place::new();
    let server = NullServer::mount(&place.mountpoint(), 1 << 20, 2).expect("mount");
    let content: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 253) as u8).collect();
    let file = File::options()
        .read(true)
        .write(true)
        .open(server.file())
        .expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, &content, 0).expect("write");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("drop the cache");
    assert_eq!(fs::read(server.file()).expect("read"), content);
    let past_the_end = std::os::unix::fs::FileExt::write_at(&file, b"x", 1 << 20);
    assert_eq!(
        past_the_end.expect_err("full").raw_os_error(),
        Some(libc::ENOSPC)
    );
    drop((file, server));
    assert!(!is_mounted(&place.mountpoint()));
}

#[test]
fn an_ordinary_user_can_mount() {
    let place = Place::new();
    let parent = place.mountpoint().parent().expect("parent").to_owned();
    let nobody = 65534;
    for path in [&parent, &place.mountpoint()] {
        std::os::unix::fs::chown(path, Some(nobody), Some(nobody)).expect("chown");
    }
    // On most machines everybody may open /dev/fuse. Where that is not so, a private view of /dev has such a device.
    let user = format!(
        "{0} {1} {2} 64 | (read ready; test \"$ready\" = ready; \
         echo mine > {2}/file && cat {2}/file > {3}/copy && fusermount3 -u {2}; cat)",
        example("serve").display(),
        place.pool().display(),
        place.mountpoint().display(),
        parent.display(),
    );
    let script = format!(
        "set -e; mkdir {home}/dev; mount -t tmpfs none {home}/dev; mknod -m 666 {home}/dev/fuse c 10 229; \
         mount --bind {home}/dev/fuse /dev/fuse; \
         exec setpriv --reuid {nobody} --regid {nobody} --clear-groups sh -c '{user}'",
        home = parent.display(),
    );
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .status();
    assert!(status.expect("unshare").success());
    assert_eq!(fs::read(parent.join("copy")).expect("read"), b"mine\n");
    assert!(is_clean(&place));
}
