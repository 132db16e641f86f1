//! Making a home.

use crate::HomeError;
use crate::header::{DATA_AT, HEADERS_AT, HOME_MAGIC, HOME_VERSION, HomeHeader};
use pmem::BLOCK_BYTES;
use rustix::fs::{FlockOperation, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;
use zerocopy::IntoBytes;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Fewest data blocks of a home: 4 MiB.
const BLOCKS_MIN: u64 = 1024;
/// Bytes that have to be zero at the beginning: file systems have their names there.
const LOOK_BYTES: usize = 256 << 10;

/// How a home is made.
#[derive(Clone, Copy, Debug)]
pub struct Create<'p> {
    /// The file, which is made if it is not there, or the block device.
    pub path: &'p Path,
    /// Identity of the pool.
    pub pool: [u8; 16],
    /// Size of a file in bytes; `None` for all of a device, or a file as it is.
    pub bytes: Option<u64>,
    /// Make it whatever is there.
    pub overwrite: bool,
}

/// Makes a home, with all the space it may need: a home cannot become full later than at this call.
/// Returns its header. It is durable.
///
/// # Errors
///
/// [`HomeError`]; an existing file or device is as it was, unless writing its header failed.
pub fn create(options: &Create<'_>) -> Result<HomeHeader, HomeError> {
    let path = options.path;
    let is_new = !path.exists();
    let made = make(options);
    if made.is_err() && is_new {
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Data blocks that a home made like this will have.
///
/// # Errors
///
/// [`HomeError`]: the size is not known, too small or too large, or the file cannot be measured.
pub fn blocks_of(path: &Path, bytes: Option<u64>) -> Result<u32, HomeError> {
    let found = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        found => Some(found.map_err(HomeError::io("look at", path))?),
    };
    let is_device = found.is_some_and(|found| found.file_type().is_block_device());
    let bytes = match (bytes, path.exists()) {
        (Some(bytes), _) if !is_device => bytes,
        (None, false) => {
            return Err(HomeError::NeedsSize {
                path: path.to_owned(),
            });
        }
        (wanted, _) => {
            let mut file = File::open(path).map_err(HomeError::io("open", path))?;
            let end = file
                .seek(SeekFrom::End(0))
                .map_err(HomeError::io("measure", path))?;
            wanted.map_or(end, |wanted| wanted.min(end))
        }
    };
    let blocks = bytes.saturating_sub(DATA_AT) / BLOCK;
    if blocks < BLOCKS_MIN {
        return Err(HomeError::TooSmall {
            path: path.to_owned(),
            bytes,
            least: DATA_AT + BLOCKS_MIN * BLOCK,
        });
    }
    match u32::try_from(blocks) {
        Ok(blocks) if blocks < u32::MAX => Ok(blocks),
        _ => Err(HomeError::TooLarge {
            path: path.to_owned(),
            bytes,
        }),
    }
}

fn make(options: &Create<'_>) -> Result<HomeHeader, HomeError> {
    let path = options.path;
    let mut file = open(path, Access::Make)?;
    let is_device = file
        .metadata()
        .map_err(HomeError::io("look at", path))?
        .file_type()
        .is_block_device();
    let found = file
        .seek(SeekFrom::End(0))
        .map_err(HomeError::io("measure", path))?;
    if !options.overwrite && !is_blank(&file, found).map_err(HomeError::io("read", path))? {
        return Err(HomeError::NotEmpty {
            path: path.to_owned(),
        });
    }
    let bytes = match options.bytes {
        Some(wanted) if is_device => wanted.min(found),
        Some(wanted) => wanted,
        None => found,
    };
    let blocks = bytes.saturating_sub(DATA_AT) / BLOCK;
    if blocks < BLOCKS_MIN {
        return Err(HomeError::TooSmall {
            path: path.to_owned(),
            bytes,
            least: DATA_AT + BLOCKS_MIN * BLOCK,
        });
    }
    if !is_device {
        reserve(&file, bytes).map_err(HomeError::io("reserve space for", path))?;
    }
    let header = HomeHeader {
        magic: HOME_MAGIC,
        version: HOME_VERSION,
        checksum: 0,
        pool: options.pool,
        generation: 0,
        blocks,
        created_ns: now_ns(),
    }
    .sealed();
    let mut unit = [0; BLOCK_BYTES];
    unit[..size_of::<HomeHeader>()].copy_from_slice(header.as_bytes());
    for at in HEADERS_AT {
        file.write_all_at(&unit, at)
            .map_err(HomeError::io("write", path))?;
    }
    file.sync_all().map_err(HomeError::io("sync", path))?;
    Ok(header)
}

/// How a home is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// Others may read it, too.
    Read,
    Write,
    /// It is made if it is not there.
    Make,
}

/// Opens and locks a home. A block device that is mounted, or part of something, is refused for
/// writing.
pub(crate) fn open(path: &Path, access: Access) -> Result<File, HomeError> {
    let found = std::fs::metadata(path).ok().map(|found| found.file_type());
    if found.is_some_and(|found| !found.is_file() && !found.is_block_device()) {
        return Err(HomeError::NotAHome {
            path: path.to_owned(),
        });
    }
    let is_device = found.is_some_and(|found| found.is_block_device());
    let writes = access != Access::Read;
    let flags = match is_device && writes {
        true => OFlags::EXCL,
        false => OFlags::empty(),
    };
    let mut options = OpenOptions::new();
    options.read(true).write(writes);
    options
        .create(access == Access::Make && !is_device)
        .truncate(false);
    options.mode(0o600).custom_flags(flags.bits() as i32);
    let file = options
        .open(path)
        .map_err(|source| match source.raw_os_error() {
            Some(code) if code == rustix::io::Errno::BUSY.raw_os_error() => HomeError::InUse {
                path: path.to_owned(),
            },
            _ => HomeError::io("open", path)(source),
        })?;
    let lock = match writes {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    let locked = rustix::fs::flock(&file, lock);
    locked.map_err(|_| HomeError::InUse {
        path: path.to_owned(),
    })?;
    Ok(file)
}

/// Whether a file begins with zeros, or is empty.
fn is_blank(file: &File, bytes: u64) -> std::io::Result<bool> {
    let mut head = vec![0; LOOK_BYTES.min(bytes as usize)];
    file.read_exact_at(&mut head, 0)?;
    Ok(head.iter().all(|&byte| byte == 0))
}

/// Gives a file all its blocks, where its file system can.
fn reserve(file: &File, bytes: u64) -> std::io::Result<()> {
    use rustix::fs::FallocateFlags;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        reserved => Ok(reserved?),
    }
}

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as i64)
}
