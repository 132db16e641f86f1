//! The two commands of a queue's entry, on a ring of the thread's own.
//!
//! The ring lies in memory of this process's own (`NO_MMAP`). A ring that is mapped from its
//! descriptor, as the common libraries do, lives as long as the process's memory: a killed server
//! whose thread waits for the mount would keep the connection that the thread waits for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::desk::Desk;
use super::memory::Memory;
use crate::abi::ring::{COMMIT_AND_FETCH, Command, PARTS, REGISTER};
use crate::device::Device;

/// A station has one command under way.
const COMMANDS: u32 = 2;
const PAGE_BYTES: usize = 4096;

const SQE128: u32 = 1 << 10;
const SINGLE_ISSUER: u32 = 1 << 12;
const DEFER_TASKRUN: u32 = 1 << 13;
const NO_MMAP: u32 = 1 << 14;
const NO_SQARRAY: u32 = 1 << 16;
const GETEVENTS: u32 = 1;
const URING_CMD: u8 = 46;

/// Where the kernel has put the parts of a ring: `struct io_sqring_offsets` and, with other names,
/// `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    others: [u32; 4],
    user_address: u64,
}
const _: () = assert!(size_of::<Offsets>() == 40);

impl Offsets {
    /// Completions begin there.
    fn completions(&self) -> u32 {
        self.others[1]
    }
}

/// `struct io_uring_params`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
struct Parameters {
    submissions: u32,
    completions: u32,
    flags: u32,
    others: [u32; 7],
    submission: Offsets,
    completion: Offsets,
}
const _: () = assert!(size_of::<Parameters>() == 120);

/// `struct io_uring_sqe` of 128 bytes, as commands of a device use it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes)]
struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    descriptor: i32,
    command_kind: u32,
    padding: u32,
    address: u64,
    length: u32,
    command_flags: u32,
    user_data: u64,
    buffer_and_others: u64,
    command: Command,
    rest: [u64; 7],
}
const _: () = assert!(size_of::<Submission>() == 128);
const _: () = assert!(std::mem::offset_of!(Submission, command) == 48);

/// `struct io_uring_cqe`
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}
const _: () = assert!(size_of::<Completion>() == 16);

/// A ring for one entry. Only the thread that made it may use it.
pub(super) struct Ring {
    /// Closed before the memory goes.
    descriptor: OwnedFd,
    parameters: Parameters,
    queues: Memory,
    submissions: Memory,
    /// Pushed and not yet submitted.
    pushed: u32,
}

impl Ring {
    pub(super) fn new() -> io::Result<Ring> {
        let (queues, submissions) = (Memory::new(PAGE_BYTES)?, Memory::new(PAGE_BYTES)?);
        let mut parameters = Parameters {
            flags: SQE128 | SINGLE_ISSUER | DEFER_TASKRUN | NO_MMAP | NO_SQARRAY,
            ..Parameters::default()
        };
        parameters.submission.user_address = submissions.start().as_ptr() as u64;
        parameters.completion.user_address = queues.start().as_ptr() as u64;
        // SAFETY: the kernel reads and writes the parameters, which live that long. The memory
        // that they name is a page each: two commands and their completions need less.
        let descriptor =
            unsafe { libc::syscall(libc::SYS_io_uring_setup, COMMANDS, &raw mut parameters) };
        let Ok(descriptor @ 0..) = i32::try_from(descriptor) else {
            return Err(io::Error::last_os_error());
        };
        Ok(Ring {
            // SAFETY: the call returned a new descriptor, which nothing else owns.
            descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) },
            parameters,
            queues,
            submissions,
            pushed: 0,
        })
    }

    /// A counter or mask of the ring.
    fn word(&self, offset: u32) -> &AtomicU32 {
        let offset = offset as usize;
        assert!(offset + size_of::<AtomicU32>() <= self.queues.bytes());
        // SAFETY: the word is inside of the page; the kernel aligns it and writes it atomically.
        unsafe { self.queues.start().add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// Gives the kernel a desk for requests of a queue's processor.
    pub(super) fn register(&mut self, device: &Device, queue: u16, desk: &Desk) -> io::Result<()> {
        let parts = desk.parts();
        self.push(&Submission {
            address: parts.as_ptr() as u64,
            length: PARTS,
            command: Command {
                queue,
                ..Command::default()
            },
            ..submission(device, REGISTER)
        });
        // The kernel copies `parts` while it takes the submission. The desk outlives the ring:
        // stations drop the ring first.
        self.enter(0, 0)
    }

    /// Answers a request with what lies on the desk, and asks for the next one.
    pub(super) fn commit(&mut self, device: &Device, queue: u16, unique: u64) {
        self.push(&Submission {
            command: Command {
                queue,
                commit_id: unique,
                ..Command::default()
            },
            ..submission(device, COMMIT_AND_FETCH)
        });
    }

    fn push(&mut self, submission: &Submission) {
        let place = &self.parameters.submission;
        let tail = self.word(place.tail).load(Ordering::Relaxed);
        let index = (tail & self.word(place.mask).load(Ordering::Relaxed)) as usize;
        let at = index * size_of::<Submission>();
        assert!(at + size_of::<Submission>() <= self.submissions.bytes());
        // SAFETY: the place is inside of the page. The kernel reads it in `enter` alone, so one of
        // two commands is always free.
        unsafe {
            let at = self.submissions.start().add(at);
            at.cast::<Submission>().write(*submission);
        }
        self.word(place.tail)
            .store(tail.wrapping_add(1), Ordering::Release);
        self.pushed += 1;
    }

    /// Submits what was pushed, and waits for so many completions.
    fn enter(&mut self, wanted: u32, flags: u32) -> io::Result<()> {
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the submissions name memory that lives until their completion: the desk's.
        let submitted = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                descriptor,
                self.pushed,
                wanted,
                flags,
                std::ptr::null::<u8>(),
                0,
            )
        };
        match u32::try_from(submitted) {
            Ok(submitted) => {
                self.pushed -= submitted.min(self.pushed);
                Ok(())
            }
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// The result of a completion, if there is one.
    fn completed(&mut self) -> Option<i32> {
        let place = &self.parameters.completion;
        let head = self.word(place.head).load(Ordering::Relaxed);
        if head == self.word(place.tail).load(Ordering::Acquire) {
            return None;
        }
        let index = (head & self.word(place.mask).load(Ordering::Relaxed)) as usize;
        let at = place.completions() as usize + index * size_of::<Completion>();
        assert!(at + size_of::<Completion>() <= self.queues.bytes());
        // SAFETY: the place is inside of the page, and the kernel has written it: see the tail.
        let done = unsafe { self.queues.start().add(at).cast::<Completion>().read() };
        self.word(place.head)
            .store(head.wrapping_add(1), Ordering::Release);
        Some(done.result)
    }

    /// Submits what was pushed, and waits for a request. Returns the command's result.
    pub(super) fn wait(&mut self) -> io::Result<i32> {
        loop {
            if let Some(result) = self.completed() {
                return Ok(result);
            }
            match self.enter(1, GETEVENTS) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn submission(device: &Device, command_kind: u32) -> Submission {
    Submission {
        opcode: URING_CMD,
        descriptor: device.as_fd().as_raw_fd(),
        command_kind,
        ..Submission::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skipped with a word where a sandbox forbids io_uring.
    #[test]
    fn a_ring_takes_commands_and_tells_their_results() {
        let mut ring = match Ring::new() {
            Ok(ring) => ring,
            Err(error) => return eprintln!("skipped: no io_uring: {error}"),
        };
        let null = std::fs::File::open("/dev/null").expect("opened");
        let device = Device::new(null.into());
        let program = std::fs::File::open("/proc/self/exe").expect("opened");
        let program = Device::new(program.into());
        for round in 0..10 {
            // This device takes every command; a program's file takes none.
            ring.commit(&device, 0, round);
            assert_eq!(ring.wait().expect("a completion"), 0);
            ring.commit(&program, 0, round);
            assert_eq!(ring.wait().expect("a completion"), -libc::EOPNOTSUPP);
        }
        assert_eq!(ring.pushed, 0);
    }

    /// The ring must go with its descriptor, while the process's memory lives on.
    #[test]
    fn no_mapping_holds_the_ring() {
        let Ok(_ring) = Ring::new() else { return };
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        assert!(!maps.contains("io_uring"), "{maps}");
    }
}
