//! How a command ends: exit codes and messages.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use txn::{FormatError, OpenError};

/// Exit codes of all commands but `fsck`, which has those of fsck(8). Scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done.
    Success,
    /// The operation failed; the message says why.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// The pool is missing, none, of another version, or damaged.
    BadPool,
    /// The pool or the mount point is in use.
    Busy,
    /// Whoever read the output went away.
    ClosedPipe,
    /// Another code, for commands that follow a standard.
    Other(u8),
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(match status {
            Status::Success => 0,
            Status::Failed => 1,
            Status::Usage => 2,
            Status::BadPool => 3,
            Status::Busy => 4,
            // As if SIGPIPE had ended the process.
            Status::ClosedPipe => 128 + 13,
            Status::Other(code) => code,
        })
    }
}

/// Why a command failed: the exit code and a message that names the object and the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Display) -> Failure {
        Failure {
            status,
            message: message.to_string(),
        }
    }

    /// The operation failed for a reason of the system.
    pub(crate) fn failed(message: impl Display) -> Failure {
        Failure::new(Status::Failed, message)
    }

    /// An operation of the operating system on `path` failed.
    pub(crate) fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::failed(format_args!("{}: cannot {action}: {error}", path.display()))
    }

    /// The same failure with another exit code.
    pub(crate) fn with_status(self, status: Status) -> Failure {
        Failure { status, ..self }
    }

    /// Prints `perdure: COMMAND: MESSAGE`.
    pub(crate) fn report(&self, command: &str) {
        if self.status != Status::ClosedPipe && !self.message.is_empty() {
            crate::output::complain(format_args!("{command}: {}", self.message));
        }
    }
}

/// Failing to print is failing, except when the reader has gone: then the command ends quietly.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(Status::ClosedPipe, ""),
            _ => Failure::failed(format_args!("cannot write the output: {error}")),
        }
    }
}

impl From<perdure::Error> for Failure {
    fn from(error: perdure::Error) -> Failure {
        let status = match &error {
            perdure::Error::Open { pool, source } => {
                let status = status_of_open(source);
                return Failure::new(status, with_remedy(pool, source, &error));
            }
            perdure::Error::Create { source, .. } => status_of_format(source),
            perdure::Error::PoolExists { .. } => {
                let remedy = "remove it, or say --force to replace it and lose what is in it";
                let message = error.to_string();
                let (fact, _) = message.split_once(';').unwrap_or((&message, ""));
                return Failure::failed(format_args!("{fact}; {remedy}"));
            }
            _ => Status::Failed,
        };
        Failure::new(status, error)
    }
}

/// What to do about a pool that cannot be opened, where the library cannot know.
fn with_remedy(pool: &Path, source: &OpenError, error: &perdure::Error) -> String {
    match source {
        OpenError::NotAPool { .. } => match server::pool_mounted_at(pool) {
            Ok(Some(mounted)) => format!(
                "{}: is where {} is mounted; give that name",
                pool.display(),
                mounted.display()
            ),
            _ => format!("{error}; give the name that `perdure mkfs` was given"),
        },
        OpenError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            format!("{error}; only root and the user who made the pool can open it")
        }
        _ => error.to_string(),
    }
}

/// The exit code for a pool that cannot be opened.
fn status_of_open(error: &OpenError) -> Status {
    match error {
        OpenError::InUse { .. } | OpenError::SegmentsHad { .. } | OpenError::MemoryInUse { .. } => {
            Status::Busy
        }
        OpenError::Map(pmem::MapError::NotPersistent { .. }) | OpenError::Io { .. } => {
            Status::Failed
        }
        _ => Status::BadPool,
    }
}

/// A pool that cannot be opened, named in the message whatever the reason says.
pub(crate) fn failure_of_open(pool: &Path, source: OpenError) -> Failure {
    perdure::Error::Open {
        pool: pool.to_owned(),
        source,
    }
    .into()
}

fn status_of_format(error: &FormatError) -> Status {
    match error {
        FormatError::Parameter { .. } => Status::Usage,
        _ => Status::Failed,
    }
}
