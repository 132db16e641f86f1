//! The log on disk: any bytes behind sound roots, and a sound log with damage at places that the
//! input chooses, checks made to fit. A replay gives a prefix, and the log goes on behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use wal::testing::SimulatedDisk;
use wal::{BatchHeader, Disk, HEADER_BYTES, LogError, OpenLog, RootBlock, UNIT_BYTES, format};
use zerocopy::{FromBytes, IntoBytes};

const IDENTITY: [u8; 16] = *b"identity of pool";
const RING_UNITS: usize = 16;
const ROOTS_BYTES: usize = 2 * UNIT_BYTES;
const HEAD_BYTES: usize = size_of::<RootBlock>();
/// A place (two bytes) and a value.
const CHANGE_BYTES: usize = 3;

/// A log in its second lap, with five batches behind its root.
static SAMPLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let disk = Arc::new(SimulatedDisk::new(ROOTS_BYTES + RING_UNITS * UNIT_BYTES));
    format(&*disk, IDENTITY, 0, &mut |_, _| ()).expect("format");
    for mount in 0..4_u64 {
        let log = open(&disk)
            .and_then(|log| log.replay(&mut |_| ()))
            .expect("a sound log");
        for batch in 1..=5 {
            let mut buffer = log.buffer();
            buffer.payload().resize(1200 * batch as usize);
            let sequence = mount * 5 + batch;
            let placed = log.place(buffer, sequence, sequence, true).expect("room");
            log.write(placed).expect("a sound disk");
        }
        if mount < 3 {
            log.advance(log.durable_root()).expect("a sound disk");
        }
    }
    disk.image()
});

fn open(disk: &Arc<SimulatedDisk>) -> Result<OpenLog, LogError> {
    OpenLog::open(Arc::clone(disk) as Arc<dyn Disk>, IDENTITY)
}

/// Reads, goes on, reads again.
fn judge(image: Vec<u8>) {
    let disk = Arc::new(SimulatedDisk::from_image(image));
    let Ok(opened) = open(&disk) else { return };
    let mut payload_bytes = 0;
    let Ok(replayed) = opened.read(&mut |batch| payload_bytes += batch.payload.len()) else {
        return;
    };
    assert!(payload_bytes as u64 <= replayed.bytes);
    assert!(replayed.bytes <= (RING_UNITS * UNIT_BYTES) as u64);
    let Ok(log) = opened.replay(&mut |_| ()) else {
        return;
    };
    assert_eq!(log.replayed(), replayed);
    if let Ok(placed) = log.place(log.buffer(), 1, 1, true) {
        log.write(placed).expect("a sound disk");
        let after = open(&disk)
            .and_then(|log| log.read(&mut |_| ()))
            .expect("a log that was read");
        assert_eq!(after.batches, replayed.batches + 1);
    }
}

/// Gives each root and batch header a check that fits.
fn seal(image: &mut [u8]) {
    for at in [0, UNIT_BYTES] {
        let block = RootBlock::read_from_bytes(&image[at..at + HEAD_BYTES]).expect("its length");
        image[at..at + UNIT_BYTES].copy_from_slice(&block.unit());
    }
    for at in (ROOTS_BYTES..image.len()).step_by(UNIT_BYTES) {
        let header = &mut image[at..at + HEADER_BYTES];
        let sealed = BatchHeader::read_from_bytes(header)
            .expect("its length")
            .sealed();
        header.copy_from_slice(sealed.as_bytes());
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, rest)) = input.split_first() else {
        return;
    };
    let mut image = SAMPLE.clone();
    if kind % 4 == 0 {
        let length = rest.len().min(image.len() - ROOTS_BYTES);
        image[ROOTS_BYTES..ROOTS_BYTES + length].copy_from_slice(&rest[..length]);
    } else {
        // Most fields are in the first bytes of a unit; the place is a unit and a byte of it.
        for change in rest.chunks_exact(CHANGE_BYTES) {
            let unit = usize::from(change[0]) % (RING_UNITS + 2);
            let span = if kind % 4 == 1 {
                UNIT_BYTES
            } else {
                HEAD_BYTES
            };
            image[unit * UNIT_BYTES + usize::from(change[1]) * (span / HEAD_BYTES).max(1) % span] =
                change[2];
        }
        if kind % 4 == 3 {
            seal(&mut image);
        }
    }
    judge(image);
});
