//! A mount's life: checks, mount, threads, signals, clean unmount.

mod companions;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs::FileSystem;
use fuse::{Filesystem, Options, Session};
use rustix::mount::MountFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use txn::Store;

use crate::attach::{self, AttachError, Attachment, Detach};
use crate::control::Temporary;
use crate::gate::Gate;
use crate::handler::{Handler, Shared};
use crate::mount_table;
use crate::mountpoint::{self, MountpointError};
use crate::transport::{self, Transport};
use companions::Companions;

/// How long a mount that is in use is left to its users after the first signal.
const GRACE: Duration = Duration::from_secs(3);
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// A forced unmount ends the session at once; longer means that it had no effect.
const FORCED_END: Duration = Duration::from_secs(5);

/// One of a processor's threads may wait for the kernel, which waits for another.
const STATIONS_MIN: usize = 2;

/// Descriptors that a server needs besides those of its threads, if few processes use files directly.
const DESCRIPTORS_BESIDE: u64 = 64;

/// After how long without a write a lease ends, if nobody says otherwise: much longer than the pauses of a program that is at work, and short enough that files which stay open for days do not keep room.
pub const LEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// As many threads as may wait for a disk at the same moment, unless the user sets another number.
pub const WAITING_THREADS: usize = 8;

/// What to mount and how.
#[derive(Debug, Clone)]
pub struct Mounting {
    /// The pool: shown as the source in the mount table, and the place of the control socket.
    pub pool: PathBuf,
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// Nothing can be changed through the mount. The file system must be mounted read-only too.
    pub read_only: bool,
    /// Threads besides those that `threads` stands for if it is 0: as many as may wait for a log's
    /// disk or a device at the same moment. A pool with a device has [`WAITING_THREADS`] at least.
    pub waiting_threads: usize,
    /// Threads that answer requests; 0 means one per core.
    pub threads: usize,
    /// Whether other users may enter, each with the permissions that modes give him. `None`: as root
    /// yes, otherwise no (`user_allow_other` in /etc/fuse.conf lets ordinary users say yes).
    pub allow_other: Option<bool>,
    /// What programs on the mount may not do: `NOSUID`, `NODEV`, `NOEXEC`.
    pub restrictions: MountFlags,
    /// Restrictions to leave out although the pool is not root's ([`Mounting::restrictions_of`]).
    pub lifted: MountFlags,
    /// Requests come over io_uring if that can be ([`fuse::check_io_uring`]).
    pub uring: bool,
    /// Whether processes may use files directly. What they get is judged by their user alone: not by security modules, nor by what of the mount they can see.
    pub direct: bool,
    /// Processes that write directly overwrite in place: a power cut may leave part of an overwrite. `false`: a write is all or nothing.
    pub in_place: bool,
    /// After how long without a write the lease of a process that writes a file directly ends by itself, at the latest after twice that; `None`: never.
    pub lease_timeout: Option<Duration>,
    /// The pool's durability class, for the status.
    pub class: String,
    /// That the mount was made for a program, for the status.
    pub temporary: Option<Temporary>,
}

impl Mounting {
    /// `pool` at `mountpoint`, everything else as most users want it.
    pub fn new(pool: impl Into<PathBuf>, mountpoint: impl Into<PathBuf>) -> Mounting {
        Mounting {
            pool: pool.into(),
            mountpoint: mountpoint.into(),
            read_only: false,
            waiting_threads: 0,
            threads: 0,
            allow_other: None,
            restrictions: MountFlags::empty(),
            lifted: MountFlags::empty(),
            uring: true,
            direct: true,
            in_place: false,
            lease_timeout: Some(LEASE_TIMEOUT),
            class: String::new(),
            temporary: None,
        }
    }

    /// Returns the restrictions of a mount whose pool has this owner. The owner can write any inode
    /// into the pool, so set-id programs and devices work only if root owns it, or by `lifted`.
    pub fn restrictions_of(&self, owner: u32) -> MountFlags {
        // The kernel restricts the mounts of ordinary users.
        match owner == 0 || !rustix::process::geteuid().is_root() {
            true => self.restrictions,
            false => self.restrictions | ((MountFlags::NOSUID | MountFlags::NODEV) - self.lifted),
        }
    }

    /// The same with the threads that this store needs.
    fn for_store(&self, store: &impl Store) -> Mounting {
        let mut mounting = self.clone();
        if store.device().is_some() {
            mounting.waiting_threads = mounting.waiting_threads.max(WAITING_THREADS);
        }
        mounting
    }

    pub(crate) fn options(&self) -> Options {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (threads, stations) = match self.threads {
            0 => (cores + self.waiting_threads, fuse::STATIONS_PER_PROCESSOR),
            threads => (threads, threads.div_ceil(cores).max(STATIONS_MIN)),
        };
        Options {
            threads,
            over_io_uring: self.uring && fuse::check_io_uring().is_ok(),
            stations,
        }
    }
}

/// Why a mount did not come to be or ended badly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The mount point cannot be used.
    #[error(transparent)]
    Mountpoint(#[from] MountpointError),
    /// The mount point lies in the pool.
    #[error("mount point {mountpoint} lies in the pool {pool}: choose a directory outside")]
    InsidePool {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// The pool.
        pool: PathBuf,
    },
    /// A path contains a NUL byte.
    #[error("the path {0:?} contains a NUL byte")]
    Unnameable(PathBuf),
    /// The kernel did not take the mount.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The kernel's first message was not understood.
    #[error("the FUSE connection could not be set up: {0}; kernel 5.4 or newer is needed")]
    Handshake(io::Error),
    /// Each thread takes a descriptor, and this process may not have so many.
    #[error(
        "{threads} threads are too many: each takes a file descriptor, and there is room for {room}; say --threads {room} or less, or raise `ulimit -n`"
    )]
    TooManyThreads {
        /// The threads asked for.
        threads: usize,
        /// How many there can be.
        room: u64,
    },
    /// A thread could not be started or signals not be caught.
    #[error("the server could not start: {0}")]
    Start(io::Error),
    /// The connection to the kernel broke.
    #[error("the FUSE connection broke: {0}; unmount, then mount again")]
    Session(io::Error),
    /// A request panicked. The pool was left as after a crash, which is safe.
    #[error(
        "the server failed by a bug and unmounted; the pool is safe and recovers at the next mount; please report the log"
    )]
    Failed,
    /// The mount is still in use and could not be ended by force.
    #[error("{0} is still in use and could not be ended; the pool recovers at the next mount")]
    StillBusy(PathBuf),
    /// The mount ended, but a thread of this process still works on the pool, which was not marked clean.
    #[error("unmounted, but a thread still works on the pool, which recovers at the next mount")]
    StillHeld,
}

/// Mounts `fs` and serves it until it is unmounted: by `umount` or `fusermount3 -u`, or by SIGTERM, SIGINT
/// or SIGHUP to this process. Then closes `fs` cleanly and returns.
///
/// `ready` is called once, when the mount can be used: the moment to tell a parent process. It
/// learns how requests come, as a part of a sentence.
///
/// This process must not map files of the mount: `munmap` would wait for the server while it holds the lock of the address
/// space that the server may need.
///
/// At a signal a mount that is in use gets 3 seconds (a second signal ends them at once); then it is taken out of the
/// tree after all dirty pages were written, and its users get errors.
///
/// # Errors
///
/// When nothing was mounted, `fs` was closed cleanly all the same.
pub fn serve<S: Store>(
    fs: FileSystem<S>,
    mounting: &Mounting,
    ready: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let mut signals = match Signals::new([SIGTERM, SIGINT, SIGHUP]) {
        Ok(signals) => signals,
        Err(error) => return Err(closing(fs, ServeError::Start(error))),
    };
    let handle = signals.handle();
    let running = spawn(fs, mounting)?;
    let stopper = running.stopper.clone();
    let watcher = std::thread::Builder::new().name("perdure-signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            tracing::info!(signal, mountpoint = %stopper.mountpoint.display(), "a signal asks to unmount");
            stopper.stop(&mut || signals.pending().next().is_some());
        }
    });
    let watcher = match watcher {
        Ok(watcher) => watcher,
        Err(error) => {
            running.unmount()?;
            return Err(ServeError::Start(error));
        }
    };
    let started = running.wait_for_threads();
    if started.is_ok() {
        let transport = running.shared.as_ref().map(|shared| shared.transport.get());
        let transport = transport.map(|found| transport::describe(found, mounting.uring));
        ready(&transport.unwrap_or_default());
    }
    let outcome = running.wait();
    handle.close();
    // A panic of that thread was logged and cannot matter any more.
    let _ = watcher.join();
    started.and(outcome)
}

/// Mounts `fs` and serves it on threads of its own until the returned handle is used or dropped.
///
/// # Errors
///
/// When nothing was mounted, `fs` was closed cleanly all the same.
pub fn spawn<S: Store>(fs: FileSystem<S>, mounting: &Mounting) -> Result<Running<S>, ServeError> {
    let place = match place_for(mounting) {
        Ok(place) => place,
        Err(error) => return Err(closing(fs, error)),
    };
    let mounting = &mounting.for_store(fs.store());
    let stopper = Stopper {
        mountpoint: place,
        device_minor: None,
        ended: Arc::default(),
    };
    let failing = stopper.clone();
    let mut shared = Shared::new(fs, Box::new(move || failing.detach_later()));
    let options = mounting.options();
    if !options.over_io_uring && mounting.threads == 0 && mounting.waiting_threads > 0 {
        shared.gate = Arc::new(Gate::for_cores());
    }
    if let Some(logger) = shared.fs.store().logger() {
        logger.watch_waits(shared.gate.clone());
    }
    if let Some(device) = shared.fs.store().device() {
        device.watch_waits(shared.gate.clone());
    }
    let shared = Arc::new(shared);
    let (session, stopper) = match begin(&shared, mounting, options, stopper) {
        Ok(begun) => begun,
        Err(error) => return Err(closed(shared, error)),
    };
    // Before the first request is answered: a process that finds the mount finds all of it.
    let companions = Companions::start(&shared, mounting, &stopper, &session.notifier());
    match run(session, &stopper) {
        Ok(session) => {
            tracing::info!(pool = %mounting.pool.display(), mountpoint = %stopper.mountpoint.display(), "mounted");
            Ok(Running {
                shared: Some(shared),
                session: Some(session),
                stopper,
                companions: Some(companions),
            })
        }
        Err(error) => {
            stopper.stop(&mut || true);
            companions.end(&shared);
            Err(closed(shared, error))
        }
    }
}

/// Closes a file system that nothing else uses any more, and passes the reason on.
fn closed<S: Store>(shared: Arc<Shared<S>>, reason: ServeError) -> ServeError {
    match Arc::into_inner(shared) {
        Some(shared) => closing(shared.into_file_system(), reason),
        None => reason,
    }
}

/// The checked mount point.
pub(crate) fn place_for(mounting: &Mounting) -> Result<PathBuf, ServeError> {
    for path in [&mounting.pool, &mounting.mountpoint] {
        if !attach::is_nameable(path) {
            return Err(ServeError::Unnameable(path.clone()));
        }
    }
    let place = mountpoint::prepare(&mounting.mountpoint)?;
    if mountpoint::is_inside(&place, &mounting.pool) {
        return Err(ServeError::InsidePool {
            mountpoint: mounting.mountpoint.clone(),
            pool: mounting.pool.clone(),
        });
    }
    Ok(place)
}

/// Mounts and shakes hands. No request is answered yet.
fn begin<S: Store>(
    shared: &Arc<Shared<S>>,
    mounting: &Mounting,
    options: Options,
    mut stopper: Stopper,
) -> Result<(Session<Handler<S>>, Stopper), ServeError> {
    let handler = Handler::new(shared.clone());
    let restrictions = mounting.restrictions_of(pool_owner(shared.fs.store(), &mounting.pool));
    let session = connect(
        handler,
        mounting,
        options,
        restrictions,
        &stopper.mountpoint,
    )?;
    shared.transport.set(match session.is_over_io_uring() {
        true => Transport::IoUring(options.stations),
        false => Transport::Classic(options.threads),
    });
    stopper.device_minor = mount_table::topmost(&stopper.mountpoint)
        .ok()
        .flatten()
        .map(|entry| entry.device_minor);
    Ok((session, stopper))
}

/// Answers requests on threads of the session's own.
pub(crate) fn run<F: Filesystem>(
    session: Session<F>,
    stopper: &Stopper,
) -> Result<JoinHandle<io::Result<()>>, ServeError> {
    let (ended, failing) = (stopper.ended.clone(), stopper.clone());
    std::thread::Builder::new()
        .name("perdure-session".to_owned())
        .spawn(move || {
            let outcome = session.run(|| failing.detach_later());
            ended.store(true, std::sync::atomic::Ordering::Release);
            outcome
        })
        .map_err(ServeError::Start)
}

/// The user that can write a pool's files past the mount; root for memory without files.
fn pool_owner(store: &impl Store, pool: &Path) -> u32 {
    match store.directory() {
        Some(directory) => directory.owner(),
        None => std::fs::metadata(pool).map_or(0, |device| device.uid()),
    }
}

/// Mounts and shakes hands with the kernel. Leaves no mount behind when it fails.
pub(crate) fn connect<F: Filesystem>(
    filesystem: F,
    mounting: &Mounting,
    options: Options,
    restrictions: MountFlags,
    place: &Path,
) -> Result<Session<F>, ServeError> {
    let allow_other = mounting
        .allow_other
        .unwrap_or_else(|| rustix::process::geteuid().is_root());
    make_room(options.threads)?;
    let device = attach::attach(&Attachment {
        source: &mounting.pool,
        mountpoint: place,
        read_only: mounting.read_only,
        allow_other,
        restrictions,
    })?;
    Session::new(filesystem, device, options).map_err(|error| {
        if let Err(error) = attach::detach(place, Detach::Lazy) {
            tracing::error!(mountpoint = %place.display(), %error, "a mount that failed is left behind");
        }
        ServeError::Handshake(error)
    })
}

/// Lets this process open as many files besides the threads' as before.
fn make_room(threads: usize) -> Result<(), ServeError> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.current.map(|current| current + threads as u64);
    if let (Some(wanted), Some(maximum)) = (wanted, limit.maximum) {
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let room = maximum.saturating_sub(open as u64 + DESCRIPTORS_BESIDE);
        if threads as u64 > room {
            return Err(ServeError::TooManyThreads { threads, room });
        }
        let current = Some(wanted.min(maximum));
        setrlimit(Resource::Nofile, Rlimit { current, ..limit })
            .map_err(|error| ServeError::Start(error.into()))?;
    }
    Ok(())
}

/// Closes a file system that was not mounted, and passes the reason on.
fn closing<S: Store>(fs: FileSystem<S>, reason: ServeError) -> ServeError {
    fs.unmount();
    reason
}

/// A mount that is being served. Dropping it unmounts by force and closes the pool.
pub struct Running<S: Store> {
    shared: Option<Arc<Shared<S>>>,
    session: Option<JoinHandle<io::Result<()>>>,
    stopper: Stopper,
    companions: Option<Companions>,
}

impl<S: Store> Running<S> {
    /// The canonical mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.stopper.mountpoint
    }

    /// Waits until requests are answered: all threads have their descriptors then. Leaves no mount behind when it fails.
    fn wait_for_threads(&self) -> Result<(), ServeError> {
        let place = self.mountpoint();
        rustix::fs::statfs(place).map(drop).map_err(|error| {
            if let Err(error) = attach::detach(place, Detach::Lazy)
                && !is_gone(&error)
            {
                tracing::error!(mountpoint = %place.display(), %error, "a mount that failed is left behind");
            }
            ServeError::Start(error.into())
        })
    }

    /// Waits until somebody unmounts, then closes the pool.
    ///
    /// # Errors
    ///
    /// The connection broke, a request panicked, or the pool could not be closed.
    pub fn wait(mut self) -> Result<(), ServeError> {
        self.finish()
    }

    /// Unmounts, by force if it is still in use after 3 seconds, and closes the pool.
    ///
    /// # Errors
    ///
    /// As [`wait`](Running::wait); and the mount could not be ended.
    pub fn unmount(mut self) -> Result<(), ServeError> {
        self.stopper.stop(&mut || false);
        self.finish_if_ended()
    }

    fn finish_if_ended(&mut self) -> Result<(), ServeError> {
        if self.stopper.has_ended(FORCED_END) {
            return self.finish();
        }
        // The session's threads stay, with their share of the file system, until the process ends.
        self.session = None;
        Err(ServeError::StillBusy(self.stopper.mountpoint.clone()))
    }

    fn finish(&mut self) -> Result<(), ServeError> {
        let session = self.session.take().map(JoinHandle::join);
        if let (Some(shared), Some(companions)) = (&self.shared, self.companions.take()) {
            companions.end(shared);
        }
        let shared = self.shared.take().and_then(Arc::into_inner);
        let failed = shared.as_ref().is_some_and(Shared::has_failed);
        if failed {
            return Err(ServeError::Failed);
        }
        let Some(shared) = shared else {
            return Err(ServeError::StillHeld);
        };
        shared.into_file_system().unmount();
        match session {
            Some(Ok(Err(error))) => Err(ServeError::Session(error)),
            Some(Err(_)) => Err(ServeError::Failed),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }
}

impl<S: Store> Drop for Running<S> {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.stopper.stop(&mut || true);
            if let Err(error) = self.finish_if_ended() {
                tracing::error!("{error}");
            }
        }
    }
}

/// Ends a mount from any thread.
#[derive(Clone)]
pub(crate) struct Stopper {
    pub(crate) mountpoint: PathBuf,
    /// Names the FUSE connection.
    pub(crate) device_minor: Option<u32>,
    /// Set when the session's threads are gone.
    pub(crate) ended: Arc<std::sync::atomic::AtomicBool>,
}

impl Stopper {
    /// Unmounts: politely while the grace lasts and `is_urgent` does not say otherwise, then by force.
    pub(crate) fn stop(&self, is_urgent: &mut dyn FnMut() -> bool) {
        let deadline = Instant::now() + GRACE;
        loop {
            if self.ended.load(std::sync::atomic::Ordering::Acquire) {
                return;
            }
            match attach::detach(&self.mountpoint, Detach::IfIdle) {
                Ok(()) => return,
                Err(error) if is_gone(&error) => break,
                Err(error) if is_urgent() || Instant::now() >= deadline => {
                    tracing::warn!(mountpoint = %self.mountpoint.display(), %error, "still in use; unmounting by force");
                    break;
                }
                Err(_) => std::thread::sleep(RETRY_EVERY),
            }
        }
        self.force();
    }

    /// Writes dirty pages back, then takes the mount out of the tree and ends its connection.
    fn force(&self) {
        if let Ok(root) = std::fs::File::open(&self.mountpoint) {
            // Best effort: what cannot be written now would not be written later either.
            let _ = rustix::fs::syncfs(&root);
        }
        if let Err(error) = attach::detach(&self.mountpoint, Detach::Forced)
            && !is_gone(&error)
        {
            tracing::error!(mountpoint = %self.mountpoint.display(), %error, "cannot unmount");
        }
        if let Some(minor) = self.device_minor
            && !self.has_ended(RETRY_EVERY)
            && let Err(error) = attach::abort_connection(minor)
        {
            tracing::debug!(%error, "the connection could not be aborted");
        }
    }

    /// Takes the mount away after a failure, on a thread of its own: the caller serves requests.
    pub(crate) fn detach_later(&self) {
        let stopper = self.clone();
        let spawned = std::thread::Builder::new().name("perdure-stop".to_owned()).spawn(move || {
            if let Err(error) = attach::detach(&stopper.mountpoint, Detach::Forced) {
                tracing::error!(mountpoint = %stopper.mountpoint.display(), %error, "cannot unmount");
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to unmount");
        }
    }

    /// Waits for the session's end.
    pub(crate) fn has_ended(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            if self.ended.load(std::sync::atomic::Ordering::Acquire) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Not mounted there any more: somebody else unmounted it.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT))
}
