//! `perdure bench`: runs an experiment and prints its figures.

use crate::arguments::bench::{Aging, Bench, Direct, Experiment, Log, Mount, Ops, ReadCache, Wear};
use crate::failure::{Failure, Status};
use crate::output;
use bench::{
    AgingOptions, BenchError, DirectOptions, Evaluation, LogOptions, MountOptions, OpsOptions,
    Personality, ReadCacheOptions, WearOptions,
};
use std::io::{IsTerminal, Write};
use std::path::Path;

pub(crate) fn run(arguments: &Bench) -> Result<Status, Failure> {
    match &arguments.experiment {
        Experiment::Ops(arguments) => ops(arguments),
        Experiment::Aging(arguments) => aging(arguments),
        Experiment::Wear(arguments) => wear(arguments),
        Experiment::Readcache(arguments) => readcache(arguments),
        Experiment::Direct(arguments) => direct(arguments),
        Experiment::Log(arguments) => log(arguments),
        Experiment::Mount(arguments) => mount(arguments),
    }
}

fn ops(arguments: &Ops) -> Result<Status, Failure> {
    let common = &arguments.common;
    let report = bench::run_ops(&OpsOptions {
        directory: common.pool.clone(),
        pool_bytes: arguments.size,
        media: arguments.media.clone(),
        only: common.rows.clone(),
        verbose: arguments.latencies,
        progress: progress(),
        ..OpsOptions::default()
    });
    let report = report.map_err(failure)?;
    match common.json {
        true => output::print_json(&report.json())?,
        false => output::print(report.table())?,
    }
    Ok(status(report.is_complete()))
}

fn aging(arguments: &Aging) -> Result<Status, Failure> {
    let common = &arguments.common;
    let counts = arguments.files.iter().chain(&arguments.threads);
    if counts.chain([&arguments.rounds]).any(|count| *count == 0) {
        return usage("--files, --threads and --rounds take numbers from 1 on");
    }
    if !is_patient(arguments.seconds) {
        return usage(SECONDS);
    }
    let evaluation = bench::run_aging(&AgingOptions {
        directory: common.pool.clone(),
        pool_bytes: arguments.size,
        media: arguments.media.clone(),
        files: arguments.files.clone(),
        personalities: personalities(&arguments.personality),
        threads: arguments.threads.clone(),
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        target: arguments.target.clone(),
        only: common.rows.clone(),
        progress: progress(),
        ..AgingOptions::default()
    });
    show(evaluation, common.json, arguments.out.as_deref())
}

fn wear(arguments: &Wear) -> Result<Status, Failure> {
    let common = &arguments.common;
    if arguments.files == 0 {
        return usage("--files takes a number from 1 on");
    }
    if !(arguments.passes > 0.0 && arguments.passes <= 1e6) {
        return usage("--passes takes a number above 0, at most a million");
    }
    let evaluation = bench::run_wear(&WearOptions {
        directory: common.pool.clone(),
        pool_bytes: arguments.size,
        files: arguments.files,
        personalities: personalities(&arguments.personality),
        passes: arguments.passes,
        only: common.rows.clone(),
        progress: progress(),
    });
    show(evaluation, common.json, arguments.out.as_deref())
}

fn readcache(arguments: &ReadCache) -> Result<Status, Failure> {
    let counts = arguments.threads.iter().chain([&arguments.rounds]);
    if counts.into_iter().any(|count| *count == 0) {
        return usage("--threads and --rounds take numbers from 1 on");
    }
    if !is_patient(arguments.seconds) {
        return usage(SECONDS);
    }
    if arguments.cache_size < arguments.file_size {
        return usage("--cache-size must have room for --file-size");
    }
    let evaluation = bench::run_readcache(&ReadCacheOptions {
        directory: arguments.pool.clone(),
        pool_bytes: arguments.size,
        file_bytes: arguments.file_size,
        budget_bytes: arguments.cache_size,
        media: arguments.media.clone(),
        threads: arguments.threads.clone(),
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        only: arguments.rows.clone(),
        progress: progress(),
        ..ReadCacheOptions::default()
    });
    show(evaluation, arguments.json, arguments.out.as_deref())
}

fn direct(arguments: &Direct) -> Result<Status, Failure> {
    let common = &arguments.common;
    if !is_patient(arguments.seconds) {
        return usage(SECONDS);
    }
    let library = super::run::library::find()?;
    let evaluation = bench::run_direct(
        &DirectOptions {
            directory: common.pool.clone(),
            only: common.rows.clone(),
            progress: progress(),
            ..DirectOptions::new(library)
        }
        .lasting(arguments.seconds),
    );
    show(evaluation, common.json, arguments.out.as_deref())
}

fn log(arguments: &Log) -> Result<Status, Failure> {
    if !is_patient(arguments.seconds) {
        return usage(SECONDS);
    }
    let options = LogOptions {
        directory: arguments.pool.clone(),
        only: arguments.rows.clone(),
        progress: progress(),
        ..LogOptions::default()
    };
    let evaluation = bench::run_log(&options.lasting(arguments.seconds));
    show(evaluation, arguments.json, arguments.out.as_deref())
}

fn mount(arguments: &Mount) -> Result<Status, Failure> {
    let common = &arguments.common;
    if !is_patient(arguments.seconds) {
        return usage(SECONDS);
    }
    if arguments.rounds == Some(0) {
        return usage("--rounds takes a number from 1 on");
    }
    let program = std::env::current_exe();
    let program = program
        .map_err(|error| Failure::failed(format_args!("cannot find this program: {error}")))?;
    let library = super::run::library::find()?;
    let evaluation = bench::run_mount(
        &MountOptions {
            directory: common.pool.clone(),
            enables_uring: arguments.enable_uring,
            only: common.rows.clone(),
            progress: progress(),
            ..MountOptions::new(program, library)
        }
        .lasting(arguments.seconds, arguments.rounds),
    );
    show(evaluation, common.json, arguments.out.as_deref())
}

const SECONDS: &str = "--seconds takes a number above 0, at most a day";

/// What a Duration can hold, and what anybody waits for.
fn is_patient(seconds: f64) -> bool {
    seconds > 0.0 && seconds <= 86_400.0
}

fn personalities(given: &[Personality]) -> Vec<Personality> {
    match given {
        [] => Personality::ALL.to_vec(),
        _ => given.to_vec(),
    }
}

fn show(
    evaluation: Result<Evaluation, BenchError>,
    json: bool,
    out: Option<&Path>,
) -> Result<Status, Failure> {
    let evaluation = evaluation.map_err(failure)?;
    match json {
        true => output::print_json(&evaluation.json())?,
        false => output::print(evaluation.table())?,
    }
    if let Some(directory) = out {
        for path in evaluation.write(directory).map_err(failure)? {
            let _ = writeln!(std::io::stderr(), "written {}", path.display());
        }
    }
    Ok(status(evaluation.is_complete()))
}

/// A missed bar is a result; a row without figures is a failure.
fn status(is_complete: bool) -> Status {
    match is_complete {
        true => Status::Success,
        false => Status::Failed,
    }
}

fn progress() -> Option<fn(&str)> {
    std::io::stderr().is_terminal().then_some(tell)
}

fn tell(row: &str) {
    let _ = writeln!(std::io::stderr(), "measuring {row}");
}

fn usage(message: &str) -> Result<Status, Failure> {
    Err(Failure::new(Status::Usage, message))
}

fn failure(error: BenchError) -> Failure {
    let status = match error {
        BenchError::TooSmall { .. } | BenchError::UnknownRow { .. } => Status::Usage,
        _ => Status::Failed,
    };
    Failure::new(status, error)
}
