//! A pool of class `log` that may be damaged, for checking and repairing it: image and log, or the
//! memory of a killed server, in private memory. A repair is written to the image, and all that the
//! log had is done with.

use super::image::Image;
use super::memory::Memory;
use super::open::{has_left, map_memory, new_token, open_image, open_log, read_alone};
use crate::directory::PoolDirectory;
use crate::error::OpenError;
use crate::layout::Superblock;
use crate::pool::{Mode, io_error};
use crate::recovery;
use parking_lot::Mutex;
use pmem::{Access, BLOCK_BYTES, Offset, Region};
use std::io;
use std::path::PathBuf;
use wal::{AlignedBuffer, OpenLog, Root};

/// Bytes that are compared at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Where a repair goes.
#[derive(Debug)]
pub(crate) struct Repairable {
    superblock: Superblock,
    path: PathBuf,
    image: Image,
    /// Until the repair is written.
    log: Mutex<Option<OpenLog>>,
}

/// The pool as a mount would find it, in memory of this process; for a repair, the way back too.
pub(crate) fn open(
    pool: &PoolDirectory,
    superblock: &Superblock,
    mode: Mode,
) -> Result<(Region, Option<Repairable>), OpenError> {
    let (path, log) = open_log(pool, superblock, mode)?;
    let image = open_image(pool, superblock, mode)?;
    let region = match has_left(superblock, &log.root(), Mode::ReadOnly)? {
        Some((memory, _)) => map_memory(&memory, Access::PrivateCopy)?,
        None => read_alone(&path, superblock, &log, &image)?,
    };
    let repairable = (mode == Mode::ReadWrite).then(|| Repairable {
        superblock: *superblock,
        path,
        image,
        log: Mutex::new(Some(log)),
    });
    Ok((region, repairable))
}

impl Repairable {
    /// Writes what the repair has made of the pool. Not atomic: a repair that is interrupted is
    /// done again.
    pub(crate) fn write(&self, region: &Region) -> Result<(), OpenError> {
        let Some(log) = self.log.lock().take() else {
            return Ok(());
        };
        let failed = |error| OpenError::Log {
            path: self.path.clone(),
            error,
        };
        let log = log.replay(&mut |_| ()).map_err(failed)?;
        self.write_differences(region)
            .map_err(io_error(&self.path, "write the image beside it"))?;
        let sequence = recovery::checkpoint_sequence(region)?;
        let end = log.durable_root();
        log.advance(Root {
            sequence: sequence.max(end.sequence),
            user: new_token(),
            ..end
        })
        .map_err(failed)?;
        Memory::give_back(&self.superblock);
        Ok(())
    }

    fn write_differences(&self, region: &Region) -> io::Result<()> {
        let (mut now, mut before) = (AlignedBuffer::new(), AlignedBuffer::new());
        for start in (0..region.length()).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(region.length() - start) as usize;
            now.resize(bytes);
            before.resize(bytes);
            region.read(Offset::new(start), &mut now);
            self.image.read(start, &mut before)?;
            let blocks = now.chunks(BLOCK_BYTES).zip(before.chunks(BLOCK_BYTES));
            for (index, (now, before)) in blocks.enumerate() {
                if now != before {
                    self.image
                        .write(start + (index * BLOCK_BYTES) as u64, now)?;
                }
            }
        }
        self.image.flush(|_| ())
    }
}
