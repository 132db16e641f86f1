//! Creating, opening and closing pools.

use crate::born::Born;
use crate::boundary::{Answer, sound, status};
use crate::directory::perdure_dir;
use crate::pointers::{Handle, Out, Text, droppable, make, required, usable};
use crate::pool_options::{perdure_create_options, perdure_pool_options};
use perdure::{CreateOptions, DurabilityClass, Pool, PoolOptions};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Persistent memory: what was acknowledged survives a power cut.
pub const PERDURE_CLASS_DAX: u32 = 1;
/// DRAM with a log on a disk. Not used by this version.
pub const PERDURE_CLASS_LOG: u32 = 2;
/// Shared memory or page cache: a power cut may destroy the pool.
pub const PERDURE_CLASS_VOLATILE: u32 = 3;

/// An open pool. Any number of threads may use it at once, but for closing it.
#[derive(Debug)]
pub struct perdure_pool {
    born: Born,
    // Before `pool`, which is closed when nobody has a directory of it any more.
    root: perdure_dir,
    pool: Pool,
}

impl Handle for perdure_pool {
    fn born(&self) -> Born {
        self.born
    }
}

/// What is known about an open pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct perdure_pool_info {
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that files can take; the rest is kept so that overwriting works in a full pool.
    pub available_blocks: u64,
    /// Inodes that exist or could.
    pub inodes: u64,
    /// Inodes that are free or could be made.
    pub free_inodes: u64,
    /// Journal records that were applied when the pool was opened; 0 if it had been closed.
    pub recovered_records: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Most bytes of a name.
    pub name_bytes_max: u32,
    /// PERDURE_CLASS_…: what a power cut does to this pool.
    pub durability: u32,
    /// Whether the pool had been closed before it was opened this time.
    pub was_clean: u32,
    /// 0, for members to come.
    pub reserved: [u64; 4],
}

/// Writes an empty pool without opening it.
///
/// `path`: directory of the pool (on a file system that is mounted with `-o dax`), which is made if
/// it is missing, or a device-DAX node. `options` may be NULL.
/// Errors: EEXIST (a pool is there, and no PERDURE_OVERWRITE), EINVAL (sizes), ENOSPC, EOPNOTSUPP
/// (not persistent memory, and no PERDURE_VOLATILE).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_pool_format(
    path: Text,
    options: Option<&perdure_create_options>,
) -> c_int {
    status("perdure_pool_format", || {
        sound()?;
        Ok(create_options(options)?.format(path.path("path")?)?)
    })
}

/// Writes an empty pool and opens it; close it with perdure_pool_close().
///
/// Errors: those of perdure_pool_format() and perdure_pool_open().
#[unsafe(no_mangle)]
pub extern "C" fn perdure_pool_create(
    path: Text,
    options: Option<&perdure_create_options>,
    pool: Option<&mut MaybeUninit<*mut perdure_pool>>,
) -> c_int {
    status("perdure_pool_create", || {
        let options = create_options(options)?;
        make(pool, "pool", |born| {
            sound()?;
            let made = Pool::create(path.path("path")?, &options)?;
            Ok(perdure_pool::new(born, made))
        })
    })
}

/// Opens a pool, after recovering it if it was not closed (about a second for a million files);
/// close it with perdure_pool_close(). `options` may be NULL. One process at a time can have a pool
/// open for writing.
///
/// Errors: ENOENT, EINVAL (not a pool, or one of another version), EBUSY (another process has it),
/// EIO (damage: `perdure fsck`), EOPNOTSUPP (not persistent memory).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_pool_open(
    path: Text,
    options: Option<&perdure_pool_options>,
    pool: Option<&mut MaybeUninit<*mut perdure_pool>>,
) -> c_int {
    status("perdure_pool_open", || {
        let options = match options {
            Some(options) => options.read()?,
            None => PoolOptions::new(),
        };
        make(pool, "pool", |born| {
            sound()?;
            let opened = options.open(path.path("path")?)?;
            Ok(perdure_pool::new(born, opened))
        })
    })
}

/// Closes a pool: saves what is free and marks the pool clean, so that the next open is quick. A
/// process that ends without it loses nothing.
///
/// The handle and its root directory are gone in any case.
/// Errors: EBUSY while files, directories or lists of the pool are open: the pool closes with the
/// last of them. EPERM in a child of fork(), which leaves the parent's pool alone.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_pool_close(pool: Option<Box<perdure_pool>>) -> c_int {
    status("perdure_pool_close", || {
        let handle = required(pool, "pool")?;
        let born = handle.born;
        let Some(handle) = droppable(handle) else {
            return born.check();
        };
        let perdure_pool { root, pool, .. } = *handle;
        drop(root);
        Ok(pool.close()?)
    })
}

/// The root directory of a pool. It belongs to the pool: it is valid until the pool is closed, and
/// not to be closed itself. NULL if `pool` is.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_pool_root(pool: Option<&perdure_pool>) -> Option<&perdure_dir> {
    pool.map(|pool| &pool.root)
}

/// Space and inodes of a pool, and how durable it is.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_pool_info(
    pool: Option<&perdure_pool>,
    info: Option<&mut MaybeUninit<perdure_pool_info>>,
) -> c_int {
    status("perdure_pool_info", || {
        let pool = &usable(pool, "pool")?.pool;
        let info: Out<'_, _> = info;
        required(info, "info")?.write(info_of(pool));
        Ok(())
    })
}

fn info_of(pool: &Pool) -> perdure_pool_info {
    let space = pool.statistics();
    perdure_pool_info {
        blocks: space.blocks,
        free_blocks: space.free_blocks,
        available_blocks: space.available_blocks,
        inodes: space.inodes,
        free_inodes: space.free_inodes,
        recovered_records: pool.recovered_records(),
        block_bytes: space.block_bytes,
        name_bytes_max: space.name_max,
        durability: match pool.class() {
            DurabilityClass::Dax => PERDURE_CLASS_DAX,
            DurabilityClass::Log => PERDURE_CLASS_LOG,
            DurabilityClass::Volatile => PERDURE_CLASS_VOLATILE,
        },
        was_clean: pool.was_clean().into(),
        reserved: [0; 4],
    }
}

fn create_options(options: Option<&perdure_create_options>) -> Answer<CreateOptions> {
    match options {
        Some(options) => options.read(),
        None => Ok(CreateOptions::new()),
    }
}

impl perdure_pool {
    fn new(born: Born, pool: Pool) -> perdure_pool {
        perdure_pool {
            born,
            root: perdure_dir::new(born, pool.root()),
            pool,
        }
    }
}
