//! Processes that an experiment starts by running its own program again; and one of them, which mounts a pool and idles, so that its memory
//! can be looked at: nothing of the experiment is in it.

use crate::direct::program;
use crate::error::BenchError;
use crate::log::recovery;
use crate::mount::{cold, worker};
use fs::{FileSystem, MountOptions};
use server::Mounting;
use std::error::Error;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use txn::{Damage, Loading, LogOptions, Mode, PmemStore, PoolState};

/// First argument of the process; nothing that a user would type.
const ARGUMENT: &str = "--perdure-bench-idle-mount";
/// One more argument of it, if processes are to overwrite in place.
const IN_PLACE: &str = "in-place";
pub(crate) const READY: &str = "ready";

/// To be called first in `main` of every program that runs experiments: this process may be one that an experiment started.
///
/// `None`: it is not, go on. Otherwise the process has done its work and should end with this code.
#[must_use]
pub fn serve_child() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let kind = arguments.next()?;
    let done = if kind == ARGUMENT {
        let (pool, mountpoint) = (arguments.next()?, arguments.next()?);
        idle(pool, mountpoint, arguments.next().is_some())
    } else if kind == program::ARGUMENT {
        program::serve(arguments.collect())
    } else if kind == recovery::ARGUMENT {
        recovery::serve(arguments.collect())
    } else if kind == worker::ARGUMENT {
        worker::serve(arguments.collect())
    } else if kind == cold::ARGUMENT {
        cold::serve(&arguments.collect::<Vec<_>>())
    } else {
        return None;
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// Mounts, tells so, and unmounts when stdin ends.
fn idle(pool: OsString, mountpoint: OsString, in_place: bool) -> Result<(), Box<dyn Error>> {
    // What is measured is not to wait for the image.
    let log = LogOptions {
        loading: Loading::First,
        ..LogOptions::default()
    };
    let path = Path::new(&pool);
    let store = PmemStore::open_with(path, Mode::ReadWrite, true, Damage::Refuse, log)?;
    let waiting_threads = store.logger().map_or(0, |_| server::WAITING_THREADS);
    let files = FileSystem::mount(store, MountOptions::default())?;
    let mounting = Mounting {
        in_place,
        waiting_threads,
        ..Mounting::new(pool, mountpoint)
    };
    let running = server::spawn(files, &mounting)?;
    println!("{READY}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    running.unmount()?;
    Ok(())
}

/// The process, seen from the experiment.
pub(crate) struct IdleMount {
    child: Child,
    pool: PathBuf,
    mountpoint: PathBuf,
    _output: BufReader<ChildStdout>,
}

impl IdleMount {
    /// Starts this program again and waits until the pool is mounted; processes that write directly overwrite `in_place`, or not.
    pub(crate) fn start(
        pool: &Path,
        mountpoint: &Path,
        in_place: bool,
    ) -> Result<IdleMount, BenchError> {
        let program = Path::new("/proc/self/exe");
        let mut child = Command::new(program)
            .arg(ARGUMENT)
            .args([pool, mountpoint])
            .args(in_place.then_some(IN_PLACE))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::io("start", program))?;
        let output = child
            .stdout
            .take()
            .ok_or_else(|| BenchError::Child("it has no output".to_owned()))?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        let read = output.read_line(&mut line);
        let idle = IdleMount {
            child,
            pool: pool.to_owned(),
            mountpoint: mountpoint.to_owned(),
            _output: output,
        };
        match read {
            Ok(_) if line.trim_end() == READY => Ok(idle),
            _ => {
                let reason = "it did not mount the pool; its own message, if it has one, is above";
                Err(BenchError::Child(reason.to_owned()))
            }
        }
    }

    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Resident bytes of the process that are not the mapping of the pool: heap, stacks, code.
    pub(crate) fn resident_bytes_beyond_mapping(&self) -> Result<u64, BenchError> {
        let path = PathBuf::from(format!("/proc/{}/smaps", self.child.id()));
        let text = std::fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
        Ok(resident_bytes(
            &text,
            self.pool.to_str().unwrap_or_default(),
        ))
    }

    /// Unmounts and waits for the end.
    pub(crate) fn stop(mut self) -> Result<(), BenchError> {
        drop(self.child.stdin.take());
        let status = self
            .child
            .wait()
            .map_err(|error| BenchError::Child(error.to_string()))?;
        if status.success() {
            Ok(())
        } else {
            Err(BenchError::Child(status.to_string()))
        }
    }
}

impl Drop for IdleMount {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // After `stop` this returns what it returned then.
        let _ = self.child.wait();
    }
}

/// Sum of the `Rss` lines of all mappings but those of files in `pool`.
fn resident_bytes(smaps: &str, pool: &str) -> u64 {
    let (mut is_pool, mut kibibytes) = (false, 0);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some(rss) = line.strip_prefix("Rss:") {
            let number = rss.trim().trim_end_matches(" kB");
            kibibytes += if is_pool {
                0
            } else {
                number.parse().unwrap_or(0)
            };
        } else if !first.ends_with(':') {
            // A mapping's head: addresses, protection, offset, device, inode, path.
            is_pool = line.contains(pool);
        }
    }
    kibibytes * 1024
}

#[cfg(test)]
mod tests {
    use super::resident_bytes;

    #[test]
    fn mappings_of_the_pool_do_not_count() {
        let smaps = "\
55d0-55d1 r--p 00000000 fe:00 12 /usr/bin/perdure
Size:                100 kB
Rss:                  60 kB
VmFlags: rd mr mw me sd
7f00-7f10 rw-s 00000000 00:19 7 /dev/shm/b/pool/segment-0000
Rss:               16384 kB
Pss:               16384 kB
7f20-7f30 rw-p 00000000 00:00 0 [heap]
Rss:                   4 kB
";
        assert_eq!(resident_bytes(smaps, "/dev/shm/b/pool"), 64 << 10);
    }
}
