//! The log on a real file, past the page cache where that is possible.

use crate::given::{IDENTITY, bytes};
use perdure_wal::{Disk, FileDisk, OpenLog, UNIT_BYTES, format, measure_depth};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn disk(path: &Path) -> Arc<dyn Disk> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Arc::new(FileDisk::over(file, path.to_owned()).unwrap())
}

fn round_trip(folder: &Path) {
    let path = folder.join("log");
    File::create(&path)
        .unwrap()
        .set_len(102 * UNIT_BYTES as u64)
        .unwrap();
    format(&*disk(&path), IDENTITY, 0, &mut |_, _| ()).unwrap();
    let mut sequence = 0;
    for mount in 1..6 {
        let mut seen = 0;
        let log = OpenLog::open(disk(&path), IDENTITY)
            .unwrap()
            .replay(&mut |batch| {
                assert!(
                    *batch.payload
                        == *bytes(batch.last_sequence, 700 * batch.last_sequence as usize)
                );
                seen = batch.last_sequence;
            })
            .unwrap();
        assert_eq!((log.epoch(), seen), (mount, sequence));
        let speed = measure_depth(&log, Duration::from_millis(25)).unwrap();
        assert!(speed.sync_us > 0.0);
        for _ in 0..8 {
            sequence += 1;
            let mut buffer = log.buffer();
            buffer
                .payload()
                .extend_from_slice(&bytes(sequence, 700 * sequence as usize));
            let placed = log.place(buffer, sequence, sequence, false).unwrap();
            if log.used_bytes() > 30 * UNIT_BYTES as u64 {
                log.advance(log.durable_root()).unwrap();
            }
            assert_eq!(log.write(placed).unwrap(), sequence);
        }
    }
}

#[test]
fn a_file_of_the_build_directory_holds_a_log() {
    round_trip(
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap()
            .path(),
    );
}

#[test]
fn a_file_in_shared_memory_holds_a_log() {
    round_trip(tempfile::tempdir_in("/dev/shm").unwrap().path());
}

#[test]
fn a_file_that_is_open_for_reading_is_read() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("log");
    File::create(&path)
        .unwrap()
        .set_len(18 * UNIT_BYTES as u64)
        .unwrap();
    format(&*disk(&path), IDENTITY, 0, &mut |_, _| ()).unwrap();
    let file = File::open(&path).unwrap();
    let disk = Arc::new(FileDisk::over(file, path.clone()).unwrap());
    let log = OpenLog::open(Arc::clone(&disk) as Arc<dyn Disk>, IDENTITY).unwrap();
    assert_eq!(log.read(&mut |_| ()).unwrap().batches, 0);
    let error = log.replay(&mut |_| ()).unwrap_err();
    assert!(
        error.to_string().starts_with(&path.display().to_string()),
        "{error}"
    );
}
