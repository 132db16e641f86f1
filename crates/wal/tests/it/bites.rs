//! The tests notice mistakes. Alone in their processes, because a deliberate bug is switched on for
//! all of it.

use crate::{basics, errors, model};
use pmem::deliberate::{self, Bug};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Scripts of the model until one notices.
const SCRIPTS_MAX: usize = 300;

fn model_notices(bug: Bug) -> bool {
    let mut runner = TestRunner::deterministic();
    let scripts: Vec<_> = (0..SCRIPTS_MAX)
        .map(|_| {
            model::script()
                .new_tree(&mut runner)
                .expect("a script")
                .current()
        })
        .collect();
    deliberate::set(Some(bug));
    let notices = scripts
        .iter()
        .any(|(units, steps)| model::run(*units, steps).is_err());
    deliberate::set(None);
    notices
}

fn test_notices(bug: Bug, passes: fn() -> bool) -> bool {
    deliberate::set(Some(bug));
    let passed = passes();
    deliberate::set(None);
    !passed
}

#[test]
fn an_acknowledgement_before_the_write_is_noticed() {
    assert!(model_notices(Bug::LogAcknowledgesEarly));
}

#[test]
fn an_acknowledgement_out_of_order_is_noticed() {
    assert!(model_notices(Bug::LogAcknowledgesOutOfOrder));
}

#[test]
fn a_ring_that_is_free_before_its_root_is_noticed() {
    assert!(model_notices(Bug::LogFreesBeforeRoot));
}

#[test]
fn a_root_over_the_newest_one_is_noticed() {
    // The fields of a root lie in one sector, which no power failure tears; the other root is for
    // damage.
    assert!(test_notices(Bug::LogRootInPlace, errors::older_root_counts));
}

#[test]
fn a_root_that_is_not_durable_is_noticed() {
    assert!(model_notices(Bug::LogRootNotDurable));
}

#[test]
fn entries_without_a_check_are_noticed() {
    assert!(model_notices(Bug::LogSkipsBodyCheck));
}

#[test]
fn a_stale_batch_is_noticed() {
    assert!(model_notices(Bug::LogBelievesStale));
}

#[test]
fn a_forgotten_flush_at_the_mount_is_noticed() {
    assert!(model_notices(Bug::LogSkipsFlushAtOpen));
    assert!(test_notices(
        Bug::LogSkipsFlushAtOpen,
        errors::batches_of_a_killed_process_stay
    ));
}

#[test]
fn the_second_part_of_a_batch_that_is_not_durable_is_noticed() {
    assert!(model_notices(Bug::LogWrapNotDurable));
}

#[test]
fn a_repeated_write_is_noticed() {
    assert!(test_notices(
        Bug::LogRetriesFailedWrite,
        errors::failure_is_final
    ));
}

#[test]
fn a_measurement_over_batches_is_noticed() {
    assert!(test_notices(
        Bug::LogMeasuresOverBatches,
        basics::measurement_harms_nothing
    ));
}
