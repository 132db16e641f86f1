//! Random operations against the model, with sets that are larger than the cache.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pmem::Region;

use super::model::{Load, Model};
use super::{Bug, Chance, Design, Options, disk, with_bug};
use crate::baseline::journaling::{Counts, FsError, JournalingFs};

const LOAD: Load = Load {
    bytes_max: 40_000,
    file_bytes_max: 400_000,
    names: 14,
};

/// Opens the file system anew, as after a clean end.
fn reopen(
    design: Design,
    region: &Arc<Region>,
    disk: &Arc<device::faulty::Faulty>,
    fs: JournalingFs,
    options: Options,
) -> JournalingFs {
    fs.sync_all().expect("a disk that works");
    drop(fs);
    design.recover(region, disk, options).expect("sound")
}

/// Runs random operations; returns what the cache did.
fn run(design: Design, seed: u64, steps: u64, options: Options) -> Counts {
    let (region, disk) = (Arc::new(Region::anonymous(design.least_bytes())), disk());
    let mut fs = design.format(&region, &disk, options);
    let mut model = Model::new(LOAD);
    let mut chance = Chance(seed);
    let mut counts = Counts::default();
    for step in 0..steps {
        let operation = LOAD.operation(&mut chance);
        match model.apply(&fs, &operation) {
            Ok(()) => {}
            Err(FsError::NoSpace) => {
                let free = fs.statistics().free_blocks;
                assert!(free < 110, "{operation:?}: {free} blocks are free");
            }
            Err(error) => panic!("{operation:?}: {error}"),
        }
        if step % 40 == 39 {
            fs.verify()
                .unwrap_or_else(|error| panic!("step {step}: {error}"));
        }
        if step % 120 == 119 {
            model.compare(&fs);
            model.close_all();
            counts += fs.statistics().cache;
            fs = reopen(design, &region, &disk, fs, options);
            fs.verify()
                .unwrap_or_else(|error| panic!("opened anew: {error}"));
            model.compare(&fs);
        }
    }
    counts += fs.statistics().cache;
    counts
}

/// Does a check notice a bug?
pub(super) fn notices<T>(bug: Bug, check: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(|| with_bug(bug, check))).is_err()
}

#[test]
fn random_operations_do_what_they_should() {
    for design in Design::ALL {
        for (seed, operations_per_commit) in [(1, 1), (2, 1), (3, 7)] {
            let options = Options {
                operations_per_commit,
                access_times: seed % 2 == 1,
            };
            let counts = run(design, seed, 360, options);
            assert!(counts.evictions > 50, "{design:?}: {counts:?}");
            assert!(counts.disk_blocks_written > 40, "{design:?}: {counts:?}");
            assert!(counts.hits > 20 && counts.misses > 20, "{counts:?}");
        }
    }
}

#[test]
fn the_model_notices_bugs() {
    for design in [Design::Tinca, Design::SpindleMended] {
        for bug in [Bug::DropDirtyVictim, Bug::ForgetBitmap, Bug::LeaveTail] {
            let run = || run(design, 1, 360, Options::default());
            assert!(notices(bug, run), "{design:?} with {bug:?}");
        }
    }
}

/// The list of files without names survives, and the next mount frees them.
#[test]
fn an_open_file_without_a_name_goes_at_the_next_mount() {
    for design in Design::ALL {
        let (region, disk) = (Arc::new(Region::anonymous(design.least_bytes())), disk());
        let fs = design.format(&region, &disk, Options::default());
        let before = fs.statistics();
        let handle = fs.create("/file").expect("room");
        fs.append(&handle, &[1; 200_000]).expect("room");
        let second = handle.clone();
        fs.unlink("/file").expect("there");
        drop(handle);
        let mut read = [0; 8];
        assert_eq!(fs.read_at(&second, 150_000, &mut read), Ok(8));
        assert_eq!(read, [1; 8]);
        fs.verify().expect("sound");
        // As if the power had failed: the handle is never closed.
        std::mem::forget(second);
        let fs = design
            .recover(&region, &disk, Options::default())
            .expect("sound");
        fs.verify().expect("sound");
        let now = fs.statistics();
        // The root keeps a block of entries.
        assert_eq!(now.free_blocks + 1, before.free_blocks);
        assert_eq!(now.free_inodes, before.free_inodes);
    }
}

#[test]
fn large_files_have_leaves_and_roots() {
    let (region, disk) = (
        Arc::new(Region::anonymous(2 << 20)),
        Arc::new(device::faulty::Faulty::new(4096)),
    );
    let fs = Design::SpindleMended.format(&region, &disk, super::plain());
    let before = fs.statistics().free_blocks;
    let handle = fs.create("/file").expect("room");
    let far = (40 + 3 * 1024 + 5) * 4096;
    fs.write_at(&handle, far, b"far").expect("room");
    fs.write_at(&handle, 39 * 4096, &[7; 8192]).expect("room");
    let mut read = [1; 4096];
    assert_eq!(fs.read_at(&handle, far - 4093, &mut read), Ok(4096));
    assert!(read[..4093].iter().all(|&byte| byte == 0) && read[4093..] == *b"far");
    // The root's entries; a root, two leaves, three blocks.
    assert_eq!(before - fs.statistics().free_blocks, 1 + 1 + 2 + 3);
    fs.verify().expect("sound");
    let error = fs.write_at(&handle, 25 << 30, b"x");
    assert_eq!(error, Err(FsError::FileTooLarge));
    drop((handle, fs));
    let fs = Design::SpindleMended
        .recover(&region, &disk, super::plain())
        .expect("sound");
    fs.verify().expect("sound");
    fs.unlink("/file").expect("there");
    fs.verify().expect("sound");
    assert_eq!(before - fs.statistics().free_blocks, 1);
}

#[test]
fn wrong_paths_are_refused() {
    let (region, disk) = (Arc::new(Region::anonymous(1 << 20)), disk());
    let fs = Design::Tinca.format(&region, &disk, Options::default());
    fs.create("/file").expect("room");
    fs.create_dir("/dir").expect("room");
    let open = |path: &str| fs.open(path).map(drop);
    assert_eq!(open("/file/x"), Err(FsError::NotADirectory));
    assert_eq!(open("/dir"), Err(FsError::IsADirectory));
    assert_eq!(open("/"), Err(FsError::IsADirectory));
    assert_eq!(open("/nowhere/x"), Err(FsError::NotFound));
    assert_eq!(open("/dir/../file"), Err(FsError::InvalidPath));
    assert_eq!(fs.create_dir("/"), Err(FsError::InvalidPath));
    assert_eq!(fs.unlink("/dir"), Err(FsError::IsADirectory));
    let long = "x".repeat(57);
    let refused = Err(FsError::NameTooLong { length: 57 });
    assert_eq!(fs.create_dir(&long), refused);
    open("//./file").expect("empty components and `.` mean nothing");
}
