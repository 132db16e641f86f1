//! A process that overwrites a leased file in place: what a power cut may leave of that, and that the mistakes which would leave more are noticed.
use perdure_crashlab::catalogue;
use perdure_crashlab::lab::Lab;
use perdure_crashlab::operation::Operation;
use perdure_crashlab::workload::Workload;
use pmem::deliberate::{self, Bug};
use std::sync::Arc;

/// The lease of a file with data, by a process that overwrites in place.
fn lease() -> u32 {
    let is_it = |operation: &Operation| {
        matches!(
            operation,
            Operation::Lease {
                is_in_place: true,
                is_stopped: false,
                ..
            }
        )
    };
    let at = catalogue::leases().iter().position(is_it);
    at.expect("there is one") as u32
}

/// The operation of the catalogue that writes there.
fn write_at(offset: u64, bytes: usize) -> u32 {
    let is_it = |operation: &Operation| matches!(operation, Operation::WriteLeased { offset: at, bytes: length, .. } if (*at, *length) == (offset, bytes));
    let at = catalogue::leased().iter().position(is_it);
    at.expect("there is one") as u32
}

/// One test, because a bug is switched on for the whole process.
#[test]
fn what_would_lose_acknowledged_writes_is_noticed() {
    let mut lab = Lab::new(Arc::default(), None);
    let across_end = write_at(9_900, 200);
    let again = write_at(9_950, 100);
    let inside = write_at(100, 50);
    let all = write_at(0, 10_000);
    let workloads = [(across_end, again), (inside, inside), (inside, all)];
    for (first, second) in workloads {
        let workload = Workload::Leased(lease(), first, second);
        let failures = lab.run(workload);
        assert!(failures.is_empty(), "{workload}: {failures:?}");
    }
    for (bug, first, second) in [
        // The first one leaves a record that vouches for the last block, the second writes other bytes there.
        (Bug::SkipLeaseStamp, across_end, again),
        (Bug::SkipInPlaceFence, inside, all),
    ] {
        // What was seen without the bug would not be looked at again.
        let mut lab = Lab::new(Arc::default(), None);
        lab.prepare(perdure_crashlab::workload::Pool::Tiny)
            .expect("a pool");
        deliberate::set(Some(bug));
        let failures = lab.run(Workload::Leased(lease(), first, second));
        deliberate::set(None);
        assert!(!failures.is_empty(), "{bug:?} is not noticed");
        println!("{bug:?}: {}", failures[0].reason);
    }
}
