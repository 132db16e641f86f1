//! Opening, closing, sharing and dropping pools.

use crate::common::{Place, small};
use perdure::{Error, File, FsError, OpenOptions, Pool};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::thread;

#[test]
fn a_pool_is_closed_by_its_last_handle() {
    let place = Place::new();
    let pool = place.create();
    let path = place.pool_path();
    let file = File::create(&pool, "file").expect("created");
    let error = pool.close().expect_err("a file is open");
    assert!(
        matches!(error, Error::StillOpen { handles: 1, .. }),
        "{error}"
    );
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::ResourceBusy);
    file.write_at(b"late", 0).expect("the pool stays open");
    let error = Pool::open(&path).expect_err("still open");
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    drop(file);
    let pool = Pool::open(&path).expect("closed by the file");
    assert!(pool.was_clean());
    assert_eq!(pool.read("file").expect("read"), b"late");
}

#[test]
fn handles_are_counted_through_whatever_they_were_opened() {
    let place = Place::new();
    let pool = place.create();
    for number in 0..20 {
        pool.create_dir(format!("{number}")).expect("created");
        drop(pool.open_dir(format!("{number}")).expect("opened"));
    }
    let directory = pool.open_dir("7").expect("opened");
    let files = ["a", "b"].map(|name| File::create(&directory, name).expect("created"));
    let error = pool.close().expect_err("three are open");
    assert!(
        matches!(error, Error::StillOpen { handles: 3, .. }),
        "{error}"
    );
    drop((files, directory));
    assert!(
        Pool::open(place.pool_path())
            .expect("closed by the last")
            .was_clean()
    );
}

#[test]
fn a_second_opener_learns_who_has_the_pool() {
    let place = Place::new();
    let _pool = place.create();
    let error = Pool::open(place.pool_path()).expect_err("in use");
    let message = error.to_string();
    assert!(
        message.contains(&format!("process {}", std::process::id())),
        "{message}"
    );
    assert!(
        message.contains(&*place.pool_path().to_string_lossy()),
        "{message}"
    );
    let error = small()
        .overwrite(true)
        .format(place.pool_path())
        .expect_err("in use");
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
}

#[test]
fn a_panic_leaves_a_pool_that_recovers() {
    let place = Place::new();
    let pool = place.create();
    thread::spawn(move || {
        pool.write("file", b"acknowledged").expect("written");
        panic!("deliberate: the thread that owns the pool fails");
    })
    .join()
    .expect_err("it panicked");
    let pool = Pool::open(place.pool_path()).expect("recovered");
    assert!(!pool.was_clean());
    assert_eq!(pool.read("file").expect("read"), b"acknowledged");
}

#[test]
fn read_only_changes_nothing_and_can_be_shared() {
    let place = Place::new();
    let pool = place.create();
    pool.write("file", b"content").expect("written");
    pool.close().expect("closed");
    let first = Pool::options()
        .read_only(true)
        .open(place.pool_path())
        .expect("opened");
    let second = Pool::options()
        .read_only(true)
        .open(place.pool_path())
        .expect("opened again");
    assert_eq!(
        first.read("file").expect("read"),
        second.read("file").expect("read")
    );
    let error = first.write("file", b"other").expect_err("read only");
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
    assert_eq!(
        first.create_dir("d").expect_err("read only").kind(),
        ErrorKind::ReadOnlyFilesystem
    );
    drop((first, second));
    assert_eq!(
        Pool::open(place.pool_path())
            .expect("opened")
            .read("file")
            .expect("read"),
        b"content"
    );
}

#[test]
fn errors_name_the_operation_and_the_path() {
    let place = Place::new();
    let pool = place.create();
    let error = pool.read("no/such/file").expect_err("missing");
    assert_eq!(
        error.to_string(),
        "open no/such/file: no such file or directory"
    );
    assert_eq!(error.errno(), 2);
    let error = pool.rename("a", "b").expect_err("missing");
    assert_eq!(
        error.to_string(),
        "rename a -> b: no such file or directory"
    );
    let file = File::create(&pool, "file").expect("created");
    let error = file
        .read_at(&mut [0; 4], 0)
        .expect_err("not open for reading");
    assert!(
        error.to_string().contains("not opened for reading"),
        "{error}"
    );
    assert_eq!(error.errno(), 9);
    let long = "n".repeat(256);
    let error = std::io::Error::from(pool.write(&long, b"").expect_err("too long"));
    assert_eq!(error.kind(), ErrorKind::InvalidFilename);
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>())
        .and_then(Error::cause);
    assert!(
        matches!(
            inner,
            Some(perdure::Cause::FileSystem(FsError::NameTooLong {
                length: 256
            }))
        ),
        "{inner:?}"
    );
}

#[test]
fn positions_are_shared_by_clones_only() {
    let place = Place::new();
    let pool = place.create();
    pool.write("file", b"0123456789").expect("written");
    let mut first = File::open(&pool, "file").expect("opened");
    let mut clone = first.try_clone().expect("cloned");
    let mut other = File::open(&pool, "file").expect("opened");
    let mut bytes = [0; 3];
    first.read_exact(&mut bytes).expect("read");
    clone.read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"345");
    other.read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"012");
    assert_eq!(first.seek(SeekFrom::End(-2)).expect("found"), 8);
    assert_eq!(first.seek(SeekFrom::Current(-4)).expect("found"), 4);
    assert_eq!(
        first
            .seek(SeekFrom::Current(-5))
            .expect_err("before the start")
            .kind(),
        ErrorKind::InvalidInput
    );
    let mut rest = String::new();
    clone.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "456789");
    first
        .seek(SeekFrom::Start(100))
        .expect("beyond the end is fine");
    assert_eq!(first.read(&mut bytes).expect("read"), 0);
}

#[test]
fn appends_of_threads_never_overlap() {
    const THREADS: u8 = 4;
    const RECORDS: usize = 300;
    let place = Place::new();
    let pool = place.create();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                let mut log = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(pool, "log")
                    .expect("opened");
                for record in 0..RECORDS {
                    let record = [number; 100].map(|byte| byte + (record % 7) as u8 * 10);
                    if record[0] % 2 == 0 {
                        log.append(&record).expect("appended");
                    } else {
                        log.write_all(&record).expect("appended");
                    }
                }
            });
        }
    });
    let log = pool.read("log").expect("read");
    assert_eq!(log.len(), usize::from(THREADS) * RECORDS * 100);
    for record in log.chunks(100) {
        assert!(
            record.iter().all(|byte| *byte == record[0]),
            "a torn record: {record:?}"
        );
    }
}

#[test]
fn unnamed_files_can_get_a_name() {
    let place = Place::new();
    let pool = place.create();
    let used = |pool: &Pool| pool.statistics().inodes - pool.statistics().free_inodes;
    let before = used(&pool);
    let file = File::unnamed(&pool).expect("created");
    file.write_at(b"whole", 0).expect("written");
    assert_eq!(file.metadata().expect("known").nlink(), 0);
    file.link(&pool, "named").expect("linked");
    drop(file);
    assert_eq!(pool.read("named").expect("read"), b"whole");
    drop(File::unnamed(&pool).expect("created"));
    pool.remove_file("named").expect("removed");
    pool.filesystem().checkpoint();
    assert_eq!(used(&pool), before);
}

#[test]
fn removed_files_live_until_they_are_closed() {
    let place = Place::new();
    let pool = place.create();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(&pool, "file")
        .expect("created");
    file.write_at(b"still here", 0).expect("written");
    pool.remove_file("file").expect("removed");
    let mut bytes = [0; 10];
    FileExt::read_exact_at(&file, &mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"still here");
    assert!(!pool.exists("file").expect("looked up"));
    drop(file);
    pool.close().expect("closed");
}

#[test]
fn holes_are_found_and_punched() {
    let place = Place::new();
    let pool = place.create();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(&pool, "sparse")
        .expect("created");
    file.write_at(&[1; 4096], 1 << 20).expect("written");
    file.set_len(4 << 20).expect("extended");
    assert_eq!(file.next_data(0).expect("found"), Some(1 << 20));
    assert_eq!(
        file.next_hole(1 << 20).expect("found"),
        Some((1 << 20) + 4096)
    );
    assert_eq!(file.next_data((1 << 20) + 4096).expect("none"), None);
    file.punch_hole(1 << 20, 4096).expect("punched");
    assert_eq!(file.next_data(0).expect("none"), None);
    assert_eq!(file.metadata().expect("known").len(), 4 << 20);
    file.allocate(0, 8 << 20).expect("allocated");
    let metadata = file.metadata().expect("known");
    assert_eq!(
        (metadata.len(), metadata.blocks() >= (8 << 20) / 512),
        (8 << 20, true)
    );
}

#[test]
fn attributes_are_kept_across_opens() {
    let place = Place::new();
    let pool = place.create();
    pool.write("file", b"").expect("written");
    assert_eq!(pool.get_xattr("file", "user.a").expect("asked"), None);
    pool.set_xattr("file", "user.a", b"1").expect("set");
    pool.set_xattr("file", "user.b", b"").expect("set");
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    pool.set_times("file", perdure::FileTimes::new().set_modified(time))
        .expect("set");
    pool.chown("file", Some(7), Some(8)).expect("set");
    pool.close().expect("closed");
    let pool = Pool::open(place.pool_path()).expect("opened");
    assert_eq!(
        pool.get_xattr("file", "user.a").expect("asked").as_deref(),
        Some(&b"1"[..])
    );
    let mut names = pool.list_xattrs("file").expect("listed");
    names.sort();
    assert_eq!(names, ["user.a", "user.b"]);
    pool.remove_xattr("file", "user.a").expect("removed");
    assert_eq!(
        pool.remove_xattr("file", "user.a")
            .expect_err("gone")
            .errno(),
        61
    );
    let metadata = pool.metadata("file").expect("known");
    assert_eq!((metadata.uid(), metadata.gid()), (7, 8));
    assert_eq!(metadata.modified().expect("a time"), time);
}

#[test]
fn directories_are_handles() {
    let place = Place::new();
    let pool = place.create();
    pool.create_dir_all("a/b/c").expect("made");
    let deep = pool.open_dir("a/b/c").expect("opened");
    deep.write("file", b"x").expect("written");
    assert_eq!(deep.read("../c/file").expect("read"), b"x");
    assert_eq!(
        deep.read("/a/b/c/file")
            .expect("absolute paths start at the root"),
        b"x"
    );
    assert_eq!(
        deep.canonicalize("file").expect("found").to_string_lossy(),
        "/a/b/c/file"
    );
    pool.rename("a/b", "moved").expect("renamed");
    assert_eq!(
        deep.canonicalize(".").expect("found").to_string_lossy(),
        "/moved/c"
    );
    pool.symlink("/moved", "absolute").expect("made");
    assert_eq!(
        pool.canonicalize("absolute/c/file")
            .expect("found")
            .to_string_lossy(),
        "/moved/c/file"
    );
    assert_eq!(
        pool.open_dir("moved/c/file").expect_err("a file").kind(),
        ErrorKind::NotADirectory
    );
    pool.remove_dir_all("moved").expect("removed");
    assert_eq!(
        deep.write("late", b"").expect_err("removed").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn large_directories_are_listed_once() {
    let place = Place::new();
    let pool = place.create();
    let names: Vec<String> = (0..2000)
        .map(|number| format!("name-{number:05}"))
        .collect();
    for name in &names {
        pool.write(name, b"").expect("written");
    }
    let mut listed = Vec::new();
    for entry in pool.read_dir("/").expect("listed") {
        let entry = entry.expect("an entry");
        assert!(entry.file_type().expect("known").is_file());
        listed.push(entry.file_name().to_string_lossy().into_owned());
    }
    listed.sort();
    assert_eq!(listed, names);
    // Removing while listing: every name comes exactly once.
    let mut removed = 0;
    for entry in pool.read_dir(".").expect("listed") {
        pool.remove_file(entry.expect("an entry").path())
            .expect("removed");
        removed += 1;
    }
    assert_eq!(
        (removed, pool.read_dir("/").expect("listed").count()),
        (2000, 0)
    );
}
