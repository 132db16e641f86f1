//! Runs the built command and looks at what comes out.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod scene;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A directory in shared memory for one test.
pub(crate) fn place() -> TempDir {
    let shared_memory = Path::new("/dev/shm");
    let parent = if shared_memory.is_dir() {
        shared_memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempdir_in(parent).expect("a temporary directory")
}

/// The command, with an environment that does not depend on who runs the test.
pub(crate) fn perdure() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdure"));
    command
        .env_remove("RUST_LOG")
        .env("NO_COLOR", "1")
        .env("LC_ALL", "C");
    command
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs the command to its end.
pub(crate) fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Outcome {
    perdure()
        .args(arguments)
        .output()
        .expect("the command starts")
        .into()
}

/// Runs the command and expects success.
pub(crate) fn succeed<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Outcome {
    let outcome = run(arguments);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    outcome
}

/// A small volatile pool: 16 segments of 1 MiB.
pub(crate) fn make_pool(directory: &Path) -> PathBuf {
    let pool = directory.join("pool");
    let path = pool.to_str().expect("a path of text");
    succeed([
        "mkfs",
        path,
        "--size",
        "17M",
        "--segment-size",
        "1M",
        "--journals",
        "2",
        "--volatile",
    ]);
    pool
}

/// `POOL:/path`
pub(crate) fn inside(pool: &Path, path: &str) -> String {
    format!("{}:{path}", pool.display())
}
