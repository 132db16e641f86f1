//! Each bug on purpose is noticed by the tests beside. The switch is one for the process, so they run one after the other.

use std::time::Duration;

use pmem::deliberate::{Bug, set};

use super::load::under_load;
use super::model::changes_end_copies;

#[test]
fn bugs_are_noticed() {
    let load = || {
        under_load(Duration::from_secs(20));
    };
    let cases: [(Bug, &dyn Fn()); 4] = [
        (Bug::ForgetInvalidation, &changes_end_copies),
        (Bug::ForgetInvalidation, &load),
        (Bug::PublishBeforeCopy, &load),
        (Bug::SkipVersionCheck, &load),
    ];
    for (bug, test) in cases {
        set(Some(bug));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        set(None);
        assert!(outcome.is_err(), "{bug:?} was not noticed");
    }
}
