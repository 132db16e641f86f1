//! Runs the experiment `ops` with settings that the `perdure` command does not offer.
//!
//! ```text
//! cargo run --release -p perdure-bench --example ops -- [smoke] [json] [verbose] [rounds=N] [operations=N] [names=N] [size=BYTES] [media=MODEL] [ROW …]
//! ```

use perdure_bench::{OpsOptions, run_ops, serve_child};
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if let Some(code) = serve_child() {
        return Ok(code);
    }
    let mut options = OpsOptions {
        progress: Some(|row| eprintln!("{row} …")),
        ..OpsOptions::default()
    };
    let mut is_json = false;
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("rounds", value)) => options.rounds = value.parse()?,
            Some(("operations", value)) => options.operations = value.parse()?,
            Some(("names", value)) => options.names = value.parse()?,
            Some(("size", value)) => options.pool_bytes = value.parse()?,
            Some(("media", value)) => options.media = value.parse()?,
            Some((key, _)) => return Err(format!("no setting `{key}`").into()),
            None if argument == "smoke" => {
                options = OpsOptions {
                    progress: options.progress,
                    ..OpsOptions::smoke()
                }
            }
            None if argument == "json" => is_json = true,
            None if argument == "verbose" => options.verbose = true,
            None => options.only.push(argument),
        }
    }
    let report = run_ops(&options)?;
    match is_json {
        true => println!("{:#}", report.json()),
        false => print!("{}", report.table()),
    }
    Ok(if report.is_complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
