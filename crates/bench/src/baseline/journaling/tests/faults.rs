//! Errors of the disk: an operation reports them, and nothing is lost.

use std::sync::Arc;

use device::faulty::{Fault, Faulty};
use pmem::Region;

use super::model::{Contents, contents};
use super::random::notices;
use super::{Bug, Design, disk, plain};
use crate::baseline::journaling::{FsError, JournalingFs};

const FILES: u64 = 12;
/// More than the cache holds: 12 files of 9 blocks.
const FILE_BYTES: usize = 36_000;

fn path(file: u64) -> String {
    format!("/file{file}")
}

/// One round: each file is written by one operation; a failed one may have happened or not, and is
/// repeated. Returns the number of errors.
fn round(fs: &JournalingFs, expected: &mut Contents, value: u8) -> u64 {
    let mut errors = 0;
    let mut until_it_works = |operation: &mut dyn FnMut() -> Result<(), FsError>| {
        for _ in 0..4 {
            match operation() {
                Ok(()) => return,
                Err(FsError::Device(_)) => errors += 1,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("a fault is armed once");
    };
    for file in 0..FILES {
        let path = path(file);
        until_it_works(&mut || match fs.create(&path) {
            // The operation before happened and could not be made durable.
            Ok(_) | Err(FsError::AlreadyExists) => Ok(()),
            Err(error) => Err(error),
        });
        let data = vec![value.wrapping_add(file as u8) | 1; FILE_BYTES];
        until_it_works(&mut || {
            let handle = fs.open(&path)?;
            fs.write_at(&handle, 0, &data)
        });
        expected.insert(path, Some(data));
    }
    errors
}

/// Arms a fault at each request in turn; after each, all files are read, at once and after a power
/// failure.
fn run(design: Design, fault: Fault, requests: u64) -> u64 {
    let mut errors = 0;
    let (mut region, mut disk) = (Arc::new(Region::emulated(design.least_bytes())), disk());
    let mut fs = design.format(&region, &disk, plain());
    let mut expected = Contents::new();
    round(&fs, &mut expected, 0);
    for after in 0..requests {
        disk.arm(fault, after);
        errors += round(&fs, &mut expected, after as u8 * 16);
        assert_eq!(disk.disarm(), 0, "{fault:?} {after} was met");
        assert!(contents(&fs).expect("readable") == expected);
        fs.verify().expect("sound");
        // Only durable content is left, of both media.
        let image = region.emulator().expect("emulated").durable_image();
        disk = Arc::new(disk.cut(1));
        region = Arc::new(Region::emulated_from(&image));
        fs = design.recover(&region, &disk, plain()).expect("sound");
        assert!(contents(&fs).expect("readable") == expected, "recovered");
        fs.verify().expect("sound");
    }
    errors
}

#[test]
fn an_error_of_the_disk_is_reported_and_loses_nothing() {
    for design in Design::ALL {
        for fault in [Fault::Write, Fault::Wait, Fault::Flush, Fault::Read] {
            let errors = run(design, fault, 6);
            // A block that a read could not make room for is not cached: no error.
            let is_reported = errors > 0 || fault == Fault::Read;
            assert!(is_reported, "{design:?}: {fault:?}");
        }
    }
}

#[test]
fn the_faulty_disk_notices_bugs() {
    for design in [Design::Tinca, Design::SpindlePublished] {
        let run = || run(design, Fault::Flush, 3);
        assert!(notices(Bug::BelieveDisk, run), "{design:?}");
    }
}

/// While the disk is gone, what is cached is read and written, and all else is an error.
#[test]
fn a_disk_that_is_gone_comes_back() {
    for design in Design::ALL {
        let (region, disk): (_, Arc<Faulty>) =
            (Arc::new(Region::anonymous(design.least_bytes())), disk());
        let fs = design.format(&region, &disk, plain());
        let mut expected = Contents::new();
        round(&fs, &mut expected, 3);
        let newest = fs.open(path(FILES - 1)).expect("there");
        let oldest = fs.open(path(0)).expect("there");
        disk.set_gone(true);
        let mut into = vec![0; 4096];
        assert_eq!(fs.read_at(&newest, 4096, &mut into), Ok(4096));
        let failed = fs.read_at(&oldest, 4096, &mut into);
        assert!(matches!(failed, Err(FsError::Device(_))), "{failed:?}");
        // Each write needs another block in the region: at the end there is none.
        let whole_blocks = [9; 8 * 4096];
        let write = || fs.write_at(&oldest, 0, &whole_blocks);
        let failed = write().and_then(|()| write());
        assert!(matches!(failed, Err(FsError::Device(_))), "{failed:?}");
        disk.set_gone(false);
        fs.sync_all().expect("it is back");
        // The failed write happened in memory, and the transaction kept it.
        let content = expected.get_mut(&path(0)).and_then(Option::as_mut);
        content.expect("a file")[..whole_blocks.len()].fill(9);
        assert!(contents(&fs).expect("readable") == expected);
        fs.verify().expect("sound");
    }
}
