//! The pool that each sequence starts from: the start tree, durable in the image, and a ring that
//! is about to wrap.

use super::medium::{Choice, Medium, Point};
use crate::catalogue;
use crate::clock;
use crate::lab::{agree, compare};
use crate::model::Model;
use crate::operation::{Live, Operation};
use crate::recovery;
use fs::FileSystem;
use pmem::{DurabilityClass, Region};
use std::sync::{Arc, OnceLock};
use txn::transaction::use_slot;
use txn::{Disks, Durability, FormatOptions, PmemStore, PoolState};
use wal::OpenLog;

/// A ring that the first two or three sequences fill.
const RING_BYTES: u64 = 128 << 10;
/// A state costs what its image costs to read.
const POOL_BYTES: u64 = 512 << 10;
/// The two roots.
const ROOTS_BYTES: u64 = 2 * wal::UNIT_BYTES as u64;
/// Batches after which a wanted unit of the ring must have been met.
const ATTEMPTS_MAX: usize = 1000;
/// Of each pool, units between the log's root and the end of its ring.
const UNITS_LEFT: [u64; 2] = [2, 11];

/// Disks with the start tree, and its model.
pub struct Prepared {
    point: Point,
    model: Model,
}

/// One of two pools, made once in a process: all threads see the same states.
///
/// # Errors
///
/// The error of the pool's creation.
pub fn prepared(number: u64) -> Result<&'static Prepared, String> {
    static POOLS: [OnceLock<Result<Prepared, String>>; 2] = [const { OnceLock::new() }; 2];
    let index = number as usize % POOLS.len();
    let pool = POOLS[index].get_or_init(|| Prepared::new(UNITS_LEFT[index]));
    pool.as_ref().map_err(Clone::clone)
}

/// Opens and mounts the pool on `disks`; `left` is what a killed server has left.
///
/// # Errors
///
/// The error of opening or mounting.
pub fn mount(
    disks: &Disks,
    left: Option<Arc<Region>>,
    durability: Durability,
) -> Result<FileSystem, String> {
    let store = PmemStore::open_disks(disks, left, durability);
    let store = store.map_err(|error| format!("open: {error}"))?;
    recovery::mount_store(store, Default::default(), false)
}

/// Opens and mounts for a program that will make changes.
///
/// # Errors
///
/// As [`mount`].
pub fn live(
    medium: &Arc<Medium>,
    left: Option<Arc<Region>>,
    durability: Durability,
) -> Result<Live, String> {
    let files = mount(&medium.disks(), left, durability)?;
    let region = files.store().shared_region();
    Ok(Live::over(files, &region))
}

/// Memory of class `log` with these bytes.
pub fn memory(image: &[u8]) -> Region {
    let mut region = Region::anonymous_of(image.len() as u64, DurabilityClass::Log);
    region.refill(image);
    region
}

/// Brings the image up to date.
///
/// # Errors
///
/// The log has failed.
pub fn save_image(files: &FileSystem) -> Result<(), String> {
    let logger = files.store().logger().ok_or("the pool has no log")?;
    logger.checkpoint().map_err(|error| error.to_string())
}

impl Prepared {
    fn new(units_left: u64) -> Result<Prepared, String> {
        let options = FormatOptions {
            size_bytes: POOL_BYTES,
            log: true,
            volatile: false,
            journals: 2,
            ..FormatOptions::tiny()
        };
        clock::restart(1);
        // The pool is the same whatever this thread has run before.
        recovery::roam_after(0);
        use_slot(0);
        let memory = Region::anonymous_of(options.size_bytes, DurabilityClass::Log);
        let region =
            fs::mkfs_region(memory, &options, (0, 0)).map_err(|error| error.to_string())?;
        let log = vec![0; (ROOTS_BYTES + RING_BYTES) as usize];
        let medium = Medium::new([log, vec![0; region.length() as usize]]);
        let formatted = medium.disks().format(&region);
        formatted.map_err(|error| error.to_string())?;
        let mut live = live(&medium, None, Durability::Call)?;
        let mut model = Model::default();
        for operation in catalogue::start() {
            agree(&mut live, &mut model, &operation)?;
            save_image(live.files())?;
        }
        let superblock = *live.files().store().superblock();
        let position = || {
            let log = OpenLog::open(medium.disks().log, superblock.uuid);
            log.map(|log| log.root().position)
                .map_err(|error| error.to_string())
        };
        // A clean unmount writes no batch. Changes of different lengths, so that every unit is met.
        let mut attempts = 0..ATTEMPTS_MAX;
        while RING_BYTES - position()? % RING_BYTES != units_left * wal::UNIT_BYTES as u64 {
            let attempt = attempts
                .next()
                .ok_or("the log's root meets no wanted unit")?;
            let path = "a".to_owned();
            let change = match attempt % 5 {
                4 => Operation::Write {
                    path,
                    offset: 0,
                    bytes: pmem::BLOCK_BYTES,
                    byte: 1,
                },
                _ => Operation::SetMode { path, mode: 0o644 },
            };
            agree(&mut live, &mut model, &change)?;
            save_image(live.files())?;
        }
        compare(&live, &model, &[])?;
        live.unmount();
        let point = medium.point();
        if !point.is_durable() {
            return Err("a clean unmount leaves writes that are not durable".into());
        }
        Ok(Prepared { point, model })
    }

    /// Its disks and its model.
    pub fn start(&self) -> (Arc<Medium>, Model) {
        (self.point.medium(Choice::whole(true)), self.model.clone())
    }
}

/// The bytes of log and image of a pool whose power has failed, with batches behind the root.
///
/// # Errors
///
/// The error of the pool's creation.
pub fn sample() -> Result<[Vec<u8>; 2], String> {
    let (medium, mut model) = prepared(0)?.start();
    let mut live = live(&medium, None, Durability::Call)?;
    for mode in [0o600, 0o640, 0o604] {
        let path = "a".to_owned();
        agree(&mut live, &mut model, &Operation::SetMode { path, mode })?;
        if mode == 0o600 {
            save_image(live.files())?;
        }
    }
    let disks = medium.point().cut(Choice::whole(true));
    let bytes = |disk: &dyn wal::Disk| {
        let mut bytes = vec![0; disk.length_bytes() as usize];
        let read = disk.read(0, &mut bytes);
        read.map(|()| bytes).map_err(|error| error.to_string())
    };
    Ok([bytes(&*disks.log)?, bytes(&*disks.image)?])
}
