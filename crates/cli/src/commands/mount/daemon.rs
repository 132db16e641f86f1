//! The background server: `perdure mount` starts itself once more, and waits until that process says that the mount can
//! be used.
//!
//! Its stdout and stderr are pipes to the waiting parent. On success the server prints its line to stdout and lets go
//! of both; on failure it prints the reason to stderr and ends, and the parent passes text and exit code on. A new
//! process instead of a fork: no thread, lock or open file of the parent comes along.

use crate::arguments::background::Background;
use crate::failure::{Failure, Status};
use crate::output;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Starts the server with these options and waits until the mount can be used. Returns the server's line; if it fails, it has said why.
pub(super) fn start(
    pool: &Path,
    mountpoint: &Path,
    options: Vec<OsString>,
    background: Background,
) -> Result<String, Failure> {
    let mut command = Command::new(
        std::env::current_exe()
            .map_err(|error| Failure::failed(format_args!("cannot find this program: {error}")))?,
    );
    command.arg("mount").arg(background.word()).args(options);
    command.arg("--").arg(pool).arg(mountpoint);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command
        .spawn()
        .map_err(|error| Failure::failed(format_args!("cannot start the server: {error}")))?;
    wait_until_ready(child)
}

fn wait_until_ready(mut child: Child) -> Result<String, Failure> {
    let mut messages = child.stderr.take();
    // Both at once: a server with much to say must not wait for us while we wait for it.
    let relay = thread::spawn(move || {
        messages
            .as_mut()
            .map(|from| io::copy(from, &mut io::stderr()))
    });
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout
            .read_to_string(&mut line)
            .map_err(|error| Failure::failed(format_args!("lost the server: {error}")))?;
    }
    // The text is on stderr already, or the reader of stderr has gone.
    let _ = relay.join();
    if line.is_empty() {
        let ended = child
            .wait()
            .map_err(|error| Failure::failed(format_args!("lost the server: {error}")))?;
        let code = ended.code().and_then(|code| u8::try_from(code).ok());
        return match code {
            Some(code) => Err(Failure::new(Status::Other(code), "")),
            None => Err(Failure::failed(format_args!(
                "the server was ended before it was ready: {ended}"
            ))),
        };
    }
    Ok(line)
}

/// In the server: no terminal's signals, none that the caller holds back, and no directory kept busy.
pub(super) fn leave_session() -> Result<(), Failure> {
    crate::signals::release_all();
    // Fails only for the leader of a process group, which a child that was just started is not.
    rustix::process::setsid()
        .map_err(|error| Failure::failed(format_args!("cannot leave the session: {error}")))?;
    std::env::set_current_dir("/").map_err(Failure::io("enter", Path::new("/")))
}

/// In the server: tells the waiting parent that the mount can be used, then lets go of its pipes.
pub(super) fn report_ready(line: &str, log: Option<File>) -> Result<(), Failure> {
    // A parent that was killed meanwhile is no reason to end the mount.
    let _ = output::print(line);
    let null = File::options()
        .write(true)
        .open("/dev/null")
        .map_err(Failure::io("open", Path::new("/dev/null")))?;
    log_to(log.as_ref().unwrap_or(&null))?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| cannot_leave(error.into()))
}

/// From now on what is logged goes there.
pub(super) fn log_to(file: &File) -> Result<(), Failure> {
    rustix::stdio::dup2_stderr(file).map_err(|error| cannot_leave(error.into()))
}

fn cannot_leave(error: io::Error) -> Failure {
    Failure::failed(format_args!("cannot leave the terminal: {error}"))
}

/// Opens the log of a server for appending.
pub(super) fn open_log(path: &Path) -> Result<File, Failure> {
    output::report_file(path, true).map_err(Failure::io("open the log", path))
}
