//! Mappings that lie on blocks. What the kernel maps has other bytes here than what the server has, so that one sees whose a page is.

use super::server::{BLOCK, INODE, Server};
use crate::connection::Connection;
use crate::file::File;
use crate::mapped::{self, Area, MapRequest};
use crate::price::OPERATIONS_BEFORE;
use crate::protocol::Kind;
use lease::Place;
use parking_lot::{Mutex, MutexGuard};
use pmem::BlockNumber;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KERNELS: u8 = 0xee;
const PAGE: usize = BLOCK as usize;
const PAGES: usize = 64;

/// The table is the process's: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

struct Bed {
    server: Server,
    file: Arc<File>,
    descriptor: std::fs::File,
    _connection: Arc<Connection>,
    _turn: MutexGuard<'static, ()>,
}

/// Of page `index` in the server's file.
fn byte(index: usize) -> u8 {
    index as u8 + 1
}

impl Bed {
    fn new(pages: usize) -> Bed {
        let turn = TURN.lock();
        let content: Vec<u8> = (0..pages)
            .flat_map(|index| vec![byte(index); PAGE])
            .collect();
        let server = Server::start(&content);
        let connection = server.connect(crate::Rule::FIRST);
        let memory = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC);
        let descriptor = std::fs::File::from(memory.expect("a file"));
        let kernels = vec![KERNELS; pages * PAGE];
        descriptor.write_all_at(&kernels, 0).expect("written");
        Bed {
            server,
            file: connection.file(INODE).expect("a file"),
            descriptor,
            _connection: connection,
            _turn: turn,
        }
    }

    fn map(&self, pages: usize) -> Mapping {
        self.try_map(pages).expect("a mapping on blocks")
    }

    /// As the preload library does it; `None` if it is the kernel's.
    fn try_map(&self, pages: usize) -> Option<Mapping> {
        let request = MapRequest {
            bytes: pages * PAGE,
            protection: libc::PROT_READ,
            flags: libc::MAP_PRIVATE,
            offset: 0,
        };
        let plan = self.file.plan_mapping(self.descriptor.as_fd(), &request)?;
        let mapping = Mapping::by_kernel(&self.descriptor, pages);
        plan.lay(mapping.start, self.descriptor.as_fd())
            .then_some(mapping)
    }

    /// Waits until the process has said that nothing is mapped.
    fn await_unmapped(&self) {
        let begin = Instant::now();
        while self.server.pool.lock().is_mapped() {
            assert!(begin.elapsed() < Duration::from_secs(10), "still mapped");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Mapping {
    start: usize,
    pages: usize,
}

impl Mapping {
    fn by_kernel(file: &std::fs::File, pages: usize) -> Mapping {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                null_mut(),
                pages * PAGE,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                0,
            )
        };
        Mapping {
            start: start.expect("mapped").expose_provenance(),
            pages,
        }
    }

    fn address(&self, page: usize) -> usize {
        self.start + page * PAGE
    }

    fn byte(&self, page: usize) -> u8 {
        // SAFETY: mapped as long as the test has not unmapped it.
        unsafe { with_exposed_provenance::<u8>(self.address(page) + 7).read_volatile() }
    }

    fn bytes(&self) -> Vec<u8> {
        (0..self.pages).map(|page| self.byte(page)).collect()
    }

    fn area(&self, pages: &Range<usize>) -> Area {
        Area {
            start: self.address(pages.start),
            bytes: pages.len() * PAGE,
        }
    }

    /// As the preload library does it. Never twice: other threads may have something there by then.
    fn unmap(&self, pages: Range<usize>) {
        let area = self.area(&pages);
        let call = || {
            // SAFETY: a part of this mapping.
            unsafe { munmap(with_exposed_provenance_mut(area.start), area.bytes) }
        };
        mapped::changing(area, call, Result::is_ok).expect("unmapped");
    }

    /// Maps zeros over a part of it.
    fn replace(&self, pages: Range<usize>) {
        let area = self.area(&pages);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let call = || {
            let at = with_exposed_provenance_mut(area.start);
            // SAFETY: a part of this mapping.
            unsafe { rustix::mm::mmap_anonymous(at, area.bytes, ProtFlags::READ, flags) }
        };
        mapped::changing(area, call, Result::is_ok).expect("mapped");
    }
}

fn direct(pages: usize) -> Vec<u8> {
    (0..pages).map(byte).collect()
}

#[test]
fn a_mapping_lies_on_blocks_until_it_is_wanted_back() {
    let bed = Bed::new(PAGES);
    let (mapping, other) = (bed.map(PAGES), bed.map(PAGES));
    assert!(bed.server.pool.lock().is_mapped());
    assert_eq!(bed.server.asked(Kind::Mapping), 1, "once for a file");
    assert_eq!(mapping.bytes(), direct(PAGES));
    bed.server.pool.lock().want_back();
    bed.await_unmapped();
    assert_eq!(mapping.bytes(), vec![KERNELS; PAGES]);
    assert_eq!(other.bytes(), vec![KERNELS; PAGES]);
    assert!(bed.try_map(PAGES).is_none(), "it is the kernel's now");
    mapping.unmap(0..PAGES);
    other.unmap(0..PAGES);
}

#[test]
fn parts_are_unmapped() {
    let bed = Bed::new(PAGES);
    let mapping = bed.map(PAGES);
    mapping.unmap(0..2);
    mapping.unmap(60..64);
    // Somebody else is where it was.
    mapping.replace(10..20);
    assert_eq!(
        (mapping.byte(2), mapping.byte(9), mapping.byte(59)),
        (byte(2), byte(9), byte(59))
    );
    bed.server.pool.lock().want_back();
    bed.await_unmapped();
    for page in (2..10).chain(20..60) {
        assert_eq!(mapping.byte(page), KERNELS, "page {page}");
    }
    assert_eq!(mapping.byte(12), 0, "the stranger's");
    mapping.unmap(2..60);
}

#[test]
fn with_the_last_part_the_file_is_let_go() {
    let bed = Bed::new(PAGES);
    let mapping = bed.map(PAGES);
    bed.file.close();
    assert_eq!(bed.server.let_go(0), 0, "it is mapped");
    assert_eq!(mapping.bytes(), direct(PAGES));
    mapping.unmap(0..32);
    assert_eq!(bed.server.let_go(0), 0);
    mapping.unmap(32..PAGES);
    assert_eq!(bed.server.let_go(1), 1);
    assert!(!bed.server.pool.lock().is_mapped());
    let again = bed.map(PAGES);
    assert_eq!(again.bytes(), direct(PAGES));
    again.unmap(0..PAGES);
}

#[test]
fn what_goes_on_without_us_gets_the_kernels() {
    let bed = Bed::new(PAGES);
    let (first, second) = (bed.map(PAGES), bed.map(PAGES));
    mapped::leave_to_kernel(Area {
        start: first.address(5),
        bytes: 1,
    });
    assert_eq!(first.bytes(), vec![KERNELS; PAGES]);
    assert_eq!(second.bytes(), direct(PAGES), "not concerned");
    assert!(bed.server.pool.lock().is_mapped());
    mapped::begin_fork();
    assert_eq!(second.bytes(), vec![KERNELS; PAGES]);
    assert!(!bed.server.pool.lock().is_mapped());
    mapped::end_fork();
    first.unmap(0..PAGES);
    second.unmap(0..PAGES);
}

#[test]
fn a_server_that_is_gone_has_its_blocks_back() {
    let bed = Bed::new(PAGES);
    let mapping = bed.map(PAGES);
    let caller = bed.server.pool.lock().caller.take();
    drop(caller);
    bed.await_unmapped();
    assert_eq!(mapping.bytes(), vec![KERNELS; PAGES]);
    assert!(bed.try_map(PAGES).is_none(), "nobody would give it back");
    mapping.unmap(0..PAGES);
}

#[test]
fn what_was_taken_back_before_it_was_mapped_is_not() {
    let bed = Bed::new(PAGES);
    let request = MapRequest {
        bytes: PAGES * PAGE,
        protection: libc::PROT_READ,
        flags: libc::MAP_SHARED,
        offset: 0,
    };
    let descriptor = bed.descriptor.as_fd();
    let plan = bed.file.plan_mapping(descriptor, &request).expect("a plan");
    let mapping = Mapping::by_kernel(&bed.descriptor, PAGES);
    bed.server.pool.lock().want_back();
    assert!(!plan.lay(mapping.start, descriptor));
    assert!(!bed.server.pool.lock().is_mapped());
    assert_eq!(mapping.bytes(), vec![KERNELS; PAGES]);
}

#[test]
fn holes_and_files_in_shreds_are_the_kernels() {
    let bed = Bed::new(PAGES);
    bed.server.pool.lock().blocks.remove(&40);
    assert!(bed.try_map(PAGES).is_none(), "a hole");
    drop(bed);
    let bed = Bed::new(100);
    assert!(bed.try_map(100).is_none(), "each block is a run");
    drop(bed);
    let bed = Bed::new(PAGES);
    let block = bed.server.pool.lock().blocks[&3];
    let Place::At(block) = block else {
        panic!("a block")
    };
    let unwritten = Place::Unwritten(BlockNumber::new(block.get()));
    bed.server.pool.lock().blocks.insert(3, unwritten);
    assert!(bed.try_map(PAGES).is_none(), "an unwritten block");
}

#[test]
fn a_mapped_file_is_read_directly_and_written_by_the_kernel() {
    let bed = Bed::new(PAGES);
    let mapping = bed.map(PAGES);
    let mut read = [0; 1];
    let mut is_read = || {
        let parts = &mut [IoSliceMut::new(&mut read)];
        bed.file.read_at(bed.descriptor.as_fd(), parts, 0)
    };
    assert_eq!(is_read(), Some(1));
    for _ in 0..2 * OPERATIONS_BEFORE {
        let data = [IoSlice::new(b"new")];
        assert_eq!(bed.file.write_at(bed.descriptor.as_fd(), &data, 0), None);
    }
    assert_eq!(
        mapping.bytes(),
        direct(PAGES),
        "the server takes it back, nobody else"
    );
    // Mapped once more, for writing.
    bed.file.leave_to_kernel(bed.descriptor.as_fd());
    assert_eq!(mapping.bytes(), vec![KERNELS; PAGES]);
    assert_eq!(bed.server.let_go(1), 1);
    mapping.unmap(0..PAGES);
}

#[test]
fn many_threads_map_and_unmap_while_the_server_wants_it_back() {
    let bed = Bed::new(PAGES);
    for _ in 0..50 {
        let file = &bed.file;
        let storm = || {
            for round in 0..20 {
                let Some(mapping) = bed.try_map(PAGES) else {
                    continue;
                };
                let expected = |page: usize| [byte(page), KERNELS];
                for page in 0..PAGES {
                    assert!(expected(page).contains(&mapping.byte(page)), "page {page}");
                }
                mapping.unmap(0..round + 1);
                mapping.unmap(round + 1..PAGES);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(storm);
            }
            std::thread::sleep(Duration::from_millis(1));
            let mut pool = bed.server.pool.lock();
            if pool.caller.is_some() {
                pool.want_back();
            }
        });
        assert!(!bed.server.pool.lock().is_mapped());
        file.close();
    }
}
