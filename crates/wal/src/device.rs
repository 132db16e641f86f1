//! The device under a log: a file on a disk.

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{AlignedBuffer, UNIT_BYTES};

/// The device: a file on a disk, or a simulated disk in tests.
///
/// Places and lengths are multiples of [`UNIT_BYTES`], and memory is aligned to it.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Bytes that the device has.
    fn length_bytes(&self) -> u64;
    /// Reads bytes at a place.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes bytes, and returns when they are durable.
    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes bytes that are durable after the next [`flush`](Disk::flush).
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns when all that was written before is durable.
    fn flush(&self) -> io::Result<()>;
    /// The device's name in messages.
    fn name(&self) -> String;
}

/// File systems over a network or a user's program, which may ignore RWF_DSYNC: FUSE, NFS, 9p,
/// SMB2, CIFS.
const INDIRECT_FILE_SYSTEMS: [u32; 5] =
    [0x6573_5546, 0x6969, 0x0102_1997, 0xfe53_4d42, 0xff53_4d42];

/// A file or block device, written past the page cache where its file system permits.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    path: PathBuf,
    length_bytes: u64,
    is_direct: bool,
    /// Durable writes are a write and a call of fdatasync.
    syncs_by_call: AtomicBool,
}

impl FileDisk {
    /// Takes an open file and sets O_DIRECT on its open file description; on a file system that
    /// refuses it, writes go through the page cache.
    pub fn over(mut file: File, path: PathBuf) -> io::Result<FileDisk> {
        let length_bytes = file.seek(SeekFrom::End(0))?;
        let is_indirect =
            INDIRECT_FILE_SYSTEMS.contains(&(rustix::fs::fstatfs(&file)?.f_type as u32));
        let flags = rustix::fs::fcntl_getfl(&file)?;
        let is_direct = rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT).is_ok()
            && can_read(&file, length_bytes);
        if !is_direct {
            rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT)?;
            tracing::debug!(
                "{}: no O_DIRECT here; the log goes through the page cache",
                path.display()
            );
        }
        Ok(FileDisk {
            file,
            path,
            length_bytes,
            is_direct,
            syncs_by_call: AtomicBool::new(is_indirect),
        })
    }

    /// The file below.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn write_all(&self, mut at: u64, mut bytes: &[u8], flags: ReadWriteFlags) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::pwritev2(&self.file, &[IoSlice::new(bytes)], at, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    bytes = &bytes[written..];
                }
                Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether a read succeeds: some file systems accept the flag and refuse the read.
fn can_read(file: &File, length_bytes: u64) -> bool {
    let mut unit = AlignedBuffer::new();
    unit.resize(UNIT_BYTES);
    length_bytes < UNIT_BYTES as u64 || file.read_at(&mut unit, 0).is_ok()
}

impl Disk for FileDisk {
    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.syncs_by_call.load(Ordering::Relaxed) {
            match self.write_all(at, bytes, ReadWriteFlags::DSYNC) {
                Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                    self.syncs_by_call.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.write(at, bytes)?;
        self.flush()
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all(at, bytes, ReadWriteFlags::empty())
    }

    fn flush(&self) -> io::Result<()> {
        // Not repeated after an error: the kernel reports a failed write-back once, and a second
        // call would succeed.
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
