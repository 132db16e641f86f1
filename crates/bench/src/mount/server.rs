//! A server process: `perdure mount` of this program, with one transport.

use super::bed::Side;
use crate::error::BenchError;
use crate::programs::run;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The process; when dropped it unmounts and ends.
pub(super) struct Server {
    child: Child,
    program: PathBuf,
    mountpoint: PathBuf,
    is_mounted: bool,
    _output: Option<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts the server and waits until the pool is mounted over this side's transport.
    pub(super) fn start(
        program: &Path,
        pool: &Path,
        mountpoint: &Path,
        side: Side,
    ) -> Result<Server, BenchError> {
        let mut command = Command::new(program);
        command
            .args(["mount", "--foreground", "--volatile", "--read-cache", "off"])
            .args(side.flags())
            .args([pool, mountpoint])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let child = command.spawn().map_err(BenchError::io("start", program))?;
        let mut server = Server {
            child,
            program: program.to_owned(),
            mountpoint: mountpoint.to_owned(),
            is_mounted: false,
            _output: None,
        };
        server.wait_until_mounted()?;
        server.require(side)?;
        Ok(server)
    }

    fn wait_until_mounted(&mut self) -> Result<(), BenchError> {
        let mut line = String::new();
        let output = self.child.stdout.take().map(BufReader::new);
        let mut output =
            output.ok_or_else(|| BenchError::Child("perdure mount has no output".to_owned()))?;
        let read = output.read_line(&mut line);
        // Kept, because writing to a closed pipe ends a server.
        self._output = Some(output);
        match read {
            Ok(_) if line.starts_with("mounted ") => {
                self.is_mounted = true;
                Ok(())
            }
            _ => {
                let reason = "perdure mount did not mount the pool; its message is above";
                Err(BenchError::Child(reason.to_owned()))
            }
        }
    }

    /// Refuses a mount with another transport: its figures would compare nothing.
    fn require(&self, side: Side) -> Result<(), BenchError> {
        let mut command = Command::new(&self.program);
        command.arg("stat").arg(&self.mountpoint).arg("--json");
        let output = run("perdure stat", &mut command)?;
        let status: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| BenchError::program("perdure stat", error))?;
        let transport = status["server"]["transport"].as_str();
        let transport = transport.or(status["transport"].as_str());
        let transport = transport.unwrap_or("unknown");
        match transport == side.transport() {
            true => Ok(()),
            false => Err(BenchError::Unavailable(format!(
                "{} is mounted with transport {transport}, not {}; the server's message is above",
                self.mountpoint.display(),
                side.transport()
            ))),
        }
    }

    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Processor time of all threads of the server since it was started, user and system, in
    /// nanoseconds: /proc/PID/stat has the same sum in units of 10 ms.
    pub(super) fn processor_ns(&self) -> Result<u64, BenchError> {
        let failed = || BenchError::io("read the processor time of", &self.program);
        let mut clock = 0;
        let pid = Pid::from_child(&self.child).as_raw_nonzero().get();
        // SAFETY: the call writes to a variable of this function.
        let found = unsafe { libc::clock_getcpuclockid(pid, &mut clock) };
        if found != 0 {
            return Err(failed()(std::io::Error::from_raw_os_error(found)));
        }
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: as above.
        if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
            return Err(failed()(std::io::Error::last_os_error()));
        }
        Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Whether the process ends within the patience that users have with `perdure umount`.
    fn ends(&mut self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(10);
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Takes the mount away although files are open or the server is gone.
    fn detach(&self, reason: &str) {
        let mountpoint = self.mountpoint.display();
        eprintln!("perdure: {mountpoint} is detached: {reason}");
        let mut command = Command::new("umount");
        let _ = command.arg("-l").arg(&self.mountpoint).output();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            if self.is_mounted {
                self.detach(&format!("its server has ended by itself ({status})"));
            }
            return;
        }
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if self.ends() {
            return;
        }
        self.detach("it stays busy");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
