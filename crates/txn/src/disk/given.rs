//! A pool on disks that the caller has: simulated ones, whose every crash can be tried.

use super::dirty::DirtyBlocks;
use super::image::{Image, ImagePart};
use super::loader::{Loader, Loading};
use super::open::{Opened, begin_use, go_on, write_image};
use super::policy::Durability;
use super::replay::replay;
use super::stamp::Mixture;
use crate::error::{FormatError, OpenError};
use crate::layout::Superblock;
use crate::pool::{Mode, read_superblock};
use crate::recovery;
use crate::store::PmemStore;
use pmem::{BLOCK_BYTES, DurabilityClass, Region};
use std::io;
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
    fn image(&self, superblock: &Superblock) -> Image {
        let data = std::iter::once(0..self.image.length_bytes()).collect();
        let part = ImagePart::new(0, Arc::clone(&self.image), data);
        Image::new(vec![part], superblock)
    }

    /// Writes to the disks what was made in `region`, and an empty log.
    ///
    /// # Errors
    ///
    /// [`FormatError::Initialise`].
    pub fn format(&self, region: &Region) -> Result<(), FormatError> {
        let failed = |error: &dyn std::fmt::Display| FormatError::Initialise(error.to_string());
        let superblock = read_superblock(region).map_err(|error| failed(&error))?;
        write_image(&self.image(&superblock), region, &superblock)
            .map_err(|error| failed(&error))?;
        let sequence = recovery::checkpoint_sequence(region).map_err(|error| failed(&error))?;
        wal::format(&*self.log, superblock.uuid, sequence, &mut |_, _| ())
            .map_err(|error| failed(&error))
    }

    /// The image, if it has the superblock's length and belongs to the log.
    fn image_beside(
        &self,
        superblock: &Superblock,
        log: &OpenLog,
        path: &Path,
    ) -> Result<Image, OpenError> {
        let expected = superblock.geometry().total_bytes();
        if self.image.length_bytes() != expected {
            return Err(OpenError::Truncated {
                path: self.image.name().into(),
                expected,
                found: self.image.length_bytes(),
            });
        }
        let image = self.image(superblock);
        let fits = match image
            .read_stamp()
            .map_err(|source| self.unreadable(source))?
        {
            true => image.stamp().fits(&log.root()),
            false => Err(Mixture::NoStamp),
        };
        fits.map_err(|mixture| OpenError::Mixed {
            path: path.to_owned(),
            mixture,
        })?;
        Ok(image)
    }

    fn unreadable(&self, source: io::Error) -> OpenError {
        OpenError::Io {
            path: self.image.name().into(),
            action: "read the image",
            source,
        }
    }

    fn superblock(&self) -> Result<Superblock, OpenError> {
        let mut block = AlignedBuffer::new();
        block.resize(BLOCK_BYTES);
        let read = self.image.read(0, &mut block);
        read.map_err(|source| self.unreadable(source))?;
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
    /// The image is read while the pool is used.
    Lazy(Loading),
}

impl Memory {
    /// The image in memory that is new or used.
    fn load(
        self,
        superblock: &Superblock,
        image: &Arc<Image>,
    ) -> io::Result<(Arc<Region>, Option<Arc<Loader>>)> {
        let geometry = superblock.geometry();
        let bytes = geometry.total_bytes();
        let new = || Arc::new(Region::anonymous_of(bytes, DurabilityClass::Log));
        match self {
            Memory::Used(region) if region.length() == bytes => {
                image.load_over(&region)?;
                Ok((region, None))
            }
            Memory::Lazy(loading) => {
                let region = new();
                let segments: Vec<u32> = (0..geometry.segments).collect();
                let loader = Loader::start(&region, image, (geometry, &segments), None, loading)?;
                image.load_range(&region, 0..geometry.header_blocks * BLOCK_BYTES as u64)?;
                Ok((region, Some(loader)))
            }
            _ => {
                let region = new();
                image.load(&region)?;
                Ok((region, None))
            }
        }
    }
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

    /// The same, in memory that is loaded while the pool is used.
    ///
    /// # Errors
    ///
    /// As [`PmemStore::open`], and of the kernel if it does not let this process wait for pages.
    pub fn open_disks_lazily(
        disks: &Disks,
        loading: Loading,
        durability: Durability,
    ) -> Result<PmemStore, OpenError> {
        PmemStore::open_in(disks, Memory::Lazy(loading), durability)
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
        let image = Arc::new(disks.image_beside(&superblock, &log, path)?);
        let bytes = superblock.geometry().total_bytes();
        let dirty = DirtyBlocks::new(bytes);
        let (region, log, loader) = match memory {
            Memory::Left(region) => {
                let log = go_on(path, &superblock, &region, &dirty, (log, &image))?;
                (region, log, None)
            }
            memory => {
                let loaded = memory.load(&superblock, &image);
                let (region, loader) = loaded.map_err(|source| disks.unreadable(source))?;
                let to = (&*region, loader.as_deref());
                let log = replay(path, &superblock, to, &dirty, (log, &image))?;
                (region, log, loader)
            }
        };
        let token = log.epoch() << 1;
        begin_use(&log, &image, token, 0).map_err(|error| error.over(path))?;
        let opened = Opened {
            log,
            image,
            loader,
            dirty,
            durability,
            speed: None,
            memory: None,
        };
        PmemStore::open_logged(region, superblock, Mode::ReadWrite, opened)
    }
}
