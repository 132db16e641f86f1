//! What we agree with the kernel when a connection starts.
//!
//! The reasons for each choice stand in docs/DESIGN.md, "The FUSE front end".

use std::time::Duration;

use fuse::{Config, InitFlags};

/// How long the kernel may keep names and attributes. All changes go through this mount, so they
/// never grow stale by themselves; a year stands for "until told otherwise".
pub(crate) const CACHE_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Largest WRITE request asked for. The kernel caps it at `fs.fuse.max_pages_limit` pages (256 by
/// default); an administrator who raises that limit gets longer atomic writes.
const WRITE_BYTES_MAX: u32 = 4 << 20;

/// Requests that the kernel sends without a waiting caller: readahead, writeback, direct I/O.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// Wanted, and used only if the kernel offers it.
const WANTED: [InitFlags; 7] = [
    InitFlags::ASYNC_DIO,
    InitFlags::CACHE_SYMLINKS,
    InitFlags::DO_READDIRPLUS.union(InitFlags::READDIRPLUS_AUTO),
    InitFlags::EXPLICIT_INVAL_DATA,
    InitFlags::EXPORT_SUPPORT,
    InitFlags::HANDLE_KILLPRIV_V2,
    InitFlags::PARALLEL_DIROPS,
];

/// What the kernel agreed to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Agreement {
    /// `ENOSYS` to OPEN means "no OPEN, FLUSH-free RELEASE any more", and is not an error.
    pub(crate) opens_without_request: bool,
    /// The same for OPENDIR.
    pub(crate) opens_directories_without_request: bool,
}

/// Asks for all we want and notes what we get.
pub(crate) fn negotiate(config: &mut Config) -> Agreement {
    for flags in WANTED {
        if !config.want(flags) {
            tracing::debug!(?flags, "the kernel does not offer this; doing without it");
        }
    }
    config.max_write_bytes = WRITE_BYTES_MAX;
    config.max_background = BACKGROUND_REQUESTS_MAX;
    let offered = config.offered();
    Agreement {
        opens_without_request: offered.contains(InitFlags::NO_OPEN_SUPPORT),
        opens_directories_without_request: offered.contains(InitFlags::NO_OPENDIR_SUPPORT),
    }
}
