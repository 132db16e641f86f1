//! What is known of the processes that use files directly, for `perdure stat --clients`.

use super::leased::Process;
use crate::control::{ClientStatus, KernelPath};
use ::direct::layout::{Counter, counter_at};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// One process.
pub(super) struct Profile {
    pub(super) id: i32,
    pub(super) uid: u32,
    pub(super) process: Arc<Process>,
    pub(super) holdings: Mutex<Holdings>,
}

/// What the process has at this moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings {
    /// Inodes of files that it reads directly.
    pub(super) read: Vec<u64>,
    /// Inodes of files that are leased to it.
    pub(super) leased: Vec<u64>,
    /// Inodes of files of which it has, or had, blocks mapped.
    pub(super) mapped: Vec<u64>,
    /// Segments that it has got.
    pub(super) segments: usize,
}

impl Profile {
    /// For an answer. The counts are the process's own words: nothing relies on them.
    fn status(&self) -> ClientStatus {
        let count = |counter| self.process.user.word(counter_at(counter)).unwrap_or(0);
        let Holdings {
            read,
            leased,
            mapped,
            segments,
        } = self.holdings.lock().clone();
        let command = std::fs::read_to_string(format!("/proc/{}/comm", self.id));
        ClientStatus {
            process: self.id as u32,
            user: self.uid,
            command: command.map_or_else(|_| String::new(), |name| name.trim().to_owned()),
            files_read: read,
            files_leased: leased,
            files_mapped: mapped,
            segments: segments as u64,
            reads: count(Counter::Reads),
            read_bytes: count(Counter::ReadBytes),
            writes: count(Counter::Writes),
            written_bytes: count(Counter::WrittenBytes),
            kernel_path: KernelPath {
                not_attached: count(Counter::NotAttached),
                refused: count(Counter::Refused),
                taken_back: count(Counter::TakenBack),
                no_place: count(Counter::NoPlace),
                not_offered: count(Counter::NotOffered),
                no_room: count(Counter::NoRoom),
            },
        }
    }
}

/// All processes of a mount.
#[derive(Default)]
pub(super) struct Profiles(Mutex<Vec<Weak<Profile>>>);

impl Profiles {
    pub(super) fn add(&self, profile: &Arc<Profile>) {
        let mut profiles = self.0.lock();
        profiles.retain(|profile| profile.strong_count() > 0);
        profiles.push(Arc::downgrade(profile));
    }

    /// Of those that have not ended.
    pub(super) fn statuses(&self) -> Vec<ClientStatus> {
        let profiles = self.living();
        profiles.iter().map(|profile| profile.status()).collect()
    }

    /// How many have not ended, and the segments that they have got.
    pub(super) fn totals(&self) -> (u64, u64) {
        let profiles = self.living();
        let segments = |profile: &Arc<Profile>| profile.holdings.lock().segments as u64;
        (profiles.len() as u64, profiles.iter().map(segments).sum())
    }

    fn living(&self) -> Vec<Arc<Profile>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
