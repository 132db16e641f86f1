//! Direct access to the files of a mounted pool, for programs that would rather link than preload.
//!
//! The process has one client, whatever number of handles: two that held the same file would take it from each other all the time. And a child of `fork` can forget
//! it without a lock.

use crate::born::Born;
use crate::boundary::{Answer, call, count, is_broken, status, truth};
use crate::failure::Failure;
use crate::kernel::Descriptor;
use crate::pointers::{Data, Handle, Room, droppable, make, required, usable};
use direct::{Client, File};
use libc::ssize_t;
use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Returned by the perdure_direct_try_… functions: nothing was done, make the system call.
pub const PERDURE_USE_KERNEL: i32 = -2;

static CLIENT: Client = Client::new();

/// In a child of `fork`: what the parent had is not ours.
pub(crate) fn forget() {
    CLIENT.forget();
}

/// Direct access to the files of mounted pools: the connections to their servers, which all clients
/// of a process share.
#[derive(Debug)]
pub struct perdure_client {
    born: Born,
}

impl Handle for perdure_client {
    fn born(&self) -> Born {
        self.born
    }
}

/// A descriptor of the program, with direct access to its file where there is some. Any number of
/// threads may use it at once, but for closing it.
#[derive(Debug)]
pub struct perdure_direct {
    born: Born,
    descriptor: Descriptor,
    /// `None`: the kernel does everything.
    file: Option<Arc<File>>,
}

impl Handle for perdure_direct {
    fn born(&self) -> Born {
        self.born
    }
}

impl perdure_direct {
    /// The file, if it may be used directly now. After a panic, or in a child of `fork`, the kernel
    /// can still do everything.
    #[inline]
    fn file(&self) -> Option<&File> {
        let file = self.file.as_deref()?;
        (self.born.is_here() && !is_broken()).then_some(file)
    }

    #[inline]
    fn try_read(&self, into: &mut [u8], offset: u64) -> Option<usize> {
        let file = self.file().filter(|_| self.descriptor.is_readable)?;
        file.read_at(
            self.descriptor.borrow(),
            &mut [IoSliceMut::new(into)],
            offset,
        )
    }

    /// To the end if the descriptor appends, whatever the offset, as on Linux.
    #[inline]
    fn try_write(&self, data: &[u8], offset: u64) -> Option<usize> {
        let file = self.file().filter(|_| self.descriptor.is_writable)?;
        let (descriptor, data) = (self.descriptor.borrow(), &[IoSlice::new(data)]);
        match self.descriptor.appends {
            true => file.append(descriptor, data).map(|(bytes, _)| bytes),
            false => file.write_at(descriptor, data, offset),
        }
    }

    /// Where the kernel writes, when it appends for a descriptor without O_APPEND, the server is
    /// not asked; and it may be wrong about a file that was written directly.
    fn has_to_append(&self) -> Answer<()> {
        match self.descriptor.appends {
            true => Ok(()),
            false => Err(Failure::argument(
                "the descriptor was not opened with O_APPEND, without which the kernel could not do what is refused directly",
            )),
        }
    }
}

/// Begins direct access to files of mounted pools; end it with perdure_client_free(). It asks
/// nobody yet. Any number of threads may use it at once.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_client_new(
    client: Option<&mut MaybeUninit<*mut perdure_client>>,
) -> c_int {
    status("perdure_client_new", || {
        make(client, "client", |born| Ok(perdure_client { born }))
    })
}

/// Frees a client. What was attached by it goes on working until it is closed. NULL is nothing to
/// free.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_client_free(client: Option<Box<perdure_client>>) {
    call("perdure_client_free", (), || {
        drop(client);
        Ok(())
    });
}

/// Looks at a descriptor that the program has opened through a mount. Close what comes of it with
/// perdure_direct_close(), before the descriptor.
///
/// The descriptor stays the program's, which keeps it open meanwhile, and does not change how it
/// was opened (F_SETFL). It works for every descriptor: of a file that is not of a mount with
/// direct access the kernel does everything (perdure_direct_is_offered()). Files that are mapped
/// (mmap) are better left to the kernel.
///
/// Errors: EBADF if `fd` is not open.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_client_file(
    client: Option<&perdure_client>,
    fd: c_int,
    direct: Option<&mut MaybeUninit<*mut perdure_direct>>,
) -> c_int {
    status("perdure_client_file", || {
        make(direct, "direct", |born| {
            usable(client, "client")?;
            let descriptor = Descriptor::look(fd)?;
            let file = CLIENT.look(descriptor.borrow());
            Ok(perdure_direct {
                born,
                descriptor,
                file,
            })
        })
    })
}

/// Whether the file is one of a mount that offers direct access, and its server is not known to be
/// gone: 1, 0, or -1. If 0, every operation goes to the kernel; when the server is back, attach a
/// new descriptor. That a server was killed is noticed when something is asked of it, not here.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_is_offered(direct: Option<&perdure_direct>) -> c_int {
    truth("perdure_direct_is_offered", || {
        let direct = required(direct, "direct")?;
        Ok(direct.file().is_some_and(|file| !file.is_lost()))
    })
}

/// Reads up to `bytes` bytes at `offset` without a system call. Returns how many, 0 at the end of
/// the file, or PERDURE_USE_KERNEL; then `into` may hold anything. The first few operations on a
/// file always go to the kernel: attaching it costs as much as they do.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_try_pread(
    direct: Option<&perdure_direct>,
    mut into: Room,
    bytes: usize,
    offset: u64,
) -> ssize_t {
    tried("perdure_direct_try_pread", || {
        let direct = required(direct, "direct")?;
        Ok(direct.try_read(into.bytes(bytes, "into")?, offset))
    })
}

/// Writes `data` at `offset` without a system call (at the end, if the descriptor was opened with
/// O_APPEND, as on Linux). Durable when it returns, and atomic up to 1 MiB; more may be cut short.
/// Returns the bytes written, or PERDURE_USE_KERNEL.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_try_pwrite(
    direct: Option<&perdure_direct>,
    data: Data,
    bytes: usize,
    offset: u64,
) -> ssize_t {
    tried("perdure_direct_try_pwrite", || {
        let direct = required(direct, "direct")?;
        Ok(direct.try_write(data.bytes(bytes, "data")?, offset))
    })
}

/// Writes `data` at the end of the file without a system call; otherwise as
/// perdure_direct_try_pwrite().
///
/// Errors: EINVAL for a descriptor that was not opened with O_APPEND.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_try_append(
    direct: Option<&perdure_direct>,
    data: Data,
    bytes: usize,
) -> ssize_t {
    tried("perdure_direct_try_append", || {
        let direct = required(direct, "direct")?;
        direct.has_to_append()?;
        Ok(direct.try_write(data.bytes(bytes, "data")?, 0))
    })
}

/// As pread(2) on the descriptor, directly where that is possible. Returns the bytes read, 0 at the
/// end of the file.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_pread(
    direct: Option<&perdure_direct>,
    mut into: Room,
    bytes: usize,
    offset: u64,
) -> ssize_t {
    count("perdure_direct_pread", || {
        let direct = required(direct, "direct")?;
        let into = into.bytes(bytes, "into")?;
        match direct.try_read(into, offset) {
            Some(bytes) => Ok(bytes),
            None => direct.descriptor.read_at(into, offset),
        }
    })
}

/// As pwrite(2) on the descriptor, directly where that is possible: durable when it returns, and
/// atomic up to 1 MiB; more may be cut short. Returns the bytes written.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_pwrite(
    direct: Option<&perdure_direct>,
    data: Data,
    bytes: usize,
    offset: u64,
) -> ssize_t {
    count("perdure_direct_pwrite", || {
        let direct = required(direct, "direct")?;
        let data = data.bytes(bytes, "data")?;
        match direct.try_write(data, offset) {
            Some(bytes) => Ok(bytes),
            None => direct.descriptor.write_at(data, offset),
        }
    })
}

/// As write(2) on the descriptor, which was opened with O_APPEND, directly where that is possible;
/// otherwise as perdure_direct_pwrite(). The descriptor's position does not move.
///
/// Errors: EINVAL for a descriptor that was not opened with O_APPEND.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_append(
    direct: Option<&perdure_direct>,
    data: Data,
    bytes: usize,
) -> ssize_t {
    count("perdure_direct_append", || {
        let direct = required(direct, "direct")?;
        direct.has_to_append()?;
        let data = data.bytes(bytes, "data")?;
        match direct.try_write(data, 0) {
            Some(bytes) => Ok(bytes),
            None => direct.descriptor.append(data),
        }
    })
}

/// Size of the file in bytes, directly where that is possible.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_size(
    direct: Option<&perdure_direct>,
    size_bytes: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    status("perdure_direct_size", || {
        let direct = required(direct, "direct")?;
        let place = required(size_bytes, "size_bytes")?;
        let known = direct.file().and_then(File::size_bytes);
        place.write(match known {
            Some(size_bytes) => size_bytes,
            None => direct.descriptor.size_bytes()?,
        });
        Ok(())
    })
}

/// As fsync(2). Direct writes were durable when they returned; if others may have written as well,
/// the kernel is asked.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_fsync(direct: Option<&perdure_direct>) -> c_int {
    status("perdure_direct_fsync", || {
        let direct = required(direct, "direct")?;
        match direct.file().is_some_and(File::is_durable) {
            true => Ok(()),
            false => direct.descriptor.sync(),
        }
    })
}

/// Ends direct access by this handle, and lets the file go with the last handle of the process. The
/// descriptor stays open. NULL is nothing to close.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_direct_close(direct: Option<Box<perdure_direct>>) {
    call("perdure_direct_close", (), || {
        drop(direct.and_then(droppable));
        Ok(())
    });
}

/// A number of bytes, or PERDURE_USE_KERNEL, or -1.
#[inline]
fn tried(function: &str, work: impl FnOnce() -> Answer<Option<usize>>) -> ssize_t {
    call(function, -1, || {
        Ok(work()?.map_or(PERDURE_USE_KERNEL as ssize_t, |bytes| bytes as ssize_t))
    })
}
