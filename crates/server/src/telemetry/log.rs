//! The log of a pool of class `log`. Nothing is said about a log that a mount does not have.

use super::{publish_counters, publish_gauges};
use crate::control::LogStatus;

pub(super) fn publish(log: &LogStatus, mountpoint: &str) {
    let counters = [
        (
            "perdure_log_syncs_total",
            "Durable writes of the log",
            log.syncs,
        ),
        (
            "perdure_log_bytes_total",
            "Bytes of changes and data that were logged",
            log.logged_bytes,
        ),
        (
            "perdure_log_placed_bytes_total",
            "Bytes of large data that went straight to their place in the image",
            log.placed_bytes,
        ),
        (
            "perdure_log_checkpoints_total",
            "Times that the image on the disk caught up with the log",
            log.checkpoints,
        ),
        (
            "perdure_log_late_calls_total",
            "Calls that waited because the log was late",
            log.late_calls,
        ),
        (
            "perdure_log_load_waits_total",
            "Accesses that have waited until their block was loaded",
            log.load_waits,
        ),
    ];
    publish_counters(&counters, mountpoint);
    publish_state(log, mountpoint);
}

fn publish_state(log: &LogStatus, mountpoint: &str) {
    let gauges = [
        (
            "perdure_log_used_bytes",
            "Bytes of the log that a recovery would read",
            log.used_bytes as f64,
        ),
        (
            "perdure_log_size_bytes",
            "Bytes of the log's ring",
            log.ring_bytes as f64,
        ),
        (
            "perdure_log_dirty_bytes",
            "Bytes that the image on the disk does not have yet",
            log.dirty_bytes as f64,
        ),
        (
            "perdure_log_unloaded_bytes",
            "Bytes of memory that are not loaded or not reserved yet",
            log.unloaded_bytes as f64,
        ),
        (
            "perdure_log_sync_p50_microseconds",
            "Median of a durable write",
            log.sync_p50_us,
        ),
        (
            "perdure_log_sync_p99_microseconds",
            "99th percentile of a durable write",
            log.sync_p99_us,
        ),
        (
            "perdure_log_failed",
            "1 if the log has failed and the pool is read-only, else 0",
            f64::from(u8::from(log.failure.is_some())),
        ),
    ];
    publish_gauges(&gauges, mountpoint);
}
