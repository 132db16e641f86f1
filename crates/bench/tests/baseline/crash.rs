//! Power cuts: at every fence of random operations, whatever may survive is recovered and looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use perdure_bench::baseline::{Options, Pmfs, PmfsError};
use pmem::Region;
use pmem::emulator::{CrashPoint, Fence, Scratch};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::tree::{Contents, Model, Operation, contents, operations};

/// What was found during one operation, and where first; and what went wrong.
#[derive(Default)]
struct Seen {
    found: HashMap<Contents, String>,
    failures: Vec<String>,
    states: u64,
}

/// What may be found: the state before an operation or after it.
struct Expected {
    before: Contents,
    after: Contents,
    /// A file that is written in place: of its old bytes any may be new.
    written: Option<String>,
}

impl Expected {
    fn complaint(&self, found: &Contents) -> Option<String> {
        if *found == self.before || *found == self.after {
            return None;
        }
        for side in [&self.before, &self.after] {
            if !found.keys().eq(side.keys()) {
                continue;
            }
            let wrong = found.iter().find(|(path, content)| {
                side[*path] != **content && !self.is_half_written(path, content)
            });
            match wrong {
                None => return None,
                Some((path, _)) => return Some(format!("{path} has neither old nor new bytes")),
            }
        }
        Some(format!(
            "names {:?} instead of {:?} or {:?}",
            found.keys(),
            self.before.keys(),
            self.after.keys()
        ))
    }

    /// Old size: each byte is old or new. New size: as the write left it.
    fn is_half_written(&self, path: &str, found: &Option<Vec<u8>>) -> bool {
        let sides = (self.before.get(path), self.after.get(path));
        let (Some(Some(before)), Some(Some(after)), Some(found)) = (sides.0, sides.1, found) else {
            return false;
        };
        if self.written.as_deref() != Some(path) || found.len() != before.len() {
            return false;
        }
        (0..found.len()).all(|at| found[at] == before[at] || after.get(at) == Some(&found[at]))
    }
}

/// Recovers one image in all ways and says what is wrong.
fn examine(region: &Arc<Region>) -> Result<Contents, String> {
    let open = |what: &str| {
        Pmfs::recover(Arc::clone(region), Options::default())
            .map_err(|error| format!("{what} recovery: {error}"))
    };
    let pmfs = open("first")?;
    pmfs.verify()
        .map_err(|error| format!("recovered: {error}"))?;
    let found = contents(&pmfs);
    drop(pmfs);
    let again = open("second")?;
    again
        .verify()
        .map_err(|error| format!("recovered twice: {error}"))?;
    match contents(&again) == found {
        true => Ok(found),
        false => Err("the second recovery found something else".to_owned()),
    }
}

/// Recovers an image on an emulated medium, cuts the power at every fence of the recovery, and recovers again.
fn examine_recovery(image: &[u8], found: &Contents) -> Result<(), String> {
    let region = Arc::new(Region::emulated_from(image));
    let emulator = region.emulator().expect("emulated");
    let failures = Arc::new(Mutex::new(Vec::new()));
    let (seen, found) = (Arc::clone(&failures), found.clone());
    emulator.on_fence(move |fence| {
        let point = fence.crash_point();
        for choice in point.enumerate(4, 3) {
            let again = Arc::new(Region::from_image(point.image(&choice)));
            match examine(&again) {
                Ok(second) if second == found => {}
                Ok(_) => seen.lock().expect("lock").push("something else".to_owned()),
                Err(error) => seen.lock().expect("lock").push(error),
            }
        }
    });
    drop(Pmfs::recover(Arc::clone(&region), Options::default()));
    emulator.ignore_fences();
    match failures.lock().expect("lock").first() {
        None => Ok(()),
        Some(failure) => Err(format!("power cut in recovery: {failure}")),
    }
}

/// Looks at some of what a power cut at one fence may leave.
fn look(fence: &Fence<'_>, scratch: &mut Option<Scratch>, seen: &mut Seen, choices: usize) {
    let point: CrashPoint<'_> = fence.crash_point();
    let scratch = scratch.get_or_insert_with(|| Scratch::new(&point));
    for choice in point.enumerate(choices, fence.number()) {
        seen.states += 1;
        let place = || format!("fence {} {:?}, {choice:?}", fence.number(), fence.moment());
        let result = examine(scratch.apply(&point, &choice)).and_then(|found| {
            if seen.states.is_multiple_of(97) {
                examine_recovery(&point.image(&choice), &found)?;
            }
            Ok(found)
        });
        match result {
            Ok(found) => {
                seen.found.entry(found).or_insert_with(place);
            }
            Err(error) => seen.failures.push(format!("{error} ({})", place())),
        }
    }
}

/// Runs operations with power cuts at all their fences; returns how many states were examined.
fn run(operations: &[Operation], choices: usize) -> Result<u64, String> {
    let region = Arc::new(Region::emulated(320 << 10));
    let pmfs = Pmfs::format(Arc::clone(&region), Options::default()).expect("room");
    let emulator = region.emulator().expect("emulated");
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (shared, mut scratch) = (Arc::clone(&seen), None);
    emulator.on_fence(move |fence| {
        look(
            fence,
            &mut scratch,
            &mut shared.lock().expect("lock"),
            choices,
        );
    });
    let mut model = Model::default();
    for operation in operations {
        let before = model.contents();
        let written = model.target(operation).path;
        match model.apply(&pmfs, operation) {
            Ok(()) | Err(PmfsError::NoSpace) => {}
            Err(error) => return Err(format!("{operation:?}: {error}")),
        }
        let after = model.contents();
        let expected = Expected {
            before,
            after,
            written,
        };
        let mut seen = seen.lock().expect("lock");
        let complaints = seen.found.drain().filter_map(|(found, place)| {
            Some(format!("{} ({place})", expected.complaint(&found)?))
        });
        let first = complaints.min();
        if let Some(failure) = first.or(seen.failures.pop()) {
            return Err(format!("{operation:?}: {failure}"));
        }
    }
    emulator.ignore_fences();
    let states = seen.lock().expect("lock").states;
    Ok(states)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever survives a power cut at any fence: everything agrees, and the last operation has happened or has not.
    #[test]
    fn a_power_cut_takes_back_what_did_not_commit(operations in operations(1..40, 12_000)) {
        prop_assert_eq!(run(&operations, 12).err(), None);
    }
}

#[test]
fn many_states_are_examined() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tree = operations(80..81, 9_000)
        .new_tree(&mut runner)
        .expect("operations");
    let states = run(&tree.current(), 20).expect("sound");
    assert!(states > 1000, "{states} states");
}
