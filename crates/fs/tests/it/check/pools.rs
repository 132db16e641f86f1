//! The files of a pool: locks, missing parts, the second superblock, and that a check writes nothing.

use super::OPTIONS;
use super::tree::{self, Snapshot};
use perdure_fs::check::{FaultKind, check_pool};
use perdure_fs::{FileSystem, MountOptions, NewInode, mkfs};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use txn::{Mode, OpenError, PmemStore};

struct Pool {
    _place: tempfile::TempDir,
    path: PathBuf,
}

/// A pool with one file in one directory.
fn pool() -> Pool {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("pool");
    mkfs(&path, &tree::options(), (0, 0)).expect("mkfs");
    let files = mount(&path);
    let directory = files
        .make_directory(&files.root(), b"directory", &NewInode::file(0o755))
        .expect("mkdir");
    let node = files
        .create(&directory, b"file", &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, b"content").expect("write");
    drop((directory, node));
    // Not unmounted: records wait for replay.
    Pool {
        _place: place,
        path,
    }
}

fn mount(path: &Path) -> FileSystem {
    let store = PmemStore::open(path, Mode::ReadWrite, true).expect("open");
    FileSystem::mount(store, MountOptions::default()).expect("mount")
}

fn bytes(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(path)
        .expect("list")
        .map(|entry| entry.expect("an entry").path());
    files
        .map(|path| (path.clone(), fs::read(path).expect("read")))
        .collect()
}

#[test]
fn a_check_writes_nothing_and_a_repair_of_a_sound_pool_neither_complains() {
    let pool = pool();
    let before = bytes(&pool.path);
    let checked = check_pool(&pool.path, false, &OPTIONS).expect("check");
    assert!(checked.found.is_clean(), "{:#?}", checked.found);
    assert_eq!(bytes(&pool.path), before);
    let repaired = check_pool(&pool.path, true, &OPTIONS).expect("repair");
    assert!(repaired.found.is_clean() && repaired.left.is_none());
    assert_eq!(
        Snapshot::of(&mount(&pool.path)).0["/directory/file"].content[8..],
        *b"content"
    );
}

#[test]
fn a_damaged_first_superblock_is_copied_from_the_second() {
    let pool = pool();
    let head = fs::File::options()
        .write(true)
        .open(pool.path.join("super"))
        .expect("open");
    head.write_all_at(&[0; 4096], 0).expect("write");
    let before = bytes(&pool.path);
    let checked = check_pool(&pool.path, false, &OPTIONS).expect("check");
    assert_eq!(checked.found.faults[0].kind, FaultKind::SuperblockDamaged);
    assert_eq!(
        (checked.found.faults_total, checked.found.complete),
        (1, true)
    );
    assert_eq!(bytes(&pool.path), before);
    let repaired = check_pool(&pool.path, true, &OPTIONS).expect("repair");
    assert!(repaired.left.expect("repaired").is_clean());
    assert!(
        check_pool(&pool.path, false, &OPTIONS)
            .expect("check")
            .found
            .is_clean()
    );
}

#[test]
fn missing_and_short_segments_are_made_anew() {
    let pool = pool();
    let last = pool.path.join("segment-0029");
    fs::remove_file(&last).expect("remove");
    let short = pool.path.join("segment-0028");
    fs::File::options()
        .write(true)
        .open(&short)
        .expect("open")
        .set_len(4096)
        .expect("shorten");
    assert!(matches!(
        PmemStore::open(&pool.path, Mode::ReadWrite, true),
        Err(OpenError::Truncated { .. } | OpenError::MissingSegment { .. })
    ));
    let checked = check_pool(&pool.path, false, &OPTIONS).expect("check");
    assert_eq!(checked.incomplete_files, [short, last.clone()]);
    assert!(
        checked
            .found
            .faults
            .iter()
            .any(|fault| fault.kind == FaultKind::PoolTruncated),
        "{:#?}",
        checked.found
    );
    assert!(!last.exists());
    let repaired = check_pool(&pool.path, true, &OPTIONS).expect("repair");
    assert!(repaired.left.expect("repaired").is_clean());
    assert!(
        check_pool(&pool.path, false, &OPTIONS)
            .expect("check")
            .found
            .is_clean()
    );
    drop(mount(&pool.path));
}

#[test]
fn a_pool_in_use_and_no_pool_are_refused() {
    let pool = pool();
    let files = mount(&pool.path);
    assert!(matches!(
        check_pool(&pool.path, false, &OPTIONS),
        Err(OpenError::InUse { .. })
    ));
    assert!(matches!(
        check_pool(&pool.path, true, &OPTIONS),
        Err(OpenError::InUse { .. })
    ));
    drop(files);
    assert!(matches!(
        check_pool(&pool.path.join("no"), false, &OPTIONS),
        Err(OpenError::Missing { .. })
    ));
    fs::write(pool.path.join("super"), [0; 100_000]).expect("overwrite");
    assert!(matches!(
        check_pool(&pool.path, true, &OPTIONS),
        Err(OpenError::NotAPool { .. })
    ));
}
