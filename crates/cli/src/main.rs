//! `perdure`: make, mount, check, inspect and copy pools of persistent memory.

mod arguments;
mod commands;
mod failure;
mod lease_timeout;
mod logging;
mod mounts;
mod output;
mod read_cache;
mod repeats;
mod signals;
mod size;
mod tier;
mod visible;

use arguments::background::Background;
use arguments::{Arguments, Command};
use clap::{CommandFactory, FromArgMatches};
use failure::{Failure, Status};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Some experiments start this program once more.
    #[cfg(feature = "bench")]
    if let Some(code) = bench::serve_child() {
        return code;
    }
    #[cfg(feature = "deliberate-bugs")]
    deliberate_bug();
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut words = arguments::translate_mount_helper(words);
    let background = Background::take(&mut words);
    let mut arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    if let Command::Mount(mount) = &mut arguments.command {
        mount.background = background;
    }
    // Only a server runs long enough for the time of a line to matter.
    let has_time = matches!(&arguments.command, Command::Mount(mount) if mount.foreground || mount.log.is_some());
    logging::start(has_time);
    let name = arguments.command.name();
    match run(arguments.command) {
        Ok(status) => status.into(),
        Err(failure) => {
            failure.report(name);
            failure.status.into()
        }
    }
}

/// Switches on the bug that `PERDURE_DELIBERATE_BUG` names, so that a suite can prove that it
/// notices it. Builds for users do not have this.
#[cfg(feature = "deliberate-bugs")]
fn deliberate_bug() {
    use pmem::deliberate::Bug;
    const BUGS: [Bug; 4] = [
        Bug::AcknowledgeBeforeSync,
        Bug::TrimBeforeFlush,
        Bug::ReplayBatchesBackwards,
        Bug::TakeHolesForZeros,
    ];
    let Ok(name) = std::env::var("PERDURE_DELIBERATE_BUG") else {
        return;
    };
    let bug = BUGS.into_iter().find(|bug| format!("{bug:?}") == name);
    pmem::deliberate::set(Some(bug.expect("the variable names no bug of this list")));
}

fn run(command: Command) -> Result<Status, Failure> {
    match command {
        Command::Mkfs(arguments) => commands::mkfs::run(&arguments),
        Command::Mount(arguments) => commands::mount::run(&arguments),
        Command::Umount(arguments) => commands::umount::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Fsck(arguments) => commands::fsck::run(&arguments),
        Command::Stat(arguments) => commands::stat::run(&arguments),
        Command::Tier(arguments) => commands::tier::run(&arguments),
        Command::Cp(arguments) => commands::cp::run(&arguments),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Completions(arguments) => commands::documents::completions(&arguments),
        Command::Man(arguments) => commands::documents::manual(&arguments),
    }
}

/// Parses the command line; the error is the exit code, its text is already printed.
fn parse(words: &[OsString]) -> Result<Arguments, ExitCode> {
    let parsed = Arguments::command().try_get_matches_from(words);
    parsed
        .and_then(|matches| Arguments::from_arg_matches(&matches))
        .map_err(|error| {
            // A closed pipe must not turn --help into a panic.
            let _ = error.print();
            let checks = words.get(1).is_some_and(|word| word == "fsck");
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ if checks => ExitCode::from(commands::fsck::EXIT_USAGE),
                _ => Status::Usage.into(),
            }
        })
}
