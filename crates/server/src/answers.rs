//! What a live server answers to the questions of its control socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use txn::Store;

use crate::control::{CachedFile, ClientStatus, KeptStatus, LogStatus, Space, Status};
use crate::handler::Shared;
use crate::serve::Mounting;

/// Most files of one answer. Each takes less than 256 bytes, and clients take 16 MiB.
const FILES_MAX: usize = 1 << 16;

/// Who is asked.
pub(crate) trait Answers: Send + 'static {
    /// What the server says of itself; cheap, because collectors ask every few seconds.
    fn status(&self) -> Status;

    /// Files that the read cache has copies of, those with most hits first.
    fn files(&self) -> Vec<CachedFile>;

    /// Processes that read and write files directly.
    fn clients(&self) -> Vec<ClientStatus>;
    /// Begins to copy everything to the home; an error is for the asker.
    fn flush(&self) -> Result<(), String>;
}

/// A mount.
pub(crate) struct Asked<S: Store> {
    shared: Arc<Shared<S>>,
    mounting: Mounting,
    mountpoint: String,
    started: Instant,
}

impl<S: Store> Asked<S> {
    /// A mount that begins now, at `place`.
    pub(crate) fn new(shared: Arc<Shared<S>>, mounting: &Mounting, place: &Path) -> Asked<S> {
        Asked {
            shared,
            mounting: mounting.clone(),
            mountpoint: place.display().to_string(),
            started: Instant::now(),
        }
    }

    fn space(&self) -> Space {
        let space = self.shared.fs.statistics();
        Space {
            block_bytes: space.block_bytes,
            blocks: space.blocks,
            free_blocks: space.free_blocks,
            available_blocks: space.available_blocks,
            inodes: space.inodes,
            free_inodes: space.free_inodes,
        }
    }
}

impl<S: Store> Answers for Asked<S> {
    fn status(&self) -> Status {
        let (files, mounting) = (&self.shared.fs, &self.mounting);
        let allocator = files.store().allocator();
        let segment_blocks = allocator.geometry().blocks_per_segment;
        let segments = allocator.usage();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            pool: mounting.pool.display().to_string(),
            mountpoint: self.mountpoint.clone(),
            class: mounting.class.clone(),
            read_only: mounting.read_only,
            threads: self.shared.transport.get().threads(),
            transport: self.shared.transport.get().word().to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            cached_inodes: self.shared.nodes.len() as u64,
            space: self.space(),
            segment_wear: segments.iter().map(|segment| segment.wear).collect(),
            segment_used: segments
                .iter()
                .map(|segment| segment_blocks - u64::from(segment.free_blocks))
                .collect(),
            statistics: self.shared.statistics.summary(),
            read_cache: files.read_cache_statistics().map(Into::into),
            read_cache_state: files.read_cache_state().to_string(),
            direct: self.shared.direct.status(),
            kept: files.count_kept().iter().map(kept_status).collect(),
            losses: files.losses(),
            log: files
                .store()
                .logger()
                .map(|logger| LogStatus::new(&logger.status(), self.started.elapsed())),
            tier: files.tier_status().map(Into::into),
            temporary: mounting.temporary,
        }
    }

    fn files(&self) -> Vec<CachedFile> {
        let files = self.shared.fs.read_cache_files();
        files
            .into_iter()
            .take(FILES_MAX)
            .map(CachedFile::from)
            .collect()
    }

    fn flush(&self) -> Result<(), String> {
        match self.shared.fs.begin_tier_flush() {
            true => Ok(()),
            false => Err("the pool has no home, or is mounted read-only".to_owned()),
        }
    }

    fn clients(&self) -> Vec<ClientStatus> {
        self.shared.direct.clients()
    }
}

fn kept_status(kept: &fs::KeptSpace) -> KeptStatus {
    let bytes = |blocks: u64| blocks * pmem::BLOCK_BYTES as u64;
    KeptStatus {
        user: kept.user,
        segments: kept.segments,
        free_bytes: bytes(kept.free_blocks),
        charged_bytes: bytes(kept.charged_blocks),
    }
}
