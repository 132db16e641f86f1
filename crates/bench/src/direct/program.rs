//! The program that is measured: one operation in a loop, by the C library's calls, as any program makes them. It is this program, started
//! again, with the preload library or without it.
//!
//! It opens its file, warms up, and says so; for each line with a number on its stdin it does so many operations and answers with a line of
//! JSON. So the rounds of several programs can alternate.

use crate::measure::{Pinned, Places, Stopwatch};
use crate::memory::Page;
use pmem::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::{CString, OsString};
use std::io;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// First argument of the process; nothing that a user would type.
pub(crate) const ARGUMENT: &str = "--perdure-bench-loop";

/// What the loop does.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// `pwrite` of a block, or a part of one, at a random place of the file.
    Overwrite,
    /// `pread` of one.
    Read,
    /// `write` of a block at the end; the file is emptied when it has its full size.
    Append,
    /// `open` and `close`.
    OpenClose,
    /// A copy of a block at a random place of a mapping of the file.
    MapRead,
    /// `mmap` of the file, a look at each of its pages, `munmap`. The kernel forgets the pages that it has of it before, so each look is the first.
    MapPass,
}

/// A loop, as the experiment orders it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) operation: Operation,
    /// Bytes that one overwrite or read moves, at a multiple of them: a divisor of a block.
    pub(crate) bytes: usize,
    /// Size of the file, which is there already; of [`Operation::Append`] the greatest.
    pub(crate) file_bytes: u64,
    /// Where it runs.
    pub(crate) processor: usize,
    /// Operations before the first that counts.
    pub(crate) warm_up: u64,
    /// Flags for `open` beside those that the operation needs.
    pub(crate) flags: i32,
}

/// What a round took.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    /// Nanoseconds of one operation.
    pub(crate) nanoseconds: f64,
    /// Calls of the kernel to read or to write, of one operation, as the kernel counts them.
    pub(crate) kernel_calls: f64,
    /// What the last operation wrote or read, to be compared with the file; `None` if it moved nothing.
    pub(crate) last: Option<Moved>,
}

/// A block that was written or read.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Moved {
    /// Where in the file.
    pub(crate) offset: u64,
    /// Its first word.
    pub(crate) word: u64,
}

impl Answer {
    /// Whether the kernel had nothing to do with most operations.
    pub(crate) fn is_direct(&self) -> bool {
        self.kernel_calls < 0.5
    }
}

/// In the process: does what it is ordered until stdin ends. The arguments are the order as JSON, and the file's path.
pub(crate) fn serve(arguments: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    let [order, path] = <[OsString; 2]>::try_from(arguments).map_err(|_| "two arguments")?;
    let order: Order = serde_json::from_str(&order.to_string_lossy())?;
    let _pin = Pinned::to(order.processor);
    let warm_up = order.warm_up;
    let mut work = Work::open(order, CString::new(path.into_vec())?)?;
    work.own_calls = work.round(0)?.1;
    let warm = work.answer(warm_up)?;
    tell(warm)?;
    for line in io::stdin().lines() {
        tell(work.answer(line?.parse()?)?)?;
    }
    Ok(())
}

fn tell(answer: Answer) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    Ok(out.flush()?)
}

/// An open file and how far the loop is.
struct Work {
    order: Order,
    path: CString,
    descriptor: libc::c_int,
    mapped: Option<Mapped>,
    page: Box<Page>,
    places: Places,
    /// How many there are in the file. Not worked out in the loop: a division is a part of what a short operation takes.
    file_places: u64,
    /// Bytes appended since the file was empty.
    appended: u64,
    /// Operations so far: what is written is never the same.
    done: u64,
    /// Where the last operation was.
    offset: u64,
    /// Calls that counting and timing make by themselves.
    own_calls: u64,
}

impl Work {
    fn open(order: Order, path: CString) -> io::Result<Work> {
        let flags = match order.operation {
            Operation::Append => libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT,
            Operation::Read | Operation::MapRead | Operation::MapPass => libc::O_RDONLY,
            Operation::Overwrite | Operation::OpenClose => libc::O_RDWR,
        };
        let descriptor = open(&path, flags | order.flags)?;
        let mapped = match order.operation {
            Operation::MapRead => Some(Mapped::new(descriptor, order.file_bytes)?),
            _ => None,
        };
        Ok(Work {
            mapped,
            path,
            descriptor,
            page: Page::filled(),
            places: Places::new(order.processor as u64),
            file_places: order.file_bytes / order.bytes as u64,
            appended: 0,
            done: 0,
            offset: 0,
            own_calls: 0,
            order,
        })
    }

    fn answer(&mut self, count: u64) -> io::Result<Answer> {
        // What is there afterwards was read.
        self.page.number(0);
        let (nanoseconds, calls) = self.round(count)?;
        let moves = count > 0
            && !matches!(
                self.order.operation,
                Operation::OpenClose | Operation::MapPass
            );
        let each = |sum: f64| sum / count.max(1) as f64;
        Ok(Answer {
            nanoseconds: each(nanoseconds),
            kernel_calls: each(calls.saturating_sub(self.own_calls) as f64),
            last: moves.then(|| Moved {
                offset: self.offset,
                word: self.page.first_word(),
            }),
        })
    }

    /// Time and kernel calls of so many operations.
    fn round(&mut self, count: u64) -> io::Result<(f64, u64)> {
        self.make_room(count)?;
        let before = kernel_calls();
        let watch = Stopwatch::of_thread();
        for _ in 0..count {
            self.once()?;
        }
        let nanoseconds = watch.nanoseconds();
        Ok((nanoseconds, kernel_calls() - before))
    }

    /// Empties a file that would grow too large. The first operations after that do not count, as those after opening do not.
    fn make_room(&mut self, count: u64) -> io::Result<()> {
        const AGAIN: u64 = 2000;
        let is_append = self.order.operation == Operation::Append;
        let needed = self.appended + count * BLOCK_BYTES as u64;
        if !is_append || needed <= self.order.file_bytes {
            return Ok(());
        }
        // SAFETY: only numbers are passed.
        checked(unsafe { libc::ftruncate64(self.descriptor, 0) } as isize)?;
        self.appended = 0;
        (0..AGAIN.min(count)).try_for_each(|_| self.once())
    }

    fn once(&mut self) -> io::Result<()> {
        let bytes = self.order.bytes;
        self.offset = self.places.below(self.file_places) * bytes as u64;
        self.done += 1;
        let offset = self.offset as libc::off64_t;
        let page = self.page.0.as_mut_ptr().cast::<libc::c_void>();
        // SAFETY: the buffer is a block long, of this thread, and not used otherwise meanwhile; the path ends with a zero.
        let moved = unsafe {
            match self.order.operation {
                Operation::Overwrite => {
                    page.cast::<u64>().write(self.done);
                    libc::pwrite64(self.descriptor, page, bytes, offset)
                }
                Operation::Read => libc::pread64(self.descriptor, page, bytes, offset),
                Operation::Append => {
                    page.cast::<u64>().write(self.done);
                    self.offset = self.appended;
                    self.appended += bytes as u64;
                    libc::write(self.descriptor, page, bytes)
                }
                Operation::MapRead => {
                    let mapped = self.mapped.as_ref();
                    let from = mapped.map(|mapped| mapped.start.add(self.offset as usize));
                    let from = from.ok_or(io::ErrorKind::InvalidInput)?;
                    page.cast::<u8>()
                        .copy_from_nonoverlapping(from.cast(), BLOCK_BYTES);
                    BLOCK_BYTES as isize
                }
                Operation::MapPass => {
                    libc::posix_fadvise(self.descriptor, 0, 0, libc::POSIX_FADV_DONTNEED);
                    Mapped::new(self.descriptor, self.order.file_bytes)?.look_at_all();
                    BLOCK_BYTES as isize
                }
                Operation::OpenClose => {
                    let descriptor = open(&self.path, libc::O_RDWR | self.order.flags)?;
                    checked(libc::close(descriptor) as isize)?;
                    bytes as isize
                }
            }
        };
        match checked(moved)? == bytes {
            true => Ok(()),
            false => Err(io::Error::other("it moved less than was asked for")),
        }
    }
}

/// A mapping of a whole file, for reading.
struct Mapped {
    start: *const u8,
    bytes: usize,
}

impl Mapped {
    fn new(descriptor: libc::c_int, bytes: u64) -> io::Result<Mapped> {
        let bytes = bytes as usize;
        // SAFETY: a new mapping at an address of the kernel's choice. By the C library's function, which a preloaded library may stand before.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        match start == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Mapped {
                start: start.cast(),
                bytes,
            }),
        }
    }

    /// Reads a byte of each page.
    fn look_at_all(&self) {
        for at in (0..self.bytes).step_by(BLOCK_BYTES) {
            // SAFETY: inside the mapping, and the file is that long.
            unsafe { self.start.add(at).read_volatile() };
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.bytes) };
    }
}

fn open(path: &CString, flags: libc::c_int) -> io::Result<libc::c_int> {
    const MODE: libc::mode_t = 0o600;
    // SAFETY: the path ends with a zero and lives as long as the call.
    let descriptor = unsafe { libc::open64(path.as_ptr(), flags | libc::O_CLOEXEC, MODE) };
    checked(descriptor as isize)?;
    Ok(descriptor)
}

/// What a call returned, if it is no error.
fn checked(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Calls of this process to read or to write since it was started; 0 where the kernel does not count.
pub(crate) fn kernel_calls() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let counts = text
        .lines()
        .filter(|line| line.starts_with("syscr:") || line.starts_with("syscw:"));
    let numbers = counts.filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
    numbers.sum()
}
