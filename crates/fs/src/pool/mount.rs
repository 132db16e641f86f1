//! Mounting and unmounting.

use super::recover::{cores, recover};
use super::saved::saved_state;
use crate::format::InodeNumber;
use crate::inode::cache::InodeCache;
use crate::inode::copies::Copies;
use crate::inode::node::validate;
use crate::inode::table::InodeTable;
use crate::lease::recovery::Orphan;
use crate::mounted::faults::Faults;
use crate::mounted::file_system::{Core, FileSystem};
use crate::mounted::quotas::Quotas;
use crate::mounted::roaming::{ROAM_AFTER, Roaming};
use crate::mounted::tiering::Tiering;
use crate::values::error::FsError;
use crate::values::quota;
use crate::values::types::{MountOptions, TierMode};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::{OpenError, Store};

impl<S: Store> FileSystem<S> {
    /// Mounts what `store` holds: restores the volatile state saved by a clean unmount, or rebuilds it in
    /// parallel and frees inodes that were unlinked but open.
    ///
    /// # Errors
    ///
    /// Metadata that must be readable to know which blocks are free is damaged; the error names it.
    pub fn mount(store: S, mut options: MountOptions) -> Result<FileSystem<S>, OpenError> {
        options.read_only |= store.is_read_only();
        let recovered = recover(&store, &options)?;
        let roam_after = match options.roam_after {
            0 => ROAM_AFTER,
            after => after,
        };
        let core = Arc::new_cyclic(|this| Core {
            tier: begin_tiering(&store, &options),
            copies: Copies::begin(&store, &options.read_cache),
            store,
            options,
            table: recovered.table,
            cache: InodeCache::new(),
            quotas: Quotas::default(),
            roaming: Roaming::new(roam_after, cores()),
            renames: Mutex::new(()),
            unlinked: AtomicU64::new(recovered.orphans.len() as u64),
            faults: Faults::default(),
            losses: Mutex::default(),
            this: this.clone(),
        });
        if !options.read_only {
            core.store.mark_mounted();
        }
        // Leases first: their files may have lost their names as well.
        let mut orphans = recovered.orphans;
        orphans.retain(|&number| core.fold_orphan(number) == Orphan::Free);
        for number in orphans {
            core.free_orphan(number);
        }
        let root = core.node(InodeNumber::ROOT).map_err(|error| match error {
            FsError::Corrupt(corruption) => OpenError::Corrupt(corruption),
            error => OpenError::Corrupt(txn::Corruption::new("root directory", error.to_string())),
        })?;
        let files = FileSystem { core, root };
        files.load_quotas().map_err(|error| match error {
            FsError::Corrupt(corruption) => OpenError::Corrupt(corruption),
            error => OpenError::Corrupt(txn::Corruption::new("quotas", error.to_string())),
        })?;
        if let Err(error) = files.begin_tier() {
            tracing::error!(%error, "data does not move to the device: no thread");
        }
        Ok(files)
    }

    /// Unmounts: saves the volatile state and marks the pool clean.
    ///
    /// The caller makes sure that nobody works on the file system any more. If unlinked inodes are still in use, the
    /// pool counts as crashed and the next mount frees them.
    pub fn unmount(self) {
        let FileSystem { core, root } = self;
        drop(root);
        core.tier.iter().for_each(|tier| tier.end());
        if core.options.read_only {
            return;
        }
        if core.unlinked.load(Ordering::Relaxed) > 0 {
            core.store.checkpoint();
            return;
        }
        let state = saved_state(&core);
        core.store.close(&state);
    }

    /// Takes over the limits that the root directory carries, and counts what their subjects use.
    fn load_quotas(&self) -> Result<(), FsError> {
        let core = &*self.core;
        match self.get_xattr(&self.root, quota::ATTRIBUTE) {
            Err(FsError::NoAttribute) => return Ok(()),
            Err(error) => return Err(error),
            Ok(text) => match quota::parse(&String::from_utf8_lossy(&text)) {
                Ok(limits) => core.quotas.set_limits(&limits),
                Err(error) => {
                    tracing::warn!(%error, "quotas are off");
                    return Ok(());
                }
            },
        }
        for number in InodeNumber::ROOT.get()..InodeTable::capacity(&core.store) {
            let number = InodeNumber::new(number);
            let raw = core.table.load(&core.store, number)?;
            if !raw.is_free() {
                core.quotas.count(&raw);
            }
        }
        Ok(())
    }
}

/// The state of the tier, if the pool has a device and the options ask for one.
fn begin_tiering<S: Store>(store: &S, options: &MountOptions) -> Option<Arc<Tiering>> {
    let device = store.device()?;
    if options.tier.mode == TierMode::Off || options.read_only || !device.is_attached() {
        return None;
    }
    let geometry = store.geometry();
    device.begin_residents(geometry.total_blocks());
    let blocks = u64::from(geometry.segments) * geometry.segment_blocks;
    Some(Arc::new(Tiering::new(options.tier, blocks)))
}

impl<S: Store> Core<S> {
    /// Frees an inode that had no name when the pool was last open. Failing is harmless: the next mount retries.
    fn free_orphan(&self, number: InodeNumber) {
        let raw = self.table.load(&self.store, number);
        if let Ok(raw) = raw
            && validate(&raw, number).is_ok()
        {
            // Dropping the only state of an inode without a name frees it.
            drop(self.state(number, raw));
        }
    }
}
