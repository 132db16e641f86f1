//! The system calls that lay blocks into the address space of a program and take them away again: the only file of `mapped` that changes what is mapped.
//!
//! They are made directly, not by the C library's functions, before which the preload library stands.

use rustix::io::Result;
use rustix::mm::{
    MapFlags, MprotectFlags, MremapFlags, ProtFlags, mmap, mprotect, mremap_fixed, munmap,
};
use std::os::fd::BorrowedFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// Blocks of one segment in a row, and where they go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    /// Where the library itself has them mapped.
    pub(super) source: usize,
    /// Whether it may store into them there.
    pub(super) is_writable: bool,
    /// Bytes from the beginning of the mapping.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Has the kernel map a part of a file for reading, at an address of its choice.
pub(super) fn map_shadow(
    descriptor: BorrowedFd<'_>,
    bytes: usize,
    offset: u64,
    is_private: bool,
) -> Result<usize> {
    let flags = match is_private {
        true => MapFlags::PRIVATE,
        false => MapFlags::SHARED,
    };
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let address = unsafe {
        mmap(
            null_mut(),
            bytes,
            ProtFlags::READ,
            flags,
            descriptor,
            offset,
        )?
    };
    Ok(address.expose_provenance())
}

/// Lays a run of blocks over a mapping that begins at `base`. The caller has just had that mapped, for the program to read.
pub(super) fn lay(run: &Run, base: usize) -> Result<()> {
    let target = base + run.at;
    // SAFETY: what lies at the target is replaced, and that is the program's mapping of the same bytes of the file. With an old length of 0 the source, which is shared, stays and is mapped once more.
    unsafe {
        mremap_fixed(
            with_exposed_provenance_mut(run.source),
            0,
            run.bytes,
            MremapFlags::MAYMOVE,
            with_exposed_provenance_mut(target),
        )?;
        if run.is_writable {
            mprotect(
                with_exposed_provenance_mut(target),
                run.bytes,
                MprotectFlags::READ,
            )?;
        }
    }
    Ok(())
}

/// Moves a shadow over the blocks: one step for all other threads.
pub(super) fn restore(shadow: usize, start: usize, bytes: usize) -> Result<()> {
    // SAFETY: the shadow is ours, nobody has its address, and what it replaces is the program's mapping of the same bytes of the file.
    unsafe {
        mremap_fixed(
            with_exposed_provenance_mut(shadow),
            bytes,
            bytes,
            MremapFlags::MAYMOVE,
            with_exposed_provenance_mut(start),
        )?;
    }
    Ok(())
}

/// Takes a part of a shadow away.
pub(super) fn drop_shadow(shadow: usize, bytes: usize) {
    // SAFETY: it is ours, and nobody has its address. The kernel refuses it only if it has no memory to split it; then it stays, unused.
    let _ = unsafe { munmap(with_exposed_provenance_mut(shadow), bytes) };
}
