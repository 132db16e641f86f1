//! What a process does with an honest server.

use super::server::{BLOCK, INODE, Manner, SEGMENT_BLOCKS, SPARES, Server};
use crate::connection::Connection;
use crate::file::File;
use crate::layout::{Counter, MAP_CHUNK};
use crate::price::OPERATIONS_BEFORE;
use crate::protocol::{Kind, Refusal};
use lease::Place;
use pmem::BlockNumber;
use proptest::prelude::*;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A file of a server, and a descriptor that stands for it.
pub(super) struct Bed {
    pub(super) server: Server,
    connection: Arc<Connection>,
    pub(super) file: Arc<File>,
    descriptor: std::fs::File,
}

pub(super) fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) ^ (at >> 8) as u8)
        .collect()
}

impl Bed {
    fn new(content: &[u8]) -> Bed {
        Bed::of_mount(content, false)
    }

    fn of_mount(content: &[u8], is_in_place: bool) -> Bed {
        let server = Server::start(content);
        server.pool.lock().is_in_place = is_in_place;
        Bed::of(server)
    }

    pub(super) fn of(server: Server) -> Bed {
        Bed::by(server, crate::Rule::FIRST)
    }

    pub(super) fn by(server: Server, rule: crate::Rule) -> Bed {
        let connection = server.connect(rule);
        Bed {
            server,
            file: connection.file(INODE).expect("a file"),
            connection,
            descriptor: tempfile(),
        }
    }

    /// With a lease.
    fn leased(content: &[u8]) -> Bed {
        Bed::new(content).with_lease()
    }

    pub(super) fn with_lease(self) -> Bed {
        for _ in 1..OPERATIONS_BEFORE {
            assert_eq!(self.write(0, b""), None, "not attached yet");
        }
        assert_eq!(self.write(0, b""), Some(0));
        assert!(self.file.is_durable());
        self
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    pub(super) fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut into = vec![0xee; length];
        let parts = &mut [IoSliceMut::new(&mut into)];
        let read = self.file.read_at(self.descriptor(), parts, offset)?;
        into.truncate(read);
        Some(into)
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Option<usize> {
        let parts = [IoSlice::new(data)];
        self.file.write_at(self.descriptor(), &parts, offset)
    }

    pub(super) fn append(&self, data: &[u8]) -> Option<(usize, u64)> {
        self.file.append(self.descriptor(), &[IoSlice::new(data)])
    }

    pub(super) fn counter(&self, counter: Counter) -> u64 {
        self.server.pool.lock().counter(counter)
    }
}

pub(super) fn tempfile() -> std::fs::File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("descriptor", flags)
        .expect("memory")
        .into()
}

#[test]
fn reading_begins_after_some_operations() {
    let content = bytes(3 * 4096 + 100, 1);
    let bed = Bed::new(&content);
    for _ in 1..OPERATIONS_BEFORE {
        assert_eq!(bed.read(0, 10), None);
    }
    assert_eq!(bed.read(0, 10), Some(content[..10].to_vec()));
    assert_eq!(bed.server.asked(Kind::Attach), 1);
    assert_eq!(bed.read(4000, 5000), Some(content[4000..9000].to_vec()));
    assert_eq!(bed.read(12_000, 5000), Some(content[12_000..].to_vec()));
    assert_eq!(bed.read(content.len() as u64, 5), Some(vec![]));
    assert_eq!(bed.read(u64::MAX, 5), Some(vec![]));
    assert_eq!(bed.file.size_bytes(), Some(content.len() as u64));
    assert!(!bed.file.is_durable(), "others may write");
    assert_eq!(bed.counter(Counter::NotAttached), OPERATIONS_BEFORE - 1);
    assert_eq!(bed.counter(Counter::Reads), 5);

    let (mut first, mut second) = (vec![0; 5000], vec![0; 9000]);
    let parts = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let read = bed.file.read_at(bed.descriptor(), parts, 100);
    assert_eq!(read, Some(content.len() - 100));
    assert_eq!(
        [first, second].concat()[..read.expect("read")],
        content[100..]
    );
}

#[test]
fn holes_and_unwritten_blocks_read_as_zeros() {
    let content = bytes(4 * 4096, 1);
    let bed = Bed::new(&content);
    {
        let mut pool = bed.server.pool.lock();
        pool.blocks.insert(1, Place::Hole);
        pool.blocks
            .insert(2, Place::Unwritten(BlockNumber::new(600)));
    }
    let found = (0..OPERATIONS_BEFORE)
        .find_map(|_| bed.read(0, 4 * 4096))
        .expect("attached");
    assert_eq!(found[..4096], content[..4096]);
    assert_eq!(found[4096..3 * 4096], [0; 8192]);
    assert_eq!(found[3 * 4096..], content[3 * 4096..]);
}

#[test]
fn a_refused_segment_sends_its_blocks_to_the_kernel_and_no_others() {
    let bed = Bed::new(&bytes(8 * 4096, 1));
    let segment_of = |place: &Place| match place {
        Place::At(block) => (block.get() - 512) / SEGMENT_BLOCKS,
        _ => unreachable!("all are there"),
    };
    let segments: Vec<u64> = {
        let mut pool = bed.server.pool.lock();
        pool.refused_segment = Some(1);
        pool.blocks.values().map(segment_of).collect()
    };
    while bed.read(0, 1).is_none() && bed.server.asked(Kind::Attach) == 0 {}
    for (index, segment) in (0..).zip(&segments) {
        assert_eq!(
            bed.read(index * BLOCK, 1).is_some(),
            *segment != 1,
            "{index}"
        );
    }
    assert!(bed.counter(Counter::NoPlace) > 0);
    assert!(
        segments.contains(&1) && segments.contains(&2),
        "{segments:?}"
    );
    assert_eq!(bed.server.asked(Kind::Segments), 1, "together, and once");
}

#[test]
fn segments_whose_descriptors_did_not_arrive_are_asked_for_again() {
    let content = bytes(8 * 4096, 1);
    let bed = Bed::new(&content);
    bed.server.pool.lock().descriptors_max = 1;
    while bed.read(0, 1).is_none() && bed.server.asked(Kind::Attach) == 0 {}
    assert_eq!(bed.read(0, content.len()), Some(content));
    let asked = bed.server.asked(Kind::Segments);
    assert!((3..=5).contains(&asked), "{asked} requests for 3 segments");
    let other = Bed::new(&bytes(4096, 1));
    other.server.pool.lock().descriptors_max = 0;
    while other.server.asked(Kind::Attach) == 0 {
        other.read(0, 1);
    }
    for _ in 0..10 {
        assert_eq!(other.read(0, 1), None, "no descriptor at all");
    }
    assert_eq!(other.server.asked(Kind::Segments), 1, "not again and again");
}

#[test]
fn what_a_lease_needs_first_comes_with_it() {
    let mut content = bytes(800 * 4096, 1);
    for (descriptors_max, questions) in [(usize::MAX, 0), (2, 1), (1, 1)] {
        let bed = Bed::new(&content);
        {
            let mut pool = bed.server.pool.lock();
            pool.gives_beside = true;
            pool.descriptors_max = descriptors_max;
        }
        let offset = 700 * BLOCK;
        let data = bytes(4096, 7);
        while bed.write(offset, &data).is_none() && bed.server.asked(Kind::Attach) == 0 {}
        assert_eq!(bed.server.asked(Kind::Segments) > 0, questions > 0);
        assert_eq!(bed.server.asked(Kind::Map), 0);
        bed.server.pool.lock().descriptors_max = usize::MAX;
        assert_eq!(bed.write(offset, &data), Some(4096));
        content[offset as usize..][..4096].copy_from_slice(&data);
        assert_eq!(bed.read(0, content.len()), Some(content.clone()));
        assert!(bed.server.asked(Kind::Map) > 0, "of the rest");
    }
}

#[test]
fn a_segment_that_is_promised_is_asked_for_again_and_not_refused() {
    let content = bytes(4096, 1);
    let bed = Bed::new(&content);
    bed.server.pool.lock().promises = 3;
    while bed.server.asked(Kind::Attach) == 0 {
        bed.read(0, 1);
    }
    // The operation that attached the file asked first.
    for _ in 0..2 {
        assert_eq!(bed.read(0, 1), None, "by the kernel until then");
    }
    assert_eq!(bed.read(0, content.len()), Some(content));
    assert_eq!(bed.server.asked(Kind::Segments), 4);
    assert_eq!(bed.server.asked(Kind::Attach), 1);
}

/// A file that is used all over is known after few questions, one that is hardly used is hardly asked about.
#[test]
fn the_map_is_asked_for_in_growing_pieces() {
    let bed = Bed::new(&bytes(4096, 1));
    let chunks = 40;
    bed.server.pool.lock().size_bytes = chunks * MAP_CHUNK * BLOCK;
    while bed.server.asked(Kind::Attach) == 0 {
        bed.read(0, 1);
    }
    let mut asked = Vec::new();
    for step in 0..chunks {
        // From the back to the front is no order that is known ahead.
        let chunk = (chunks - 1 - step) * 7 % chunks;
        let byte = u8::from(chunk == 0) * bytes(1, 1)[0];
        assert_eq!(bed.read(chunk * MAP_CHUNK * BLOCK, 1), Some(vec![byte]));
        asked.push(bed.server.asked(Kind::Map));
    }
    assert!(asked[2] >= 2 && asked[39] <= 9, "{asked:?}");
    assert_eq!(bed.counter(Counter::NoPlace), 0);
}

#[test]
fn a_full_ring_and_empty_slots_are_folded() {
    let mut content = bytes(40 * 4096, 1);
    let bed = Bed::leased(&content);
    for round in 0..400_u64 {
        let offset = round * 7 % 39 * BLOCK + round % 3 * 100;
        let data = bytes(4096, round as u8);
        assert_eq!(bed.write(offset, &data), Some(4096), "round {round}");
        content[offset as usize..][..4096].copy_from_slice(&data);
    }
    for round in 0..60_u8 {
        let data = bytes(3000, round);
        content.extend(&data);
        assert_eq!(bed.append(&data), Some((3000, content.len() as u64)));
    }
    assert_eq!(bed.read(0, content.len()), Some(content.clone()));
    assert!(bed.server.asked(Kind::Fold) + bed.server.asked(Kind::Ring) > 0);
    assert_eq!(bed.server.content(), content);
    assert_eq!(bed.server.asked(Kind::Attach), 1, "one lease for all");
    assert!(bed.counter(Counter::Writes) >= 400);
}

/// Nobody waits for it, so it has to be said while there is room for what is written until the server has done it.
#[test]
fn the_server_is_told_when_half_of_the_spare_blocks_are_used() {
    let bed = Bed::leased(&[]);
    let block = bytes(4096, 1);
    for _ in 0..SPARES / 2 {
        assert!(bed.append(&block).is_some());
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(bed.server.asked(Kind::Ring), 0, "half of them are left");
    assert!(bed.append(&block).is_some());
    let begin = Instant::now();
    while bed.server.asked(Kind::Ring) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(5), "it was not told");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(bed.server.asked(Kind::Fold), 0, "nobody waited");
}

/// Behind its end there is nothing, but only the server knows: it is asked about several parts of the map at once when the file grows into them.
#[test]
fn of_a_file_that_grows_the_map_is_asked_for_ahead() {
    let mut content = bytes(4096, 1);
    let bed = Bed::leased(&content);
    for number in 0..2 * MAP_CHUNK as usize {
        let data = bytes(4096, number as u8);
        content.extend(&data);
        assert!(bed.append(&data).is_some(), "append {number}");
    }
    assert_eq!(bed.server.asked(Kind::Map), 2, "its own part, and the rest");
    assert_eq!(bed.server.content(), content);
}

#[test]
fn what_a_lease_cannot_hold_goes_to_the_kernel() {
    let bed = Bed::leased(&bytes(4096, 1));
    assert_eq!(bed.write(3 * BLOCK, b"behind a gap"), None);
    assert_eq!(
        bed.write(u64::MAX - 3, b"behind the end of everything"),
        None
    );
    assert_eq!(bed.write(0, &vec![1; 100 * 4096]), None, "16 spare blocks");
    assert_eq!(bed.counter(Counter::NoRoom), 1);
    assert!(bed.file.is_durable(), "the lease goes on");
    assert_eq!(bed.write(0, b"x"), Some(1));
}

#[test]
fn overwrites_in_place_take_no_room() {
    let mut content = bytes(40 * 4096, 1);
    let bed = Bed::of_mount(&content, true).with_lease();
    // More blocks than there are spare ones, and bytes at odd places.
    for (offset, length) in [
        (0, 40 * 4096),
        (4095, 2),
        (3, 1),
        (8190, 4101),
        (4096, 4096),
    ] {
        let data = bytes(length, offset as u8);
        assert_eq!(bed.write(offset as u64, &data), Some(length), "{offset}");
        content[offset..offset + length].copy_from_slice(&data);
        assert_eq!(bed.read(0, content.len()), Some(content.clone()));
    }
    assert_eq!(
        bed.server.asked(Kind::Fold) + bed.server.asked(Kind::Ring),
        0
    );
    assert_eq!(bed.server.content(), content);
    let ticks = bed.server.pool.lock().folded() - 1;
    assert!(ticks >= 1, "the time of modification was told");
    // Behind the end, and across it, as ever.
    assert_eq!(bed.append(b"more"), Some((4, 40 * 4096 + 4)));
    assert_eq!(bed.write(40 * 4096 - 2, b"across"), Some(6));
    content.truncate(40 * 4096 - 2);
    content.extend(b"across");
    assert_eq!(bed.server.content(), content);
    assert_eq!(bed.write(0, b"x"), Some(1));
    bed.server.take_back();
    assert_eq!(bed.write(0, b"y"), None);
    assert_eq!(bed.server.content()[0], b'x');
}

#[test]
fn a_sealed_lease_ends_and_comes_back_after_a_while() {
    let content = bytes(2 * 4096, 1);
    let bed = Bed::leased(&content);
    assert_eq!(bed.write(5, b"mine"), Some(4));
    bed.server.take_back();
    assert!(!bed.file.is_durable());
    assert_eq!(bed.file.size_bytes(), None);
    assert_eq!(bed.write(5, b"lost"), None);
    assert_eq!(bed.server.content()[5..9], *b"mine");
    assert_eq!(bed.counter(Counter::TakenBack), 1);
    for _ in 0..7 {
        assert_eq!(bed.write(5, b"wait"), None);
    }
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(bed.write(5, b"back"), Some(4));
    assert_eq!(bed.server.content()[5..9], *b"back");
}

#[test]
fn a_read_from_a_file_that_was_taken_back_is_not_believed() {
    let bed = Bed::new(&bytes(4096, 1));
    while bed.read(0, 10).is_none() {}
    bed.server.take_back();
    assert_eq!(bed.read(0, 10), None);
    assert_eq!(bed.server.let_go(1), 1);
}

#[test]
fn a_write_lets_go_of_what_is_only_read_and_leases_later() {
    let bed = Bed::new(&bytes(4096, 1));
    while bed.read(0, 10).is_none() {}
    for _ in 1..OPERATIONS_BEFORE {
        assert_eq!(bed.write(0, b"x"), None);
    }
    assert_eq!(bed.server.let_go(1), 1);
    assert_eq!(bed.write(0, b"x"), Some(1));
    assert_eq!(bed.read(0, 1), Some(b"x".to_vec()));
}

/// Takes the lease back in the middle of a write, as well as that can be hit; the write's outcome, and how often the server was asked for it.
fn force_in_the_middle(data: &[u8]) -> (bool, usize) {
    let before = bytes(8 * 4096, 1);
    let bed = Bed::leased(&before);
    assert_eq!(bed.write(0, &before), Some(before.len()));
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pool = bed.server.pool.lock();
            while pool.busy_word() == 0 && !is_over.load(Relaxed) {
                std::hint::spin_loop();
            }
            pool.end();
        });
        std::thread::sleep(Duration::from_micros(200));
        let written = bed.write(0, data);
        is_over.store(true, Relaxed);
        written
    });
    let content = bed.server.content();
    let is_there = content[..data.len()] == *data;
    assert!(is_there || content == before, "all or nothing");
    assert_eq!(written.is_some(), is_there, "told and true");
    assert_eq!(bed.write(0, b"more"), None);
    let asked = bed.server.asked(Kind::Outcome);
    assert_eq!(asked + bed.server.let_go(1 - asked), 1, "let go of once");
    (is_there, asked)
}

#[test]
fn who_was_forced_asks_whether_the_record_counts() {
    let data = bytes(7 * 4096, 2);
    let mut asked = 0;
    for _ in 0..2000 {
        asked += force_in_the_middle(&data).1;
        if asked >= 5 {
            return;
        }
    }
    panic!("never hit in the middle: {asked}");
}

#[test]
fn a_lost_connection_ends_everything() {
    for manner in [Manner::HangsUp, Manner::Silent] {
        let bed = Bed::leased(&bytes(4096, 1));
        assert_eq!(bed.write(0, b"x"), Some(1));
        bed.server.pool.lock().manner = manner;
        // Nothing has to be asked for this.
        assert_eq!(bed.write(0, b"x"), Some(1));
        // Closing waits for nobody. Who asks for something notices.
        bed.file.close();
        for _ in 0..OPERATIONS_BEFORE {
            assert_eq!(bed.write(0, b"x"), None);
        }
        assert!(bed.file.is_lost(), "{manner:?}");
        assert_eq!(bed.write(0, b"x"), None);
        assert_eq!(bed.read(0, 1), None);
        assert_eq!(bed.file.size_bytes(), None);
    }
}

#[test]
fn who_opens_the_pool_next_ends_everything() {
    for is_in_place in [false, true] {
        next_opener_ends_everything(&Bed::of_mount(&bytes(4096, 1), is_in_place).with_lease());
    }
}

fn next_opener_ends_everything(bed: &Bed) {
    assert_eq!(bed.write(0, b"x"), Some(1));
    bed.server.pool.lock().epoch.word(0).store(1, Relaxed);
    assert_eq!(bed.write(0, b"y"), None);
    assert_eq!(bed.read(0, 1), None);
    assert_eq!(bed.file.size_bytes(), None);
    assert!(!bed.file.is_durable());
    let pool = bed.server.pool.lock();
    assert_eq!(
        pool.busy_word(),
        0,
        "and whoever waits for it sees that it is idle"
    );
}

#[test]
fn a_program_that_closes_the_socket_loses_the_connection_and_nothing_else() {
    let bed = Bed::leased(&bytes(4096, 1));
    let number = bed.connection.line().trace().0;
    assert!(number >= 100, "out of the way");
    // As `closefrom` does, after which the number may be anybody's.
    let stranger = tempfile();
    // SAFETY: the number is of the connection's socket, which must bear that.
    assert_eq!(unsafe { libc::dup2(stranger.as_raw_fd(), number) }, number);
    bed.file.close();
    assert!(bed.file.is_lost());
    let length = stranger.metadata().expect("metadata").len();
    assert_eq!(length, 0, "nothing was sent to it");
    drop(bed);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close(number) }, 0, "and it is still open");
}

#[test]
fn refusals_are_final_or_waited_out() {
    for (refusal, is_final) in [
        (Refusal::NotYours, true),
        (Refusal::Unsuitable, true),
        (Refusal::Busy, false),
        (Refusal::NoRoom, false),
    ] {
        let bed = Bed::new(&bytes(4096, 1));
        bed.server.pool.lock().manner = Manner::Refuses(refusal);
        for _ in 0..40 {
            assert_eq!(bed.read(0, 1), None);
            std::thread::sleep(Duration::from_micros(200));
        }
        let asked = bed.server.asked(Kind::Attach);
        assert_eq!(asked == 1, is_final, "{refusal}: {asked}");
        assert!(asked < 5, "{asked}");
        assert!(bed.counter(Counter::Refused) > 0);
    }
}

#[test]
fn threads_share_one_view() {
    let bed = Bed::leased(&[0; 16 * 4096]);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let bed = &bed;
            scope.spawn(move || {
                for round in 0..200_u8 {
                    let offset = u64::from(thread) * 4 * BLOCK;
                    let data = [round ^ thread; 4096];
                    assert_eq!(bed.write(offset, &data), Some(4096));
                    assert_eq!(bed.read(offset, 4096), Some(data.to_vec()));
                }
            });
        }
    });
}

#[test]
fn the_last_handle_lets_the_file_go() {
    let bed = Bed::leased(&bytes(4096, 1));
    drop(bed.connection.file(INODE));
    assert_eq!(bed.server.let_go(0), 0, "another one has it");
    let Bed { server, file, .. } = bed;
    drop(file);
    assert_eq!(server.let_go(1), 1);
}

#[test]
fn of_a_small_file_that_is_closed_the_server_hears_with_the_next_question() {
    let bed = Bed::new(&[]);
    bed.file.expect_use();
    assert_eq!(bed.append(b"a journal"), Some((9, 9)));
    bed.file.close();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(bed.server.let_go(0), 0, "nothing is worth to wake it");
    // The next one is about the same file, so it comes behind.
    bed.file.expect_use();
    assert_eq!(bed.append(b", again"), Some((7, 16)));
    assert_eq!(bed.server.let_go(1), 1);
    assert_eq!(bed.server.asked(Kind::Attach), 2);
    assert_eq!(bed.server.content(), b"a journal, again");
}

#[test]
fn the_memory_of_a_closed_journal_serves_the_next_one() {
    let bed = Bed::new(&[]);
    for round in 0..4_u8 {
        bed.server.pool.lock().make_empty();
        bed.file.expect_use();
        let content = bytes(9000, round);
        assert_eq!(bed.append(&content), Some((9000, 9000)));
        assert_eq!(bed.read(0, 10_000), Some(content.clone()));
        bed.file.close();
        assert_eq!(bed.server.let_go(usize::from(round)), usize::from(round));
    }
    // One that was not empty: what its map says is looked at anew.
    bed.file.expect_use();
    assert_eq!(bed.write(5000, b"x"), Some(1));
    let mut content = bytes(9000, 3);
    content[5000] = b'x';
    assert_eq!(bed.read(0, 10_000), Some(content.clone()));
    bed.file.close();
    assert_eq!(bed.server.content(), content);
    assert_eq!(bed.server.pool.lock().used_again, 4);
    assert_eq!(bed.server.asked(Kind::Attach), 5);
}

#[test]
fn a_file_whose_use_is_expected_is_leased_at_the_first_write_and_again_if_it_needs_more() {
    let bed = Bed::new(&[]);
    bed.file.expect_use();
    assert_eq!(bed.read(0, 1), None, "reading can wait");
    assert_eq!(bed.server.asked(Kind::Attach), 0);
    let mut model = Vec::new();
    for block in 0..40_u8 {
        assert_eq!(
            bed.append(&[block; 4096]),
            Some((4096, model.len() as u64 + 4096))
        );
        model.extend_from_slice(&[block; 4096]);
    }
    assert_eq!(bed.server.asked(Kind::Attach), 2, "one was too small");
    assert_eq!(bed.server.content(), model);
    assert_eq!(
        bed.file.close().map(|past| past.operations >= 40),
        Some(true)
    );
    assert_eq!(bed.server.let_go(2), 2);
    assert_eq!(bed.write(0, b"x"), None, "opened anew nothing is expected");
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Append(usize),
    Read(u64, usize),
    Parts(u64, Vec<usize>),
    TakeBack,
    Close,
    /// Another one of the kind is expected; the file is made empty first, or not.
    Another(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = 0..12 * BLOCK;
    prop_oneof![
        4 => (offset.clone(), 1..20_000_usize).prop_map(|(at, n)| Step::Write(at, n)),
        2 => (0..12_u64).prop_map(|index| Step::Write(index * BLOCK, 4096)),
        3 => (1..9000_usize).prop_map(Step::Append),
        4 => (offset.clone(), 0..30_000_usize).prop_map(|(at, n)| Step::Read(at, n)),
        1 => (offset, prop::collection::vec(0..5000_usize, 0..5))
            .prop_map(|(at, parts)| Step::Parts(at, parts)),
        1 => Just(Step::TakeBack),
        1 => Just(Step::Close),
        2 => any::<bool>().prop_map(Step::Another),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is written directly, or through a kernel that is played by the model, is what is read.
    #[test]
    fn a_file_is_a_vector_of_bytes(length in 0..40_000_usize, is_in_place in any::<bool>(), steps in prop::collection::vec(step(), 1..80)) {
        let mut model = bytes(length, 9);
        let bed = Bed::of_mount(&model, is_in_place);
        for (number, step) in steps.iter().enumerate() {
            let data = |length| bytes(length, number as u8);
            let put = |model: &mut Vec<u8>, offset: usize, data: &[u8]| {
                model.resize(model.len().max(offset + data.len()), 0);
                model[offset..offset + data.len()].copy_from_slice(data);
            };
            match step {
                Step::Write(offset, length) => {
                    if let Some(written) = bed.write(*offset, &data(*length)) {
                        prop_assert_eq!(written, *length);
                        put(&mut model, *offset as usize, &data(*length));
                    }
                }
                Step::Append(length) => {
                    if let Some((written, end)) = bed.append(&data(*length)) {
                        model.extend(data(*length));
                        prop_assert_eq!((written, end), (*length, model.len() as u64));
                    }
                }
                Step::Parts(offset, lengths) => {
                    let data: Vec<Vec<u8>> = lengths.iter().map(|length| data(*length)).collect();
                    let parts: Vec<IoSlice<'_>> = data.iter().map(|part| IoSlice::new(part)).collect();
                    if let Some(written) = bed.file.write_at(bed.descriptor(), &parts, *offset) {
                        prop_assert_eq!(written, lengths.iter().sum::<usize>());
                        if written > 0 {
                            put(&mut model, *offset as usize, &data.concat());
                        }
                    }
                }
                Step::Read(offset, length) => {
                    if let Some(found) = bed.read(*offset, *length) {
                        let start = model.len().min(*offset as usize);
                        let end = model.len().min(start + length);
                        prop_assert_eq!(&found, &model[start..end]);
                    }
                }
                Step::TakeBack => bed.server.take_back(),
                Step::Another(is_empty) => {
                    bed.file.close();
                    bed.file.expect_use();
                    if *is_empty {
                        bed.server.pool.lock().make_empty();
                        model.clear();
                    }
                }
                Step::Close => {
                    bed.file.close();
                }
            }
        }
        prop_assert_eq!(bed.server.content(), model);
    }
}
