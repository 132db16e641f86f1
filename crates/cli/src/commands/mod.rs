//! One module for each command.

#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod cp;
pub(crate) mod documents;
pub(crate) mod fsck;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod run;
pub(crate) mod stat;
pub(crate) mod tier;
pub(crate) mod umount;

use perdure::{DurabilityClass, ReadCacheMode, ReadCacheOptions};
use txn::PmemStore;

/// For a pool that is open for a moment: measuring the medium and a thread that copies blocks would not pay.
const UNCACHED: ReadCacheOptions = ReadCacheOptions {
    mode: ReadCacheMode::Off,
    budget_bytes: 0,
    threshold: 0,
    window_ms: 0,
};

/// Whether nobody has mounted a pool since it was made: then there is nothing to recover, although it was never unmounted. Of a pool that has just been opened.
fn is_new(store: &PmemStore) -> bool {
    /// The record by which `mkfs` makes the root directory.
    const FIRST_RECORD: u64 = 1;
    let (newest, _) = store.sequences();
    store.recovered_records() == 0 && newest <= FIRST_RECORD
}

/// The durability class with its meaning, for people; `asked` says whether this command got `--volatile`.
pub(crate) fn class_line(class: DurabilityClass, asked: bool) -> String {
    let meaning = match class {
        DurabilityClass::Dax => "durable when the call returns",
        DurabilityClass::Log => "durable when the call returns, by a log on the disk",
        DurabilityClass::Volatile if asked => {
            "nothing survives a power cut; asked for by --volatile"
        }
        DurabilityClass::Volatile => {
            "nothing survives a power cut; the pool was made with --volatile"
        }
    };
    format!("class {class} ({meaning})")
}
