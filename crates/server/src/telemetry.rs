//! The counters of [`statistics`](crate::statistics) for collectors, through the `metrics` facade.
//!
//! Nothing is sent through the facade while requests run: the sums are handed over when somebody
//! asks for them. Several mounts in one process are told apart by the label `mountpoint`.

mod log;
mod tier;

use std::sync::OnceLock;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::control::{DirectStatus, ReadCacheStatus, Status};
use crate::statistics::{OperationStatistics, bucket_limit_nanoseconds};

/// Publishes the sums and renders all metrics of this process in Prometheus' text format.
///
/// # Errors
///
/// The process has installed another recorder; the sums were handed to that one.
pub(crate) fn render(status: &Status) -> Result<String, &'static str> {
    let handle = recorder();
    publish(status);
    match handle {
        Some(handle) => Ok(handle.render()),
        None => Err("this process sends its metrics to a recorder of its own"),
    }
}

/// Installs a recorder for the process, once, unless there is one.
fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    RECORDER
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            metrics::set_global_recorder(recorder)
                .is_ok()
                .then_some(handle)
        })
        .as_ref()
}

fn publish(status: &Status) {
    describe_counter!("perdure_operations_total", "Requests answered");
    describe_counter!(
        "perdure_operation_errors_total",
        "Requests answered with an error"
    );
    describe_counter!(
        "perdure_operation_nanoseconds_total",
        Unit::Nanoseconds,
        "Time inside the server"
    );
    describe_counter!(
        "perdure_operation_nanoseconds_bucket",
        "Requests that took less than the label `le` in nanoseconds"
    );
    describe_counter!(
        "perdure_read_bytes_total",
        Unit::Bytes,
        "Bytes handed to readers"
    );
    describe_counter!(
        "perdure_written_bytes_total",
        Unit::Bytes,
        "Bytes made durable for writers"
    );
    describe_gauge!("perdure_free_bytes", Unit::Bytes, "Free space of the pool");
    describe_gauge!(
        "perdure_available_bytes",
        Unit::Bytes,
        "Free space that files can take; the rest is kept so that a full pool can be written"
    );
    describe_gauge!("perdure_size_bytes", Unit::Bytes, "Size of the pool");
    describe_gauge!("perdure_free_inodes", "Inodes that can still be made");
    describe_gauge!(
        "perdure_cached_inodes",
        "Inodes that the kernel holds references to"
    );

    publish_sums(status);
    if let Some(cache) = &status.read_cache {
        publish_read_cache(cache, &status.mountpoint);
    }
    if let Some(log) = &status.log {
        log::publish(log, &status.mountpoint);
    }
    if let Some(tier) = &status.tier {
        tier::publish(tier, &status.mountpoint);
    }
    if let Some(direct) = &status.direct {
        publish_direct(direct, &status.mountpoint);
    }
    for operation in &status.statistics.operations {
        publish_operation(operation, &status.mountpoint);
    }
}

fn publish_sums(status: &Status) {
    let place = || ("mountpoint", status.mountpoint.clone());
    counter!("perdure_read_bytes_total", &[place()]).absolute(status.statistics.read_bytes);
    counter!("perdure_written_bytes_total", &[place()]).absolute(status.statistics.written_bytes);
    let block_bytes = f64::from(status.space.block_bytes);
    gauge!("perdure_free_bytes", &[place()]).set(status.space.free_blocks as f64 * block_bytes);
    gauge!("perdure_available_bytes", &[place()])
        .set(status.space.available_blocks as f64 * block_bytes);
    gauge!("perdure_size_bytes", &[place()]).set(status.space.blocks as f64 * block_bytes);
    gauge!("perdure_free_inodes", &[place()]).set(status.space.free_inodes as f64);
    gauge!("perdure_cached_inodes", &[place()]).set(status.cached_inodes as f64);
}

/// Publishes counters: names, their meanings, their values.
fn publish_counters(counters: &[(&'static str, &'static str, u64)], mountpoint: &str) {
    for &(name, meaning, value) in counters {
        describe_counter!(name, meaning);
        counter!(name, "mountpoint" => mountpoint.to_owned()).absolute(value);
    }
}

/// Publishes gauges in the same way.
fn publish_gauges(gauges: &[(&'static str, &'static str, f64)], mountpoint: &str) {
    for &(name, meaning, value) in gauges {
        describe_gauge!(name, meaning);
        gauge!(name, "mountpoint" => mountpoint.to_owned()).set(value);
    }
}

/// Nothing is said about a cache that a mount does not have.
fn publish_read_cache(cache: &ReadCacheStatus, mountpoint: &str) {
    let place = || [("mountpoint", mountpoint.to_owned())];
    let counts = &cache.counts;
    let counters = [
        (
            "perdure_read_cache_hits_total",
            "Blocks read from copies in DRAM",
            counts.hits,
        ),
        (
            "perdure_read_cache_misses_total",
            "Blocks read from the medium",
            counts.misses,
        ),
        (
            "perdure_read_cache_fills_total",
            "Blocks copied to DRAM",
            counts.fills,
        ),
        (
            "perdure_read_cache_invalidations_total",
            "Copies that a write ended",
            counts.invalidations,
        ),
        (
            "perdure_read_cache_evictions_total",
            "Copies given up for others, or for memory",
            counts.evictions,
        ),
    ];
    publish_counters(&counters, mountpoint);
    let gauges = [
        (
            "perdure_read_cache_bytes",
            "DRAM that holds copies",
            counts.bytes,
        ),
        (
            "perdure_read_cache_limit_bytes",
            "DRAM that may hold copies now; less than the budget while the machine is short of memory",
            counts.limit_bytes,
        ),
        (
            "perdure_read_cache_budget_bytes",
            "DRAM that may hold copies at most",
            counts.budget_bytes,
        ),
    ];
    for (name, meaning, value) in gauges {
        describe_gauge!(name, Unit::Bytes, meaning);
        gauge!(name, &place()).set(value as f64);
    }
}

/// Nothing is said where processes have to use the kernel.
fn publish_direct(direct: &DirectStatus, mountpoint: &str) {
    let place = || [("mountpoint", mountpoint.to_owned())];
    let gauges = [
        (
            "perdure_direct_processes",
            "Processes that may read and write files directly",
            direct.processes as f64,
        ),
        (
            "perdure_direct_leases",
            "Files leased to a process",
            direct.leases as f64,
        ),
        (
            "perdure_direct_files_read",
            "Files read directly",
            direct.files_read as f64,
        ),
        (
            "perdure_direct_files_mapped",
            "Files of which a process has blocks mapped into its memory",
            direct.files_mapped as f64,
        ),
        (
            "perdure_direct_segments",
            "Segments handed out, once for each process",
            direct.segments as f64,
        ),
    ];
    publish_gauges(&gauges, mountpoint);
    publish_direct_counts(direct, mountpoint);
    let refusals = "perdure_direct_refusals_total";
    describe_counter!(
        refusals,
        "Requests of processes refused, by the label `reason`"
    );
    for (reason, count) in direct.refusals.by_reason() {
        let [place] = place();
        counter!(refusals, &[place, ("reason", reason.to_owned())]).absolute(count);
    }
}

fn publish_direct_counts(direct: &DirectStatus, mountpoint: &str) {
    let counters = [
        (
            "perdure_direct_attached_total",
            "Attachments made: files times processes, anew whenever one had ended",
            direct.attached,
        ),
        (
            "perdure_direct_leases_granted_total",
            "Leases granted",
            direct.leases_granted,
        ),
        (
            "perdure_direct_leases_taken_back_total",
            "Leases that ended because somebody else wanted the file",
            direct.leases_taken_back,
        ),
        (
            "perdure_direct_leases_forced_total",
            "Leases of processes that did not go on with a write",
            direct.leases_forced,
        ),
        (
            "perdure_direct_leases_timed_out_total",
            "Leases that ended because they were not used",
            direct.leases_timed_out,
        ),
        (
            "perdure_direct_records_folded_total",
            "Records of direct writes that became part of their files",
            direct.records_folded,
        ),
        (
            "perdure_direct_mappings_taken_back_total",
            "Processes told to give back what they had mapped of a file",
            direct.mappings_taken_back,
        ),
        (
            "perdure_direct_mappings_not_given_back_total",
            "Those that did not in time",
            direct.mappings_not_given_back,
        ),
    ];
    publish_counters(&counters, mountpoint);
}

fn publish_operation(statistics: &OperationStatistics, mountpoint: &str) {
    let labels = [
        ("mountpoint", mountpoint.to_owned()),
        ("operation", statistics.operation.clone()),
    ];
    counter!("perdure_operations_total", &labels).absolute(statistics.count);
    counter!("perdure_operation_errors_total", &labels).absolute(statistics.errors);
    counter!("perdure_operation_nanoseconds_total", &labels).absolute(statistics.nanoseconds);
    let mut below = 0;
    for (index, count) in statistics.buckets.iter().enumerate() {
        below += count;
        if *count == 0 {
            continue;
        }
        let [place, operation] = labels.clone();
        let bucket = [
            place,
            operation,
            ("le", bucket_limit_nanoseconds(index).to_string()),
        ];
        counter!("perdure_operation_nanoseconds_bucket", &bucket).absolute(below);
    }
    let [place, operation] = labels;
    counter!(
        "perdure_operation_nanoseconds_bucket",
        &[place, operation, ("le", "+Inf".to_owned())]
    )
    .absolute(statistics.count);
}
