//! A pool on disks that the caller has: simulated ones, whose every crash can be tried.

use super::dirty::DirtyBlocks;
use super::image::{Image, ImagePart};
use super::open::{Opened, begin_use, go_on, replay, write_image};
use super::policy::Durability;
use crate::error::{FormatError, OpenError};
use crate::layout::Superblock;
use crate::pool::{Mode, read_superblock};
use crate::recovery;
use crate::store::PmemStore;
use pmem::{BLOCK_BYTES, DurabilityClass, Region};
use std::path::Path;
use std::sync::Arc;
use wal::{AlignedBuffer, Disk, OpenLog};

/// The disks of a pool of class `log`.
#[derive(Clone, Debug)]
pub struct Disks {
    /// The log.
    pub log: Arc<dyn Disk>,
    /// Header and segments, as they are in memory.
    pub image: Arc<dyn Disk>,
}

impl Disks {
    fn image(&self) -> Image {
        let data = std::iter::once(0..self.image.length_bytes()).collect();
        Image::new(vec![ImagePart::new(0, Arc::clone(&self.image), data)])
    }

    /// Writes to the disks what was made in `region`, and an empty log.
    ///
    /// # Errors
    ///
    /// [`FormatError::Initialise`].
    pub fn format(&self, region: &Region) -> Result<(), FormatError> {
        let failed = |error: &dyn std::fmt::Display| FormatError::Initialise(error.to_string());
        let superblock = read_superblock(region).map_err(|error| failed(&error))?;
        write_image(&self.image(), region, &superblock).map_err(|error| failed(&error))?;
        let sequence = recovery::checkpoint_sequence(region).map_err(|error| failed(&error))?;
        wal::format(&*self.log, superblock.uuid, sequence, &mut |_, _| ())
            .map_err(|error| failed(&error))
    }

    fn superblock(&self) -> Result<Superblock, OpenError> {
        let unreadable = |source| OpenError::Io {
            path: self.image.name().into(),
            action: "read the superblock",
            source,
        };
        let mut block = AlignedBuffer::new();
        block.resize(BLOCK_BYTES);
        self.image.read(0, &mut block).map_err(unreadable)?;
        read_superblock(&Region::from_image(block.repeat(4)))
    }
}

/// The memory that a pool is opened in.
enum Memory {
    New,
    /// Of class `log`, with any content.
    Used(Arc<Region>),
    /// The memory that a killed server has left.
    Left(Arc<Region>),
}

impl PmemStore {
    /// Opens the pool on these disks for writing. `left` is the memory of a server that was killed;
    /// without it the power has failed, or the pool was closed. Nothing is written behind the
    /// caller's back: without the threads of a log, the thread that waits for a batch writes it,
    /// and the image by [`Logger::checkpoint`](super::Logger::checkpoint).
    ///
    /// # Errors
    ///
    /// As [`PmemStore::open`].
    pub fn open_disks(
        disks: &Disks,
        left: Option<Arc<Region>>,
        durability: Durability,
    ) -> Result<PmemStore, OpenError> {
        PmemStore::open_in(disks, left.map_or(Memory::New, Memory::Left), durability)
    }

    /// The same after a power failure, in memory that the caller has. Its content is lost.
    ///
    /// # Errors
    ///
    /// As [`PmemStore::open`].
    pub fn open_disks_in(
        disks: &Disks,
        memory: Arc<Region>,
        durability: Durability,
    ) -> Result<PmemStore, OpenError> {
        PmemStore::open_in(disks, Memory::Used(memory), durability)
    }

    fn open_in(
        disks: &Disks,
        memory: Memory,
        durability: Durability,
    ) -> Result<PmemStore, OpenError> {
        let name = disks.log.name();
        let path = Path::new(&name);
        let superblock = disks.superblock()?;
        let failed = |error| OpenError::Log {
            path: path.to_owned(),
            error,
        };
        let log = OpenLog::open(Arc::clone(&disks.log), superblock.uuid).map_err(failed)?;
        let bytes = superblock.geometry().total_bytes();
        let dirty = DirtyBlocks::new(bytes);
        let image = disks.image();
        let (region, log, tail) = match memory {
            Memory::Left(region) => {
                let (log, tail) = go_on(path, &superblock, &region, &dirty, log)?;
                (region, log, tail)
            }
            memory => {
                let (region, loaded) = match memory {
                    Memory::Used(region) if region.length() == bytes => {
                        let loaded = image.load_over(&region);
                        (region, loaded)
                    }
                    _ => {
                        let region = Region::anonymous_of(bytes, DurabilityClass::Log);
                        let loaded = image.load(&region);
                        (Arc::new(region), loaded)
                    }
                };
                loaded.map_err(|source| OpenError::Io {
                    path: disks.image.name().into(),
                    action: "read the image",
                    source,
                })?;
                let log = replay(path, &superblock, &region, &dirty, log)?;
                (region, log, Vec::new())
            }
        };
        begin_use(&log, 0).map_err(failed)?;
        let opened = Opened {
            log,
            image,
            dirty,
            tail,
            durability,
            speed: None,
        };
        PmemStore::open_logged(region, superblock, Mode::ReadWrite, opened)
    }
}
