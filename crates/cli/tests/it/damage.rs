//! Commands on damaged pools: their messages, and the bytes that stay as they are.

use crate::bad_input::{refuse, refuse_everywhere, text};
use crate::common::scene::Scene;
use crate::common::{inside, make_pool, place, run, succeed};
use ::fs::InodeNumber;
use ::fs::format::RawInode;
use ::fs::format::inode::INODE_BYTES;
use perdure::{Pool, PoolOptions};
use pmem::{Offset, Region};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use txn::places::{HalfName, HalfPlace};
use txn::record::{Record, RecordForm};
use zerocopy::FromBytes;

/// One copy has another version by damage, and the other one is damaged elsewhere.
#[test]
fn a_damaged_version_is_no_other_version() {
    let place = place();
    let pool = make_pool(place.path());
    let head = File::options()
        .write(true)
        .read(true)
        .open(pool.join("super"))
        .expect("the header");
    let second = head.metadata().expect("its length").len() - 4096;
    let damages: [(u64, u64); 3] = [(8, 40), (40, 8), (8, 0)];
    for (in_first, in_second) in damages {
        let places = [in_first, second + in_second];
        let flip = || {
            for at in places {
                let mut byte = [0];
                head.read_exact_at(&mut byte, at).expect("read");
                head.write_all_at(&[byte[0] ^ 0xff], at).expect("patched");
            }
        };
        flip();
        refuse_everywhere(
            &pool,
            3,
            &[text(&pool), "both superblocks are damaged", "restore"],
        );
        refuse(&["fsck", text(&pool)], 8, &["both superblocks are damaged"]);
        flip();
        succeed(["stat", text(&pool)]);
    }
}

/// A pool after a crash: 30 files were written, their records wait in a journal.
fn crashed(directory: &Path) -> PathBuf {
    let origin = directory.join("origin");
    fs::create_dir(&origin).expect("made");
    let path = make_pool(&origin);
    let pool = Pool::open(&path).expect("opened");
    for number in 0..30 {
        pool.write(format!("file {number}"), [number; 5000])
            .expect("written");
    }
    // The lock goes, the clean mark does not come: as after kill -9.
    let crashed = directory.join("crashed");
    copy(&path, &crashed);
    crashed
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("the pool's files") {
        let entry = entry.expect("a file");
        if entry.file_type().expect("its type").is_file() && entry.file_name() != "owner.pid" {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

/// The header and the segments, by name.
fn bytes(pool: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(pool).expect("the pool's files");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let is_part = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name == "super" || name.starts_with("segment-")
    };
    paths
        .filter(is_part)
        .map(|path| (path.clone(), fs::read(path).expect("read")))
        .collect()
}

/// Changes some bits of the record that is so many before the newest of the fullest journal.
fn damage_record(pool: &Path, before_newest: usize, mask: u8) {
    let files = bytes(pool);
    // `super` is behind all segments in the order of names.
    let [segments @ .., head] = &files.values().collect::<Vec<_>>()[..] else {
        return;
    };
    let region = Region::from_image(
        [&[*head], segments]
            .concat()
            .into_iter()
            .flatten()
            .copied()
            .collect::<Vec<u8>>(),
    );
    let superblock = txn::pool::read_superblock(&region).expect("a pool");
    let mut fullest: Vec<Offset> = Vec::new();
    for name in HalfName::all(superblock.journals) {
        let place =
            HalfPlace::read(region.load_u64(name.word_at()), name, &superblock).expect("a place");
        let form = RecordForm::of(&superblock, place);
        let mut half = vec![0; superblock.half_bytes()];
        region.read(place.start.offset(), &mut half);
        let (mut at, mut records) = (0, Vec::new());
        while let Some(record) = Record::parse(&half[at..], &form) {
            records.push(place.start.offset() + at as u64);
            at += record.padded_bytes();
        }
        if records.len() > fullest.len() {
            fullest = records;
        }
    }
    let at = (fullest[fullest.len() - 1 - before_newest] + 24).get();
    let header = superblock.geometry().header_blocks * pmem::BLOCK_BYTES as u64;
    let segment = superblock.geometry().segment_bytes();
    let (index, within) = ((at - header) / segment, (at - header) % segment);
    let path = pool.join(txn::pool::segment_file(index as u32));
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the segment");
    let mut byte = [0];
    file.read_exact_at(&mut byte, within).expect("read");
    file.write_all_at(&[byte[0] ^ mask], within)
        .expect("damaged");
}

/// A crashed pool, ten of whose records lie behind a damaged one.
fn damaged_journal(scene: &Scene) -> PathBuf {
    let pool = crashed(scene.place.path());
    damage_record(&pool, 10, 0xff);
    pool
}

#[test]
fn a_damaged_journal_is_not_written_to_and_readers_are_told() {
    let Some(scene) = Scene::new() else { return };
    let pool = damaged_journal(&scene);
    let before = bytes(&pool);
    let (path, mnt) = (text(&pool), text(&scene.mountpoint));
    let checked = run(["fsck", path]);
    let named = "a damaged record before 10 whole ones";
    assert!(
        checked.code == 4 && checked.stdout.contains(named),
        "{checked:#?}"
    );
    let what = ["has a damaged record", "--force-recovery", "fsck --repair"];
    refuse(&["mount", path, mnt], 3, &what);
    refuse(&["run", path, "--", "true"], 3, &what);
    // Records before the damage may meet newer changes in place: then a reader is refused, too.
    let target = scene.place.path().join("copy");
    let inside = inside(&pool, "/");
    let readers: [&[&str]; 3] = [
        &["stat", path],
        &["cp", "-r", &inside, text(&target)],
        &["mount", "--read-only", path, mnt],
    ];
    for reader in readers {
        let outcome = run(reader);
        assert!([0, 1, 3].contains(&outcome.code), "{outcome:#?}");
        assert!(
            outcome.stderr.contains("has a damaged record"),
            "{outcome:#?}"
        );
        if outcome.code == 0 && reader[0] == "mount" {
            assert!(succeed(["stat", mnt]).stdout.contains("damage     journal"));
            scene.unmount();
        }
    }
    assert!(bytes(&pool) == before, "the pool has changed");
}

#[test]
fn a_damaged_journal_goes_on_when_its_records_are_dropped() {
    let Some(scene) = Scene::new() else { return };
    let pool = damaged_journal(&scene);
    let mnt = text(&scene.mountpoint);
    let repaired = scene.place.path().join("repaired");
    copy(&pool, &repaired);
    let said = run(["fsck", "--repair", "-y", text(&repaired)]);
    assert!(
        said.code == 1 && said.stdout.contains("dropped"),
        "{said:#?}"
    );
    let again = succeed(["mount", text(&repaired), mnt]);
    assert_eq!(again.stderr, "");
    scene.unmount();

    let forced = run(["mount", "--force-recovery", text(&pool), mnt]);
    assert!(
        forced.stderr.contains("has a damaged record"),
        "{forced:#?}"
    );
    assert!([0, 3].contains(&forced.code), "{forced:#?}");
    if forced.code == 0 {
        let shown = succeed(["stat", mnt]).stdout;
        let line = shown.lines().find(|line| line.starts_with("damage "));
        assert!(
            line.is_some_and(|line| line.contains("they were dropped")),
            "{shown}"
        );
        scene.unmount();
    }
    let said = run(["fsck", "--repair", "-y", text(&pool)]);
    assert!([0, 1].contains(&said.code), "{said:#?}");
    succeed(["mount", text(&pool), mnt]);
    scene.unmount();
}

#[test]
fn a_flipped_bit_of_a_journal_is_set_right_by_a_repair() {
    let place = place();
    let pool = crashed(place.path());
    damage_record(&pool, 10, 0x10);
    refuse(
        &["cp", "/dev/null", &inside(&pool, "/new")],
        3,
        &["has a damaged record"],
    );
    let said = run(["fsck", "--repair", "-y", text(&pool)]);
    assert!(
        said.code == 1 && said.stdout.contains("one bit is flipped"),
        "{said:#?}"
    );
    succeed(["fsck", text(&pool)]);
    let pool = Pool::open(&pool).expect("opened");
    for number in 0..30 {
        assert_eq!(
            pool.read(format!("file {number}")).expect("read"),
            [number; 5000]
        );
    }
}

/// Changes two bits of an inode in the pool's files, so that its checksum does not match.
fn damage_inode(pool: &Path, number: u64) {
    let number = InodeNumber::new(number);
    let mut damaged = 0;
    for (path, bytes) in bytes(pool) {
        let file = File::options().write(true).open(path).expect("a part");
        for (slot, chunk) in (0..).zip(bytes.chunks_exact(INODE_BYTES)) {
            let raw = RawInode::read_from_bytes(chunk).expect("an inode's bytes");
            if !raw.is_free() && raw.is_intact(number) {
                let at = slot * INODE_BYTES as u64 + 40;
                file.write_all_at(&[chunk[40] ^ 0x41], at).expect("damaged");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0, "inode {number} is nowhere");
}

#[test]
fn a_name_whose_inode_is_damaged_is_listed_and_not_copied_silently() {
    let place = place();
    let path = make_pool(place.path());
    let pool = Pool::open(&path).expect("opened");
    pool.create_dir_all("folder").expect("made");
    for name in ["folder/one", "folder/two"] {
        pool.write(name, name).expect("written");
    }
    let number = pool.metadata("folder/one").expect("looked up").ino();
    pool.close().expect("closed");
    damage_inode(&path, number);
    let pool = PoolOptions::new()
        .read_only(true)
        .open(&path)
        .expect("opened");
    let entries = pool.read_dir("folder").expect("listed");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    let error = pool.metadata("folder/one").expect_err("it is damaged");
    assert_eq!(error.errno(), libc::EUCLEAN, "{error}");
    drop(pool);
    let target = place.path().join("copy");
    let copied = run(["cp", "-r", &inside(&path, "/folder"), text(&target)]);
    assert!(
        copied.code == 1 && copied.stderr.contains("folder/one"),
        "{copied:#?}"
    );
    let checked = run(["fsck", text(&path)]);
    assert!(
        checked.code == 4 && checked.stdout.contains("(`/folder/one`)"),
        "{checked:#?}"
    );
    let report = run(["fsck", text(&path), "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["faults"][0]["path"], "/folder/one", "{report:#}");
}
