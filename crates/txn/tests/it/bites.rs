//! The tests of moving homes notice a mistake. Alone in its process, because a deliberate bug is switched on for all of it.

#[allow(dead_code, reason = "the other test uses the rest")]
use pmem::deliberate::{self, Bug};

#[test]
fn a_forgotten_move_is_noticed() {
    deliberate::set(Some(Bug::ForgetMove));
    let noticed = (0..20).any(|_| !crate::common::is_nothing_lost(20_000));
    deliberate::set(None);
    assert!(noticed);
}
