//! A file against a model, on a device that fails.

use super::{
    ALL, DEVICE_BLOCKS, assert_sound, content, free_on_device, make, new_region, open, pattern,
};
use device::faulty::{Fault, Faulty};
use perdure_fs::{AllocateOptions, FileSystem, FsError, Node, SetAttributes};
use pmem::BLOCK_BYTES;
use proptest::prelude::*;
use std::sync::Arc;

/// An operation on a file.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Append(usize),
    Truncate(usize),
    Allocate(usize, usize, bool, bool),
    Sink(u64, u64),
    Raise(u64, u64),
    Remount,
}

const SIZE: usize = 14 * BLOCK_BYTES;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![1..600_usize, 1..3 * BLOCK_BYTES, Just(BLOCK_BYTES)];
    let at = prop_oneof![0..SIZE, (0..14_usize).prop_map(|block| block * BLOCK_BYTES)];
    let step = prop_oneof![
        3 => (at.clone(), length.clone()).prop_map(|(at, length)| Step::Write(at, length)),
        1 => length.clone().prop_map(Step::Append),
        1 => at.clone().prop_map(Step::Truncate),
        1 => (at, length, any::<bool>(), any::<bool>())
            .prop_map(|(at, length, punch, zero)| Step::Allocate(at, length, punch, zero && !punch)),
        3 => (0..14_u64, 1..14_u64).prop_map(|(first, count)| Step::Sink(first, first + count)),
        1 => (0..14_u64, 1..14_u64).prop_map(|(first, count)| Step::Raise(first, first + count)),
        1 => Just(Step::Remount),
    ];
    proptest::collection::vec(step, 1..30)
}

/// Does a step to the model.
fn apply(model: &mut Vec<u8>, step: &Step, bytes: &[u8]) {
    match *step {
        Step::Write(at, length) => {
            model.resize(model.len().max(at + length), 0);
            model[at..at + length].copy_from_slice(bytes);
        }
        Step::Append(_) => model.extend_from_slice(bytes),
        Step::Truncate(size) => model.resize(size, 0),
        Step::Allocate(at, length, punch, zero) => {
            if !punch {
                model.resize(model.len().max(at + length), 0);
            }
            let end = (at + length).min(model.len());
            if (punch || zero) && at < end {
                model[at..end].fill(0);
            }
        }
        Step::Sink(..) | Step::Raise(..) | Step::Remount => {}
    }
}

/// Does a step to a file.
fn operate(files: &FileSystem, node: &Node, step: &Step, bytes: &[u8]) -> Result<(), FsError> {
    match *step {
        Step::Write(at, _) => files.write(node, at as u64, bytes).map(drop),
        Step::Append(_) => files.append(node, bytes).map(drop),
        Step::Truncate(size) => {
            let change = SetAttributes {
                size_bytes: Some(size as u64),
                ..SetAttributes::default()
            };
            files.set_attributes(node, &change).map(drop)
        }
        Step::Allocate(at, length, punch_hole, zero_range) => {
            let options = AllocateOptions {
                keep_size: punch_hole,
                punch_hole,
                zero_range,
            };
            files.allocate(node, at as u64, length as u64, options)
        }
        Step::Sink(first, end) => files.move_to_device(node, first..end).map(drop),
        Step::Raise(first, end) => files.bring_in(node, first..end),
        Step::Remount => Ok(()),
    }
}

fn bytes_of(step: &Step, index: usize) -> Vec<u8> {
    match *step {
        Step::Write(_, length) | Step::Append(length) => pattern(index as u64 + 5, length),
        _ => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
    ))]

    /// The file equals its model whatever moves, and whatever the device does wrong: a step
    /// happens, or fails with `EIO` and changes nothing; a refused step succeeds when it is tried
    /// again.
    #[test]
    fn a_file_is_what_was_written(
        steps in steps(),
        has_copies in any::<bool>(),
        faults in proptest::collection::vec((0..8_usize, 0..12_u64), 0..6),
    ) {
        let device = Arc::new(Faulty::new(DEVICE_BLOCKS.into()));
        let region = new_region(DEVICE_BLOCKS);
        let reopen = || open(&region, Some(Arc::clone(&device) as _), has_copies);
        let mut files = reopen();
        let mut node = make(&files, "a", &[]);
        let mut model = Vec::new();
        // Not the faults that lose data silently: the pool has no other copy.
        for &(fault, after) in &faults {
            let fault = Fault::ALL[fault];
            if ![Fault::Torn, Fault::Lost, Fault::Misdirected].contains(&fault) {
                device.arm(fault, after);
            }
        }
        for (index, step) in steps.iter().enumerate() {
            let bytes = bytes_of(step, index);
            let mut attempts = 0;
            while let Err(error) = operate(&files, &node, step, &bytes) {
                prop_assert!(matches!(error, FsError::Device(_)), "{step:?}: {error}");
                prop_assert_eq!(error.errno(), libc_eio());
                attempts += 1;
                prop_assert!(attempts <= faults.len(), "{step:?}: {error}");
            }
            apply(&mut model, step, &bytes);
            if let Step::Remount = step {
                drop(node);
                files.unmount();
                files = reopen();
                node = files.lookup(&files.root(), b"a").expect("there");
            }
            let mut attempts = 0;
            let found = loop {
                match content(&files, &node) {
                    Ok(found) => break found,
                    Err(error) => prop_assert!(matches!(error, FsError::Device(_)), "{error}"),
                }
                attempts += 1;
                prop_assert!(attempts <= faults.len());
            };
            prop_assert!(found == model, "after step {index}, {step:?}");
        }
        device.disarm();
        files.bring_in(&node, ALL).expect("room");
        prop_assert_eq!(free_on_device(&files), u64::from(DEVICE_BLOCKS));
        drop(node);
        files.unmount();
        assert_sound(&region);
    }
}

fn libc_eio() -> i32 {
    std::io::Error::from_raw_os_error(5)
        .raw_os_error()
        .expect("a number")
}
