//! Memory that a process and the server see both of: the only file of this crate that maps it.

use rustix::fs::{AtFlags, MemfdFlags, SealFlags, StatxFlags, statx};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mremap, munmap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// Why there is no such memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system refused.
    #[error("memory to share cannot be made or mapped: {0}")]
    System(#[from] io::Error),
    /// The other side gave memory of another size, or whose size can change.
    #[error("the memory to share has {found} bytes, {expected} are needed")]
    Size {
        /// Bytes needed.
        expected: usize,
        /// Bytes that it has.
        found: u64,
    },
}

impl From<rustix::io::Errno> for MemoryError {
    fn from(error: rustix::io::Errno) -> MemoryError {
        MemoryError::System(error.into())
    }
}

/// Words that are mapped. Each is loaded and stored atomically: the other side may store at any moment, and may be hostile.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<AtomicU64>,
    bytes: usize,
    /// From here on stores are this process's own, and nobody else sees them.
    private_at: usize,
}

// SAFETY: mapped memory is tied to no thread, and only atomics in it are handed out.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `bytes` of zeros that nobody can make longer or shorter, mapped here for writing. The descriptor is for the other side, which can only read.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`].
    pub fn make(bytes: usize) -> Result<(SharedMemory, OwnedFd), MemoryError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("perdure", flags)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        let memory = map(
            &file,
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )?;
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        // Mappings that exist stay writable, new ones cannot be.
        rustix::fs::fcntl_add_seals(&file, size | SealFlags::FUTURE_WRITE)?;
        Ok((memory, file))
    }

    /// Maps what the other side has made. From `private_at` on, a multiple of 4 KiB, stores go to a copy of this process's own; before it the memory is read-only.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn map(
        file: &OwnedFd,
        bytes: usize,
        private_at: Option<usize>,
    ) -> Result<SharedMemory, MemoryError> {
        let found = rustix::fs::fstat(file)?.st_size as u64;
        let seals = rustix::fs::fcntl_get_seals(file)?;
        if found != bytes as u64 || !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::Size {
                expected: bytes,
                found,
            });
        }
        let mut memory = map(file, bytes, ProtFlags::READ, MapFlags::SHARED)?;
        if let Some(at) = private_at.filter(|at| *at < bytes) {
            let address = memory.base.as_ptr().wrapping_byte_add(at);
            // SAFETY: replaces a part of the mapping that was just made, and that nobody has seen.
            unsafe {
                mmap(
                    address.cast(),
                    bytes - at,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                    file,
                    at as u64,
                )?
            };
            memory.private_at = at;
        }
        Ok(memory)
    }

    /// Maps the first bytes of a file that the server has opened for this process: its own, or the
    /// pool's epoch, read-only. The server, root's or this user's, is trusted not to shorten it.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn map_file(
        file: &OwnedFd,
        bytes: usize,
        is_writable: bool,
    ) -> Result<SharedMemory, MemoryError> {
        let found = rustix::fs::fstat(file)?.st_size as u64;
        if found < bytes as u64 || !keeps_size(file)? {
            return Err(MemoryError::Size {
                expected: bytes,
                found,
            });
        }
        let protection = match is_writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        map(file, bytes, protection, MapFlags::SHARED)
    }

    /// The first `bytes` once more, for who outlives this; read-only, if this is.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`].
    pub fn again(&self, bytes: usize) -> Result<SharedMemory, MemoryError> {
        // SAFETY: with an old length of 0 the mapping, which is shared, stays, and its beginning is mapped once more, at an address of the kernel's choice.
        let base = unsafe {
            mremap(
                self.base.as_ptr().cast(),
                0,
                bytes.min(self.private_at),
                MremapFlags::MAYMOVE,
            )?
        };
        Ok(SharedMemory {
            base: NonNull::new(base.cast()).ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?,
            bytes: bytes.min(self.private_at),
            private_at: bytes.min(self.private_at),
        })
    }

    /// Forgets what this process has stored into its copy: it sees what the other side has stored.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`].
    pub fn renew(&mut self) -> Result<(), MemoryError> {
        let address = self.base.as_ptr().wrapping_byte_add(self.private_at);
        let bytes = self.bytes - self.private_at;
        // SAFETY: the end of the mapping, whose pages are the file's again; nobody else has a reference to words of it.
        unsafe { madvise(address.cast(), bytes, Advice::LinuxDontNeed)? };
        Ok(())
    }

    /// Whether it was mapped with these bytes and this part of its own.
    pub fn has_shape(&self, bytes: usize, private_at: Option<usize>) -> bool {
        let private_at = private_at.unwrap_or(bytes).min(bytes);
        (self.bytes, self.private_at) == (bytes, private_at)
    }

    /// The word at a byte offset. Only who may store into the memory may store into it: else the processor ends the process.
    ///
    /// # Panics
    ///
    /// If the offset is no multiple of 8 or outside.
    #[inline(always)]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at < self.bytes,
            "word {at} of {}",
            self.bytes
        );
        // SAFETY: inside the mapping, which lives as long as this, and aligned.
        unsafe { &*self.base.as_ptr().wrapping_byte_add(at) }
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Whether a file is a pool's, which has a name, or sealed memory. Honest servers give no other.
pub(crate) fn keeps_size(file: &OwnedFd) -> io::Result<bool> {
    // Not the time of access, which changes with each mapping: a server in user space would be
    // asked.
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK)?;
    let has_name = found.stx_nlink > 0;
    let is_sealed =
        || rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    Ok(has_name || is_sealed())
}

fn map(
    file: &impl AsFd,
    bytes: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<SharedMemory, MemoryError> {
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let base = unsafe { mmap(null_mut(), bytes, protection, flags, file, 0)? };
    Ok(SharedMemory {
        base: NonNull::new(base.cast()).ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?,
        bytes,
        private_at: bytes,
    })
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the whole range is ours, and words of it were only lent.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn the_other_side_sees_what_is_stored_and_keeps_its_own() {
        let (made, file) = SharedMemory::make(8192).expect("make");
        made.word(8).store(7, Relaxed);
        made.word(4096).store(1, Relaxed);
        let mapped = SharedMemory::map(&file, 8192, Some(4096)).expect("map");
        assert_eq!(
            (
                mapped.word(8).load(Relaxed),
                mapped.word(4096).load(Relaxed)
            ),
            (7, 1)
        );
        mapped.word(4096).store(2, Relaxed);
        assert_eq!(made.word(4096).load(Relaxed), 1, "a copy of its own");
        assert!(mapped.has_shape(8192, Some(4096)) && !mapped.has_shape(8192, None));
        made.word(4096).store(3, Relaxed);
        let mut mapped = mapped;
        mapped.renew().expect("renew");
        assert_eq!(mapped.word(4096).load(Relaxed), 3, "its copy is forgotten");
        let again = mapped.again(64).expect("again");
        drop(mapped);
        made.word(8).store(5, Relaxed);
        assert_eq!(again.word(8).load(Relaxed), 5, "it outlives the first");
        let mapped = SharedMemory::map(&file, 8192, Some(4096)).expect("map");
        made.word(8).store(9, Relaxed);
        assert_eq!(mapped.word(8).load(Relaxed), 9);
    }

    #[test]
    fn what_the_maker_writes_nobody_else_can() {
        let (_made, file) = SharedMemory::make(4096).expect("make");
        let writable = SharedMemory::map_file(&file, 4096, true);
        assert!(matches!(writable, Err(MemoryError::System(_))));
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "sealed");
        assert!(rustix::fs::ftruncate(&file, 8192).is_err(), "sealed");
    }

    #[test]
    fn memory_that_can_shrink_is_refused() {
        for flags in [MemfdFlags::CLOEXEC, MemfdFlags::ALLOW_SEALING] {
            let file = rustix::fs::memfd_create("open", flags).expect("memory");
            rustix::fs::ftruncate(&file, 4096).expect("its size");
            for is_writable in [false, true] {
                let mapped = SharedMemory::map_file(&file, 4096, is_writable);
                assert!(matches!(mapped, Err(MemoryError::Size { found: 4096, .. })));
            }
            assert!(SharedMemory::map(&file, 4096, None).is_err());
        }
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let (_made, file) = SharedMemory::make(4096).expect("make");
        let mapped = SharedMemory::map(&file, 8192, None);
        assert!(matches!(mapped, Err(MemoryError::Size { found: 4096, .. })));
    }
}
