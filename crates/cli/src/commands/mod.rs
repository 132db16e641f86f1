//! One module for each command.

pub(crate) mod bench;
pub(crate) mod cp;
pub(crate) mod documents;
pub(crate) mod fsck;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod run;
pub(crate) mod stat;
pub(crate) mod umount;

use perdure::{DurabilityClass, ReadCacheMode, ReadCacheOptions};

/// For a pool that is open for a moment: measuring the medium and a thread that copies blocks would not pay.
const UNCACHED: ReadCacheOptions = ReadCacheOptions {
    mode: ReadCacheMode::Off,
    budget_bytes: 0,
    threshold: 0,
    window_ms: 0,
};

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
