//! Copies of hot blocks behind a mount: direct I/O, so that the kernel's page cache answers nothing.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::common::{Mounted, Place};
use fs::{AccessTime, MountOptions, ReadCacheMode, ReadCacheOptions};
use perdure_server::control::{AskError, CachedFile, Question, Status, ask};

const BLOCK: usize = 4096;
const BLOCKS: usize = 8;

/// Memory as direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// A mount that copies every block that is read.
fn mounted() -> Mounted {
    let place = Place::new();
    place.format();
    let options = MountOptions {
        access_time: AccessTime::Never,
        read_cache: ReadCacheOptions {
            mode: ReadCacheMode::On,
            budget_bytes: 4 << 20,
            threshold: 1,
            window_ms: 0,
        },
        ..MountOptions::default()
    };
    Mounted::with(place, options)
}

fn direct(mounted: &Mounted, name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    let opened = options
        .custom_flags(libc::O_DIRECT)
        .open(mounted.path(name));
    opened.expect("open")
}

fn write(file: &File, block: usize, byte: u8) {
    let bytes = Aligned([byte; BLOCK]);
    file.write_all_at(&bytes.0, (block * BLOCK) as u64)
        .expect("write");
}

fn read(file: &File, block: usize) -> Aligned {
    let mut bytes = Aligned([0; BLOCK]);
    let length = rustix::io::pread(file.as_fd(), &mut bytes.0, (block * BLOCK) as u64);
    assert_eq!(length, Ok(BLOCK));
    bytes
}

/// The block holds `byte` everywhere.
fn expect(file: &File, block: usize, byte: u8) {
    let bytes = read(file, block).0;
    let wrong = bytes.iter().position(|found| *found != byte);
    assert_eq!(wrong, None, "block {block} should hold {byte}");
}

fn status(mounted: &Mounted) -> Status {
    let answer = ask(&mounted.place.pool(), Question::Stat).expect("stat");
    serde_json::from_str(&answer).expect("JSON")
}

fn hits(mounted: &Mounted) -> u64 {
    status(mounted).read_cache.expect("a cache").counts.hits
}

/// Reads all blocks until `wanted` reads in one pass come from DRAM, those of others included.
fn read_until_copied(mounted: &Mounted, file: &File, byte: u8, wanted: usize) {
    let begin = Instant::now();
    loop {
        let before = hits(mounted);
        for block in 0..BLOCKS {
            expect(file, block, byte);
        }
        if hits(mounted) - before >= wanted as u64 {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "nothing copied");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn writes_are_seen_through_copies() {
    let mut mounted = mounted();
    let file = direct(&mounted, "file");
    for byte in 1..10 {
        (0..BLOCKS).for_each(|block| write(&file, block, byte));
        // Not all: a block that was written while its page was being sent can stay without a copy that is found.
        read_until_copied(&mounted, &file, byte, BLOCKS);
    }
    write(&file, 3, 77);
    expect(&file, 3, 77);
    file.set_len(BLOCK as u64).expect("cut");
    file.set_len((BLOCKS * BLOCK) as u64).expect("grown");
    expect(&file, 5, 0);

    let cache = status(&mounted).read_cache.expect("a cache");
    assert_eq!(cache.counts.budget_bytes, 4 << 20);
    let ended = cache.counts.invalidations;
    assert!(ended >= 8 * BLOCKS as u64, "{cache:?}");
    let ratio = cache.hit_ratio.expect("blocks were read");
    assert!(ratio > 0.0 && ratio < 1.0, "{cache:?}");
    drop(file);
    let running = mounted.running.take().expect("mounted");
    running.unmount().expect("unmounted with copies");
}

#[test]
fn readers_of_held_copies_see_no_half_of_a_write() {
    let mounted = mounted();
    let file = direct(&mounted, "file");
    (0..BLOCKS).for_each(|block| write(&file, block, 0));
    std::thread::scope(|scope| {
        let (mounted, file) = (&mounted, &file);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let own = direct(mounted, "file");
                    let mut newest = [0; BLOCKS];
                    while newest.iter().any(|byte| *byte < 200) {
                        for (block, newest) in newest.iter_mut().enumerate() {
                            let bytes = read(&own, block).0;
                            assert!(bytes == [bytes[0]; BLOCK], "a write is whole");
                            assert!(bytes[0] >= *newest, "time does not go back");
                            *newest = bytes[0];
                        }
                    }
                })
            })
            .collect();
        for byte in 1..=200 {
            for block in 0..BLOCKS {
                write(file, block, byte);
                expect(file, block, byte);
            }
            if byte % 20 == 0 {
                read_until_copied(mounted, file, byte, 1);
            }
        }
        for reader in readers {
            reader.join().expect("a reader");
        }
    });
    assert!(hits(&mounted) >= 10);
}

#[test]
fn a_live_server_tells_of_its_copies() {
    let mounted = mounted();
    let (busy, idle) = (direct(&mounted, "busy"), direct(&mounted, "idle"));
    (0..BLOCKS).for_each(|block| write(&busy, block, 1));
    write(&idle, 0, 2);
    read(&idle, 0);
    read_until_copied(&mounted, &busy, 1, BLOCKS);
    read_until_copied(&mounted, &busy, 1, BLOCKS);

    let state = status(&mounted).read_cache_state;
    assert!(state.starts_with("read cache of 4 MiB"), "{state}");
    let answer = ask(&mounted.place.pool(), Question::Files).expect("files");
    let files: Vec<CachedFile> = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(files[0].inode, busy.metadata().expect("metadata").ino());
    assert_eq!(files[0].bytes, (BLOCKS * BLOCK) as u64);
    assert!(files[0].hits >= 2 * BLOCKS as u64, "{files:?}");
    let ratio = files[0].hit_ratio.expect("blocks were read");
    let expected = files[0].hits as f64 / (files[0].hits + files[0].misses) as f64;
    assert!((ratio - expected).abs() < 1e-9, "{files:?}");

    let metrics = ask(&mounted.place.pool(), Question::Metrics).expect("metrics");
    let label = format!(
        "{{mountpoint=\"{}\"}}",
        mounted.place.mountpoint().display()
    );
    let cache = status(&mounted).read_cache.expect("a cache").counts;
    for (name, value) in [
        ("hits_total", cache.hits),
        ("misses_total", cache.misses),
        ("fills_total", cache.fills),
        ("invalidations_total", cache.invalidations),
        ("evictions_total", cache.evictions),
        ("bytes", cache.bytes),
        ("limit_bytes", cache.limit_bytes),
        ("budget_bytes", cache.budget_bytes),
    ] {
        let line = format!("perdure_read_cache_{name}{label} {value}");
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} in {metrics}"
        );
        let help = format!("# HELP perdure_read_cache_{name} ");
        assert!(metrics.contains(&help), "{help} in {metrics}");
    }
}

#[test]
fn a_mount_without_copies_says_so() {
    let mounted = Mounted::new();
    let status = status(&mounted);
    assert_eq!(status.read_cache, None);
    assert_eq!(status.read_cache_state, "no read cache");
    let answer = ask(&mounted.place.pool(), Question::Files).expect("files");
    assert_eq!(answer, "[]");
    let metrics = ask(&mounted.place.pool(), Question::Metrics).expect("metrics");
    let place = mounted.place.mountpoint();
    let ours = |line: &str| line.contains(place.to_str().expect("a plain path"));
    let tells = |line: &str| line.starts_with("perdure_read_cache_") && ours(line);
    assert!(!metrics.lines().any(tells), "{metrics}");
}

#[test]
fn an_older_server_is_named_as_the_reason() {
    let place = Place::new();
    std::fs::create_dir(place.pool()).expect("a directory");
    let listener = UnixListener::bind(place.pool().join("control")).expect("bind");
    let server = std::thread::spawn(move || {
        for expected in ["perdure 1 files\n", "perdure 1 clients\n"] {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut question = vec![0; expected.len()];
            stream.read_exact(&mut question).expect("a question");
            assert_eq!(question, expected.as_bytes());
            let reason = "unknown question; `stat` and `metrics` are known";
            write!(stream, "perdure 1 error {}\n{reason}", reason.len()).expect("answered");
        }
    });
    for question in [Question::Files, Question::Clients] {
        let error = ask(&place.pool(), question).expect_err("it does not know");
        assert!(matches!(error, AskError::OlderServer { .. }), "{error}");
        assert!(error.to_string().contains("mount again"), "{error}");
    }
    server.join().expect("the older server");
}
