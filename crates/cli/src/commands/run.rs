//! `perdure run`: a program whose reads and writes go past the kernel, on a mount that lives as long as it.

mod companions;
pub(crate) mod library;
mod place;
mod program;

use crate::arguments::Run;
use crate::failure::{Failure, Status};
use crate::output;
use crate::signals::Held;
use place::Place;
use std::process::Command;

/// Tells the program where the pool is mounted.
const PLACE_VARIABLE: &str = "PERDURE_MNT";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

pub(crate) fn run(arguments: &Run) -> Result<Status, Failure> {
    let library = library::find()?;
    // From here on whoever ends this command ends the program, and the mount goes after it.
    let signals = Held::hold()
        .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
    let place = Place::find_or_make(arguments)?;
    if arguments.verbose {
        output::complain(format_args!("run: preloading {}", library.display()));
    }
    let others = std::env::var_os(PRELOAD_VARIABLE);
    let mut command = Command::new(&arguments.program[0]);
    command
        .args(&arguments.program[1..])
        .env(PLACE_VARIABLE, &place.path)
        .env(
            PRELOAD_VARIABLE,
            library::before_others(&library, others.as_deref()),
        );
    let ended = program::run(command, &signals);
    let left = place.leave(arguments.verbose);
    match (ended, left) {
        (Ok(Status::Success), Err(failure)) => Err(failure),
        (ended, Err(failure)) => {
            // The program's own failure is the exit code, and this must be known as well.
            failure.report("run");
            ended
        }
        (ended, Ok(())) => ended,
    }
}
