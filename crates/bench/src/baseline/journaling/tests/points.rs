//! Spindle's two commit points: a state that the published order loses and the mended one does
//! not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use pmem::Region;
use pmem::emulator::Scratch;

use super::{Design, disk, plain};
use crate::baseline::journaling::{Corruption, FsError, Handle, JournalingFs, MountError};

/// A recovered file: the result of `verify`, its size, the value of its bytes if they are equal.
type Found = (Result<(), FsError>, u64, Option<u8>);

fn look(fs: Result<JournalingFs, MountError>) -> Found {
    let fs = fs.expect("recovery works");
    let file = fs.open("/file").expect("there");
    let mut content = vec![0; fs.size(&file) as usize];
    let length = fs.read_at(&file, 0, &mut content).expect("readable");
    assert_eq!(length, content.len());
    let is_uniform = content.iter().all(|&byte| byte == content[0]);
    let value = content.first().copied().filter(|_| is_uniform);
    (fs.verify(), fs.size(&file), value)
}

/// All that may be found of a file after a power failure during an operation on it.
fn found_during(
    design: Design,
    before: &[u8],
    operation: impl FnOnce(&JournalingFs, &Handle),
) -> BTreeSet<String> {
    let (region, disk) = (Arc::new(Region::emulated(design.least_bytes())), disk());
    let fs = design.format(&region, &disk, plain());
    let file = fs.create("/file").expect("room");
    fs.append(&file, before).expect("room");
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let (seen, mut scratch) = (Arc::clone(&found), None);
    let emulator = region.emulator().expect("emulated");
    emulator.on_fence(move |fence| {
        let point = fence.crash_point();
        let scratch = scratch.get_or_insert_with(|| Scratch::new(&point));
        for choice in point.enumerate(24, fence.number()) {
            let image = scratch.apply(&point, &choice);
            let state = look(design.recover(image, &disk, plain()));
            seen.lock().expect("lock").insert(format!("{state:?}"));
        }
    });
    operation(&fs, &file);
    emulator.ignore_fences();
    let found = found.lock().expect("lock");
    found.clone()
}

fn set<const COUNT: usize>(states: [Found; COUNT]) -> BTreeSet<String> {
    states.iter().map(|state| format!("{state:?}")).collect()
}

/// A write of 8 KiB over a file of 4 KiB: head = tail is durable, the undo log is not removed. The
/// data of the transaction is kept and its metadata is revoked: the size is the old one.
#[test]
fn published_order_keeps_data_and_revokes_its_metadata() {
    let (old, new) = ((Ok(()), 4096, Some(1)), (Ok(()), 8192, Some(2)));
    let lost = (Ok(()), 4096, Some(2));
    let write = |fs: &JournalingFs, file: &Handle| {
        fs.write_at(file, 0, &[2; 8192]).expect("room");
    };
    let found = found_during(Design::SpindlePublished, &[1; 4096], write);
    assert_eq!(found, set([old.clone(), new.clone(), lost]));
    for sound in [Design::SpindleMended, Design::Tinca] {
        let found = found_during(sound, &[1; 4096], write);
        assert_eq!(found, set([old.clone(), new.clone()]), "{sound:?}");
    }
}

/// An append inside the last block: bytes of an append that did not happen lie beyond the end.
/// A later write after them would show them.
#[test]
fn published_order_leaves_bytes_beyond_the_end() {
    let (old, new) = ((Ok(()), 50, Some(1)), (Ok(()), 150, Some(1)));
    let number = crate::baseline::journaling::InodeNumber::new(2);
    let damaged = FsError::Corrupt(Corruption::Tail { number });
    let lost = (Err(damaged), 50, Some(1));
    let append = |fs: &JournalingFs, file: &Handle| {
        fs.append(file, &[1; 100]).expect("room");
    };
    let found = found_during(Design::SpindlePublished, &[1; 50], append);
    assert_eq!(found, set([old.clone(), new.clone(), lost]));
    for sound in [Design::SpindleMended, Design::Tinca] {
        let found = found_during(sound, &[1; 50], append);
        assert_eq!(found, set([old.clone(), new.clone()]), "{sound:?}");
    }
}
