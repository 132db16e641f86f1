//! A server that answers anything. It can take the process's direct access away; it cannot make it panic, hang or go where nothing is mapped.

use super::server::{INODE, listen_somewhere, writable_file};
use crate::connection::Connection;
use crate::discover::Server as Found;
use crate::layout::{CAPACITY_BLOCKS_MIN, Layout, PROCESS_BYTES, head};
use crate::mapped::MapRequest;
use crate::memory::SharedMemory;
use crate::price::Rule;
use crate::protocol::{Attached, Kind, Reply, Request, Row, SEGMENTS_AT_ONCE, VERSION, Welcome};
use crate::transport;
use pmem::BLOCK_BYTES;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, accept, socketpair};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

const SEGMENT_BYTES: u64 = 1 << 20;
/// Of a file that is only read: enough to be mapped.
const MAPPED_BYTES: usize = 300_000;

/// How an answer differs from an honest one.
#[derive(Clone, Debug)]
enum Lie {
    None,
    Word(usize, u64),
    Bytes(Vec<u8>),
    NoDescriptor,
    WrongDescriptor,
    /// So many, whatever was asked for.
    Descriptors(usize),
    HangUp,
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..300_u64,
        Just(u64::MAX),
        (0..63_u32).prop_map(|bit| 1 << bit)
    ]
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        12 => Just(Lie::None),
        6 => (0..16_usize, word()).prop_map(|(at, word)| Lie::Word(at, word)),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Lie::Bytes),
        1 => Just(Lie::NoDescriptor),
        1 => Just(Lie::WrongDescriptor),
        1 => (0..=SEGMENTS_AT_ONCE).prop_map(Lie::Descriptors),
        1 => Just(Lie::HangUp),
    ]
}

fn segment() -> OwnedFd {
    writable_file(SEGMENT_BYTES as usize)
}

fn honest(kind: Kind, request: &Request, words: &[(usize, u64)]) -> (Reply, Vec<OwnedFd>) {
    match kind {
        Kind::Hello => {
            let welcome = Welcome {
                version: u64::from(VERSION),
                first_segment_at: 1 << 20,
                segment_bytes: SEGMENT_BYTES,
                segments: 2,
                is_dax: 0,
                is_in_place: 0,
                epoch: 0,
            };
            let (_, epoch) = SharedMemory::make(BLOCK_BYTES).expect("memory");
            (welcome.reply(), vec![writable_file(PROCESS_BYTES), epoch])
        }
        Kind::Attach => {
            let layout = Layout {
                ring_blocks: 1,
                spare_blocks: 8,
                capacity_blocks: CAPACITY_BLOCKS_MIN,
            };
            let (memory, file) = SharedMemory::make(layout.bytes()).expect("memory");
            memory.word(layout.ring_at(0)).store(256, Relaxed);
            for slot in 0..8 {
                let at = layout.refill_at(slot);
                memory.word(at).store(slot, Relaxed);
                memory.word(at + 8).store(257 + slot, Relaxed);
            }
            memory.word(head::REFILLS).store(8, Relaxed);
            for index in 0..MAPPED_BYTES.div_ceil(BLOCK_BYTES) as u64 {
                memory
                    .word(layout.entry_at(index))
                    .store((300 + index) << 3 | 4, Relaxed);
            }
            // Lies in the head, the ring, the refills and the map.
            for (at, word) in words {
                let places = layout.ring_at(0) / 8 + 24;
                let at = match at % (places + 8) {
                    at if at < places => at * 8,
                    at => layout.entry_at((at - places) as u64),
                };
                memory.word(at).store(*word, Relaxed);
            }
            let attached = Attached {
                file: 1,
                is_lease: request.first,
                size_bytes: match request.first {
                    0 => MAPPED_BYTES as u64,
                    _ => 30_000,
                },
                capacity_blocks: layout.capacity_blocks,
                ring_blocks: 1,
                spare_blocks: 8,
                salt: 1,
                next: 1,
                slot: 0,
                inode: INODE,
                is_same_memory: 0,
                is_empty: 0,
                segments: [1, 0, 0, 0],
            };
            let beside = [file].into_iter().chain((request.first == 1).then(segment));
            (attached.reply(), beside.collect())
        }
        Kind::Segments => {
            let bits = Row::of(request).bits;
            let segments = (0..bits.count_ones()).map(|_| segment());
            (Reply::of(&[bits]), segments.collect())
        }
        Kind::Mapping => {
            let (_, theirs) = socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                None,
            )
            .expect("sockets");
            (Reply::of(&[1]), vec![theirs])
        }
        _ => (Reply::of(&[1]), Vec::new()),
    }
}

fn serve(connection: &OwnedFd, lies: &[Lie], words: &[(usize, u64)]) {
    let mut lies = lies.iter();
    while let Ok(Some((request, _))) = transport::receive::<Request>(connection.as_fd()) {
        let Some(kind) = Kind::of(request.kind) else {
            return;
        };
        if matches!(kind, Kind::Ring | Kind::LetGo) {
            continue;
        }
        let (mut reply, mut beside) = honest(kind, &request, words);
        match lies.next().unwrap_or(&Lie::None) {
            Lie::None => {}
            Lie::Word(at, word) => {
                let at = at * 8;
                reply.as_mut_bytes()[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            }
            Lie::Bytes(bytes) => {
                let _ = rustix::net::send(connection, bytes, SendFlags::NOSIGNAL);
                continue;
            }
            Lie::NoDescriptor => beside.clear(),
            Lie::WrongDescriptor => {
                beside = vec![std::fs::File::open("/dev/null").expect("open").into()];
            }
            Lie::Descriptors(count) => beside = (0..*count).map(|_| segment()).collect(),
            Lie::HangUp => return,
        }
        let beside: Vec<_> = beside.iter().map(AsFd::as_fd).collect();
        let _ = transport::send(connection.as_fd(), &reply, &beside, SendFlags::empty());
    }
}

fn use_file(name: &[u8]) {
    let connection = Connection::new(Found::at(name), None, Rule::FIRST);
    if !connection.establish() {
        return;
    };
    let file = connection.file(INODE).expect("a file");
    let descriptor = std::fs::File::open("/dev/null").expect("open");
    let descriptor = descriptor.as_fd();
    let request = MapRequest {
        bytes: MAPPED_BYTES,
        protection: libc::PROT_READ,
        flags: libc::MAP_SHARED,
        offset: 0,
    };
    for _ in 0..2 {
        let _ = file.plan_mapping(descriptor, &request);
    }
    file.close();
    let data = vec![7; 9000];
    for round in 0..100_u64 {
        let offset = round * 1234 % 33_000;
        let length = (round * 777 % 9000) as usize;
        let _ = file.write_at(descriptor, &[IoSlice::new(&data[..length])], offset);
        let _ = file.append(descriptor, &[IoSlice::new(&data[..round as usize])]);
        let mut into = vec![0; length];
        let _ = file.read_at(descriptor, &mut [IoSliceMut::new(&mut into)], offset);
        let _ = (file.size_bytes(), file.is_durable());
    }
    file.close();
    for _ in 0..3 {
        file.expect_use();
        let _ = file.append(descriptor, &[IoSlice::new(&data)]);
        file.close();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_answer_is_survived(
        lies in prop::collection::vec(lie(), 0..12),
        words in prop::collection::vec((any::<usize>(), word()), 0..6),
    ) {
        let (socket, name) = listen_somewhere();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Ok(connection) = accept(&socket) {
                    serve(&connection, &lies, &words);
                }
            });
            use_file(&name);
        });
    }
}
