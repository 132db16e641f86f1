//! The process's one client, and how many descriptions each of its files has.

#[cfg(feature = "double")]
mod double;

#[cfg(feature = "double")]
pub(crate) use self::double::{Client, File};
use direct::Rule;
pub(crate) use direct::mapped;
#[cfg(not(feature = "double"))]
pub(crate) use direct::{Client, File};

use crate::description::Description;
use crate::leaked::Leaked;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

static CLIENT: Leaked<Client> = Leaked::new();

/// Descriptions of each file, by the file's address. A child of `fork` leaves its parent's to itself: another thread may have locked it.
static DESCRIPTIONS: Leaked<Mutex<HashMap<usize, usize>>> = Leaked::new();

/// The client of this process.
pub(crate) fn client() -> &'static Client {
    CLIENT.get_or(|| Client::with_rule(rule()))
}

/// Whether this process writes any files directly.
pub(crate) fn writes_files() -> bool {
    CLIENT.get().is_some_and(Client::writes_files)
}

/// The rule by which files are attached: when it pays, or the one of `PERDURE_DIRECT_AFTER`.
fn rule() -> Rule {
    match after() {
        0 => Rule::Measured,
        after => Rule::After(after),
    }
}

/// The operation that `PERDURE_DIRECT_AFTER` names, or 0.
pub(crate) fn after() -> u64 {
    static AFTER: AtomicU64 = AtomicU64::new(NOT_ASKED);
    const NOT_ASKED: u64 = u64::MAX;
    if AFTER.load(Relaxed) == NOT_ASKED {
        let value = std::env::var("PERDURE_DIRECT_AFTER").ok();
        let after = value.and_then(|value| value.parse().ok()).unwrap_or(0);
        AFTER.store(after.min(NOT_ASKED - 1), Relaxed);
    }
    AFTER.load(Relaxed)
}

/// In a child of `fork`: forgets everything, locks nothing.
pub(crate) fn forget() {
    DESCRIPTIONS.abandon();
    mapped::forget();
    if let Some(client) = CLIENT.get() {
        client.forget();
    }
}

fn with_count<R>(
    file: &Arc<File>,
    change: impl FnOnce(&mut HashMap<usize, usize>, usize) -> R,
) -> R {
    let descriptions = DESCRIPTIONS.get_or(Mutex::default);
    let mut map = descriptions.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut map, Arc::as_ptr(file).addr())
}

/// A file of a mount has been used, by this process or by one that it is a child of.
static KNOWS_MOUNTS: AtomicBool = AtomicBool::new(false);

/// Whether a file of a mount has been used: what is done for such files costs others nothing.
#[inline]
pub(crate) fn knows_mounts() -> bool {
    KNOWS_MOUNTS.load(Relaxed)
}

/// A description of the file has come.
pub(crate) fn arrive(file: &Arc<File>) {
    KNOWS_MOUNTS.store(true, Relaxed);
    with_count(file, |map, address| *map.entry(address).or_default() += 1);
}

/// A description has gone; with the last one of a file the file is let go.
pub(crate) fn depart(description: &Description) {
    let file = description.file();
    let is_last = with_count(file, |map, address| {
        let count = map.entry(address).or_default();
        *count = count.saturating_sub(1);
        *count == 0 && map.remove(&address).is_some()
    });
    if is_last
        && let Some(past) = file.close()
        && let Some(name) = description.name()
    {
        name.learn(past.is_journal);
    }
}
