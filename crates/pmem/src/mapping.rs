//! Files side by side at one range of addresses, and private memory: the only file that maps.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap_fixed, munmap,
};

use crate::{Access, BLOCK_BYTES, DurabilityClass, Permission};

/// What the kernel has as one page of memory, at most. Reservations start on such a boundary, so that a part that does so too can be mapped with huge pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// What `statfs` calls tmpfs.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// A range of a file that becomes a range of a region.
#[derive(Copy, Clone, Debug)]
pub struct Part<'a> {
    /// The file, open for reading, and for writing too unless it is mapped as a private copy.
    pub file: &'a File,
    /// Its name, for messages.
    pub path: &'a Path,
    /// First byte of the range in the file; a multiple of 4 KiB (of the device's alignment on device-DAX).
    pub file_offset: u64,
    /// Bytes of the range; a multiple of 4 KiB (of the device's alignment on device-DAX).
    pub length: u64,
}

/// Why a region could not be mapped. Nothing stays mapped, nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The file is not on persistent memory, or its file system doesn't do DAX.
    #[error(
        "{path}: the kernel refuses MAP_SYNC, so stores to this file would not be durable; put it on a file system mounted \
         with -o dax or on a device-DAX node, or give --volatile to use it as memory that a power cut empties"
    )]
    NotPersistent {
        /// The file.
        path: PathBuf,
    },
    /// The file ends before the range does.
    #[error(
        "{path}: truncated: {expected} bytes needed, {found} bytes found; restore the file from a copy of its full length"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the range ends, in bytes from the start of the file.
        expected: u64,
        /// Length of the file in bytes.
        found: u64,
    },
    /// A range does not begin and end where pages do.
    #[error(
        "{path}: range of {length} bytes at {file_offset} is not a whole number of {alignment}-byte units"
    )]
    Misaligned {
        /// The file.
        path: PathBuf,
        /// Start of the range in the file.
        file_offset: u64,
        /// Bytes of the range.
        length: u64,
        /// What both should be a multiple of.
        alignment: u64,
    },
    /// There is nothing to map.
    #[error("a region needs at least one part")]
    Empty,
    /// A part that is mapped later does not fit where it should go.
    #[error(
        "{path}: {length} bytes cannot be mapped at byte {at:#x} of a reservation of {reserved:#x}"
    )]
    Outside {
        /// The file.
        path: PathBuf,
        /// Where in the region it should go.
        at: u64,
        /// Bytes of the range.
        length: u64,
        /// Bytes of addresses that are there; 0 if the region is no reservation.
        reserved: u64,
    },
    /// The operating system refused.
    #[error(
        "{path}: cannot be mapped: {source}; check that it is a readable and writable file or device-DAX node"
    )]
    System {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// No room for the region among this process's addresses.
    #[error("cannot reserve {bytes} bytes of address space: {source}; check `ulimit -v`")]
    NoAddresses {
        /// Length of the region.
        bytes: u64,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Bytes of a file, or of a device-DAX node (whose metadata says 0).
///
/// # Errors
/// What the operating system says; for a character device that is not device-DAX, an error of kind `Unsupported`.
pub fn medium_length(file: &File) -> io::Result<u64> {
    Medium::of(file)?.length()
}

/// Has a new file on tmpfs hold its `length` bytes in huge pages: one of them needs one page fault instead of 512, and one entry of the processor's cache of addresses. Whoever maps the file
/// later has them too.
///
/// A hint, which changes no content: the file is `length` zeros, and how many of them are in memory nobody knows, so whoever needs them reserves them afterwards. Other file systems are left alone: those
/// with DAX have huge pages of their own where they can.
///
/// # Errors
/// What the operating system says about making the file longer.
pub fn use_huge_pages(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)?;
    let huge = HUGE_PAGE_BYTES as u64;
    if is_tmpfs(file) && length >= huge && length.is_multiple_of(huge) {
        // Whatever is refused from here on, the file has small pages.
        let _ = collapse(file, length as usize);
    }
    Ok(())
}

/// Makes huge pages of the pages of a file on tmpfs, all of which are there. A hint, which changes
/// no content; `goes_on` is asked now and then.
pub fn join_pages(file: &File, length: u64, goes_on: impl Fn() -> bool) {
    /// The kernel looks at all processors' lists of pages once for each call.
    const CALL_BYTES: usize = 32 << 20;
    let length = length as usize;
    if !length.is_multiple_of(HUGE_PAGE_BYTES) {
        return;
    }
    // Whatever is refused, the file has small pages.
    let Ok(mapping) = map_all(file, length) else {
        return;
    };
    for at in (0..length).step_by(CALL_BYTES) {
        if !goes_on() || mapping.collapse(at, CALL_BYTES.min(length - at)).is_err() {
            return;
        }
    }
}

/// Whether a file is memory, and gone with the machine's power.
pub fn is_tmpfs(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}

/// Asks for the huge pages one by one: where no memory is left in such pieces, those before stay.
fn collapse(file: &File, length: usize) -> io::Result<()> {
    let mapping = map_all(file, length)?;
    for at in (0..length).step_by(HUGE_PAGE_BYTES) {
        // The kernel makes one of small pages, so there has to be one.
        file.write_all_at(&[0], at as u64)?;
        mapping.collapse(at, HUGE_PAGE_BYTES)?;
    }
    Ok(())
}

fn map_all(file: &File, length: usize) -> io::Result<Mapping> {
    let mapping = Mapping::reserve(length, HUGE_PAGE_BYTES)?;
    let (read_write, shared) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::SHARED | MapFlags::FIXED,
    );
    // SAFETY: replaces only our own reservation.
    unsafe {
        mmap(
            mapping.base.as_ptr().cast(),
            length,
            read_write,
            shared,
            file,
            0,
        )?
    };
    Ok(mapping)
}

/// What the kernel tells about a file that is to be mapped.
struct Medium {
    /// As its metadata say.
    bytes: u64,
    /// Major and minor number of a character device.
    device: Option<(u32, u32)>,
}

impl Medium {
    /// Nothing is asked that changes with each mapping, such as the time of the last access: a file system in user space would have to answer each time, and [`File::metadata`] takes 20 us of
    /// attaching a segment.
    fn of(file: &File) -> io::Result<Medium> {
        let wanted = StatxFlags::SIZE | StatxFlags::TYPE;
        let found = statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
        let is_device = FileType::from_raw_mode(found.stx_mode.into()) == FileType::CharacterDevice;
        let numbers = (found.stx_rdev_major, found.stx_rdev_minor);
        Ok(Medium {
            bytes: found.stx_size,
            device: is_device.then_some(numbers),
        })
    }

    fn length(&self) -> io::Result<u64> {
        match self.device_dax_attribute("size") {
            None => Ok(self.bytes),
            Some(Some(bytes)) => Ok(bytes),
            Some(None) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a character device, but not device-DAX",
            )),
        }
    }

    /// A number that the kernel tells about a character device (`None` for anything else).
    fn device_dax_attribute(&self, name: &str) -> Option<Option<u64>> {
        let (major, minor) = self.device?;
        let folder = format!("/sys/dev/char/{major}:{minor}");
        let number = |path: String| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        let found = number(format!("{folder}/{name}"));
        Some(found.or_else(|| number(format!("{folder}/device/{name}"))))
    }
}

/// A range of addresses that belongs to us, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
    /// Bytes of it that parts may be mapped over later.
    reserved: usize,
}

// SAFETY: a mapping is memory, not tied to the thread that made it; who accesses it when is the region's concern.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// First byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Zeroed memory of this process; `None` if there is not enough.
    pub(crate) fn private(length: usize) -> io::Result<Mapping> {
        let mapping = Mapping::reserve(length, HUGE_PAGE_BYTES.min(length.next_power_of_two()))?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: replaces only our own reservation.
        unsafe {
            mmap_anonymous(
                mapping.base.as_ptr().cast(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        mapping.advise();
        Ok(mapping)
    }

    /// Addresses for parts that are mapped later. Children do not inherit them.
    pub(crate) fn for_later(length: usize) -> io::Result<Mapping> {
        let mut mapping = Mapping::reserve(length, HUGE_PAGE_BYTES)?;
        mapping.reserved = mapping.length;
        mapping.keep_from_children();
        Ok(mapping)
    }

    /// Maps a part over the reservation, or over what was mapped there before: somewhere else first, so that what is refused disturbs nobody.
    pub(crate) fn map_later(
        &self,
        at: u64,
        part: &Part<'_>,
        permission: Permission,
    ) -> Result<(), MapError> {
        let alignment = check_part(part)?.max(HUGE_PAGE_BYTES as u64);
        let reserved = self.reserved as u64;
        let fits = at
            .checked_add(part.length)
            .is_some_and(|end| end <= reserved);
        if !fits || part.length == 0 || !at.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(MapError::Outside {
                path: part.path.to_owned(),
                at,
                length: part.length,
                reserved,
            });
        }
        let length = part.length as usize;
        let system = |source: io::Error| MapError::System {
            path: part.path.to_owned(),
            source,
        };
        let elsewhere = Mapping::reserve(length, alignment as usize).map_err(system)?;
        let from = elsewhere.base.as_ptr().cast();
        // SAFETY: a reservation of the part's length.
        unsafe {
            match permission {
                Permission::ReadWrite => map_for(ProtFlags::READ | ProtFlags::WRITE, part, from)?,
                Permission::Read => map_for(ProtFlags::READ, part, from)?,
            }
        }
        elsewhere.advise();
        elsewhere.keep_from_children();
        let to = self.base.as_ptr().wrapping_add(at as usize).cast();
        // SAFETY: what is moved is ours and nobody else knows it; what it replaces lies within our own reservation. Who accesses that meanwhile waits in the kernel, and finds
        // bytes of the same file before and after.
        unsafe { mremap_fixed(from, length, length, MremapFlags::MAYMOVE, to) }
            .map_err(|source| system(source.into()))?;
        // What it described has moved.
        std::mem::forget(elsewhere);
        Ok(())
    }

    /// Has the kernel make huge pages of a range; the content stays as it is.
    fn collapse(&self, at: usize, length: usize) -> io::Result<()> {
        debug_assert!(at + length <= self.length);
        let page = self.base.as_ptr().wrapping_add(at).cast();
        // SAFETY: inside our own mapping. The kernel has this since Linux 6.1.
        match unsafe { libc::madvise(page, length, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the kernel map the pages of a range now, so that their first accesses do not each wait for it. A hint.
    pub(crate) fn populate(&self, address: *mut u8, length: usize, for_writing: bool) {
        let advice = match for_writing {
            true => Advice::LinuxPopulateWrite,
            false => Advice::LinuxPopulateRead,
        };
        // SAFETY: the caller's range lies within our own mapping; the hint changes no content.
        let _ = unsafe { madvise(address.cast(), length, advice) };
    }

    /// Has the kernel make the pages of a range present for stores, as they would.
    pub(crate) fn make_present(&self, address: *mut u8, length: usize) -> io::Result<()> {
        // SAFETY: as above.
        Ok(unsafe { madvise(address.cast(), length, Advice::LinuxPopulateWrite) }?)
    }

    /// All parts side by side.
    pub(crate) fn of_parts(
        parts: &[Part<'_>],
        class: DurabilityClass,
        access: Access,
    ) -> Result<Mapping, MapError> {
        let mut alignment = HUGE_PAGE_BYTES as u64;
        let mut length = 0;
        for part in parts {
            alignment = alignment.max(check_part(part)?);
            length += part.length;
        }
        if length == 0 {
            return Err(MapError::Empty);
        }
        let mapping = Mapping::reserve(length as usize, alignment as usize).map_err(|source| {
            MapError::NoAddresses {
                bytes: length,
                source,
            }
        })?;
        let mut at = 0;
        for part in parts {
            let address = mapping.base.as_ptr().wrapping_add(at).cast();
            // SAFETY: the parts' lengths add up to the reservation's, so this range lies within it.
            unsafe { map_part(part, address, class, access)? };
            at += part.length as usize;
        }
        mapping.advise();
        Ok(mapping)
    }

    /// Addresses without memory behind them, so that nothing else of this process gets in between the parts.
    fn reserve(length: usize, alignment: usize) -> io::Result<Mapping> {
        let slack = alignment.max(BLOCK_BYTES);
        let length = length
            .checked_next_multiple_of(BLOCK_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let whole = length
            .checked_add(slack)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start =
            unsafe { mmap_anonymous(null_mut(), whole, ProtFlags::empty(), flags)? }.cast::<u8>();
        let before = start.align_offset(slack);
        let base = start.wrapping_add(before);
        // SAFETY: the slack before and after is ours and unused.
        unsafe {
            if before > 0 {
                munmap(start.cast(), before)?;
            }
            if slack > before {
                munmap(base.wrapping_add(length).cast(), slack - before)?;
            }
        }
        Ok(Mapping {
            base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?,
            length,
            reserved: 0,
        })
    }

    /// Children of this process do not get it.
    fn keep_from_children(&self) {
        // SAFETY: our own mapping; the kernel has this since Linux 2.6.16, and it refuses only what is not mapped.
        let _ = unsafe {
            madvise(
                self.base.as_ptr().cast(),
                self.length,
                Advice::LinuxDontFork,
            )
        };
    }

    /// Hints; a kernel that doesn't take them loses nothing but speed (huge pages) or disk (core dumps).
    fn advise(&self) {
        let base = self.base.as_ptr().cast();
        // SAFETY: our own mapping; neither hint changes its content.
        unsafe {
            if self.length >= HUGE_PAGE_BYTES {
                let _ = madvise(base, self.length, Advice::LinuxHugepage);
            }
            let _ = madvise(base, self.length, Advice::LinuxDontDump);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole range is ours, and whoever could reach it borrowed from us.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Refuses a part that lies outside of its file or between pages; returns the alignment its device asks for.
fn check_part(part: &Part<'_>) -> Result<u64, MapError> {
    let system = |source| MapError::System {
        path: part.path.to_owned(),
        source,
    };
    let medium = Medium::of(part.file).map_err(system)?;
    let device_alignment = medium.device_dax_attribute("align").flatten();
    let alignment = device_alignment.unwrap_or(BLOCK_BYTES as u64);
    if !part.file_offset.is_multiple_of(alignment) || !part.length.is_multiple_of(alignment) {
        return Err(MapError::Misaligned {
            path: part.path.to_owned(),
            file_offset: part.file_offset,
            length: part.length,
            alignment,
        });
    }
    let expected = part.file_offset.saturating_add(part.length);
    let found = medium.length().map_err(system)?;
    if found < expected {
        return Err(MapError::Truncated {
            path: part.path.to_owned(),
            expected,
            found,
        });
    }
    Ok(alignment)
}

/// # Safety
/// `part.length` bytes at `address` are a reservation of ours.
unsafe fn map_part(
    part: &Part<'_>,
    address: *mut c_void,
    class: DurabilityClass,
    access: Access,
) -> Result<(), MapError> {
    let system = |source: rustix::io::Errno| MapError::System {
        path: part.path.to_owned(),
        source: source.into(),
    };
    let length = part.length as usize;
    let fixed = |protection, flags| {
        // SAFETY: MAP_FIXED replaces only the reservation.
        unsafe {
            mmap(
                address,
                length,
                protection,
                flags | MapFlags::FIXED,
                part.file.as_fd(),
                part.file_offset,
            )
        }
    };
    let synchronous = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    let refused = |errno| match errno {
        // A file without DAX says OPNOTSUPP; a kernel or file system that knows no MAP_SYNC at all says INVAL.
        rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL => MapError::NotPersistent {
            path: part.path.to_owned(),
        },
        other => system(other),
    };
    let read_write = ProtFlags::READ | ProtFlags::WRITE;
    match (class, access) {
        (DurabilityClass::Dax, Access::ReadWrite) => {
            fixed(read_write, synchronous).map_err(refused)?
        }
        (_, Access::ReadWrite) => fixed(read_write, MapFlags::SHARED).map_err(system)?,
        (class, Access::PrivateCopy) => {
            if class == DurabilityClass::Dax {
                // MAP_PRIVATE cannot be MAP_SYNC: ask whether the class is true, then map over it.
                fixed(ProtFlags::READ, synchronous).map_err(refused)?;
            }
            match fixed(read_write, MapFlags::PRIVATE | MapFlags::NORESERVE) {
                // SAFETY: as this function.
                Err(rustix::io::Errno::INVAL) => unsafe {
                    copy_part(part, address).map_err(system)?
                },
                other => other.map_err(system)?,
            }
        }
    };
    Ok(())
}

/// Maps a part whose blocks are there for good, so that no access needs `MAP_SYNC`, whatever the class.
///
/// # Safety
/// As [`map_part`].
unsafe fn map_for(
    protection: ProtFlags,
    part: &Part<'_>,
    address: *mut c_void,
) -> Result<(), MapError> {
    // SAFETY: MAP_FIXED replaces only the reservation.
    unsafe {
        mmap(
            address,
            part.length as usize,
            protection,
            MapFlags::SHARED | MapFlags::FIXED,
            part.file.as_fd(),
            part.file_offset,
        )
    }
    .map(drop)
    .map_err(|source| MapError::System {
        path: part.path.to_owned(),
        source: source.into(),
    })
}

/// Device-DAX cannot be mapped privately: its content is copied. Blocks of zeros take no memory.
///
/// # Safety
/// As [`map_part`].
unsafe fn copy_part(part: &Part<'_>, address: *mut c_void) -> rustix::io::Result<*mut c_void> {
    let length = part.length as usize;
    // SAFETY: a mapping in place of the reservation, then a new one; both are `length` bytes, and the second lives until
    // the last copy out of it. In this order: the refused private mapping has left a hole, which a new one could fill.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let to = mmap_anonymous(address, length, ProtFlags::READ | ProtFlags::WRITE, flags)?;
        let from = mmap(
            null_mut(),
            length,
            ProtFlags::READ,
            MapFlags::SHARED,
            part.file.as_fd(),
            part.file_offset,
        )?;
        let zeros = [0; BLOCK_BYTES];
        for at in (0..length).step_by(BLOCK_BYTES) {
            let block = from.cast::<u8>().add(at);
            if !crate::copy::equals(block, zeros.as_ptr(), BLOCK_BYTES) {
                crate::copy::copy_out(block, to.cast::<u8>().add(at), BLOCK_BYTES);
            }
        }
        munmap(from, length)?;
        Ok(to)
    }
}
