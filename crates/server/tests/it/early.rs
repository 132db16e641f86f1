//! Batches that a mount begins before the sync that a file has by habit.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::common::Place;
use crate::common::direct::status;
use crate::kept::await_that;
use crate::logged::mount_on;
use txn::Durability;

#[test]
fn a_file_that_was_synced_after_each_write_is_durable_without_the_next_sync() {
    let place = Place::new_on_disk();
    // Nothing else makes a batch within an hour.
    let policy = Durability::Fsync(Duration::from_secs(3600));
    let Some(mounted) = place.and_then(|place| mount_on(place, policy)) else {
        return;
    };
    let file = File::create(mounted.path("file")).expect("created");
    let writes = || status(&mounted).log.expect("a log").syncs;
    // A sync that is late is no habit, so a machine that is busy needs several rounds.
    await_that("no batch is begun early", || {
        for number in 0..3 {
            file.write_all_at(b"data", number).expect("written");
            file.sync_data().expect("durable");
        }
        let (before, begin) = (writes(), Instant::now());
        file.write_all_at(b"data", 0).expect("written");
        while begin.elapsed() < Duration::from_millis(500) {
            if writes() > before {
                return true;
            }
        }
        file.sync_data().expect("durable");
        false
    });
}
