//! `perdure-crashlab`: explore crash states, replay one, prove that mistakes are noticed.

use clap::Parser;
use perdure_crashlab::campaign::{self, Goal, Outcome};
use perdure_crashlab::lab::Lab;
use perdure_crashlab::state_id::StateId;
use perdure_crashlab::workload::Workload;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Cuts the power at every fence of every short sequence of operations, and looks at what is left.
#[derive(Debug, Parser)]
struct Arguments {
    /// Distinct crash states to look at, at least
    #[arg(long, default_value_t = 200_000)]
    states: u64,
    /// Of these with data on a device, at least
    #[arg(long, value_name = "STATES", default_value_t = 0)]
    device_states: u64,
    /// Seconds to take, at most
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Go on with long workloads until the time is up
    #[arg(long)]
    long: bool,
    /// Threads; 0 = one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Seed of the first long workload after those of the fixed seeds; chooses the share as well
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run every Nth of the sequences of two operations only
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    share: u64,
    /// Run only workloads whose name begins so: `disk`, `two-17-`
    #[arg(long, value_name = "PREFIX", default_value = "")]
    only: String,
    /// Look at one state again (an id that was printed), or run one workload
    #[arg(long, value_name = "ID")]
    replay: Option<StateId>,
    /// Write what the fuzz targets start from, a folder for each
    #[arg(long, value_name = "FOLDER")]
    fuzz_seeds: Option<PathBuf>,
    /// Switch deliberate mistakes on, one at a time or only this one, and demand that each is noticed
    #[cfg(feature = "deliberate-bugs")]
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    prove_bugs: Option<Option<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Panics of the code under test are results, reported with their state.
    std::panic::set_hook(Box::new(|_| {}));
    #[cfg(feature = "deliberate-bugs")]
    if let Some(only) = &arguments.prove_bugs {
        return perdure_crashlab::proof::prove(only.as_deref());
    }
    if let Some(folder) = &arguments.fuzz_seeds {
        return write_seeds(folder);
    }
    match arguments.replay {
        Some(id) => replay(id),
        None => explore(&arguments),
    }
}

fn write_seeds(folder: &Path) -> ExitCode {
    match perdure_crashlab::seeds::write_all(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Fixed seeds of long workloads that are run in any case; a share runs its share of them.
const LONG_ALWAYS: u64 = 60;

/// Pairs with data on a device run so many times more often than others.
const DEVICE_SHARE: u64 = 4;

/// Returns the workloads that a run must finish: all of one operation, every `share`-th of two,
/// more of these with a device, and the long ones of fixed seeds.
fn required(share: u64, seed: u64) -> Vec<Workload> {
    let (pairs, others): (Vec<_>, Vec<_>) = Workload::all_short()
        .into_iter()
        .partition(|workload| workload.is_pair());
    let (device_pairs, pairs): (Vec<_>, Vec<_>) = pairs
        .into_iter()
        .partition(|workload| matches!(workload, Workload::OnDevice(_)));
    let longs = 1..=LONG_ALWAYS.div_ceil(share);
    let every = |pairs: Vec<Workload>, share: u64| {
        let first = (seed % share) as usize;
        pairs.into_iter().skip(first).step_by(share as usize)
    };
    others
        .into_iter()
        .chain(every(pairs, share))
        .chain(every(device_pairs, share.div_ceil(DEVICE_SHARE)))
        .chain(longs.flat_map(Workload::all_long))
        .collect()
}

fn explore(arguments: &Arguments) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let goal = Goal {
        states: if arguments.long {
            u64::MAX
        } else {
            arguments.states
        },
        time: Duration::from_secs(arguments.seconds),
        threads: if arguments.threads == 0 {
            cores
        } else {
            arguments.threads
        },
        first_seed: LONG_ALWAYS.saturating_add(arguments.seed),
        required: required(arguments.share, arguments.seed)
            .into_iter()
            .filter(|workload| workload.to_string().starts_with(&arguments.only))
            .collect(),
        only: arguments.only.clone(),
        stop_at_failure: false,
        report_every: Some(Duration::from_secs(10)),
    };
    let outcome = campaign::run(goal);
    let Outcome {
        counts,
        elapsed,
        required_finished,
        failures,
    } = &outcome;
    for failure in failures {
        println!("FAILED {}: {}", failure.id, failure.reason);
        println!(
            "  again: cargo run --release -p perdure-crashlab -- --replay {}",
            failure.id
        );
    }
    if !required_finished && failures.is_empty() {
        println!("not all required workloads were run in time: give it more --seconds");
    }
    let has_states = arguments.long || counts.distinct >= arguments.states;
    let enough = *required_finished && has_states && counts.on_device >= arguments.device_states;
    if counts.on_device < arguments.device_states {
        println!(
            "{} states with a device are fewer than {}",
            counts.on_device, arguments.device_states
        );
    }
    let verdict = if failures.is_empty() {
        "none failed".to_string()
    } else {
        format!("{} FAILED", failures.len())
    };
    println!("{}: {verdict}", campaign::line(counts, *elapsed));
    if failures.is_empty() && enough {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn replay(id: StateId) -> ExitCode {
    for (step, line) in id.workload.lines().iter().enumerate() {
        println!("{} {step}: {line}", if step == id.step { ">" } else { " " });
    }
    let tally = Arc::default();
    let failures = Lab::new(Arc::clone(&tally), id.cut.map(|_| id)).run(id.workload);
    for failure in &failures {
        println!("FAILED {}: {}", failure.id, failure.reason);
    }
    let looked_at = tally.counts().distinct;
    println!("{looked_at} states looked at, {} failed", failures.len());
    if failures.is_empty() && looked_at > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
