//! The disk below a pool. Nothing is said about one that a pool does not have.

use super::{publish_counters, publish_gauges};
use crate::control::TierStatus;

pub(super) fn publish(tier: &TierStatus, mountpoint: &str) {
    let counters = [
        (
            "perdure_tier_copied_bytes_total",
            "Bytes copied from memory to the home",
            tier.copied_bytes,
        ),
        (
            "perdure_tier_evicted_bytes_total",
            "Bytes of memory given back because the home has them",
            tier.evicted_bytes,
        ),
        (
            "perdure_tier_brought_in_bytes_total",
            "Bytes brought from the home into memory",
            tier.brought_in_bytes,
        ),
        (
            "perdure_tier_cold_reads_total",
            "Blocks read from the home for a caller",
            tier.cold_reads,
        ),
        (
            "perdure_tier_failures_total",
            "Attempts to copy to the home that failed",
            tier.failures,
        ),
        (
            "perdure_tier_pauses_total",
            "Calls that waited for room in memory",
            tier.pauses,
        ),
    ];
    publish_counters(&counters, mountpoint);
    publish_state(tier, mountpoint);
}

fn publish_state(tier: &TierStatus, mountpoint: &str) {
    let gauges = [
        (
            "perdure_tier_dirty_bytes",
            "Bytes that only the memory has",
            tier.dirty_bytes as f64,
        ),
        (
            "perdure_tier_clean_bytes",
            "Bytes of memory that the home has as well",
            tier.clean_bytes as f64,
        ),
        (
            "perdure_tier_memory_free_bytes",
            "Free bytes of memory",
            tier.memory_free_bytes as f64,
        ),
        (
            "perdure_tier_home_free_bytes",
            "Free bytes of the home",
            tier.home_free_bytes as f64,
        ),
        (
            "perdure_tier_oldest_dirty_seconds",
            "Age of the oldest bytes that only the memory has, at most",
            tier.oldest_dirty_seconds.unwrap_or(0.0),
        ),
        (
            "perdure_tier_failing",
            "1 if the home fails or is missing, else 0",
            f64::from(u8::from(["failing", "missing"].contains(&&*tier.state))),
        ),
    ];
    publish_gauges(&gauges, mountpoint);
}
