//! Memory of the library's own.
//!
//! A signal handler may write to a file, and that may attach the file, while the program is in the middle of its `malloc`. So the library never calls that: it has memory from the kernel, in blocks of powers
//! of two. What was given back is used again and never unmapped, except for blocks longer than any write's.
//!
//! Invariants:
//!
//! * Who holds the lock has all signals blocked: no handler on the same thread waits for it.
//! * Lock and lists lie in a page that the kernel wipes in a child: whatever its parent's threads were doing, the child's lock is free and its lists are empty and sound. Blocks say nothing of themselves,
//!   so the child may give back what the parent took.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{Timespec, nanosleep};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{self, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

const PAGE: usize = 4096;
/// The smallest block has room for a link, and is aligned as C's memory.
const BLOCK_BYTES_MIN: usize = 16;
/// A write is copied in pieces of 1 MiB.
const BLOCK_BYTES_MAX: usize = 2 << 20;
const CLASSES: usize = (BLOCK_BYTES_MAX / BLOCK_BYTES_MIN).ilog2() as usize + 1;
/// Blocks up to an eighth of this are cut from pieces of this size; others are mapped one by one.
const CHUNK_BYTES: usize = 256 << 10;
/// Looks at a lock that is held before one sleeps.
const LOOKS: u32 = 100;
const NAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000,
};

/// A block that is free: where the next one is.
struct Free {
    next: *mut Free,
}

/// What the lock protects. Valid if it is all zeros.
struct Lists {
    /// Free blocks of each class.
    free: [*mut Free; CLASSES],
    /// What is left of the last chunk.
    rest: *mut u8,
    rest_bytes: usize,
}

struct Heap {
    is_locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

const _: () = assert!(size_of::<Heap>() <= PAGE);

/// The heap of this process, in its page.
static HEAP: AtomicPtr<Heap> = AtomicPtr::new(null_mut());

/// The library's allocator.
struct OwnMemory;

#[global_allocator]
static OWN_MEMORY: OwnMemory = OwnMemory;

/// Locked, with all signals blocked.
struct Locked<'a> {
    heap: &'a Heap,
    signals: libc::sigset_t,
}

fn heap() -> Option<&'static Heap> {
    let found = HEAP.load(Acquire);
    let found = match found.is_null() {
        true => make_heap()?,
        false => found,
    };
    // SAFETY: mapped, never unmapped; all zeros, as the kernel makes it, is a heap without blocks.
    unsafe { found.as_ref() }
}

#[cold]
fn make_heap() -> Option<*mut Heap> {
    let made = map(PAGE)?.cast::<Heap>();
    // A kernel that cannot wipe it has no direct access either.
    // SAFETY: the page that was just mapped.
    let _ = unsafe { madvise(made.cast(), PAGE, Advice::LinuxWipeOnFork) };
    match HEAP.compare_exchange(null_mut(), made, AcqRel, Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            unmap(made.cast(), PAGE);
            Some(other)
        }
    }
}

/// New memory, all zeros.
fn map(bytes: usize) -> Option<*mut u8> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE) };
    at.ok().map(|at| at.cast())
}

fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: callers have mapped it, and nobody uses it any more.
    let _ = unsafe { munmap(at.cast(), bytes) };
}

impl Heap {
    fn lock(&self) -> Locked<'_> {
        let mut signals = MaybeUninit::uninit();
        // SAFETY: two sets of signals; the second is filled in with what was blocked, which cannot fail.
        let signals = unsafe {
            let mut all = MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), signals.as_mut_ptr());
            signals.assume_init()
        };
        let mut looks = 0;
        while self
            .is_locked
            .compare_exchange_weak(false, true, Acquire, Relaxed)
            .is_err()
        {
            looks += 1;
            match looks > LOOKS {
                true => drop(nanosleep(&NAP)),
                false => std::hint::spin_loop(),
            }
        }
        Locked {
            heap: self,
            signals,
        }
    }
}

impl Locked<'_> {
    fn lists(&mut self) -> &mut Lists {
        // SAFETY: whoever holds the lock is alone with them.
        unsafe { &mut *self.heap.lists.get() }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.heap.is_locked.store(false, Release);
        // SAFETY: what was blocked before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.signals, null_mut()) };
    }
}

impl Lists {
    fn take(&mut self, class: usize) -> Option<*mut u8> {
        let first = self.free[class];
        // SAFETY: null, or a free block, in which there is a link.
        match unsafe { first.as_ref() } {
            Some(free) => {
                self.free[class] = free.next;
                Some(first.cast())
            }
            None => self.cut(BLOCK_BYTES_MIN << class),
        }
    }

    fn give(&mut self, class: usize, block: *mut u8) {
        let block = block.cast::<Free>();
        let next = self.free[class];
        // SAFETY: nobody uses the block any more; it has room for a link and is aligned to its size.
        unsafe { block.write(Free { next }) };
        self.free[class] = block;
    }

    /// A new block.
    fn cut(&mut self, bytes: usize) -> Option<*mut u8> {
        if bytes > CHUNK_BYTES / 8 {
            return map(bytes);
        }
        let mut skipped = self.rest.align_offset(bytes);
        if self.rest.is_null() || skipped.saturating_add(bytes) > self.rest_bytes {
            self.rest = map(CHUNK_BYTES)?;
            self.rest_bytes = CHUNK_BYTES;
            skipped = self.rest.align_offset(bytes);
        }
        let block = self.rest.wrapping_add(skipped);
        self.rest = block.wrapping_add(bytes);
        self.rest_bytes -= skipped + bytes;
        Some(block)
    }
}

/// The class of blocks for this layout; `None` if it is mapped by itself.
fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(BLOCK_BYTES_MIN);
    let is_small = bytes <= BLOCK_BYTES_MAX;
    is_small.then(|| (bytes.next_power_of_two() / BLOCK_BYTES_MIN).ilog2() as usize)
}

// SAFETY: a block belongs to who took it until it is given back, is as long as its class, which is a power of two, and aligned to that or to a page.
unsafe impl GlobalAlloc for OwnMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            return null_mut();
        }
        let found = match class_of(layout) {
            Some(class) => heap().and_then(|heap| heap.lock().lists().take(class)),
            None => map(layout.size()),
        };
        found.unwrap_or(null_mut())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (class_of(layout), heap()) {
            (Some(class), Some(heap)) => heap.lock().lists().give(class, block),
            (Some(_), None) => {}
            (None, _) => unmap(block, layout.size()),
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else {
            return null_mut();
        };
        if class_of(layout).is_some() && class_of(layout) == class_of(wanted) {
            return block;
        }
        // SAFETY: the sizes are the caller's; two blocks do not overlap.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                ptr::copy_nonoverlapping(block, new, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_aligned() {
        let layouts = [
            (1, 1),
            (16, 8),
            (17, 16),
            (4096, 64),
            (5000, 4096),
            (1 << 20, 8),
            (3 << 20, 1),
        ];
        let layouts =
            layouts.map(|(bytes, align)| Layout::from_size_align(bytes, align).expect("sound"));
        std::thread::scope(|scope| {
            for mark in 0..4 {
                scope.spawn(move || {
                    for _ in 0..200 {
                        // SAFETY: each block is filled and looked at within its size, and given back once.
                        unsafe {
                            let blocks = layouts.map(|layout| OWN_MEMORY.alloc(layout));
                            for (block, layout) in blocks.iter().zip(layouts) {
                                assert!(
                                    !block.is_null() && block.addr().is_multiple_of(layout.align())
                                );
                                block.write_bytes(mark, layout.size());
                            }
                            for (block, layout) in blocks.iter().zip(layouts) {
                                let ends = (block.read(), block.add(layout.size() - 1).read());
                                assert_eq!(ends, (mark, mark));
                                OWN_MEMORY.dealloc(*block, layout);
                            }
                        }
                    }
                });
            }
        });
    }
}
