//! Direct access: the server's side (`docs/DIRECT.md`).
//!
//! A process that has opened a file through the mount finds the server's socket by an `ioctl`, connects, and passes the descriptor. It gets the segments that it may map, a map of the file's blocks, and for
//! writing a lease. Each process is served by a thread of its own.
//!
//! * [`registry`]: which files are attached, for the requests that come through the kernel.
//! * `reading`, `leased`: an attachment of either kind, and how it ends.
//! * `mapped`: processes that have blocks of a file in their program's memory, and how they give them back.
//! * `memory`: what processes see of it.
//! * `dropper`, `drops`: how the kernel drops what it has of a file, and what it may have read meanwhile.
//! * `accounts`: what each user has of the server; `patience`: how long others wait for a process.
//! * `closing`: how what others have sent is closed.
//! * `makers`: whose next file is expected; `awake`: whether it is waited for without sleeping.
//! * `profile`, `counts`: what users are shown of each process, and of all.
//! * `door`: segments as processes get them.
//! * `session`: the conversation with one process; `sessions`: who may have one.

mod accounts;
mod awake;
mod closing;
mod counts;
mod door;
mod dropper;
mod drops;
mod leased;
mod makers;
mod mapped;
mod memory;
mod patience;
mod profile;
mod reading;
mod registry;
mod sender;
mod session;
mod sessions;

pub(crate) use dropper::End;
use registry::Manner;
pub(crate) use registry::Registry;

use crate::Mounting;
use crate::handler::Shared;
use accounts::{Accounts, Limits};
use closing::Rejected;
use door::Door;
use dropper::Dropper;
use fs::FileSystem;
use fs::lease::LeaseSize;
use fuse::Notifier;
use makers::Bell;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use scatter::SegmentNumber;
use session::Session;
use sessions::Sessions;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use txn::descriptors::DescriptorRoom;
use txn::sharing::{User, Users};
use txn::{Geometry, Mode, PoolDirectory, Store};

/// What a lease lets its holder do before the server folds: 8,192 records and 2 MiB of new blocks.
const LEASE_SIZE: LeaseSize = LeaseSize {
    ring_blocks: 128,
    spare_blocks: 512,
};

/// The same for a process that expects to write little: 64 records and 128 KiB. Made and ended in a fraction of the time; who needs more asks for another one.
const LEASE_SIZE_SMALL: LeaseSize = LeaseSize {
    ring_blocks: 1,
    spare_blocks: 32,
};

/// Files that processes may have attached, all together: each is a mapping of the server's, of which the kernel allows 65,530, and a descriptor.
const ATTACHMENTS: u32 = 16_384;
/// So many even where the limit of open files cannot be raised.
const ATTACHMENTS_LEAST: u32 = 256;
/// What conversations need beside them: socket, process, its files, bells, and what is just on its way.
const DESCRIPTORS_OF_ALL: u32 = sessions::PLACES as u32 * 16;
/// What processes can send beside one message each, until it is closed.
const STRANGE: u32 = (sessions::PLACES * sender::BESIDE_MOST) as u32;
/// What the map of attached files may take, on top of four times what a map of the whole pool does: files with holes have larger ones than their blocks would need.
const MAP_BYTES_LEAST: u64 = 128 << 20;
/// What nobody else gets because processes do not give it back, at least; of a large pool an eighth. It can be more by what they had mapped when that much was reached.
const SEEN_BYTES_LEAST: u64 = 128 << 20;

/// The part of the pool that users may keep without files in it, all together.
const KEPT_PART: u64 = 4;

/// How soon it is looked again whether anybody has segments whose processes are gone.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: LOOK_AGAIN_AFTER.as_secs() as i64,
    tv_nsec: 0,
};

/// How soon it is looked whether connections are closed that nobody was taken in from, or whether any can be taken in.
const MOMENT: Duration = Duration::from_millis(10);
const A_MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: MOMENT.subsec_nanos() as i64,
};

const _: () = {
    assert!(direct::layout::SLOTS == txn::sharing::SLOTS);
    assert!(direct::layout::SLOT_BYTES == txn::sharing::SLOT_BYTES);
};

/// What all conversations of a mount share.
struct Service<S: Store> {
    shared: Arc<Shared<S>>,
    directory: Arc<PoolDirectory>,
    /// `None` if this kernel, or this user, cannot have one.
    door: Option<Door>,
    /// The mount's device, as `stat` shows it: major and minor number.
    device: (u32, u32),
    users: Users,
    /// Processes are told to overwrite in place.
    is_in_place: bool,
    /// Class `log`: no leases, and no segments for writing.
    reads_only: bool,
    /// After how long without a write a lease ends by itself.
    lease_timeout: Option<Duration>,
    /// Readable when all conversations have to end.
    stop: OwnedFd,
    /// Rings when a process is gone and segments are not that it was given.
    lingering: Bell,
    sessions: Sessions,
    rejected: Rejected,
    accounts: Arc<Accounts>,
    _room: DescriptorRoom,
}

impl<S: Store> Service<S> {
    fn files(&self) -> &FileSystem<S> {
        &self.shared.fs
    }

    /// A segment, opened for a process.
    fn open_segment(&self, number: u32, for_writing: bool) -> io::Result<File> {
        let store = self.files().store();
        if for_writing && self.reads_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Also where the file itself is handed out, which is opened for writing and so cannot be sealed: the process maps it without making sure of its blocks.
        let is_sealed = for_writing && self.door.is_some();
        let segment = store.segment_file(SegmentNumber(number), is_sealed)?;
        if let (Some(door), Some(segment)) = (&self.door, segment) {
            return door.open(number, segment, for_writing);
        }
        let mode = match for_writing {
            true => Mode::ReadWrite,
            false => Mode::ReadOnly,
        };
        let place = store.segments_directory().unwrap_or(&self.directory);
        place.file(txn::pool::segment_file(number), mode)
    }

    /// The file of a process, opened for it: where there is a [`Door`] it can do nothing but write the words in it.
    fn open_for(&self, user: &User, file: File) -> io::Result<File> {
        match &self.door {
            Some(door) => door.open_for_one(user.name(), file),
            None => Ok(file),
        }
    }

    /// Whether processes of this user may map the pool's files. The pool's owner can shorten them,
    /// which ends such a process: so the owner has to be root or the user itself.
    fn may_enter(&self, user: u32) -> bool {
        let memory = self.files().store().segments_directory();
        let places = [Some(&self.directory), memory];
        places
            .into_iter()
            .flatten()
            .all(|place| [0, user].contains(&place.owner()))
    }

    /// Whether a user may have segments at all: without a [`Door`] those who could make the pool's files shorter anyway.
    fn may_have_segments(&self, user: u32) -> bool {
        self.door.is_some() || user == 0 || user == rustix::process::geteuid().as_raw()
    }

    /// Returns how many more segments a user may keep by the quota and the share of the pool.
    fn segments_left(&self, user: u32) -> u64 {
        if user == 0 || user == rustix::process::geteuid().as_raw() {
            return u64::MAX;
        }
        let kept = self.files().count_kept();
        let geometry = self.files().store().geometry();
        let pool_blocks = u64::from(geometry.segments) * geometry.segment_blocks;
        let others = kept.iter().filter(|kept| kept.user != 0);
        let all: u64 = others.map(|kept| kept.charged_blocks).sum();
        let own = kept.iter().find(|kept| kept.user == user);
        let own = own.map_or(0, |kept| kept.charged_blocks);
        // As with other shares: as much as the user leaves to others.
        let share = (pool_blocks / KEPT_PART).saturating_sub(all);
        let by_share = share.checked_sub(own);
        let by_share = by_share.map_or(0, |blocks| blocks / geometry.segment_blocks + 1);
        let by_quota = self.files().segments_left_by_quota(user, &kept);
        by_share.min(by_quota.unwrap_or(u64::MAX))
    }

    /// A process does not have a segment any more, as far as can be told. If somebody has it, it is looked now and then whether that is still so.
    fn take_in(&self, segment: u32) {
        let number = SegmentNumber(segment);
        if !self.files().store().take_in(number) {
            tracing::debug!(segment, "somebody has a segment whose process is gone");
            self.lingering.ring();
        }
    }
}

/// The service while it runs. Dropping it takes all leases back and ends all conversations.
pub(crate) struct Direct {
    stop: Box<dyn Fn() + Send + Sync>,
    listener: Option<JoinHandle<()>>,
}

impl Direct {
    /// Offers direct access to the files of a mount whose device has this minor number.
    ///
    /// # Errors
    ///
    /// What the system says, e.g. because the pool is a device and not a directory with a file for each segment.
    pub(crate) fn start<S: Store>(
        shared: &Arc<Shared<S>>,
        mounting: &Mounting,
        device_minor: u32,
        notifier: Notifier,
    ) -> io::Result<Direct> {
        let directory = shared.fs.store().directory();
        let directory = Arc::clone(directory.ok_or(io::ErrorKind::Unsupported)?);
        let users = Users::new(&directory)?;
        let room = DescriptorRoom::new(DESCRIPTORS_OF_ALL + ATTACHMENTS + STRANGE);
        let limits = limits(shared.fs.store().geometry(), &room);
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let (socket, name) = listen()?;
        let reads_only = shared.fs.store().logger().is_some();
        let is_in_place = mounting.in_place && !reads_only;
        let service = Arc::new(Service {
            shared: Arc::clone(shared),
            directory,
            door: door(shared.fs.store()),
            device: (0, device_minor),
            users,
            is_in_place,
            reads_only,
            lease_timeout: mounting.lease_timeout,
            stop,
            lingering: Bell::new()?,
            sessions: Sessions::default(),
            rejected: Rejected::default(),
            accounts: Accounts::new(limits),
            _room: room,
        });
        let accounts = Arc::clone(&service.accounts);
        let dropper = Dropper::start(notifier.clone(), Arc::clone(&shared.direct.drops))?;
        let listening = Arc::clone(&service);
        let listener = std::thread::Builder::new()
            .name("perdure-direct".to_owned())
            .spawn(move || accept(&listening, &socket))?;
        let manner = Manner {
            is_in_place,
            reads_only,
        };
        shared
            .direct
            .open((name, manner), notifier, dropper, accounts);
        Ok(Direct {
            stop: Box::new(move || {
                let _ = rustix::io::write(&service.stop, &1_u64.to_ne_bytes());
            }),
            listener: Some(listener),
        })
    }

    /// Takes all leases back and ends all conversations.
    pub(crate) fn end(mut self) {
        (self.stop)();
        if let Some(listener) = self.listener.take() {
            // A panic of that thread was logged when it happened.
            let _ = listener.join();
        }
    }
}

fn door<S: Store>(store: &S) -> Option<Door> {
    // Nobody makes holes by a mapping for reading.
    let door = match store.can_seal() || store.logger().is_some() {
        true => Door::new(store.geometry().segment_bytes()),
        false => Err(io::Error::from(io::ErrorKind::Unsupported)),
    };
    door.inspect_err(|error| {
        tracing::info!(%error, "only this user can use files directly: others need a server that may administer the system, Linux 6.9, and a file system for the pool whose files can be marked as ones that only grow (`chattr +a`)");
    })
    .ok()
}

/// What there is for all processes of a pool of this shape. A user gets half of it at most.
fn limits(geometry: Geometry, room: &DescriptorRoom) -> Limits {
    let attachments = room.files().saturating_sub(DESCRIPTORS_OF_ALL);
    let attachments = attachments.clamp(ATTACHMENTS_LEAST, ATTACHMENTS);
    let pool_bytes = u64::from(geometry.segments) * geometry.segment_bytes();
    Limits {
        attachments: u64::from(attachments),
        map_bytes: pool_bytes / 128 + MAP_BYTES_LEAST,
        seen_blocks: (pool_bytes / 8).max(SEEN_BYTES_LEAST.min(pool_bytes / 4))
            / pmem::BLOCK_BYTES as u64,
    }
}

/// A socket with a name that nobody guesses, in the abstract namespace: nothing of it stays when the server is gone.
fn listen() -> io::Result<(OwnedFd, String)> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let name = format!("perdure-{:032x}", u128::from_ne_bytes(random));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    // Inherited by each connection: who sends a message stands beside it.
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    rustix::net::listen(&socket, 64)?;
    Ok((socket, name))
}

/// Takes processes in until it has to stop, then waits for the end of their conversations. Meanwhile looks whether anybody has segments whose processes are gone.
fn accept<S: Store>(service: &Arc<Service<S>>, socket: &OwnedFd) {
    let store = service.files().store();
    // Processes of former servers may have some.
    let (mut lingering, mut looked) = (store.take_in_rest(), Instant::now());
    let mut is_any_kept = !service.files().count_kept().is_empty();
    for number in 0.. {
        let mut waiting = [
            PollFd::new(&service.stop, PollFlags::IN),
            PollFd::new(&service.lingering, PollFlags::IN),
            PollFd::new(socket, PollFlags::IN),
        ];
        let is_full = service.rejected.is_full();
        let looks_again = lingering > 0 || is_any_kept || service.sessions.are_any();
        let (waiting, until) = match is_full {
            true => (&mut waiting[..2], Some(&A_MOMENT)),
            false => (&mut waiting[..], looks_again.then_some(&LOOK_AGAIN)),
        };
        match rustix::event::poll(waiting, until) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "no process can be taken in any more");
                break;
            }
        }
        if !waiting[0].revents().is_empty() {
            break;
        }
        let has_rung = !waiting[1].revents().is_empty();
        if has_rung || looks_again && looked.elapsed() >= LOOK_AGAIN_AFTER {
            service.lingering.hush();
            (lingering, looked) = (store.take_in_rest(), Instant::now());
            is_any_kept = !service.files().count_kept().is_empty();
        }
        if !is_full && let Err(error) = take_in(service, socket, number) {
            tracing::debug!(%error, "a process was not taken in");
            pause_if_none_can_be(&error);
        }
    }
    let have_ended = service.sessions.join();
    if have_ended && store.take_in_rest() == 0 {
        service.users.forget();
    }
}

/// What waits to be taken in, and cannot be for want of descriptors or memory, still waits: there is no use in looking at once.
fn pause_if_none_can_be(error: &io::Error) {
    use rustix::io::Errno;
    let wanting = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    if Errno::from_io_error(error).is_some_and(|errno| wanting.contains(&errno)) {
        std::thread::sleep(MOMENT);
    }
}

fn take_in<S: Store>(service: &Arc<Service<S>>, socket: &OwnedFd, number: u64) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let connection = match rustix::net::accept_with(socket, flags) {
        Err(rustix::io::Errno::AGAIN) => return Ok(()),
        connection => connection?,
    };
    // Whatever lies in it may take as long to close as who has sent it likes: that is nothing for this thread.
    let place = Arc::new(Mutex::new(Some(connection)));
    let outcome = converse(service, &place, number);
    if !matches!(outcome, Ok(true))
        && let Some(connection) = place.lock().take()
    {
        // It finds that nobody answers, and uses the kernel.
        service.rejected.close(connection);
    }
    outcome.map(drop)
}

/// Has a thread talk to who has connected, if there is a place for him: whether there was. Then the thread has the connection, otherwise it stays.
fn converse<S: Store>(
    service: &Arc<Service<S>>,
    connection: &Arc<Mutex<Option<OwnedFd>>>,
    number: u64,
) -> io::Result<bool> {
    let peer = match &*connection.lock() {
        Some(connection) => sender::begun_by(connection.as_fd())?,
        None => return Ok(false),
    };
    // One that cannot be seen from here has no number, and its death could not be noticed.
    let process = rustix::process::Pid::from_raw(peer.process).ok_or(io::ErrorKind::NotFound)?;
    let user = peer.user;
    if !service.may_enter(user) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let has_place = service.sessions.take_in(user, || {
        let session = Session::new(Arc::clone(service), (process, user), number)?;
        let connection = Arc::clone(connection);
        std::thread::Builder::new()
            .name("perdure-process".to_owned())
            .spawn(move || {
                let connection = connection.lock().take();
                if let Some(connection) = connection {
                    session(connection).run();
                }
            })
    })?;
    if !has_place {
        service.shared.direct.counts.not_taken_in.add(1);
        tracing::debug!(
            process = peer.process,
            user,
            "too many processes, or too many of this user"
        );
    }
    Ok(has_place)
}
