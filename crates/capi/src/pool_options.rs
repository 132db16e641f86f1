//! How pools are made and opened.

use crate::boundary::Answer;
use crate::failure::Failure;
use perdure::{AccessTime, CreateOptions, PoolOptions, ReadCacheMode, ReadCacheOptions};

/// Accept memory that does not survive a power cut (shared memory, page cache). Without it a place
/// that is not persistent memory is refused.
pub const PERDURE_VOLATILE: u32 = 1;
/// Replace a pool that is there already. Everything in it is lost.
pub const PERDURE_OVERWRITE: u32 = 2;
/// The members `uid` and `gid` count; else new files belong to the process' effective user and
/// group.
pub const PERDURE_OWNER: u32 = 4;
/// Open through a private mapping: nothing is ever written to the pool, not even its recovery after
/// a crash.
pub const PERDURE_READ_ONLY: u32 = 8;
/// The member `umask` counts; else it is 022. The umask of the process is never looked at, because
/// that cannot be done without changing it for all threads.
pub const PERDURE_UMASK: u32 = 16;

/// Update the time of last access when it is older than the last change, or than a day.
pub const PERDURE_ATIME_RELATIVE: u32 = 0;
/// Never update the time of last access.
pub const PERDURE_ATIME_NEVER: u32 = 1;
/// Always update the time of last access.
pub const PERDURE_ATIME_STRICT: u32 = 2;

/// Copy hot blocks to DRAM if the medium is slower to read, which opening measures.
pub const PERDURE_READ_CACHE_AUTO: u32 = 0;
/// No copies: spares a pool that is opened for a moment the measuring and a thread.
pub const PERDURE_READ_CACHE_OFF: u32 = 1;
/// Copies in any case.
pub const PERDURE_READ_CACHE_ON: u32 = 2;

/// How a pool is made. All zeros is the default: `struct perdure_create_options options = {0};`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct perdure_create_options {
    /// Size of the pool in bytes, metadata included, rounded down to whole segments; 0 = 1 GiB.
    pub size_bytes: u64,
    /// Bytes of a segment, a power of two of at least 64 KiB; 0 = as the size of the pool asks for.
    pub segment_bytes: u64,
    /// Bytes of a journal; 0 = the default.
    pub journal_bytes: u64,
    /// Number of journals: as many operations can commit at the same moment. 0 = one for each core.
    pub journals: u32,
    /// PERDURE_VOLATILE, PERDURE_OVERWRITE, PERDURE_OWNER.
    pub flags: u32,
    /// User that owns the root directory, with PERDURE_OWNER.
    pub uid: u32,
    /// Group that owns the root directory, with PERDURE_OWNER.
    pub gid: u32,
    /// Must be 0, for members to come.
    pub reserved: [u64; 4],
}

/// How a pool is opened. All zeros is the default: `struct perdure_pool_options options = {0};`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct perdure_pool_options {
    /// PERDURE_READ_ONLY, PERDURE_VOLATILE, PERDURE_OWNER, PERDURE_UMASK.
    pub flags: u32,
    /// User of files that are created, with PERDURE_OWNER.
    pub uid: u32,
    /// Group of files that are created, with PERDURE_OWNER.
    pub gid: u32,
    /// Permission bits that new files and directories never get, with PERDURE_UMASK.
    pub umask: u32,
    /// Threads that rebuild the free space after a crash; 0 = one for each core.
    pub threads: u32,
    /// PERDURE_ATIME_…
    pub access_time: u32,
    /// PERDURE_READ_CACHE_…
    pub read_cache: u32,
    /// Must be 0.
    pub reserved_word: u32,
    /// Most bytes of copies in DRAM; 0 = a quarter of the memory that is available when the pool is
    /// opened.
    pub read_cache_bytes: u64,
    /// Must be 0, for members to come.
    pub reserved: [u64; 4],
}

/// Refuses bits that this version does not know: they would ask for something that does not happen.
pub(crate) fn known_flags(flags: u32, known: u32) -> Answer<()> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::argument(format!(
            "the flags {unknown:#x} mean nothing here; those that do are {known:#x} (perdure.h)"
        ))),
    }
}

fn reserved_is_zero(reserved: &[u64]) -> Answer<()> {
    match reserved.iter().all(|word| *word == 0) {
        true => Ok(()),
        false => Err(Failure::argument(
            "the reserved members of the options are not 0; initialise the options with {0}",
        )),
    }
}

impl perdure_create_options {
    pub(crate) fn read(&self) -> Answer<CreateOptions> {
        let flags = self.flags;
        known_flags(flags, PERDURE_VOLATILE | PERDURE_OVERWRITE | PERDURE_OWNER)?;
        reserved_is_zero(&self.reserved)?;
        let mut options = CreateOptions::new()
            .segment_bytes(self.segment_bytes)
            .journals(self.journals)
            .volatile(flags & PERDURE_VOLATILE != 0)
            .overwrite(flags & PERDURE_OVERWRITE != 0);
        if self.size_bytes != 0 {
            options = options.size_bytes(self.size_bytes);
        }
        if self.journal_bytes != 0 {
            options = options.journal_bytes(self.journal_bytes);
        }
        if flags & PERDURE_OWNER != 0 {
            options = options.owner(self.uid, self.gid);
        }
        Ok(options)
    }
}

impl perdure_pool_options {
    pub(crate) fn read(&self) -> Answer<PoolOptions> {
        let flags = self.flags;
        known_flags(
            flags,
            PERDURE_READ_ONLY | PERDURE_VOLATILE | PERDURE_OWNER | PERDURE_UMASK,
        )?;
        reserved_is_zero(&[u64::from(self.reserved_word)])?;
        reserved_is_zero(&self.reserved)?;
        let read_cache = ReadCacheOptions {
            mode: self.read_cache_mode()?,
            budget_bytes: self.read_cache_bytes,
            ..ReadCacheOptions::default()
        };
        let mut options = PoolOptions::new()
            .read_only(flags & PERDURE_READ_ONLY != 0)
            .volatile(flags & PERDURE_VOLATILE != 0)
            .threads(self.threads as usize)
            .access_time(self.access_time()?)
            .read_cache(read_cache);
        if flags & PERDURE_OWNER != 0 {
            options = options.owner(self.uid, self.gid);
        }
        if flags & PERDURE_UMASK != 0 {
            options = options.umask(self.umask);
        }
        Ok(options)
    }

    fn access_time(&self) -> Answer<AccessTime> {
        match self.access_time {
            PERDURE_ATIME_RELATIVE => Ok(AccessTime::Relative),
            PERDURE_ATIME_NEVER => Ok(AccessTime::Never),
            PERDURE_ATIME_STRICT => Ok(AccessTime::Strict),
            other => Err(no_choice("access_time", other, "PERDURE_ATIME_…")),
        }
    }

    fn read_cache_mode(&self) -> Answer<ReadCacheMode> {
        match self.read_cache {
            PERDURE_READ_CACHE_AUTO => Ok(ReadCacheMode::Auto),
            PERDURE_READ_CACHE_OFF => Ok(ReadCacheMode::Off),
            PERDURE_READ_CACHE_ON => Ok(ReadCacheMode::On),
            other => Err(no_choice("read_cache", other, "PERDURE_READ_CACHE_…")),
        }
    }
}

fn no_choice(member: &str, value: u32, choices: &str) -> Failure {
    Failure::argument(format!(
        "the member `{member}` of the options is {value}; it has to be one of {choices}"
    ))
}
