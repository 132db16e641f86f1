//! Leases end by themselves when nobody uses them, and not before.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::common::direct::{BLOCK, LATEST, Own, await_no_lease, clients, direct_status};
use crate::common::{Mounted, Place};
use direct::Client;
use direct::layout::SLOTS;
use fs::MountOptions;
use perdure_server::Mounting;

/// After how long without a write leases end here.
const TIMEOUT: Duration = Duration::from_millis(400);

fn mount(lease_timeout: Option<Duration>, in_place: bool) -> Mounted {
    mount_of(128 << 20, lease_timeout, in_place)
}

fn mount_of(size_bytes: u64, lease_timeout: Option<Duration>, in_place: bool) -> Mounted {
    let place = Place::new();
    place.format_of(size_bytes);
    let mounting = Mounting {
        lease_timeout,
        in_place,
        ..place.mounting()
    };
    Mounted::as_wanted(place, MountOptions::default(), &mounting)
}

fn leases(mounted: &Mounted) -> u64 {
    direct_status(mounted).leases
}

#[test]
fn a_lease_that_is_not_written_to_ends_and_its_file_is_whole() {
    let mounted = mount(Some(TIMEOUT), false);
    let client = Client::default();
    let file = Own::create(&mounted, "file", &client);
    let begin = Instant::now();
    assert!(file.write(20) > 0);
    await_no_lease(&mounted);
    assert!(begin.elapsed() >= TIMEOUT, "{:?}", begin.elapsed());
    let after = direct_status(&mounted);
    assert_eq!((after.leases_granted, after.leases_timed_out), (1, 1));
    assert_eq!((after.leases_taken_back, after.leases_forced), (0, 0));
    let [this] = clients(&mounted).try_into().expect("one process");
    assert!(this.files_leased.is_empty(), "{this:?}");
    let wanted: Vec<u8> = (0..20).flat_map(|block| [block; BLOCK]).collect();
    assert!(std::fs::read(mounted.path("file")).expect("read") == wanted);
}

#[test]
fn a_lease_that_is_written_to_now_and_then_stays() {
    for in_place in [false, true] {
        let mounted = mount(Some(TIMEOUT), in_place);
        let client = Client::default();
        let file = Own::create(&mounted, "file", &client);
        file.write(20);
        let (begin, mut last) = (Instant::now(), Instant::now());
        while begin.elapsed() < 6 * TIMEOUT {
            std::thread::sleep(TIMEOUT / 8);
            let is_direct = file.write(1) == 1;
            // Unless this thread had to wait for a processor for so long.
            let was_slow = last.elapsed() >= TIMEOUT;
            assert!(is_direct || was_slow, "in place: {in_place}");
            last = Instant::now();
        }
    }
}

#[test]
fn who_only_reads_goes_on_reading_directly_and_who_writes_again_gets_a_lease() {
    // More than a second: who finds a lease gone that he wrote to since then pauses as behind somebody else.
    let mounted = mount(Some(3 * TIMEOUT), false);
    let client = Client::default();
    let file = Own::create(&mounted, "file", &client);
    file.write(20);
    let begin = Instant::now();
    while file.read(1) == 1 && leases(&mounted) > 0 {
        assert!(begin.elapsed() < LATEST, "reads keep a lease");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(begin.elapsed() >= 3 * TIMEOUT, "reads with the lease");
    await_no_lease(&mounted);
    assert!(file.read(40) >= 20, "attached for reading");
    let now = direct_status(&mounted);
    assert_eq!((now.leases, now.files_read), (0, 1));
    assert!(file.write(40) > 0, "attached for writing");
    assert_eq!(leases(&mounted), 1);
}

/// As a transaction leaves it.
fn removed_journal(mounted: &Mounted, client: &Client) -> Own {
    let journal = Own::create(mounted, "journal", client);
    journal.direct.expect_use();
    assert_eq!(journal.write(3), 3);
    journal.direct.close();
    std::fs::remove_file(mounted.path("journal")).expect("remove");
    journal
}

#[test]
fn a_removed_journal_whose_process_has_left_is_freed() {
    let mounted = mount(Some(TIMEOUT), false);
    let client = Client::default();
    drop(removed_journal(&mounted, &client));
    assert_eq!(leases(&mounted), 1, "the server has not been told");
    await_no_lease(&mounted);
    let after = direct_status(&mounted);
    assert_eq!((after.leases_timed_out, after.leases_taken_back), (0, 0));
    // The next journal is told that the memory is not there to be used again.
    let next = Own::create(&mounted, "journal", &client);
    next.direct.expect_use();
    assert_eq!(next.write(3), 3);
    assert_eq!(next.read(3), 3);
}

#[test]
fn what_is_left_of_a_journal_is_freed_when_the_next_one_is_made() {
    let mounted = mount(None, false);
    let client = Client::default();
    let _journal = removed_journal(&mounted, &client);
    let make = |name| drop(std::fs::File::create(mounted.path(name)).expect("a file"));
    std::thread::scope(|scope| scope.spawn(|| make("other")).join()).expect("a thread");
    std::thread::sleep(TIMEOUT / 4);
    assert_eq!(leases(&mounted), 1, "another thread makes other files");
    make("next");
    await_no_lease(&mounted);
    assert_eq!(direct_status(&mounted).leases_taken_back, 0);
}

#[test]
fn the_question_for_a_journal_says_that_the_last_one_was_let_go() {
    let mounted = mount(None, false);
    let client = Client::default();
    // Made by other threads, so that nothing rings.
    let journal = |name| {
        let made = std::thread::scope(|scope| {
            let thread = scope.spawn(|| Own::create(&mounted, name, &client));
            thread.join().expect("a file")
        });
        made.direct.expect_use();
        assert_eq!(made.write(3), 3);
        made.direct.close();
        assert_eq!(leases(&mounted), 1, "{name} beside another one");
    };
    ["one", "two", "three"].into_iter().for_each(journal);
}

#[test]
fn without_a_timeout_leases_stay() {
    let mounted = mount(None, false);
    let client = Client::default();
    let file = Own::create(&mounted, "file", &client);
    file.write(20);
    std::thread::sleep(4 * TIMEOUT);
    assert_eq!(leases(&mounted), 1);
    assert_eq!(file.write(20), 20);
}

#[test]
fn leases_that_others_have_ended_leave_room_for_new_ones() {
    let mounted = mount_of(1 << 30, None, false);
    let client = Client::default();
    let write_first = |name: &str| {
        let file = Own::create(&mounted, name, &client);
        file.direct.expect_use();
        (file.write(1) == 1).then_some(file)
    };
    // As many as one process may have; it goes back to none of them.
    let mut files = Vec::new();
    let mut names = (0..2 * SLOTS).map(|number| number.to_string());
    while files.len() < SLOTS {
        let name = names.next().expect("files are leased");
        files.extend(write_first(&name));
    }
    assert!(write_first("too many").is_none(), "none has ended");
    for file in &files {
        let mut byte = [0];
        let read = file.file.read_exact_at(&mut byte, 0);
        read.expect("somebody reads");
    }
    assert_eq!(leases(&mounted), 0, "the kernel's reads end them");
    // It was refused a moment ago, and then asks less often.
    let begin = Instant::now();
    while write_first(&format!("later {:?}", begin.elapsed())).is_none() {
        assert!(begin.elapsed() < LATEST, "ended leases are in the way");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(files);
}
