//! Where rows run: file systems on loop devices, pools on them, and mounts of these pools.

use super::LogOptions;
use crate::aging::in_turn;
use crate::aging::loop_device::{LoopDisk, LoopKind};
use crate::child::IdleMount;
use crate::collector::Found;
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::measure::{Rounds, median};
use crate::memory::require_room;
use crate::ops::bed::{on_tmpfs, work_directory};
use perdure::{
    CreateOptions, Durability, Loading, Pool, PoolOptions, ReadCacheMode, ReadCacheOptions,
};
use std::cell::OnceCell;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The file systems, and a directory beside them on the same disk.
pub(super) struct Bed {
    /// Made for the first row that needs it. Before the file systems, because it lies on one.
    mount: OnceCell<MountedPool>,
    ext4: Result<LoopDisk, BenchError>,
    xfs: Option<LoopDisk>,
    /// Holds the images; after the file systems in them.
    place: TempDir,
}

impl Bed {
    pub(super) fn make(options: &LogOptions) -> Result<Bed, BenchError> {
        let place = work_directory(&options.directory)?;
        // Programs of another user have files below it.
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755))
            .map_err(BenchError::io("open to all users", place.path()))?;
        let (bytes, is_written) = (options.loop_bytes, options.writes_images);
        let mount = |kind| LoopDisk::mount(place.path(), kind, bytes, is_written);
        let ext4 = match rustix::process::geteuid().is_root() {
            true => mount(LoopKind::Ext4),
            false => Err(BenchError::Unavailable(
                "only root can mount ext4 on a loop device".to_owned(),
            )),
        };
        let xfs = match options.has_xfs && ext4.is_ok() {
            true => mount(LoopKind::Xfs).ok(),
            false => None,
        };
        Ok(Bed {
            mount: OnceCell::new(),
            ext4,
            xfs,
            place,
        })
    }

    /// A directory of no side.
    pub(super) fn place(&self) -> &Path {
        self.place.path()
    }

    /// Where ext4 is mounted.
    pub(super) fn ext4(&self) -> Result<&Path, BenchError> {
        let absent = |error: &BenchError| {
            BenchError::Unavailable(format!("ext4 on a loop device cannot be had: {error}"))
        };
        let ext4 = self.ext4.as_ref().map_err(absent)?;
        Ok(ext4.mountpoint())
    }

    /// The directory for pools: ext4, or the file system of the disk if there is none.
    pub(super) fn disk(&self) -> &Path {
        self.ext4().unwrap_or_else(|_| self.place())
    }

    /// A pool of class `log` on the disk, mounted with the default policy.
    pub(super) fn mount(&self, options: &LogOptions) -> Result<&MountedPool, BenchError> {
        if let Some(mount) = self.mount.get() {
            return Ok(mount);
        }
        let place = work_directory(self.disk())?;
        let format = CreateOptions::new().log_bytes(options.log_bytes);
        let mount = MountedPool::start(place, &format, options)?;
        Ok(self.mount.get_or_init(|| mount))
    }

    pub(super) fn xfs(&self) -> Option<&Path> {
        self.xfs.as_ref().map(LoopDisk::mountpoint)
    }
}

/// A mounted pool; unmounted and removed when dropped.
pub(super) struct MountedPool {
    mount: IdleMount,
    _place: TempDir,
}

impl MountedPool {
    /// A new volatile pool on tmpfs.
    pub(super) fn volatile(options: &LogOptions) -> Result<MountedPool, BenchError> {
        let place = work_directory(&on_tmpfs(&options.directory))?;
        MountedPool::start(place, &CreateOptions::new().volatile(true), options)
    }

    fn start(
        place: TempDir,
        format: &CreateOptions,
        options: &LogOptions,
    ) -> Result<MountedPool, BenchError> {
        let (pool, mountpoint) = (place.path().join("pool"), place.path().join("mount"));
        let format = format.clone().size_bytes(options.pool_bytes);
        format.format(&pool)?;
        std::fs::create_dir(&mountpoint).map_err(BenchError::io("make", &mountpoint))?;
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755))
            .map_err(BenchError::io("open to all users", place.path()))?;
        Ok(MountedPool {
            mount: IdleMount::start(&pool, &mountpoint, false)?,
            _place: place,
        })
    }

    pub(super) fn mountpoint(&self) -> &Path {
        self.mount.mountpoint()
    }
}

/// Directories that a row of a mount runs in: on the mount, on ext4, and on xfs if it is there.
pub(super) struct Sides {
    pub(super) directories: Vec<PathBuf>,
    has_xfs: bool,
}

impl Sides {
    /// New directories with this name.
    pub(super) fn make(bed: &Bed, mount: &MountedPool, name: &str) -> Result<Sides, BenchError> {
        let parents = [Some(mount.mountpoint()), Some(bed.ext4()?), bed.xfs()];
        let parents = parents.into_iter().flatten();
        let directories: Vec<PathBuf> = parents.map(|parent| parent.join(name)).collect();
        for directory in &directories {
            std::fs::create_dir(directory).map_err(BenchError::io("make", directory))?;
        }
        Ok(Sides {
            has_xfs: directories.len() > 2,
            directories,
        })
    }

    /// Rates of all sides in turn, ours over those of ext4.
    pub(super) fn compare(
        &self,
        rounds: usize,
        mut rate: impl FnMut(usize, &Path) -> Result<f64, BenchError>,
    ) -> Result<Found, BenchError> {
        let rates = in_turn(rounds, self.directories.len(), |side, _| {
            rate(side, &self.directories[side])
        })?;
        let note = match self.has_xfs {
            true => format!("on xfs {:.0}", median(&rates[2])),
            false => "without xfs".to_owned(),
        };
        let rounds = Rounds::new(rates[0].clone(), rates[1].clone());
        Ok(with_spread(&rounds, &note))
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        for directory in &self.directories {
            // The rest goes with the file system that it lies on.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// A pool of class `log` for the library.
pub(super) struct LibraryPool {
    pub(super) pool: Pool,
    _memory: Leftover,
    _place: TempDir,
}

impl LibraryPool {
    /// Makes a small pool on the disk that is measured.
    pub(super) fn make(
        options: &LogOptions,
        bed: &Bed,
        durability: Durability,
    ) -> Result<LibraryPool, BenchError> {
        let pool_bytes = options.small_pool_bytes();
        let log_bytes = options.library_log_bytes;
        require_room(bed.disk(), pool_bytes + log_bytes)?;
        let place = work_directory(bed.disk())?;
        let path = place.path().join("pool");
        let format = CreateOptions::new().size_bytes(pool_bytes);
        format.log_bytes(log_bytes).format(&path)?;
        LibraryPool::open(&path, place, durability)
    }

    /// The same in memory that a power failure empties.
    pub(super) fn volatile(options: &LogOptions) -> Result<LibraryPool, BenchError> {
        let pool_bytes = options.small_pool_bytes();
        let directory = on_tmpfs(&options.directory);
        require_room(&directory, pool_bytes)?;
        let place = work_directory(&directory)?;
        let path = place.path().join("pool");
        let format = CreateOptions::new().size_bytes(pool_bytes).volatile(true);
        format.format(&path)?;
        LibraryPool::open(&path, place, Durability::default())
    }

    fn open(
        path: &Path,
        place: TempDir,
        durability: Durability,
    ) -> Result<LibraryPool, BenchError> {
        let options = opened(durability).loading(Loading::First);
        let pool = options.open(path)?;
        Ok(LibraryPool {
            _memory: Leftover::of(&pool),
            pool,
            _place: place,
        })
    }
}

/// Without copies in DRAM, where the pool is already.
pub(super) fn opened(durability: Durability) -> PoolOptions {
    let uncached = ReadCacheOptions {
        mode: ReadCacheMode::Off,
        ..ReadCacheOptions::default()
    };
    let options = PoolOptions::new().read_cache(uncached);
    options.durability(durability)
}

/// The memory of a pool that was not closed, because its process was killed or its log failed. When
/// dropped, it removes this memory, as a power failure does.
pub(super) struct Leftover(PathBuf);

impl Leftover {
    pub(super) fn of(pool: &Pool) -> Leftover {
        Leftover::of_uuid(&pool.filesystem().store().superblock().uuid)
    }

    pub(super) fn of_uuid(uuid: &[u8; 16]) -> Leftover {
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Leftover(PathBuf::from(format!("/dev/shm/perdure-{name}")))
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        // A pool that was closed has left nothing.
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("perdure: cannot remove {}: {error}", self.0.display());
        }
    }
}
