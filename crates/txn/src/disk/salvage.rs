//! A pool of class `log` that may be damaged, for checking and repairing it: image and log, or the
//! memory of a killed server, in private memory. A repair is written to the image, and all that the
//! log had is done with.

use super::CLEAN;
use super::files::PoolFiles;
use super::image::Image;
use super::memory::Memory;
use super::open::{has_left, look_at_left, new_token, read_alone, read_both};
use crate::directory::PoolDirectory;
use crate::error::OpenError;
use crate::layout::Superblock;
use crate::pool::{Mode, io_error};
use crate::recovery;
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, Offset, Region};
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
    let files = PoolFiles::open(pool, superblock, mode)?;
    let region = match mode {
        Mode::ReadOnly => look_at(pool, superblock, &files)?,
        Mode::ReadWrite => take_as_it_is(superblock, &files)?,
    };
    let repairable = (mode == Mode::ReadWrite).then(|| Repairable {
        superblock: *superblock,
        path: files.path,
        image: files.image,
        log: Mutex::new(Some(files.log)),
    });
    Ok((region, repairable))
}

fn look_at(
    pool: &PoolDirectory,
    superblock: &Superblock,
    files: &PoolFiles,
) -> Result<Region, OpenError> {
    if files.are_copies() {
        let path = pool.path().to_path_buf();
        return Err(OpenError::Copied { path });
    }
    files.check_stamp()?;
    match has_left(superblock, &files.log.root(), Mode::ReadOnly)? {
        Some(left) => look_at_left(left, superblock, &files.image),
        None => read_alone(superblock, files),
    }
}

/// For a repair, files of different moments too.
fn take_as_it_is(superblock: &Superblock, files: &PoolFiles) -> Result<Region, OpenError> {
    if files.are_copies() {
        tracing::warn!("the files were copied before the pool was unmounted");
    } else if let Some(left) = has_left(superblock, &files.log.root(), Mode::ReadOnly)? {
        return look_at_left(left, superblock, &files.image);
    }
    let (region, replayed) = read_both(superblock, files)?;
    let stamped = files.check_stamp();
    let stamped = stamped.and_then(|()| files.check_end(&replayed));
    if let Err(error) = stamped {
        tracing::warn!("{error}");
    }
    Ok(region)
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
        let token = new_token();
        let end = log.durable_root();
        self.write_differences(region)
            .and_then(|()| {
                self.image.change_stamp(|stamp| {
                    stamp.token = token;
                    stamp.former = end.user & !CLEAN;
                    stamp.complete = end.position;
                    stamp.newest = end.sequence;
                })
            })
            .and_then(|()| self.image.flush(|_| ()))
            .map_err(io_error(&self.path, "write the image beside it"))?;
        let sequence = recovery::checkpoint_sequence(region)?;
        log.advance(Root {
            sequence: sequence.max(end.sequence),
            user: token,
            // A copy is as good from here on.
            files: 0,
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
        Ok(())
    }
}
