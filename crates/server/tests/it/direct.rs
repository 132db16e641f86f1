//! Direct access through a real mount: what a process writes without asking is what everybody reads, and the other way round.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use direct::Client;

use crate::storm::{BLOCK, Direct, look, mount, open, storm, write_to};

#[test]
fn a_process_alone_does_nearly_everything_itself() {
    let mounted = mount();
    let (direct, kernel) = storm(&mounted, "alone", 0, 20_000);
    assert!(kernel < 20, "{direct} directly, {kernel} by the kernel");
}

#[test]
fn others_see_what_it_wrote_and_it_sees_what_they_wrote() {
    let mounted = mount();
    let (direct, kernel) = storm(&mounted, "shared", 300, 20_000);
    assert!(direct > 1000, "{direct} directly, {kernel} by the kernel");
    let (direct, _) = storm(&mounted, "contended", 3, 3000);
    println!("contended: {direct} of 3000 directly");
}

/// Two processes use a file by turns: each begins through the kernel, because the other one has it, and goes on directly.
#[test]
fn by_turns_each_goes_directly_after_a_while() {
    const BURST: usize = 2000;
    let mounted = mount();
    let clients = [Client::default(), Client::default()];
    let files = [mounted.open("shared"), mounted.open("shared")];
    let [mut one, mut two] = [0, 1].map(|at: usize| Direct::new(&clients[at], &files[at]));
    let mut model = Vec::new();
    for turn in 0..20 {
        let own = if turn % 2 == 0 { &mut one } else { &mut two };
        for round in 0..BURST {
            let (data, block) = ([(turn + round) as u8; BLOCK], round % 64);
            own.write(&data, (block * BLOCK) as u64);
            write_to(&mut model, &data, block * BLOCK);
        }
    }
    let through_the_mount = std::fs::read(mounted.place.join("shared")).expect("read");
    assert!(through_the_mount == model);
    let (directly, by_kernel) = (
        one.done_directly + two.done_directly,
        one.by_kernel + two.by_kernel,
    );
    println!("{directly} directly, {by_kernel} by the kernel");
    assert!(
        directly > 4 * by_kernel,
        "{directly} directly, {by_kernel} by the kernel"
    );
}

#[test]
fn a_process_outlives_its_server_and_uses_the_next_one() {
    let mut mounted = mount();
    let client = Client::default();
    for round in 0..3_u8 {
        let file = mounted.open("file");
        let mut own = Direct::new(&client, &file);
        for block in 0..100 {
            own.write(&[round; BLOCK], block * BLOCK as u64);
        }
        assert!(own.done_directly > 50, "round {round}");
        let stale = Arc::clone(&own.direct);
        drop(file);
        let running = mounted.running.take().expect("it runs");
        running.unmount().expect("unmounted");
        let noted = std::fs::read_dir(mounted.pool.join("direct")).expect("a folder");
        let is_noted = |name: &str| name.starts_with("former-");
        let names: Vec<_> = noted
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert!(
            names.iter().any(|name| is_noted(&name.to_string_lossy())),
            "this process lives and has segments mapped: {names:?}"
        );
        mounted.start();
        let file = mounted.open("file");
        let written = stale.write_at(file.as_fd(), &[IoSlice::new(b"late")], 0);
        assert_eq!(written, None, "what was attached has ended");
        assert_eq!(
            std::fs::read(mounted.place.join("file")).expect("read"),
            [round; 100 * BLOCK]
        );
    }
}

/// A program may make and drop any number of clients; its process has a place for each that lives.
#[test]
fn a_client_that_is_dropped_keeps_no_place() {
    /// More than there are places.
    const CLIENTS: usize = 400;
    let mounted = mount();
    std::fs::write(mounted.place.join("file"), [7; BLOCK]).expect("a file");
    let mut done_directly = 0;
    for _ in 0..CLIENTS {
        let client = Client::default();
        let file = mounted.open("file");
        let mut own = Direct::new(&client, &file);
        for _ in 0..20 {
            own.read(10, 0);
        }
        done_directly += usize::from(own.done_directly > 0);
    }
    // The place of one that has just been dropped may not be free at once.
    assert!(
        done_directly > CLIENTS * 9 / 10,
        "{done_directly} of {CLIENTS} had a place"
    );
}

/// The kernel does not know how long the file has become, so each request that it sends makes it drop a page, which the next one may have locked.
#[test]
fn appending_in_turn_directly_and_through_the_kernel_does_not_stop_the_mount() {
    let mounted = mount();
    let client = Client::default();
    let path = mounted.place.join("log");
    let mut options = OpenOptions::new();
    let mut log = options.append(true).create(true).open(path).expect("open");
    let direct = client.look(log.as_fd()).expect("a file of the mount");
    let mut done_directly = 0;
    for record in 0..5000_u64 {
        let bytes = record.to_le_bytes();
        // Now and then the program itself asks the kernel, which ends the lease.
        let by_kernel = record % 1000 == 999;
        let appended = (!by_kernel)
            .then(|| direct.append(log.as_fd(), &[IoSlice::new(&bytes)]))
            .flatten();
        match appended {
            Some(_) => done_directly += 1,
            None => log.write_all(&bytes).expect("append"),
        }
    }
    println!("{done_directly} directly");
    let written = std::fs::read(mounted.place.join("log")).expect("read");
    let expected: Vec<u8> = (0..5000_u64).flat_map(u64::to_le_bytes).collect();
    assert!(written == expected);
}

/// Everything that `fstat` tells.
fn told(status: &rustix::fs::Statx) -> impl PartialEq + std::fmt::Debug + use<> {
    let time = |time: &rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
    (
        (status.stx_mask, status.stx_attributes, status.stx_blksize),
        (status.stx_mode, status.stx_nlink),
        (status.stx_uid, status.stx_gid),
        (status.stx_ino, status.stx_size, status.stx_blocks),
        [status.stx_atime, status.stx_mtime, status.stx_ctime].map(|found| time(&found)),
        (status.stx_dev_major, status.stx_dev_minor),
        (status.stx_rdev_major, status.stx_rdev_minor),
        status.stx_mnt_id,
    )
}

fn by_kernel(file: &File) -> rustix::fs::Statx {
    let (flags, wanted) = (
        rustix::fs::AtFlags::EMPTY_PATH,
        rustix::fs::StatxFlags::BASIC_STATS,
    );
    rustix::fs::statx(file, c"", flags, wanted).expect("statx")
}

/// What somebody else does to the file at a path through the kernel.
type Change = (&'static str, fn(&Path));

fn beside(path: &Path) -> std::path::PathBuf {
    path.with_extension("beside")
}

fn changes() -> Vec<Change> {
    vec![
        ("link", |path| {
            std::fs::hard_link(path, beside(path)).expect("link");
        }),
        ("unlink", |path| {
            std::fs::remove_file(beside(path)).expect("unlink");
        }),
        ("rename", |path| {
            std::fs::rename(path, beside(path)).expect("rename");
            std::fs::rename(beside(path), path).expect("rename");
        }),
        ("attribute", |path| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(path, "user.x", b"y", flags).expect("setxattr");
        }),
        ("mode", |path| {
            // And back: blocks of another protection domain are where the process may not go.
            let before = std::fs::metadata(path).expect("stat").permissions();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
            std::fs::set_permissions(path, mode).expect("chmod");
            std::fs::set_permissions(path, before).expect("chmod");
        }),
        ("owner", |path| {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            rustix::fs::chown(path, Some(user), Some(group)).expect("chown");
        }),
        ("times", |path| {
            let file = open(path);
            file.set_modified(std::time::UNIX_EPOCH).expect("utimens");
        }),
        ("write", |path| {
            open(path)
                .write_all_at(b"by the kernel", 10)
                .expect("write");
        }),
        ("cut", |path| open(path).set_len(5000).expect("ftruncate")),
        ("reserve", |path| {
            let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(open(path), flags, 1 << 20, 1 << 20).expect("fallocate");
        }),
        ("replaced", |path| {
            drop(open(&beside(path)));
            std::fs::rename(beside(path), path).expect("rename");
        }),
    ]
}

/// Attaches the file, for writing if `writes`.
fn attach(own: &mut Direct<'_>, writes: bool) {
    let begin = std::time::Instant::now();
    while own.direct.size_bytes().is_none() || own.direct.is_durable() != writes {
        match writes {
            true => own.write(b"attached", 0),
            false => drop(own.read(10, 0)),
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(10));
    }
}

#[test]
fn what_is_told_of_an_attached_file_is_what_the_kernel_tells() {
    let mounted = mount();
    for writes in [true, false] {
        let client = Client::default();
        let name = format!("file-{writes}");
        let file = mounted.open(&name);
        file.write_all_at(&[1; 3 * BLOCK], 0).expect("write");
        let mut own = Direct::new(&client, &file);
        let agree = |own: &Direct<'_>, what: &str| {
            let found = own.direct.status(file.as_fd());
            let expected = by_kernel(&file);
            found.inspect(|found| assert_eq!(told(found), told(&expected), "{what}"))
        };
        for (what, change) in changes() {
            attach(&mut own, writes);
            assert!(agree(&own, what).is_some(), "before {what}");
            if writes {
                // Nobody is asked about what this process does itself.
                own.write(&[7; 100], 50);
                assert!(own.direct.status_if_known().is_some(), "before {what}");
                agree(&own, "written");
                std::thread::sleep(std::time::Duration::from_millis(10));
                own.write(&[8; BLOCK], BLOCK as u64);
                own.write(&[9; 100], by_kernel(&file).stx_size);
                agree(&own, "longer");
                own.write(&[9; 2 * BLOCK], by_kernel(&file).stx_size);
                agree(&own, "much longer");
            }
            attach(&mut own, writes);
            assert!(agree(&own, what).is_some(), "before {what}");
            std::thread::sleep(std::time::Duration::from_millis(10));
            change(&mounted.place.join(&name));
            assert!(
                own.direct.status_if_known().is_none(),
                "{what} was heard of"
            );
            agree(&own, what);
        }
    }
}

#[test]
fn what_a_path_names_is_told_of_without_asking() {
    let mounted = mount();
    let client = Client::default();
    let (file, other) = (mounted.open("file"), mounted.open("other"));
    let mut own = Direct::new(&client, &file);
    attach(&mut own, true);
    assert!(client.writes_files());
    assert!(own.direct.status(file.as_fd()).is_some());
    own.write(b"longer than before", 0);
    let found = client.status_of(&by_kernel(&file)).expect("it is attached");
    assert_eq!(told(&found), told(&by_kernel(&file)));
    assert_eq!(found.stx_size, 18);
    assert!(client.status_of(&by_kernel(&other)).is_none());
    assert!(own.direct.close().is_some_and(|past| past.operations > 16));
    assert!(client.status_of(&by_kernel(&file)).is_none());
}

/// Each gets the memory of the one before last: what that said of its blocks must not be believed of the next one.
#[test]
fn journals_that_are_made_again_and_again_have_nothing_of_each_other() {
    let mounted = mount();
    let client = Client::default();
    let lengths = [
        0,
        0,
        0,
        5000,
        0,
        0,
        3 << 20,
        3 << 20,
        0,
        9000,
        9000,
        9000,
        0,
        0,
    ];
    for (round, length) in lengths.into_iter().enumerate() {
        let path = mounted.place.join("journal");
        let mut model = vec![round as u8 | 0x80; length];
        std::fs::write(&path, &model).expect("write");
        if round % 3 == 2 {
            let file = mounted.open("journal");
            let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, keep, 4096, 40_000).expect("reserve");
        }
        let file = mounted.open("journal");
        let mut own = Direct::new(&client, &file);
        own.direct.expect_use();
        for at in [0, 512, 2000, length as u64] {
            let data = vec![round as u8 + 1; 700];
            own.write(&data, at);
            write_to(&mut model, &data, at as usize);
        }
        assert_eq!(
            own.by_kernel, 0,
            "round {round}, {} directly",
            own.done_directly
        );
        assert_eq!(own.read(model.len() + 1, 0), model, "round {round}");
        own.direct.close();
        drop(own);
        // Half of them are looked at by the kernel, which ends the lease; the others go as they are.
        if round % 2 == 0 {
            assert_eq!(std::fs::read(&path).expect("read"), model, "round {round}");
        }
        std::fs::remove_file(&path).expect("unlink");
    }
}

#[test]
fn a_file_whose_use_is_expected_is_attached_at_once_and_grows_out_of_its_small_lease() {
    let mounted = mount();
    let client = Client::default();
    let file = mounted.open("journal");
    let mut own = Direct::new(&client, &file);
    own.direct.expect_use();
    let mut model = Vec::new();
    for block in 0..300_usize {
        let data = vec![block as u8; BLOCK + 12];
        own.write(&data, model.len() as u64);
        model.extend_from_slice(&data);
    }
    assert_eq!(own.by_kernel, 0, "{} directly", own.done_directly);
    assert!(own.direct.is_durable());
    own.direct.close();
    assert_eq!(
        std::fs::read(mounted.place.join("journal")).expect("read"),
        model
    );
    // Closing is not waited for; whoever comes next finds all of it.
    own.direct.expect_use();
    own.write(b"x", 0);
    own.direct.close();
    assert_eq!(
        mounted.open("journal").metadata().expect("stat").size(),
        model.len() as u64
    );
    std::fs::remove_file(mounted.place.join("journal")).expect("unlink");
}

#[test]
fn whole_blocks_are_read_by_the_short_way_and_never_stale() {
    const BLOCKS: u64 = 40;
    let mounted = mount();
    let (ours, theirs) = (mounted.open("file"), mounted.open("file"));
    let client = Client::default();
    let direct = look(&client, &ours);
    let content = |block: u64, version: u64| [(block * 7 + version) as u8; BLOCK];
    for block in 0..BLOCKS {
        let data = content(block, 0);
        let slices = [IoSlice::new(&data)];
        if direct
            .write_at(ours.as_fd(), &slices, block * BLOCK as u64)
            .is_none()
        {
            ours.write_all_at(&data, block * BLOCK as u64)
                .expect("write");
        }
    }
    // By the long way until this thread is the owner, and the file is attached again.
    let read = |block: u64| {
        let mut into = [0; BLOCK];
        let offset = block * BLOCK as u64;
        let is_short = direct.read_block(&mut into, offset);
        if !is_short {
            let slices = &mut [IoSliceMut::new(&mut into)];
            if direct.read_at(ours.as_fd(), slices, offset).is_none() {
                ours.read_exact_at(&mut into, offset).expect("read");
            }
        }
        (is_short, into)
    };
    let mut short = 0;
    for version in 0..5 {
        if version > 0 {
            for block in 0..BLOCKS {
                let data = content(block, version);
                theirs
                    .write_all_at(&data, block * BLOCK as u64)
                    .expect("write");
            }
        }
        for turn in 0..20_000 {
            let block = turn % BLOCKS;
            let (is_short, found) = read(block);
            assert!(
                found == content(block, version),
                "block {block} of version {version}"
            );
            short += u64::from(is_short);
        }
    }
    assert!(short > 10_000, "{short} of 100,000");
    let mut into = [0; BLOCK];
    let end = BLOCKS * BLOCK as u64;
    for offset in [
        1,
        BLOCK as u64 - 1,
        end - 1,
        end,
        end + BLOCK as u64,
        u64::MAX,
        1 << 63,
        u64::MAX - 4095,
    ] {
        assert!(!direct.read_block(&mut into, offset), "{offset}");
    }
}
