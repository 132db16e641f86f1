//! When a file is attached by the times that the caller tells. None of them is measured here.

use super::files::{Bed, bytes};
use super::server::Server;
use crate::layout::Counter;
use crate::price::Rule;
use crate::protocol::Kind;
use std::time::Duration;

/// A request through a mount.
const REQUEST: Duration = Duration::from_micros(17);
/// A read from the kernel's pages.
const CACHED: Duration = Duration::from_nanos(900);
/// So long that a single call would buy any file, if it could.
const STALLED: Duration = Duration::from_secs(3);
/// Operations that buy a file however long each of them takes: 16 for a price, four prices.
const OPERATIONS_MIN: usize = 64;

fn bed(content: &[u8]) -> Bed {
    Bed::by(Server::start(content), Rule::Measured)
}

impl Bed {
    /// Writes as a program does; whether that was direct.
    fn write_or_pay(&self, took: Duration) -> bool {
        let is_direct = self.write(0, b"x").is_some();
        if !is_direct {
            self.file.kernel_wrote(1, took);
        }
        is_direct
    }

    fn read_or_pay(&self, took: Duration) -> bool {
        let is_direct = self.read(0, 10).is_some();
        if !is_direct {
            self.file.kernel_read(10, took);
        }
        is_direct
    }

    fn is_attached(&self) -> bool {
        self.server.asked(Kind::Attach) > 0
    }
}

#[test]
fn a_file_that_is_hardly_used_is_never_attached() {
    let bed = bed(&bytes(4096, 1));
    for _ in 0..50 {
        for _ in 0..32 {
            assert!(!bed.write_or_pay(REQUEST));
        }
        bed.file.kernel_synced(REQUEST);
        let past = bed.file.close().expect("known");
        assert_eq!(past.operations, 32, "each time from the beginning");
    }
    assert!(!bed.is_attached());
    bed.file.expect_use();
    assert!(
        bed.write_or_pay(REQUEST),
        "unless it is expected to be used"
    );
    assert_eq!(bed.counter(Counter::NotAttached), 50 * 32);
}

#[test]
fn a_file_that_is_used_much_is_attached_for_reading_or_writing() {
    let written = bed(&bytes(4096, 1));
    let writes = (0..).take_while(|_| !written.write_or_pay(REQUEST)).count();
    assert!((100..400).contains(&writes), "{writes} writes");
    assert!(written.file.is_durable());

    let read = bed(&bytes(4096, 1));
    let reads = (0..).take_while(|_| !read.read_or_pay(REQUEST)).count();
    assert!(reads < writes, "{reads} reads: reading costs less");
    assert!(!read.file.is_durable());
    assert_eq!(read.counter(Counter::NotAttached), reads as u64);
}

#[test]
fn reads_that_the_kernel_answers_at_once_hardly_pay() {
    let bed = bed(&bytes(4096, 1));
    let reads = (0..).take_while(|_| !bed.read_or_pay(CACHED)).count();
    assert!(reads > 2000, "{reads} reads");
}

#[test]
fn a_call_that_was_stalled_buys_nothing_by_itself() {
    let bed = bed(&bytes(4096, 1));
    for _ in 0..OPERATIONS_MIN {
        assert!(!bed.write_or_pay(STALLED));
    }
    assert!(bed.write_or_pay(STALLED));
}

#[test]
fn who_tells_nothing_never_has_a_file_attached() {
    let bed = bed(&bytes(4096, 1));
    for _ in 0..10_000 {
        assert!(bed.write(0, b"x").is_none() && bed.read(0, 1).is_none());
    }
    assert!(!bed.is_attached());
}

#[test]
fn a_synced_file_that_would_have_paid_a_small_lease_is_a_journal() {
    let bed = bed(&bytes(4096, 1));
    let close = |writes, is_synced| {
        for _ in 0..writes {
            bed.write_or_pay(REQUEST);
        }
        if is_synced && !bed.file.is_durable() {
            bed.file.kernel_synced(Duration::ZERO);
        }
        bed.file.close().expect("known").is_journal
    };
    assert!(!close(2, true) && close(12, true), "by its last use");
    assert!(!close(12, false), "others will use it");
    assert!(!bed.is_attached());
    // An attached file has earned the payments that it would have made.
    assert!(close(2000, true) && bed.is_attached());
    bed.file.expect_use();
    assert!(!close(1, true));
}

#[test]
fn a_file_that_was_taken_back_at_once_pays_again() {
    let bed = bed(&bytes(4096, 1));
    for _ in 0..=OPERATIONS_MIN {
        bed.write_or_pay(STALLED);
    }
    bed.server.take_back();
    assert!(!bed.write_or_pay(Duration::ZERO), "it learns that it was");
    // The pause is over by then.
    std::thread::sleep(Duration::from_millis(5));
    for _ in 0..100 {
        assert!(!bed.write_or_pay(Duration::ZERO), "nothing is paid");
    }
    assert_eq!(bed.server.asked(Kind::Attach), 1);
}

#[test]
fn reads_of_a_file_that_is_written_pay_for_a_lease() {
    let bed = bed(&bytes(4096, 1));
    bed.write_or_pay(REQUEST);
    for _ in 0..20 {
        bed.read_or_pay(REQUEST);
    }
    assert_eq!(bed.file.close().map(|past| past.operations), Some(21));
    assert!(!bed.is_attached());
}
