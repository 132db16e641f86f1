//! A process with a lease, which answers as a test wants it to.

use crate::common::{new_region, open};
use lease::{FileMap, Place, Record, Ring, Salt, Trust, Writer};
use perdure_fs::lease::{Grant, Holder, LeaseRemains, LeaseSize, TakenBack};
use perdure_fs::{FileSystem, NewInode, Node};
use pmem::{BLOCK_BYTES, BlockNumber, Region};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use txn::Mode;
use zerocopy::IntoBytes;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// Whose files are leased.
pub(crate) const USER: u32 = 1000;
pub(crate) const SIZE: LeaseSize = LeaseSize {
    ring_blocks: 2,
    spare_blocks: 32,
};

pub(crate) fn new_pool(size_bytes: u64, segment_bytes: u64) -> FileSystem {
    mount(new_region(size_bytes, segment_bytes, 2))
}

pub(crate) fn mount(region: Region) -> FileSystem {
    open(region, Mode::ReadWrite).expect("mount")
}

/// The pool as the next mount finds it if the power goes now.
pub(crate) fn after_power_cut(files: &FileSystem) -> FileSystem {
    mount(Region::from_image(files.store().region().image()))
}

pub(crate) fn of(uid: u32) -> NewInode {
    NewInode {
        uid,
        ..NewInode::file(0o600)
    }
}

/// A file of `user` with `blocks` blocks of 1.
pub(crate) fn make(files: &FileSystem, name: &str, user: u32, blocks: usize) -> Node {
    let node = files
        .create(&files.root(), name.as_bytes(), &of(user))
        .expect("create");
    files
        .write(&node, 0, &vec![1; blocks * BLOCK_BYTES])
        .expect("write");
    node
}

pub(crate) fn content(files: &FileSystem, node: &Node) -> Vec<u8> {
    let mut bytes = vec![0; 4 << 20];
    let length = files.read(node, 0, &mut bytes).expect("read");
    bytes.truncate(length);
    bytes
}

/// Fills the pool, as a file of `user`.
pub(crate) fn fill(files: &FileSystem, user: u32) -> Node {
    let filler = make(files, "filler", user, 1);
    while files.append(&filler, &[9; BLOCK_BYTES]).is_ok() {}
    filler
}

/// Where block `index` of a file is.
pub(crate) fn place(files: &FileSystem, node: &Node, index: u64) -> Place {
    let mut found = Place::Hole;
    files
        .places(node, index, 1, |_, place| found = place.expect("memory"))
        .expect("places");
    found
}

pub(crate) struct Process {
    taken: TakenBack,
    ended: Mutex<Option<(LeaseRemains, u64)>>,
}

impl Process {
    /// One that is idle whenever it is asked.
    pub(crate) fn idle() -> Arc<Process> {
        Process::answering(Trust::All, None)
    }

    /// One that was stopped while it stored into its file's first block.
    pub(crate) fn stopped() -> Arc<Process> {
        Process::answering(Trust::IfDataFits, Some(0))
    }

    fn answering(trust: Trust, busy_block: Option<u64>) -> Arc<Process> {
        Arc::new(Process {
            taken: TakenBack { trust, busy_block },
            ended: Mutex::default(),
        })
    }
}

impl Holder for Process {
    fn is_idle(&self) -> bool {
        true
    }

    fn take_back(&self) -> TakenBack {
        self.taken
    }

    fn folded(&self, _next: u64, _refilled: &[lease::Spare]) {}

    fn ended(&self, remains: LeaseRemains, next: u64) {
        *self.ended.lock().expect("nobody panicked") = Some((remains, next));
    }

    fn attributes_changed(&self) {}
}

pub(crate) struct Map(HashMap<u64, Place>);

impl FileMap for Map {
    fn get(&self, index: u64) -> Option<Place> {
        Some(self.0.get(&index).copied().unwrap_or(Place::Hole))
    }

    fn set(&mut self, index: u64, block: BlockNumber) {
        self.0.insert(index, Place::At(block));
    }
}

/// What the process has of its lease.
pub(crate) struct Lessee {
    pub(crate) writer: Writer,
    pub(crate) map: Map,
    ring: Ring,
    salt: Salt,
}

pub(crate) fn lease(
    files: &FileSystem,
    node: &Node,
    size: LeaseSize,
    process: Arc<Process>,
) -> Lessee {
    let grant = files.lease(node, size, process).expect("a lease");
    let Grant {
        ring,
        salt,
        next,
        spares,
        size_bytes,
        ..
    } = grant;
    let mut map = HashMap::new();
    files
        .places(node, 0, size_bytes.div_ceil(BLOCK), |index, place| {
            map.extend(place.map(|place| (index, place)));
        })
        .expect("places");
    let region = files.store().shared_region();
    Lessee {
        writer: Writer::new(region, ring.clone(), salt, next, spares, size_bytes),
        map: Map(map),
        ring,
        salt,
    }
}

impl Lessee {
    /// Where record `sequence` lies.
    pub(crate) fn place(&self, sequence: u64) -> pmem::Offset {
        self.ring.place(sequence)
    }

    /// A write by the process.
    pub(crate) fn write(&mut self, offset: u64, byte: u8, blocks: usize) {
        let data = vec![byte; blocks * BLOCK_BYTES];
        self.writer
            .write(&mut self.map, offset, &data, 5)
            .expect("room");
    }

    /// Writes record `sequence` as no library does: block `index` and the slot change places, without data.
    pub(crate) fn forge(&self, files: &FileSystem, sequence: u64, index: u64, slot: u32) {
        let size = self.writer.size_bytes().max((index + 1) * BLOCK);
        let record = Record {
            sequence,
            index,
            size,
            modified: 1,
            slot,
            continues: 0,
            data_at: 0,
            data_bytes: 0,
            data_checksum: 0,
            checksum: 0,
            reserved: 0,
        };
        let record = record.sealed(self.salt);
        let region = files.store().shared_region();
        let at = self.ring.place(sequence);
        region.fence(region.store(at, record.as_bytes()).flush());
    }
}
