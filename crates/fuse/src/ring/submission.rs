//! The two commands of a queue's entry, on a ring of the thread's own.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::IntoBytes;

use super::desk::Desk;
use crate::abi::ring::{COMMIT_AND_FETCH, Command, PARTS, REGISTER};
use crate::device::Device;

/// Where a submission's `len` lies; the crate does not set it for this kind.
const LENGTH_AT: usize = 24;
/// A station has one command under way.
const COMMANDS: u32 = 2;

/// A ring for one entry. Only the thread that made it may use it.
pub(super) struct Ring(IoUring<squeue::Entry128, cqueue::Entry>);

impl Ring {
    pub(super) fn new() -> io::Result<Ring> {
        IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(COMMANDS)
            .map(Ring)
    }

    /// Gives the kernel a desk for requests of a queue's processor.
    pub(super) fn register(&mut self, device: &Device, queue: u16, desk: &Desk) -> io::Result<()> {
        let parts = desk.parts();
        let command = Command {
            queue,
            ..Command::default()
        };
        let mut entry = entry(device, REGISTER, command, Some(parts.as_ptr() as u64));
        let length = (&raw mut entry).cast::<u8>().wrapping_add(LENGTH_AT);
        // SAFETY: a submission is 128 bytes in the kernel's layout, whose `len` is a u32 there.
        unsafe { length.cast::<u32>().write_unaligned(PARTS) };
        // SAFETY: the kernel copies `parts` while it takes the submission, which `submit` waits
        // for; the desk outlives the ring, as stations drop the ring first.
        unsafe { self.push(&entry)? };
        self.0.submit()?;
        Ok(())
    }

    /// Answers a request with what lies on the desk, and asks for the next one.
    pub(super) fn commit(&mut self, device: &Device, queue: u16, unique: u64) -> io::Result<()> {
        let command = Command {
            queue,
            commit_id: unique,
            ..Command::default()
        };
        // SAFETY: the submission names no memory but the desk's, which outlives the ring.
        unsafe { self.push(&entry(device, COMMIT_AND_FETCH, command, None)) }
    }

    /// # Safety
    ///
    /// Memory that the submission names lives until the kernel is done with it.
    unsafe fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: as the caller promises.
        let pushed = unsafe { self.0.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("a ring of one command is full"))
    }

    /// Submits what was pushed, and waits for a request. Returns the command's result.
    pub(super) fn wait(&mut self) -> io::Result<i32> {
        loop {
            if let Some(done) = self.0.completion().next() {
                return Ok(done.result());
            }
            match self.0.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn entry(device: &Device, kind: u32, command: Command, address: Option<u64>) -> squeue::Entry128 {
    let mut bytes = [0; 80];
    bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
    opcode::UringCmd80::new(types::Fd(device.as_fd().as_raw_fd()), kind)
        .cmd(bytes)
        .addr(address)
        .build()
}
