//! Rows of fio: 4 KiB at random places of a file, by one job that makes a system call for each.

use super::bed::{Bed, Side, fill};
use super::wake::wake_note;
use super::{DirectOptions, first_processor, with_spread};
use crate::aging::{in_turn, pair};
use crate::collector::Collector;
use crate::error::BenchError;
use crate::measure::median;
use serde_json::Value;
use std::path::Path;

const FIO: &str = "fio";
const SIDES: [Side; 3] = [Side::Direct, Side::Tmpfs, Side::Fuse];

pub(super) fn measure(collector: &mut Collector, options: &DirectOptions, bed: &Bed) {
    collector.group(&["fio_randwrite", "fio_randwrite_vs_fuse"], |collector| {
        let outcome = rounds(collector, options, bed, "write")?;
        report(
            collector,
            "fio_randwrite",
            "fio_randwrite_vs_fuse",
            &outcome,
        );
        Ok(())
    });
    collector.group(&["fio_randread", "fio_randread_vs_fuse"], |collector| {
        let outcome = rounds(collector, options, bed, "read")?;
        report(collector, "fio_randread", "fio_randread_vs_fuse", &outcome);
        Ok(())
    });
}

/// Of every round, the rate on each side, and as the last one on the plain mount past the page cache; and of each side the mean latency in the
/// last round.
struct Outcome {
    rates: Vec<Vec<f64>>,
    latencies: Vec<f64>,
}

fn rounds(
    collector: &Collector,
    options: &DirectOptions,
    bed: &Bed,
    kind: &'static str,
) -> Result<Outcome, BenchError> {
    let program = crate::programs::find(FIO, FIO)?;
    collector.tell(&format!("fio, random {kind}s"));
    for side in [Side::Direct, Side::Tmpfs] {
        fill(&bed.directory(side).join(FIO), options.fio_bytes)?;
    }
    let mut latencies = vec![0.0; SIDES.len() + 1];
    let rates = in_turn(options.runs, SIDES.len() + 1, |number, _| {
        let side = SIDES.get(number).copied().unwrap_or(Side::Fuse);
        let past_page_cache = number == SIDES.len();
        let run = run(options, bed, side, &program, kind, past_page_cache)?;
        latencies[number] = run.latency_ns;
        Ok(run.rate)
    })?;
    Ok(Outcome { rates, latencies })
}

/// Figures of one run.
pub(crate) struct Run {
    pub(crate) rate: f64,
    pub(crate) latency_ns: f64,
}

fn run(
    options: &DirectOptions,
    bed: &Bed,
    side: Side,
    program: &Path,
    kind: &str,
    past_page_cache: bool,
) -> Result<Run, BenchError> {
    const LEAST_MS: f64 = 50.0;
    let milliseconds = (options.seconds * 1000.0).max(LEAST_MS);
    let output = bed
        .command(side, program)
        // Where it leaves its notes.
        .current_dir(bed.place())
        .arg("--name=perdure")
        .arg(format!(
            "--filename={}",
            bed.directory(side).join(FIO).display()
        ))
        .arg(format!("--size={}", options.fio_bytes))
        .arg(format!("--rw=rand{kind}"))
        .arg(format!("--runtime={milliseconds:.0}ms"))
        .arg(format!("--cpus_allowed={}", first_processor()))
        .arg(format!("--direct={}", u8::from(past_page_cache)))
        .args(["--ioengine=psync", "--bs=4k", "--numjobs=1", "--time_based"])
        // Left to itself it takes the one or the other clock, by chance if the machine is not quiet, and one costs 70 ns more for each operation.
        .arg("--clocksource=cpu")
        .args(["--invalidate=1", "--eta=never", "--output-format=json"])
        .output();
    let output = output.map_err(|error| BenchError::program(FIO, error))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.lines().last().unwrap_or("it failed").to_owned();
        return Err(BenchError::program(FIO, reason));
    }
    parse(&String::from_utf8_lossy(&output.stdout), kind)
        .ok_or_else(|| BenchError::program(FIO, "its report has no figures"))
}

/// Out of fio's report, before which it may print warnings.
pub(crate) fn parse(text: &str, kind: &str) -> Option<Run> {
    let report: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let figures = &report["jobs"][0][kind];
    Some(Run {
        rate: figures["iops"].as_f64()?,
        latency_ns: figures["lat_ns"]["mean"].as_f64()?,
    })
}

fn report(
    collector: &mut Collector,
    tmpfs: &'static str,
    fuse: &'static str,
    Outcome { rates, latencies }: &Outcome,
) {
    let microseconds = |side: usize| latencies[side] / 1000.0;
    collector.row(tmpfs, || {
        let note = format!(
            "latencies {:.2} and {:.2} us",
            microseconds(0),
            microseconds(1)
        );
        Ok(with_spread(&pair(&rates[0], &rates[1]), &note))
    });
    collector.row(fuse, || {
        let note = format!(
            "latencies {:.2} and {:.2} us: {:+.0} %, the paper's is -96 %; on the mount past the page cache (direct=1) {:.2} us, {:.0} IOPS{}",
            microseconds(0),
            microseconds(2),
            (latencies[0] / latencies[2] - 1.0) * 100.0,
            microseconds(3),
            median(&rates[3]),
            wake_note()?,
        );
        Ok(with_spread(&pair(&rates[0], &rates[2]), &note))
    });
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_report_is_found_behind_warnings() {
        let text = r#"fio: a warning
{"jobs": [{"read": {"iops": 0.0}, "write": {"iops": 51234.5, "lat_ns": {"mean": 19000.25}}}]}"#;
        let run = parse(text, "write").expect("figures");
        assert_eq!((run.rate, run.latency_ns), (51234.5, 19000.25));
        assert!(parse(text, "read").is_none());
        assert!(parse("nothing", "read").is_none());
    }
}
