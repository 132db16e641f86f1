//! Open files of a pool inside this process.

use crate::attributes::{file_times, perdure_stat};
use crate::born::Born;
use crate::boundary::{Answer, call, count, status, truth};
use crate::directory::perdure_dir;
use crate::failure::Failure;
use crate::pointers::{Data, Handle, Room, Text, droppable, make, required, usable};
use crate::pool_options::known_flags;
use libc::ssize_t;
use perdure::{AllocateOptions, File, OpenOptions, Permissions};
use std::ffi::c_int;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;

/// Open for reading.
pub const PERDURE_READ: u32 = 1;
/// Open for writing.
pub const PERDURE_WRITE: u32 = 2;
/// Open for writing at the end: every write lands, atomically, where the file ends at that moment.
pub const PERDURE_APPEND: u32 = 4;
/// Create the file if it does not exist; needs PERDURE_WRITE or PERDURE_APPEND.
pub const PERDURE_CREATE: u32 = 8;
/// Create the file, and fail with EEXIST if the name is taken, be it by a symbolic link to nowhere.
pub const PERDURE_CREATE_NEW: u32 = 16;
/// Empty the file if it exists; needs PERDURE_WRITE.
pub const PERDURE_TRUNCATE: u32 = 32;

/// Reserve space without changing the size.
pub const PERDURE_KEEP_SIZE: u32 = 1;
/// Free the range; it reads as zeros. The size stays.
pub const PERDURE_PUNCH_HOLE: u32 = 2;
/// Make the range read as zeros, with its space reserved.
pub const PERDURE_ZERO_RANGE: u32 = 4;

/// An open file. Any number of threads may use it at once, but for closing it. An unlinked file
/// lives until its last handle is closed.
#[derive(Debug)]
pub struct perdure_file {
    born: Born,
    file: File,
}

impl Handle for perdure_file {
    fn born(&self) -> Born {
        self.born
    }
}

#[inline]
fn opened(file: Option<&perdure_file>) -> Answer<&File> {
    Ok(&usable(file, "file")?.file)
}

/// Opens a file; close it with perdure_file_close(). `flags`: PERDURE_READ, PERDURE_WRITE …;
/// `mode`: permission bits of a file that is created, before the pool's umask takes some away.
/// Permissions are not checked: the process owns the pool. A file that is created is durable when
/// this returns.
///
/// Errors: those of open(2); EINVAL for flags that contradict each other, EOPNOTSUPP for fifos,
/// sockets and devices.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_open(
    dir: Option<&perdure_dir>,
    path: Text,
    flags: u32,
    mode: u32,
    file: Option<&mut MaybeUninit<*mut perdure_file>>,
) -> c_int {
    status("perdure_file_open", || {
        make(file, "file", |born| {
            let dir = &usable(dir, "dir")?.dir;
            known_flags(flags, 2 * PERDURE_TRUNCATE - 1)?;
            let has = |flag| flags & flag != 0;
            let file = OpenOptions::new()
                .read(has(PERDURE_READ))
                .write(has(PERDURE_WRITE))
                .append(has(PERDURE_APPEND))
                .create(has(PERDURE_CREATE))
                .create_new(has(PERDURE_CREATE_NEW))
                .truncate(has(PERDURE_TRUNCATE))
                .mode(mode)
                .open(dir, path.path("path")?)?;
            Ok(perdure_file { born, file })
        })
    })
}

/// Creates a file without a name, for reading and writing. It is gone when it is closed, or after a
/// crash, unless perdure_file_link() gives it a name.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_unnamed(
    dir: Option<&perdure_dir>,
    file: Option<&mut MaybeUninit<*mut perdure_file>>,
) -> c_int {
    status("perdure_file_unnamed", || {
        make(file, "file", |born| {
            let file = File::unnamed(&usable(dir, "dir")?.dir)?;
            Ok(perdure_file { born, file })
        })
    })
}

/// Gives an open file a (further) name. Durable when it returns.
///
/// Errors: those of link(2).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_link(
    file: Option<&perdure_file>,
    dir: Option<&perdure_dir>,
    path: Text,
) -> c_int {
    status("perdure_file_link", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(opened(file)?.link(dir, path.path("path")?)?)
    })
}

/// Closes a file. NULL is nothing to close. There is nothing left to be written, so nothing that
/// could fail.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_close(file: Option<Box<perdure_file>>) {
    call("perdure_file_close", (), || {
        drop(file.and_then(droppable));
        Ok(())
    });
}

/// Reads up to `bytes` bytes at `offset`. Returns how many; 0 means that the file ends there.
///
/// Errors: EBADF (not open for reading), EISDIR, EUCLEAN (damage on the medium: `perdure fsck`).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_pread(
    file: Option<&perdure_file>,
    mut into: Room,
    bytes: usize,
    offset: u64,
) -> ssize_t {
    count("perdure_file_pread", || {
        let file = opened(file)?;
        Ok(file.read_at(into.bytes(bytes, "into")?, offset)?)
    })
}

/// Writes `data` at `offset`. Durable when it returns; atomic up to 4 MiB: after a power cut the
/// file holds all of it or nothing of it. A file that was opened with PERDURE_APPEND gets the data
/// at its end instead. Returns how many bytes were written: `bytes`, or fewer if the pool becomes
/// full in the middle of more than 4 MiB.
///
/// Errors: ENOSPC (then nothing was written), EDQUOT, EBADF (not open for writing), EFBIG, EROFS.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_pwrite(
    file: Option<&perdure_file>,
    data: Data,
    bytes: usize,
    offset: u64,
) -> ssize_t {
    count("perdure_file_pwrite", || {
        let file = opened(file)?;
        Ok(file.write_at(data.bytes(bytes, "data")?, offset)?)
    })
}

/// Writes all of `data` at the end of the file; `landed` gets the offset where that was, unless it
/// is NULL. Appends of several threads never overlap. Durable when it returns; atomic up to 4 MiB.
///
/// Errors: those of perdure_file_pwrite(). Of more than 4 MiB the beginning may have been written
/// then.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_append(
    file: Option<&perdure_file>,
    data: Data,
    bytes: usize,
    landed: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    status("perdure_file_append", || {
        let offset = opened(file)?.append(data.bytes(bytes, "data")?)?;
        if let Some(landed) = landed {
            landed.write(offset);
        }
        Ok(())
    })
}

/// As perdure_file_pread(), at the handle's position, which moves behind what was read.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_read(
    file: Option<&perdure_file>,
    mut into: Room,
    bytes: usize,
) -> ssize_t {
    count("perdure_file_read", || {
        let mut file = opened(file)?;
        file.read(into.bytes(bytes, "into")?).map_err(from_io)
    })
}

/// As perdure_file_pwrite(), at the handle's position, which moves behind what was written.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_write(
    file: Option<&perdure_file>,
    data: Data,
    bytes: usize,
) -> ssize_t {
    count("perdure_file_write", || {
        let mut file = opened(file)?;
        file.write(data.bytes(bytes, "data")?).map_err(from_io)
    })
}

/// Moves the handle's position: `whence` is SEEK_SET, SEEK_CUR or SEEK_END of <stdio.h>. `position`
/// gets where it is then, unless it is NULL.
///
/// Errors: EINVAL before the start and beyond 8 EiB.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_seek(
    file: Option<&perdure_file>,
    distance: i64,
    whence: c_int,
    position: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    status("perdure_file_seek", || {
        let mut file = opened(file)?;
        let before = || Failure::argument("a position before the start of the file");
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(distance.try_into().map_err(|_| before())?),
            libc::SEEK_CUR => SeekFrom::Current(distance),
            libc::SEEK_END => SeekFrom::End(distance),
            _ => {
                return Err(Failure::argument(
                    "`whence` is none of SEEK_SET, SEEK_CUR and SEEK_END",
                ));
            }
        };
        let reached = file.seek(to).map_err(from_io)?;
        if let Some(position) = position {
            position.write(reached);
        }
        Ok(())
    })
}

/// Cuts the file to `size_bytes`, or extends it by a hole that reads as zeros. Durable when it
/// returns.
///
/// Errors: EINVAL (not open for writing), EFBIG beyond 256 TiB.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_truncate(file: Option<&perdure_file>, size_bytes: u64) -> c_int {
    status("perdure_file_truncate", || {
        Ok(opened(file)?.set_len(size_bytes)?)
    })
}

/// Reserves space for a range, so that later writes into it cannot run out of it, and extends the
/// file if the range ends beyond it; or what `flags` say: PERDURE_KEEP_SIZE, PERDURE_PUNCH_HOLE,
/// PERDURE_ZERO_RANGE. Durable when it returns.
///
/// Errors: those of fallocate(2).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_allocate(
    file: Option<&perdure_file>,
    offset: u64,
    bytes: u64,
    flags: u32,
) -> c_int {
    status("perdure_file_allocate", || {
        let known = PERDURE_KEEP_SIZE | PERDURE_PUNCH_HOLE | PERDURE_ZERO_RANGE;
        known_flags(flags, known)?;
        let options = AllocateOptions {
            keep_size: flags & (PERDURE_KEEP_SIZE | PERDURE_PUNCH_HOLE) != 0,
            punch_hole: flags & PERDURE_PUNCH_HOLE != 0,
            zero_range: flags & PERDURE_ZERO_RANGE != 0,
        };
        Ok(opened(file)?.fallocate(offset, bytes, options)?)
    })
}

/// Where the next data at or after `offset` begins: 1 if there is some before the end, 0 if not, or
/// -1.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_next_data(
    file: Option<&perdure_file>,
    offset: u64,
    found: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    truth("perdure_file_next_data", || {
        let found = required(found, "found")?;
        tell(opened(file)?.next_data(offset)?, found)
    })
}

/// Where the next hole at or after `offset` begins, the end of the file included: 1 if there is
/// one, 0 beyond the end, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_next_hole(
    file: Option<&perdure_file>,
    offset: u64,
    found: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    truth("perdure_file_next_hole", || {
        let found = required(found, "found")?;
        tell(opened(file)?.next_hole(offset)?, found)
    })
}

/// What is known about an open file.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_stat(
    file: Option<&perdure_file>,
    stat: Option<&mut MaybeUninit<perdure_stat>>,
) -> c_int {
    status("perdure_file_stat", || {
        let stat = required(stat, "stat")?;
        stat.write(perdure_stat::new(&opened(file)?.metadata()?));
        Ok(())
    })
}

/// Changes the permission bits of an open file. Durable when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_chmod(file: Option<&perdure_file>, mode: u32) -> c_int {
    status("perdure_file_chmod", || {
        Ok(opened(file)?.set_permissions(Permissions::from_mode(mode))?)
    })
}

/// Changes the times of last access and last modification of an open file, in nanoseconds since
/// 1970; NULL leaves one as it is. Durable when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_set_times(
    file: Option<&perdure_file>,
    accessed_ns: Option<&i64>,
    modified_ns: Option<&i64>,
) -> c_int {
    status("perdure_file_set_times", || {
        Ok(opened(file)?.set_times(file_times(accessed_ns, modified_ns))?)
    })
}

/// Returns when every call that returned before is durable: at once, because calls are durable when
/// they return, unless the disk of a pool with a log has failed.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_file_sync(file: Option<&perdure_file>) -> c_int {
    status("perdure_file_sync", || Ok(opened(file)?.sync_all()?))
}

fn tell(offset: Option<u64>, place: &mut MaybeUninit<u64>) -> Answer<bool> {
    if let Some(offset) = offset {
        place.write(offset);
    }
    Ok(offset.is_some())
}

/// What `std::io`'s traits make of an error of ours.
fn from_io(error: io::Error) -> Failure {
    match error.downcast::<perdure::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string()),
    }
}
