//! How full the memory may be.
//!
//! The blocks of memory are free, clean or dirty. Clean ones become free without a write, so a
//! writer has to be slowed down only when both kinds together run short. Then it pauses the longer
//! the shorter they are, so that writers meet the disk's rate without a cliff: the pause grows from
//! nothing to several times what the disk needs for as many blocks.

use std::time::Duration;

/// Percent of the memory that eviction keeps free.
const FREE_PERCENT: u64 = 6;
/// Percent that is free before eviction begins.
const TIGHT_PERCENT: u64 = 3;
/// Percent below which a writer waits until something is free: the rest is for metadata, recovery
/// and the tier itself.
const STOP_PERCENT: u64 = 1;
/// Percent of free and clean blocks together below which writers pause.
const PAUSE_PERCENT: u64 = 20;
/// At the end of the ramp a writer pauses for this many times what the disk needs.
const PAUSE_FACTOR_MAX: f64 = 4.0;
/// Longest pause of one call.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The blocks of a memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    /// All of it.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Ones with the same content on the device.
    pub clean: u64,
    /// Ones whose content the device has not.
    pub dirty: u64,
}

/// The limits of a tier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Levels {
    /// Percent of the memory above which dirty blocks are copied whatever their age.
    pub dirty_max_percent: u8,
}

impl Levels {
    /// Blocks that eviction should make free now.
    pub fn to_evict(self, room: Room) -> u64 {
        match room.free < part(room, TIGHT_PERCENT) {
            true => part(room, FREE_PERCENT) - room.free,
            false => 0,
        }
    }

    /// Whether writers have to look before they write.
    pub fn is_tight(self, room: Room) -> bool {
        room.free + room.clean < part(room, PAUSE_PERCENT) || room.free < part(room, TIGHT_PERCENT)
    }

    /// Whether a writer has to wait until something is free.
    pub fn is_full(self, room: Room) -> bool {
        room.free < part(room, STOP_PERCENT).max(8)
    }

    /// Whether dirty blocks are copied whatever their age.
    pub fn is_too_dirty(self, room: Room) -> bool {
        room.dirty > part(room, u64::from(self.dirty_max_percent))
            || room.free + room.clean < part(room, PAUSE_PERCENT)
    }

    /// How long a writer of `blocks` blocks pauses, if the device takes `for_block` for each of
    /// those that are copied to it.
    pub fn pause(self, room: Room, blocks: u64, for_block: Duration) -> Duration {
        let (stop, pause) = (part(room, STOP_PERCENT), part(room, PAUSE_PERCENT));
        let left = (room.free + room.clean).clamp(stop, pause) - stop;
        let shortage = 1.0 - left as f64 / (pause - stop).max(1) as f64;
        let factor = PAUSE_FACTOR_MAX * shortage * shortage;
        for_block.mul_f64(blocks as f64 * factor).min(PAUSE_MAX)
    }
}

fn part(room: Room, percent: u64) -> u64 {
    room.blocks * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: Levels = Levels {
        dirty_max_percent: 60,
    };

    fn room(free: u64, clean: u64) -> Room {
        Room {
            blocks: 10_000,
            free,
            clean,
            dirty: 10_000 - free - clean,
        }
    }

    #[test]
    fn eviction_begins_when_little_is_free_and_makes_more() {
        assert_eq!(LEVELS.to_evict(room(300, 5_000)), 0);
        assert_eq!(LEVELS.to_evict(room(299, 5_000)), 301);
    }

    #[test]
    fn a_pause_grows_without_a_cliff() {
        let disk = Duration::from_micros(10);
        assert_eq!(LEVELS.pause(room(1_000, 1_000), 1, disk), Duration::ZERO);
        let pauses: Vec<Duration> = (100..=2_000)
            .map(|free| LEVELS.pause(room(free, 0), 1, disk))
            .collect();
        assert!(pauses.is_sorted_by(|long, short| long >= short));
        let step = pauses.windows(2).map(|two| two[0] - two[1]).max();
        assert!(step.expect("steps") < Duration::from_micros(1), "{step:?}");
        assert_eq!(pauses[0], disk * 4);
        assert_eq!(LEVELS.pause(room(0, 0), 1 << 20, disk), PAUSE_MAX);
    }

    #[test]
    fn much_that_is_clean_needs_no_pause() {
        assert!(!LEVELS.is_tight(room(500, 4_000)));
        assert!(LEVELS.is_tight(room(200, 4_000)), "eviction is late");
        assert!(!LEVELS.is_too_dirty(room(500, 4_000)));
        assert!(LEVELS.is_too_dirty(room(2_000, 1_900)));
        assert!(LEVELS.is_full(room(99, 9_000)));
    }
}
