//! Mounts for tests: real ones, taken away again whatever happens, and ended by force when a test hangs.

#![allow(dead_code, reason = "each test crate uses a part")]

pub(crate) mod direct;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use fs::{FileSystem, MountOptions};
use perdure_server::{Mounting, Running};
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore};

/// A hanging test is freed after this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pool on shared memory and a mount point, without a mount yet.
pub(crate) struct Place {
    directory: TempDir,
    watchdog: Option<Sender<()>>,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place::new_on(Path::new("/dev/shm"))
    }

    /// On the disk of the build directory; `None` if that is none.
    pub(crate) fn new_on_disk() -> Option<Place> {
        let place = Place::new_on(Path::new(env!("CARGO_TARGET_TMPDIR")));
        if txn::pool::needs_log(&place.pool()) {
            return Some(place);
        }
        eprintln!("skipped: the build directory is not on an ordinary disk");
        None
    }

    pub(crate) fn new_on(directory: &Path) -> Place {
        let directory = TempDir::new_in(directory).expect("a temporary directory");
        std::fs::create_dir(directory.path().join("mnt")).expect("a mount point");
        let mut place = Place {
            directory,
            watchdog: None,
        };
        let mountpoint = place.mountpoint();
        let (alive, ended) = channel::<()>();
        place.watchdog = Some(alive);
        std::thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("test hangs: taking {} away", mountpoint.display());
                force_unmount(&mountpoint);
                std::thread::sleep(Duration::from_secs(10));
                eprintln!("test still hangs: ending the process");
                std::process::abort();
            }
        });
        place
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    pub(crate) fn format(&self) {
        self.format_of(128 << 20);
    }

    /// Makes the pool, of so many bytes.
    pub(crate) fn format_of(&self, size_bytes: u64) {
        let options = FormatOptions {
            size_bytes,
            segment_bytes: 4 << 20,
            volatile: true,
            ..FormatOptions::default()
        };
        fs::mkfs(&self.pool(), &options, (0, 0)).expect("mkfs");
    }

    /// Makes a small pool of class `log`.
    pub(crate) fn format_logged(&self) {
        let options = FormatOptions {
            size_bytes: 32 << 20,
            segment_bytes: 1 << 20,
            log: true,
            log_bytes: 8 << 20,
            ..FormatOptions::default()
        };
        fs::mkfs(&self.pool(), &options, (0, 0)).expect("mkfs");
    }

    pub(crate) fn open(&self, read_only: bool) -> FileSystem<PmemStore> {
        self.open_with(MountOptions {
            read_only,
            ..MountOptions::default()
        })
    }

    pub(crate) fn open_with(&self, options: MountOptions) -> FileSystem<PmemStore> {
        let mode = if options.read_only {
            Mode::ReadOnly
        } else {
            Mode::ReadWrite
        };
        let store = PmemStore::open(&self.pool(), mode, true).expect("open the pool");
        FileSystem::mount(store, options).expect("mount the file system")
    }

    pub(crate) fn mounting(&self) -> Mounting {
        Mounting {
            class: "volatile".to_owned(),
            threads: 4,
            ..Mounting::new(self.pool(), self.mountpoint())
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        force_unmount(&self.mountpoint());
    }
}

/// Takes a mount away from a user who may hang in it.
pub(crate) fn force_unmount(mountpoint: &Path) {
    use rustix::mount::UnmountFlags;
    let flags = UnmountFlags::DETACH | UnmountFlags::FORCE;
    while rustix::mount::unmount(mountpoint, flags).is_ok() {}
}

/// A pool mounted in this process.
pub(crate) struct Mounted {
    // Dropped first: the mount ends before its directory goes.
    pub(crate) running: Option<Running<PmemStore>>,
    pub(crate) place: Place,
}

impl Mounted {
    pub(crate) fn new() -> Mounted {
        let place = Place::new();
        place.format();
        Mounted::at(place)
    }

    pub(crate) fn at(place: Place) -> Mounted {
        Mounted::with(place, MountOptions::default())
    }

    pub(crate) fn with(place: Place, options: MountOptions) -> Mounted {
        let mounting = place.mounting();
        Mounted::as_wanted(place, options, &mounting)
    }

    pub(crate) fn as_wanted(place: Place, options: MountOptions, mounting: &Mounting) -> Mounted {
        let files = place.open_with(options);
        let running = perdure_server::spawn(files, mounting).expect("mount");
        Mounted {
            running: Some(running),
            place,
        }
    }

    /// A path below the mount point.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.mountpoint().join(name)
    }

    /// Unmounts cleanly and mounts again.
    pub(crate) fn remount(mut self) -> Mounted {
        self.running
            .take()
            .expect("mounted")
            .unmount()
            .expect("unmount");
        let Mounted { place, .. } = self;
        Mounted::at(place)
    }
}

/// A pool mounted by another process: for tests that map files. A process that serves a mount must not map its files: `munmap`
/// holds the lock of the address space while it waits for the server, which may need that lock.
pub(crate) struct Remote {
    server: ServerProcess,
    place: Place,
}

impl Remote {
    pub(crate) fn new() -> Remote {
        let place = Place::new();
        Remote {
            server: ServerProcess::start(&place),
            place,
        }
    }

    /// A path below the mount point.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.mountpoint().join(name)
    }

    /// Unmounts cleanly and mounts again.
    pub(crate) fn remount(mut self) -> Remote {
        self.server.signal(rustix::process::Signal::TERM);
        assert_eq!(self.server.line(), "clean");
        self.server.wait();
        self.server = ServerProcess::start(&self.place);
        self
    }
}

/// A server in a process of its own.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) output: BufReader<std::process::ChildStdout>,
}

impl ServerProcess {
    /// Starts the example `serve` and waits until it is ready.
    pub(crate) fn start(place: &Place) -> ServerProcess {
        let mut server = ServerProcess::launch(place);
        assert_eq!(server.line(), "ready");
        server
    }

    pub(crate) fn launch(place: &Place) -> ServerProcess {
        let mut child = Command::new(example("serve"))
            .args([place.pool(), place.mountpoint()])
            .arg("128")
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the server");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        ServerProcess { child, output }
    }

    /// The next line of its output; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("its output");
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("signal the server");
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().expect("wait for the server") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An example of this package, built by the same `cargo test`.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("target directory");
    profile.join("examples").join(name)
}

/// Runs a shell script as `user` (a number), which must end well.
pub(crate) fn run_as(user: u32, script: &str) -> bool {
    use std::os::unix::process::CommandExt;
    Command::new("sh")
        .arg("-c")
        .arg(script)
        .uid(user)
        .gid(user)
        .status()
        .expect("run a shell")
        .success()
}

/// Whether something is mounted at `path`.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("mount table");
    let path = path.to_str().expect("a plain path");
    table
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(path))
}
