//! A pool of class `log` is served while it is read into memory: processes read what is there.

use crate::common::direct::{LATEST, Own, status};
use crate::common::{Mounted, Place};
use crate::logged::block;
use direct::Client;
use fs::{FileSystem, MountOptions};
use perdure_server::spawn;
use std::time::Instant;
use txn::lost::Damage;
use txn::{Loading, LogOptions, Mode, PmemStore, PoolState};

/// A mount of a new pool on the disk of the build directory, of which only what is accessed is
/// loaded until the second one is called.
fn mount() -> Option<(Mounted, impl Fn())> {
    let place = Place::new_on_disk()?;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return None;
    }
    place.format_logged();
    let options = LogOptions {
        loading: Loading::Demand,
        ..LogOptions::default()
    };
    let pool = place.pool();
    let store = PmemStore::open_with(&pool, Mode::ReadWrite, false, Damage::Refuse, options);
    let store = store.expect("opened");
    let rest = store.logger().expect("a log").rest();
    let files = FileSystem::mount(store, MountOptions::default());
    let running = spawn(files.expect("mounted"), &place.mounting()).expect("served");
    let mounted = Mounted {
        running: Some(running),
        place,
    };
    Some((mounted, rest))
}

fn unloaded(mounted: &Mounted) -> u64 {
    status(mounted).log.expect("a log").unloaded_bytes
}

/// Whether a process reads in a segment by itself that is not loaded.
fn reads_unloaded(own: &Own, mounted: &Mounted) -> bool {
    let is_direct = (0..200).any(|_| {
        let (value, is_direct) = block(own, 3);
        assert!(value == 3 || is_direct);
        is_direct
    });
    assert!(unloaded(mounted) > 0, "nobody asked for the rest");
    is_direct
}

#[test]
fn a_process_reads_directly_when_the_segment_is_loaded_and_not_before() {
    let Some((mounted, load_rest)) = mount() else {
        return;
    };
    let client = Client::default();
    let own = Own::create(&mounted, "file", &client);
    assert_eq!(own.write(64), 0, "writes go through the server");
    assert!(!reads_unloaded(&own, &mounted));
    load_rest();
    let begin = Instant::now();
    while unloaded(&mounted) > 0 || !block(&own, 3).1 {
        assert!(begin.elapsed() < 4 * LATEST, "never attached");
    }
    for index in 0..64 {
        assert_eq!(block(&own, index), (index as u8, true));
    }
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn a_segment_that_is_given_before_it_is_loaded_is_noticed() {
    use pmem::deliberate::{self, Bug};
    let Some((mounted, _)) = mount() else {
        return;
    };
    let client = Client::default();
    let own = Own::create(&mounted, "file", &client);
    assert_eq!(own.write(64), 0, "writes go through the server");
    deliberate::set(Some(Bug::ShowUnloaded));
    let is_noticed = reads_unloaded(&own, &mounted);
    deliberate::set(None);
    assert!(is_noticed);
}
