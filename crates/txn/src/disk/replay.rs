//! A pool's memory is new: the log brings the image up to date.

use super::batch::{self, BadEntry};
use super::dirty::DirtyBlocks;
use super::files::has_enough;
use super::image::Image;
use super::loader::Loader;
use super::open::log_error;
use super::{CLEAN, is_inside};
use crate::checkpoint::write_checkpoint;
use crate::checksum::{Seal, unseal};
use crate::error::{Corruption, OpenError};
use crate::layout::{CHECKPOINT_AT, CLEAN_AT, STATE_BLOCK, Superblock};
use pmem::Region;
use pmem::deliberate::{self, Bug};
use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use wal::{Log, OpenLog, Root};

/// Batches that are checked and not applied yet.
const AHEAD: usize = 8;

/// Reads the log and applies its batches to memory, in order.
pub(super) fn replay(
    path: &Path,
    superblock: &Superblock,
    (region, loader): (&Region, Option<&Loader>),
    dirty: &DirtyBlocks,
    (log, image): (OpenLog, &Image),
) -> Result<Log, OpenError> {
    let root = log.root();
    let apply = |payload: &[u8]| {
        let inside = |at, length| is_inside(&superblock.geometry(), at, length);
        batch::apply((region, loader), dirty, inside, payload)
    };
    let log = std::thread::scope(|scope| {
        let applier = RefCell::new(Some(Applier::start(scope, &apply)));
        log.replay_if(
            &mut |batch| {
                applier
                    .borrow_mut()
                    .iter()
                    .for_each(|it| it.send(batch.payload))
            },
            |replayed| match applier.take().map_or(Ok(()), Applier::end) {
                Ok(()) => has_enough(path, image, replayed),
                Err(fault) => {
                    let path = path.display().to_string();
                    Err(Corruption::new(path, fault.to_string()).into())
                }
            },
        )
    });
    let log = log.map_err(|error| log_error(path, error))??;
    let replayed = log.replayed();
    settle(region, &root, replayed.batches, replayed.last_sequence);
    Ok(log)
}

/// Applies batches in a thread of its own, while the next ones are read and checked.
struct Applier<'scope> {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    thread: ScopedJoinHandle<'scope, Result<(), BadEntry>>,
}

impl<'scope> Applier<'scope> {
    fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        apply: &'env (impl Fn(&[u8]) -> Result<(), BadEntry> + Sync),
    ) -> Applier<'scope> {
        let (full, batches) = sync_channel::<Vec<u8>>(AHEAD);
        let (spare, empty) = channel();
        let thread = scope.spawn(move || {
            if deliberate::is(Bug::ReplayBatchesBackwards) {
                let all: Vec<_> = batches.iter().collect();
                return all.iter().rev().try_for_each(|payload| apply(payload));
            }
            batches.iter().try_for_each(|payload| {
                apply(&payload)?;
                // The other end is gone when all is read.
                let _ = spare.send(payload);
                Ok(())
            })
        });
        Applier {
            full,
            empty,
            thread,
        }
    }

    fn send(&self, payload: &[u8]) {
        let mut copy = self.empty.try_recv().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(payload);
        // The thread has ended if it met a fault; `end` says so.
        let _ = self.full.send(copy);
    }

    /// Waits until all are applied.
    fn end(self) -> Result<(), BadEntry> {
        drop(self.full);
        let ended = self.thread.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The state block describes the journals of the memory that wrote it: in this one all
/// journals are empty, and every record up to `sequence` is retired.
pub(super) fn settle(region: &Region, root: &Root, batches: u64, last_sequence: u64) {
    let sequence = match batches {
        0 => root.sequence,
        _ => last_sequence,
    };
    let clean = unseal(
        region.load_u64(STATE_BLOCK.offset() + CLEAN_AT),
        Seal::Clean,
        0,
    );
    let checkpoint = unseal(
        region.load_u64(STATE_BLOCK.offset() + CHECKPOINT_AT),
        Seal::Checkpoint,
        0,
    );
    let is_clean = batches == 0 && root.user & CLEAN != 0 && clean == checkpoint;
    if is_clean {
        return;
    }
    let at = STATE_BLOCK.offset() + CLEAN_AT;
    region.fence(region.store_u64(at, 0).flush());
    write_checkpoint(region, sequence);
}
