//! A server of one file: as small as it can be and still be honest.

use crate::connection::Connection;
use crate::layout::{CAPACITY_BLOCKS_MIN, Entry, Layout, MAP_CHUNK, PROCESS_BYTES, head, slot_at};
use crate::memory::SharedMemory;
use crate::protocol::{
    Attached, Kind, Prospect, Refusal, Reply, Request, Row, SEGMENTS_BESIDE, VERSION, Welcome,
};
use crate::transport;
use lease::{Busy, Place, Ring, Salt, State, Terms, Trust, judge};
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, BlockNumber, DurabilityClass, Offset, Part, Permission, Region};
use rustix::fs::{MemfdFlags, SealFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, send,
    socket_with, socketpair,
};
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
pub(crate) const INODE: u64 = 77;
pub(crate) const SEGMENT_BLOCKS: u64 = 512;
pub(crate) const SEGMENTS: u64 = 3;
const FIRST_BLOCK: u64 = 512;
pub(crate) const SPARES: u64 = 16;
const SALT: Salt = Salt(0x5eed);
const SLOT: usize = 3;
const MAP_SLOT: usize = 4;

/// What the server does with a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Manner {
    Honest,
    Refuses(Refusal),
    HangsUp,
    Silent,
}

#[derive(Debug)]
struct Attachment {
    memory: SharedMemory,
    layout: Layout,
    is_lease: bool,
    ring: Option<Ring>,
    slots: Vec<Option<BlockNumber>>,
    next: u64,
    refills: u64,
    is_over: bool,
}

/// The pool with its file.
#[derive(Debug)]
pub(crate) struct Pool {
    region: Region,
    files: Vec<File>,
    process: SharedMemory,
    process_file: OwnedFd,
    pub(super) epoch: SharedMemory,
    epoch_file: OwnedFd,
    pub(crate) blocks: BTreeMap<u64, Place>,
    pub(crate) size_bytes: u64,
    free: Vec<BlockNumber>,
    attachment: Option<Attachment>,
    /// Number of the last attachment.
    number: u32,
    /// The memory of the one that was let go last.
    left: Option<(u32, SharedMemory)>,
    /// Attachments that got such a memory.
    pub(crate) used_again: usize,
    pub(crate) asked: Vec<Kind>,
    /// Where it tells a process that it wants mappings back.
    pub(crate) caller: Option<OwnedFd>,
    pub(crate) manner: Manner,
    pub(crate) refused_segment: Option<u64>,
    /// Descriptors of segments that arrive beside one answer, as if the process could have no more.
    pub(crate) descriptors_max: usize,
    /// Answers that promise all segments for later, before it gives any.
    pub(crate) promises: usize,
    /// Whether processes are told to overwrite in place.
    pub(crate) is_in_place: bool,
    /// Whether the segments of a lease's blocks lie beside it, as far as descriptors arrive, and the map of the block that is used first is filled in.
    pub(crate) gives_beside: bool,
    /// Chunks of the map that are filled in when a file is attached, as if another process had asked for them.
    pub(crate) chunks_known: u64,
}

/// A server that listens until its process ends.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: Vec<u8>,
    pub(crate) pool: Arc<Mutex<Pool>>,
}

/// A name that no other test has.
pub(crate) fn listen_somewhere() -> (OwnedFd, Vec<u8>) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("perdure-test-{}-{number}", std::process::id()).into_bytes();
    let flags = SocketFlags::CLOEXEC;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("socket");
    let address = SocketAddrUnix::new_abstract_name(&name).expect("name");
    bind(&socket, &address).expect("bound");
    listen(&socket, 8).expect("listening");
    (socket, name)
}

impl Server {
    /// A server of a file with this content, whose blocks are from different segments in turn.
    pub(crate) fn start(content: &[u8]) -> Server {
        let block = |number| number * 515 % (SEGMENTS * SEGMENT_BLOCKS);
        Server::of(Pool::new(content, block))
    }

    /// The same, but all its blocks are in a row.
    pub(crate) fn start_in_a_row(content: &[u8]) -> Server {
        Server::of(Pool::new(content, |number| {
            SEGMENTS * SEGMENT_BLOCKS - 1 - number
        }))
    }

    fn of(pool: Pool) -> Server {
        let (socket, name) = listen_somewhere();
        let pool = Arc::new(Mutex::new(pool));
        let served = Arc::clone(&pool);
        std::thread::spawn(move || {
            while let Ok(connection) = accept(&socket) {
                let served = Arc::clone(&served);
                std::thread::spawn(move || serve(&connection, &served));
            }
        });
        Server { name, pool }
    }

    pub(crate) fn connect(&self, rule: crate::Rule) -> Arc<Connection> {
        let connection = Connection::new(crate::discover::Server::at(&self.name), None, rule);
        assert!(connection.establish(), "connected");
        connection
    }

    pub(crate) fn asked(&self, kind: Kind) -> usize {
        let pool = self.pool.lock();
        pool.asked.iter().filter(|asked| **asked == kind).count()
    }

    /// How often the file was let go, when that has become `times` or was waited for long enough: nobody waits for the server when he lets go.
    pub(crate) fn let_go(&self, times: usize) -> usize {
        let begin = Instant::now();
        loop {
            let found = self.asked(Kind::Detach) + self.asked(Kind::LetGo);
            if found == times || begin.elapsed() > Duration::from_secs(5) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the file back from an idle process.
    pub(crate) fn take_back(&self) {
        self.pool.lock().take_back();
    }

    /// What is in the file by what the server knows, after folding.
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut pool = self.pool.lock();
        pool.fold(Trust::All);
        pool.content()
    }
}

fn serve(connection: &OwnedFd, pool: &Mutex<Pool>) {
    while let Ok(Some((request, mut beside))) = transport::receive::<Request>(connection.as_fd()) {
        let mut pool = pool.lock();
        let Some(kind) = Kind::of(request.kind) else {
            return;
        };
        pool.asked.push(kind);
        let (reply, descriptors) = match pool.manner {
            Manner::HangsUp => return,
            Manner::Silent => continue,
            Manner::Refuses(refusal) if kind != Kind::Hello => {
                (Reply::refused(refusal), Vec::new())
            }
            _ => pool.answer(kind, &request, beside.pop()),
        };
        if !matches!(kind, Kind::Ring | Kind::LetGo) {
            let beside: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            if transport::send(connection.as_fd(), &reply, &beside, SendFlags::empty()).is_err() {
                return;
            }
        }
    }
}

pub(super) fn writable_file(bytes: usize) -> OwnedFd {
    let file = memfd_create("perdure", MemfdFlags::ALLOW_SEALING).expect("memory");
    ftruncate(&file, bytes as u64).expect("length");
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    file
}

/// Memory of another attachment, as if it were new.
fn cleared(memory: SharedMemory, layout: &Layout) -> SharedMemory {
    let head = (0..head::BYTES).step_by(8);
    let entries = (0..2 * MAP_CHUNK).map(|index| layout.entry_at(index));
    for at in head.chain(entries) {
        memory.word(at).store(0, Relaxed);
    }
    memory
}

impl Pool {
    /// Blocks are taken from the back of those that `block` puts in order.
    fn new(content: &[u8], block: impl Fn(u64) -> u64) -> Pool {
        let length = (FIRST_BLOCK + SEGMENTS * SEGMENT_BLOCKS) * BLOCK;
        let region = Region::reserve(length, DurabilityClass::Volatile).expect("addresses");
        let files = (0..SEGMENTS).map(|segment| {
            let file = File::from(writable_file((SEGMENT_BLOCKS * BLOCK) as usize));
            let part = Part {
                file: &file,
                path: Path::new("segment"),
                file_offset: 0,
                length: SEGMENT_BLOCKS * BLOCK,
            };
            let at = Offset::new((FIRST_BLOCK + segment * SEGMENT_BLOCKS) * BLOCK);
            region
                .map_later(at, &part, Permission::ReadWrite)
                .expect("mapped");
            file
        });
        let files = files.collect();
        let process_file = writable_file(PROCESS_BYTES);
        let process = SharedMemory::map_file(&process_file, PROCESS_BYTES, true).expect("memory");
        let (epoch, epoch_file) = SharedMemory::make(BLOCK_BYTES).expect("memory");
        let mut pool = Pool {
            region,
            files,
            process,
            process_file,
            epoch,
            epoch_file,
            blocks: BTreeMap::new(),
            size_bytes: content.len() as u64,
            free: (0..SEGMENTS * SEGMENT_BLOCKS)
                .map(|number| BlockNumber::new(block(number) + FIRST_BLOCK))
                .collect(),
            attachment: None,
            number: 0,
            left: None,
            used_again: 0,
            asked: Vec::new(),
            caller: None,
            manner: Manner::Honest,
            refused_segment: None,
            descriptors_max: usize::MAX,
            promises: 0,
            is_in_place: false,
            gives_beside: false,
            chunks_known: 0,
        };
        for (index, bytes) in (0..).zip(content.chunks(BLOCK_BYTES)) {
            let block = pool.take_block();
            pool.region
                .fence(pool.region.write_streaming(block.offset(), bytes));
            pool.blocks.insert(index, Place::At(block));
        }
        pool
    }

    fn take_block(&mut self) -> BlockNumber {
        self.free.pop().expect("a free block")
    }

    fn answer(
        &mut self,
        kind: Kind,
        request: &Request,
        beside: Option<OwnedFd>,
    ) -> (Reply, Vec<OwnedFd>) {
        let done = (Reply::of(&[]), Vec::new());
        match kind {
            Kind::Hello => {
                let welcome = Welcome {
                    version: u64::from(VERSION),
                    first_segment_at: FIRST_BLOCK * BLOCK,
                    segment_bytes: SEGMENT_BLOCKS * BLOCK,
                    segments: SEGMENTS,
                    is_dax: 0,
                    is_in_place: u64::from(self.is_in_place),
                    epoch: 0,
                };
                let files = [&self.process_file, &self.epoch_file];
                let files = files.map(|file| file.try_clone().expect("copied"));
                (welcome.reply(), files.into())
            }
            Kind::Attach => {
                assert!(beside.is_some(), "the file itself proves the open");
                let (attached, file) = self.attach(request.first == 1, request.file);
                let mut descriptors: Vec<OwnedFd> = file.into_iter().collect();
                let segments = self.beside(request, &mut descriptors);
                let attached = Attached {
                    segments,
                    ..attached
                };
                (attached.reply(), descriptors)
            }
            Kind::Segments => self.segments(request),
            Kind::Map => {
                self.fill_map(request.first, request.second);
                done
            }
            Kind::Fold | Kind::Ring => {
                // Who rings may be writing.
                self.fold(match kind {
                    Kind::Ring => Trust::AllButNewest,
                    _ => Trust::All,
                });
                done
            }
            Kind::Mapping => {
                let slot = Reply::of(&[MAP_SLOT as u64]);
                if self.caller.is_some() {
                    return (slot, Vec::new());
                }
                let (ours, theirs) = socketpair(
                    AddressFamily::UNIX,
                    SocketType::SEQPACKET,
                    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                    None,
                )
                .expect("sockets");
                self.caller = Some(ours);
                (slot, vec![theirs])
            }
            Kind::Detach => {
                self.take_back();
                done
            }
            Kind::LetGo => {
                let memory = self.take_back();
                self.left = memory.map(|memory| (request.file, memory));
                done
            }
            Kind::Outcome => {
                let counts = self
                    .attachment
                    .take()
                    .is_some_and(|a| request.first < a.next);
                (Reply::of(&[u64::from(counts)]), Vec::new())
            }
        }
    }

    fn segments(&mut self, request: &Request) -> (Reply, Vec<OwnedFd>) {
        let wanted = Row::of(request).wanted();
        if self.promises > 0 {
            self.promises -= 1;
            return (Reply::of(&[0, Row::of(request).bits]), Vec::new());
        }
        let given: Vec<(u64, u64)> = wanted
            .filter(|(_, segment)| self.refused_segment != Some(*segment))
            .collect();
        let sent = given.iter().take(self.descriptors_max);
        let files = sent.map(|(_, segment)| {
            let file = &self.files[*segment as usize];
            file.try_clone().expect("copied").into()
        });
        let bits = given.iter().fold(0, |bits, (place, _)| bits | 1 << place);
        match bits {
            0 => (Reply::refused(Refusal::NotYours), Vec::new()),
            bits => (Reply::of(&[bits]), files.collect()),
        }
    }

    /// What goes beside an attachment, and the numbers that say so.
    fn beside(&self, request: &Request, descriptors: &mut Vec<OwnedFd>) -> [u32; SEGMENTS_BESIDE] {
        let mut segments = [0; SEGMENTS_BESIDE];
        let Some(attachment) = self.attachment.as_ref().filter(|_| self.gives_beside) else {
            return segments;
        };
        let first = Prospect::of(request).first_block;
        if let Some(first) = first.filter(|first| *first < attachment.layout.capacity_blocks) {
            self.fill_map(first - first % MAP_CHUNK, MAP_CHUNK);
        }
        let ring = attachment.ring.iter().flat_map(|ring| ring.blocks());
        let blocks = ring.chain(attachment.slots.iter().flatten());
        let numbers: BTreeSet<u64> = blocks
            .map(|block| (block.get() - FIRST_BLOCK) / SEGMENT_BLOCKS)
            .collect();
        for (place, number) in segments.iter_mut().zip(numbers) {
            *place = number as u32 + 1;
            let file = &self.files[number as usize];
            descriptors.push(file.try_clone().expect("copied").into());
        }
        descriptors.truncate(self.descriptors_max);
        segments
    }

    fn attach(&mut self, is_lease: bool, left: u32) -> (Attached, Option<OwnedFd>) {
        let memory = self.take_back();
        if left != 0 && self.left.is_none() {
            // Nothing else has said that it was let go.
            self.left = memory.map(|memory| (left, memory));
        }
        let layout = Layout {
            ring_blocks: u64::from(is_lease),
            spare_blocks: if is_lease { SPARES } else { 0 },
            capacity_blocks: CAPACITY_BLOCKS_MIN,
        };
        let is_empty = self.blocks.is_empty();
        let left = self.left.take_if(|(number, memory)| {
            is_lease && *number == left && memory.has_shape(layout.bytes(), None)
        });
        let (memory, file) = match left {
            Some((_, memory)) => {
                self.used_again += 1;
                (cleared(memory, &layout), None)
            }
            None => {
                let (memory, file) = SharedMemory::make(layout.bytes()).expect("memory");
                (memory, Some(file))
            }
        };
        let mut attachment = Attachment {
            memory,
            layout,
            is_lease,
            ring: None,
            slots: vec![None; layout.spare_blocks as usize],
            next: 1,
            refills: 0,
            is_over: false,
        };
        if is_lease {
            let block = self.take_block();
            attachment.ring = Some(Ring::new(vec![block]));
            // The records of a lease before this one would count as its own.
            self.region
                .fence(self.region.zero_streaming(block.offset(), BLOCK));
            attachment
                .memory
                .word(layout.ring_at(0))
                .store(block.get(), Relaxed);
        }
        let next = attachment.next;
        self.attachment = Some(attachment);
        if is_empty {
            self.fill_map(0, MAP_CHUNK);
        }
        self.fill_map(0, self.chunks_known * MAP_CHUNK);
        self.refill();
        self.number += 1;
        let attached = Attached {
            file: u64::from(self.number),
            is_lease: u64::from(is_lease),
            size_bytes: self.size_bytes,
            capacity_blocks: layout.capacity_blocks,
            ring_blocks: layout.ring_blocks,
            spare_blocks: layout.spare_blocks,
            salt: SALT.0,
            next,
            slot: SLOT as u64,
            inode: INODE,
            is_same_memory: u64::from(file.is_none()),
            is_empty: u64::from(is_empty),
            segments: [0; SEGMENTS_BESIDE],
        };
        (attached, file)
    }

    /// Another process makes the file empty.
    pub(crate) fn make_empty(&mut self) {
        self.end();
        let blocks = std::mem::take(&mut self.blocks);
        self.free
            .extend(blocks.into_values().filter_map(|place| match place {
                Place::At(block) | Place::Unwritten(block) => Some(block),
                Place::Hole => None,
            }));
        self.size_bytes = 0;
    }

    fn fill_map(&self, first: u64, count: u64) {
        let attachment = self.attachment.as_ref().expect("attached");
        for index in first..first + count {
            let place = self.blocks.get(&index).copied().unwrap_or(Place::Hole);
            let word = attachment.memory.word(attachment.layout.entry_at(index));
            if word.load(Relaxed) == Entry::Unknown.word() {
                word.store(Entry::Place(place).word(), Relaxed);
            }
        }
    }

    fn refill(&mut self) {
        let Some(mut attachment) = self.attachment.take() else {
            return;
        };
        for slot in 0..attachment.slots.len() {
            if attachment.slots[slot].is_none() {
                let block = self.take_block();
                attachment.slots[slot] = Some(block);
                let at = attachment.layout.refill_at(attachment.refills);
                attachment.memory.word(at).store(slot as u64, Relaxed);
                attachment.memory.word(at + 8).store(block.get(), Relaxed);
                attachment.refills += 1;
            }
        }
        attachment
            .memory
            .word(head::REFILLS)
            .store(attachment.refills, Release);
        self.attachment = Some(attachment);
    }

    /// Folds the records that there are.
    fn fold(&mut self, trust: Trust) {
        let Some(attachment) = self.attachment.as_mut().filter(|a| !a.is_over) else {
            return;
        };
        let Some(ring) = &attachment.ring else {
            return;
        };
        let terms = Terms {
            ring,
            salt: SALT,
            next: attachment.next,
            spares: &attachment.slots,
            size_bytes: self.size_bytes,
            size_bytes_max: u64::MAX,
            records_max: ring.records(),
        };
        let effects = judge(&self.region, &terms, trust, |index| {
            Ok::<_, Infallible>(match self.blocks.get(&index) {
                Some(Place::At(block) | Place::Unwritten(block)) => Some(*block),
                _ => None,
            })
        });
        let effects = effects.expect("no lookup fails");
        assert_eq!(effects.fault, None, "an honest holder");
        for (index, block) in effects.placed {
            self.blocks.insert(index, Place::At(block));
        }
        for (slot, block) in effects.slots {
            attachment.slots[slot as usize] = block;
        }
        self.size_bytes = effects.size_bytes;
        attachment.next = effects.next;
        attachment
            .memory
            .word(head::FOLDED)
            .store(effects.next, Release);
        self.refill();
    }

    fn words<'a>(&'a self, attachment: &'a Attachment) -> State<'a> {
        State {
            state: attachment.memory.word(head::STATE),
            busy: self.process.word(slot_at(SLOT)),
        }
    }

    /// Records of the lease that are folded.
    pub(crate) fn folded(&self) -> u64 {
        self.attachment.as_ref().map_or(0, |it| it.next)
    }

    /// What the process says it is busy with.
    pub(crate) fn busy_word(&self) -> u64 {
        self.process.word(slot_at(SLOT)).load(Acquire)
    }

    /// Whether the process says that blocks are mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.process.word(slot_at(MAP_SLOT)).load(Acquire) != 0
    }

    /// Wants the mappings of the file back; does not wait.
    pub(crate) fn want_back(&mut self) {
        self.end();
        let caller = self.caller.as_ref().expect("something was mapped");
        send(caller, &[1], SendFlags::DONTWAIT).expect("told");
    }

    pub(crate) fn counter(&self, counter: crate::layout::Counter) -> u64 {
        let at = crate::layout::counter_at(counter);
        self.process.word(at).load(Relaxed)
    }

    /// Ends the attachment; a process that is busy is not waited for.
    pub(crate) fn end(&mut self) {
        let heavy_fence = || membarrier(MembarrierCommand::GlobalExpedited).expect("a fence");
        let Some(attachment) = self.attachment.as_ref().filter(|a| !a.is_over) else {
            return;
        };
        let state = self.words(attachment);
        state.seal(heavy_fence);
        let trust = match state.busy() {
            Busy::Idle => Trust::All,
            _ => {
                state.force(heavy_fence);
                Trust::IfDataFits
            }
        };
        self.fold(trust);
        if let Some(attachment) = &mut self.attachment {
            attachment.is_over = true;
        }
    }

    /// Ends the attachment. The memory of it.
    fn take_back(&mut self) -> Option<SharedMemory> {
        self.end();
        let attachment = self.attachment.take()?;
        if attachment.is_lease {
            let spares = attachment.slots.into_iter().flatten();
            let ring = attachment
                .ring
                .iter()
                .flat_map(|ring| ring.blocks().to_vec());
            self.free.extend(spares.chain(ring));
        }
        Some(attachment.memory)
    }

    /// The file's bytes by what the server knows.
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut content = vec![0; self.size_bytes as usize];
        for (index, bytes) in (0..).zip(content.chunks_mut(BLOCK_BYTES)) {
            if let Some(Place::At(block)) = self.blocks.get(&index) {
                self.region.read(block.offset(), bytes);
            }
        }
        content
    }
}
