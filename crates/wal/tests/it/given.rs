//! Logs for tests.

use perdure_wal::testing::SimulatedDisk;
use perdure_wal::{Disk, Log, LogError, OpenLog, Replayed, Root, RootBlock, UNIT_BYTES, format};
use std::sync::Arc;

pub(crate) const IDENTITY: [u8; 16] = *b"identity of pool";

/// Positions in the file of the two roots.
pub(crate) const ROOTS: [usize; 2] = [0, UNIT_BYTES];
/// Where the ring begins in the file.
pub(crate) const RING: usize = 2 * UNIT_BYTES;

/// Records and entries of a batch, as a replay gives them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) number: u64,
    pub(crate) last: u64,
    pub(crate) payload: Vec<u8>,
}

/// A formatted disk with a ring of so many units.
pub(crate) fn formatted(units: usize) -> Arc<SimulatedDisk> {
    let disk = Arc::new(SimulatedDisk::new((units + 2) * UNIT_BYTES));
    format(&*disk, IDENTITY, 0, &mut |_, _| ()).expect("format");
    disk
}

pub(crate) fn open(disk: &Arc<SimulatedDisk>) -> Result<OpenLog, LogError> {
    OpenLog::open(Arc::clone(disk) as Arc<dyn Disk>, IDENTITY)
}

/// Mounts: replays and continues.
pub(crate) fn replay(disk: &Arc<SimulatedDisk>) -> (Vec<Seen>, Log) {
    let mut seen = Vec::new();
    let log = open(disk)
        .expect("open")
        .replay(&mut |batch| seen.push(see(batch)))
        .expect("replay");
    (seen, log)
}

/// Reads without a write.
pub(crate) fn read(disk: &Arc<SimulatedDisk>) -> Result<(Root, Vec<Seen>, Replayed), LogError> {
    let log = open(disk)?;
    let mut seen = Vec::new();
    let replayed = log.read(&mut |batch| seen.push(see(batch)))?;
    Ok((log.root(), seen, replayed))
}

fn see(batch: &perdure_wal::Batch<'_>) -> Seen {
    Seen {
        number: batch.number,
        last: batch.last_sequence,
        payload: batch.payload.to_vec(),
    }
}

/// Bytes that differ by seed.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|index| {
            (seed
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(index as u32 % 63)
                >> 7) as u8
                ^ index as u8
        })
        .collect()
}

/// Appends one batch with one record.
pub(crate) fn append(log: &Log, sequence: u64, payload: &[u8]) -> Result<u64, LogError> {
    let mut buffer = log.buffer();
    buffer.payload().extend_from_slice(payload);
    let placed = log
        .place(buffer, sequence, sequence, false)
        .expect("the ring has room");
    log.write(placed)
}

/// The root of a log on a disk, changed, with a check that fits.
pub(crate) fn change_root(disk: &SimulatedDisk, at: usize, change: impl FnOnce(&mut RootBlock)) {
    use zerocopy::FromBytes;
    let image = disk.image();
    let (mut block, _) = RootBlock::read_from_prefix(&image[at..]).expect("a unit");
    change(&mut block);
    let unit = block.unit();
    disk.damage(at, |bytes| bytes[..UNIT_BYTES].copy_from_slice(&unit));
}
