//! `perdure bench`: runs an experiment and prints its figures.

use crate::arguments::{Bench, Experiment};
use crate::failure::{Failure, Status};
use crate::output;
use bench::{BenchError, OpsOptions};
use std::io::{IsTerminal, Write};

pub(crate) fn run(arguments: &Bench) -> Result<Status, Failure> {
    let report = match arguments.experiment {
        Experiment::Ops => bench::run_ops(&OpsOptions {
            directory: arguments.pool.clone(),
            pool_bytes: arguments.size,
            media: arguments.media.clone(),
            only: arguments.rows.clone(),
            verbose: arguments.latencies,
            progress: std::io::stderr().is_terminal().then_some(tell),
            ..OpsOptions::default()
        }),
    };
    let report = report.map_err(|error| Failure::new(status_of(&error), error))?;
    match arguments.json {
        true => output::print_json(&report.json())?,
        false => output::print(report.table())?,
    }
    // A missed bar is a result; a row without figures is a failure.
    Ok(if report.is_complete() {
        Status::Success
    } else {
        Status::Failed
    })
}

fn tell(row: &str) {
    let _ = writeln!(std::io::stderr(), "measuring {row}");
}

fn status_of(error: &BenchError) -> Status {
    match error {
        BenchError::TooSmall { .. } => Status::Usage,
        _ => Status::Failed,
    }
}
