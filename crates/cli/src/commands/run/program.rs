//! The program: started, told of signals, waited for.

use crate::failure::{Failure, Status};
use crate::signals::{self, Held};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

/// What a shell ends with if there is no such program, or if it cannot be executed.
const MISSING: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Runs the program to its end, and passes on to it what this process is asked.
pub(super) fn run(mut command: Command, signals: &Held) -> Result<Status, Failure> {
    let before = signals.before();
    // SAFETY: between fork and exec it makes one system call and touches nothing but its own copy of the set.
    unsafe {
        command.pre_exec(move || {
            signals::set_held(&before);
            Ok(())
        });
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Err(cannot_run(Path::new(command.get_program()), &error)),
    };
    let lost = |error: io::Error| Failure::failed(format_args!("lost the program: {error}"));
    // Not reaped before `wait`, so the number is its own until then.
    let process = Pid::from_child(&child);
    let end = pidfd_open(process, PidfdFlags::empty()).map_err(|error| lost(error.into()))?;
    let told = signals.until_ready(end.as_fd(), |number| {
        // SAFETY: kill only takes numbers. That the program has just ended is no error.
        unsafe { libc::kill(process.as_raw_nonzero().get(), number) };
    });
    told.map_err(lost)?;
    child.wait().map(status).map_err(lost)
}

fn cannot_run(program: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => MISSING,
        _ => NOT_EXECUTABLE,
    };
    let message = format!("{}: cannot be run: {error}", program.display());
    Failure::new(Status::Other(code), message)
}

/// As a shell tells it: the program's own code, or 128 and the signal that ended it.
fn status(ended: ExitStatus) -> Status {
    let code = ended.code();
    let code = code.or_else(|| ended.signal().map(|signal| 128 + signal));
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(0) => Status::Success,
        Some(code) => Status::Other(code),
        None => Status::Failed,
    }
}
