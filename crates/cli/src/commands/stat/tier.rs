//! The disk below a mounted pool, as lines of the report.

use crate::output::Bytes;
use server::control::{Status, TierStatus};
use std::fmt;

/// The tier of a server, for people.
pub(super) struct Lines<'a>(pub(super) &'a Status);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.tier {
            Some(tier) => lines(tier, out),
            None => Ok(()),
        }
    }
}

fn lines(tier: &TierStatus, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        out,
        "home       {}: {}, {} of {} free",
        tier.home,
        tier.state,
        Bytes(tier.home_free_bytes),
        Bytes(tier.home_bytes),
    )?;
    write!(
        out,
        "memory     {}, {} free, {} clean, {} dirty",
        Bytes(tier.memory_bytes),
        Bytes(tier.memory_free_bytes),
        Bytes(tier.clean_bytes),
        Bytes(tier.dirty_bytes),
    )?;
    match tier.oldest_dirty_seconds {
        Some(age) => writeln!(out, " for {age:.0} s at most")?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "           {} copied to the home ({:.0} us a block), {} evicted, {} brought back; {} blocks read from the home",
        Bytes(tier.copied_bytes),
        tier.block_us,
        Bytes(tier.evicted_bytes),
        Bytes(tier.brought_in_bytes),
        tier.cold_reads,
    )?;
    if tier.pauses > 0 || tier.failures > 0 {
        writeln!(
            out,
            "           {} calls waited for room, {} attempts to copy failed",
            tier.pauses, tier.failures,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Alone(TierStatus);

    impl fmt::Display for Alone {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            lines(&self.0, out)
        }
    }

    #[test]
    fn the_state_comes_first() {
        let status = TierStatus {
            state: "missing".to_owned(),
            home: "/dev/nvme1n1".to_owned(),
            home_bytes: 1 << 40,
            home_free_bytes: 1 << 39,
            memory_bytes: 16 << 30,
            memory_free_bytes: 1 << 30,
            clean_bytes: 14 << 30,
            dirty_bytes: 1 << 30,
            oldest_dirty_seconds: Some(12.4),
            flushing: false,
            copied_bytes: 0,
            evicted_bytes: 0,
            brought_in_bytes: 0,
            cold_reads: 0,
            failures: 3,
            pauses: 0,
            block_us: 10.0,
        };
        let text = Alone(status).to_string();
        let mut lines = text.lines();
        let first = lines.next().expect("a line");
        assert!(
            first.starts_with("home       /dev/nvme1n1: missing, 512"),
            "{first}"
        );
        let second = lines.next().expect("a line");
        assert!(second.ends_with("dirty for 12 s at most"), "{second}");
        assert!(text.contains("3 attempts to copy failed"), "{text}");
    }
}
