//! Both caches, with the file system above them: against a model, with errors of the disk, with
//! power failures. Each kind of check is proven by a bug on purpose.

mod costs;
mod crash;
mod damage;
mod faults;
mod model;
mod personalities;
mod points;
mod policies;
mod random;
mod threads;

use std::sync::Arc;

use device::faulty::Faulty;
use pmem::{BLOCK_BYTES, Region};

use super::cache::{CommitPoints, Replacement, Spindle, Tinca, TransactionalCache};
use super::deliberate::{self, Bug};
use super::{FsError, JournalingFs, MountError, Options};

/// Blocks of the disk in most tests.
const DISK_BLOCKS: u64 = 512;

/// A design that is tested.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Design {
    Tinca,
    SpindlePublished,
    SpindleMended,
}

impl Design {
    const ALL: [Design; 3] = [
        Design::Tinca,
        Design::SpindlePublished,
        Design::SpindleMended,
    ];

    /// Bytes of the smallest region that the tests' disk allows: room is short all the time.
    fn least_bytes(self) -> u64 {
        let blocks = match self {
            Design::Tinca => 40,
            _ => 80,
        };
        blocks * BLOCK_BYTES as u64
    }

    /// A file system on an empty disk.
    fn format(self, region: &Arc<Region>, disk: &Arc<Faulty>, options: Options) -> JournalingFs {
        let replacement = Replacement::default();
        let device = || Arc::clone(disk) as Arc<dyn device::Device>;
        JournalingFs::format_disk(&**disk).expect("a disk that works");
        let region = Arc::clone(region);
        let spindle = |region, points| {
            Arc::new(Spindle::format(region, device(), points, replacement).expect("room"))
        };
        let cache: Arc<dyn TransactionalCache> = match self {
            Design::Tinca => Arc::new(Tinca::format(region, device(), replacement).expect("room")),
            Design::SpindlePublished => spindle(region, CommitPoints::Published),
            Design::SpindleMended => spindle(region, CommitPoints::Mended),
        };
        JournalingFs::mount(cache, options).expect("a new file system")
    }

    /// The file system as it is found.
    fn recover(
        self,
        region: &Arc<Region>,
        disk: &Arc<Faulty>,
        options: Options,
    ) -> Result<JournalingFs, MountError> {
        let replacement = Replacement::default();
        let (region, disk) = (Arc::clone(region), Arc::clone(disk));
        let damaged =
            |error| MountError::FileSystem(FsError::Corrupt(super::Corruption::Cache(error)));
        let cache: Arc<dyn TransactionalCache> = match self {
            Design::Tinca => Arc::new(Tinca::recover(region, disk, replacement).map_err(damaged)?),
            _ => Arc::new(Spindle::recover(region, disk, replacement).map_err(damaged)?),
        };
        JournalingFs::mount(cache, options)
    }
}

/// A disk without content.
fn disk() -> Arc<Faulty> {
    Arc::new(Faulty::new(DISK_BLOCKS))
}

/// Operations that are not grouped, and no access times.
fn plain() -> Options {
    Options {
        access_times: false,
        ..Options::default()
    }
}

/// A small generator, so that operations are the same in each run.
#[derive(Clone, Debug)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Runs a check with a bug in this thread.
fn with_bug<T>(bug: Bug, check: impl FnOnce() -> T) -> T {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            deliberate::set(None);
        }
    }
    let _off = Off;
    deliberate::set(Some(bug));
    check()
}
