//! Collisions of streams on the way to memory, and backing off from them.
//!
//! Whoever streams a block and fences it keeps the way to memory busy for about half of that time; during the other half the fence waits. Two processors that
//! share the way could alternate, and neither would notice the other. Left alone they do the opposite, as if two streams that meet ended together, and the next two began
//! together: each block takes as long as two. `docs/DIRECT.md`, *What two processes lose*, has what was measured.
//!
//! It is what a shared cable knows as a collision, and the remedy is the same one: who finds that a block took longer than usual stands still for a moment, or does not, at
//! random. When one of the two does and the other does not, they are out of step, and stay so until something disturbs them. Neither has to know of the other.

use crate::instructions::drain_stores;
use crate::media::ticks;

/// Times are kept in parts of a tick, so that small ones can change by little.
const SCALE_BITS: u32 = 10;
/// The usual time goes up by so little, and down by so much: in the end one block of 17 takes less. A mean would be drawn up by collisions, the shortest time down by single blocks that
/// found the way and the processor's buffers empty. When all blocks take longer for a while, because there is more to do or because more than two processors stream, that becomes the usual time, and nobody backs off any more.
const UP_BITS: u32 = 10;
const DOWN_BITS: u32 = 6;
/// Blocks that take longer than this have met something else (some microseconds; the counter goes by a few GHz).
const COLLISION_TICKS_MAX: u64 = 1 << 14;

/// Tells from the times of one stream's blocks that another stream is in its way, and backs off. For blocks of one size.
#[derive(Debug)]
pub struct Backoff {
    /// What a block takes that meets no other; 0 before the first one.
    usual_scaled_ticks: u64,
    /// The next block finds the way empty: its time tells nothing.
    has_backed_off: bool,
    random: u64,
}

impl Backoff {
    /// For a stream. Those of two streams that start with the same seed would back off at the same time.
    pub fn new(seed: u64) -> Backoff {
        Backoff {
            usual_scaled_ticks: 0,
            has_backed_off: false,
            random: seed,
        }
    }

    /// A block has been streamed and fenced, which began at this time ([`ticks`]). Seldom returns later than it could: after a collision, every other time, by half of what a block takes.
    #[inline]
    pub fn streamed(&mut self, began_ticks: u64) {
        let took_ticks = ticks().wrapping_sub(began_ticks);
        if let Some(pause_ticks) = self.judge(took_ticks) {
            stand_still(pause_ticks);
        }
    }

    /// For how long to stand still after a block that took so long.
    #[inline]
    fn judge(&mut self, took_ticks: u64) -> Option<u64> {
        if std::mem::take(&mut self.has_backed_off) || took_ticks > COLLISION_TICKS_MAX {
            return None;
        }
        let took_scaled_ticks = took_ticks << SCALE_BITS;
        if took_scaled_ticks <= self.usual_scaled_ticks {
            self.usual_scaled_ticks -= self.usual_scaled_ticks >> DOWN_BITS;
            return None;
        }
        // Between blocks that meet none and those that meet one whole other; noise is less.
        let is_collision =
            took_scaled_ticks > self.usual_scaled_ticks + self.usual_scaled_ticks / 8 * 3;
        self.usual_scaled_ticks += self.usual_scaled_ticks >> UP_BITS;
        if is_collision {
            return self.collided(took_scaled_ticks);
        }
        None
    }

    #[cold]
    fn collided(&mut self, took_scaled_ticks: u64) -> Option<u64> {
        if self.usual_scaled_ticks == 0 {
            self.usual_scaled_ticks = took_scaled_ticks;
            return None;
        }
        // Two streams cannot cost more than two blocks' time.
        if took_scaled_ticks > 2 * self.usual_scaled_ticks || !self.toss() {
            return None;
        }
        self.has_backed_off = true;
        Some((self.usual_scaled_ticks / 4) >> SCALE_BITS)
    }

    /// Heads or tails.
    fn toss(&mut self) -> bool {
        // Knuth's linear congruence, whose highest bit is its best.
        const FACTOR: u64 = 6_364_136_223_846_793_005;
        const INCREMENT: u64 = 1_442_695_040_888_963_407;
        self.random = self.random.wrapping_mul(FACTOR).wrapping_add(INCREMENT);
        self.random >> 63 == 1
    }
}

/// Lets so much time pass in which this processor streams nothing. A fence alone would not do: the next stores begin behind it while it waits, and a pause
/// would be over before the way is empty.
#[cold]
fn stand_still(pause_ticks: u64) {
    drain_stores();
    let begin_ticks = ticks();
    // Where the counters of two processors differ, and the thread changes over to the one that is behind, this ends at once.
    while ticks().wrapping_sub(begin_ticks) < pause_ticks {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: u64 = 500;
    const MET: u64 = 750;

    /// How often of so many blocks of this time it backs off.
    fn backs_off(backoff: &mut Backoff, blocks: u32, took_ticks: u64) -> u32 {
        let judged = (0..blocks).map(|_| backoff.judge(took_ticks));
        judged.map(|pause| u32::from(pause.is_some())).sum()
    }

    fn accustomed() -> Backoff {
        let mut backoff = Backoff::new(1);
        assert_eq!(backs_off(&mut backoff, 1_000, ALONE), 0);
        backoff
    }

    #[test]
    fn who_meets_nobody_never_backs_off() {
        let mut backoff = accustomed();
        for took_ticks in (ALONE - 60..ALONE + 120).cycle().take(100_000) {
            assert_eq!(backoff.judge(took_ticks), None, "{took_ticks}");
        }
    }

    #[test]
    fn who_meets_another_backs_off_every_other_time() {
        let mut backoff = accustomed();
        let mut times = 0;
        for _ in 0..1_000 {
            times += backs_off(&mut backoff, 1, MET);
            backs_off(&mut backoff, 100, ALONE);
        }
        assert!((400..600).contains(&times), "{times}");
        let pauses = (0..100).filter_map(|_| backoff.judge(MET));
        let longest = pauses.max().expect("one of a hundred");
        assert!((ALONE / 8..ALONE / 2).contains(&longest), "{longest}");
    }

    #[test]
    fn two_streams_do_not_back_off_together() {
        let mut both = [1, 2].map(Backoff::new);
        let mut differ = 0;
        for backoff in &mut both {
            backs_off(backoff, 1_000, ALONE);
        }
        for _ in 0..1_000 {
            let [one, other] = both.each_mut().map(|backoff| backs_off(backoff, 1, MET));
            differ += u32::from(one != other);
            for backoff in &mut both {
                backs_off(backoff, 100, ALONE);
            }
        }
        assert!((400..600).contains(&differ), "{differ}");
    }

    #[test]
    fn a_block_behind_a_pause_tells_nothing() {
        let mut backoff = accustomed();
        while backoff.judge(MET).is_none() {}
        let usual = backoff.usual_scaled_ticks;
        assert_eq!(backoff.judge(ALONE / 10), None);
        assert_eq!(backoff.usual_scaled_ticks, usual);
    }

    #[test]
    fn what_always_is_becomes_usual() {
        for took_ticks in [MET, 3 * ALONE] {
            let mut backoff = accustomed();
            backs_off(&mut backoff, 10_000, took_ticks);
            assert_eq!(backs_off(&mut backoff, 10_000, took_ticks), 0);
            // And again when it is over.
            backs_off(&mut backoff, 1_000, ALONE);
            assert!(backs_off(&mut backoff, 20, MET) > 0);
        }
    }

    #[test]
    fn what_takes_very_long_is_no_collision() {
        let mut backoff = accustomed();
        for _ in 0..1_000 {
            assert_eq!(backoff.judge(2 * ALONE + ALONE / 2), None);
            backs_off(&mut backoff, 100, ALONE);
        }
        assert_eq!(backs_off(&mut backoff, 1_000, u64::MAX), 0);
        // Nor is anything by which one would stand still for long.
        let mut slow = Backoff::new(1);
        backs_off(&mut slow, 1_000, 2 * COLLISION_TICKS_MAX);
        assert_eq!(backs_off(&mut slow, 1_000, 3 * COLLISION_TICKS_MAX), 0);
    }
}
