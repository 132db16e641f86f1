//! The control socket: how `perdure stat MNT` asks the server that holds the pool's lock.
//!
//! A Unix stream socket `control` in the pool's directory (for a pool on a device:
//! `/run/perdure/<device>.control`), mode 0600. One question per connection:
//!
//! ```text
//! client:  perdure 1 stat\n            (or: metrics, files, clients)
//! server:  perdure 1 ok 1234\n         then 1234 bytes of text
//!     or:  perdure 1 error 56\n        then 56 bytes that say why
//! ```
//!
//! The number after `perdure` is the version of the protocol. `stat` answers with a [`Status`] in JSON,
//! `metrics` with Prometheus' text format, `files` with a list of [`CachedFile`] in JSON, `clients` with one of [`ClientStatus`]. A line that is longer than 64 bytes, late by 2 seconds or of another
//! version gets an error and the connection is closed; nothing a client sends can change anything.

mod direct;
mod log;
mod tier;
mod timed;

pub use direct::{ClientStatus, DirectStatus, KernelPath, Refusals};
pub use log::LogStatus;
pub use tier::TierStatus;

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use txn::PoolDirectory;
use txn::pool::CONTROL_SOCKET;

use crate::answers::Answers;
use crate::statistics::StatisticsSummary;
use crate::telemetry;
use timed::Timed;

const PROTOCOL_VERSION: u32 = 1;
const REQUEST_BYTES_MAX: usize = 64;
const ANSWER_BYTES_MAX: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(2);
/// For all steps of an answer together.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const DEVICE_SOCKETS: &str = "/run/perdure";
/// How the answer to a question begins that the server does not know.
const UNKNOWN_QUESTION: &str = "unknown question";

/// What a live server says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the server.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// The pool it holds.
    pub pool: String,
    /// Where the pool is mounted.
    pub mountpoint: String,
    /// The pool's durability class.
    pub class: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Threads that answer requests.
    pub threads: usize,
    /// How requests come: `io_uring` or `classic`; empty if the server is too old to say.
    #[serde(default)]
    pub transport: String,
    /// Seconds since the mount.
    pub uptime_seconds: u64,
    /// Inodes that the kernel holds references to.
    pub cached_inodes: u64,
    /// Space of the pool.
    pub space: Space,
    /// Blocks written in each segment since mkfs, in order: the medium has what the last clean unmount saved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segment_wear: Vec<u64>,
    /// Blocks of each segment that hold something, in order; freed ones that a journal still needs are among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segment_used: Vec<u64>,
    /// Requests answered since the mount.
    pub statistics: StatisticsSummary,
    /// What the read cache did since the mount, and what it holds; `None` without one.
    #[serde(default)]
    pub read_cache: Option<ReadCacheStatus>,
    /// Whether there is a read cache, and how fast the medium was if that was measured; empty if the server is too old to say.
    #[serde(default)]
    pub read_cache_state: String,
    /// Files that processes read and write directly; `None` if that is not offered, or the server is too old to say.
    #[serde(default)]
    pub direct: Option<DirectStatus>,
    /// Segments that stay with users because processes have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptStatus>,
    /// Acknowledged changes that the mount could not recover, a line for each damaged place.
    #[serde(default)]
    pub losses: Vec<String>,
    /// The log of a pool of class `log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogStatus>,
    /// The disk below the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierStatus>,
    /// Set if the mount was made for a program, and goes away with the last one that `perdure run` starts on it.
    #[serde(default)]
    pub temporary: Option<Temporary>,
}

/// Segments that one user's processes keep, also by a descriptor in a socket's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStatus {
    /// The user.
    pub user: u32,
    /// Segments that stay with the user.
    pub segments: u64,
    /// Free bytes in them.
    pub free_bytes: u64,
    /// Bytes of them that count against the user's quota and share.
    pub charged_bytes: u64,
}

/// A mount that `perdure run` made for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temporary {
    /// Whether the directory that it is mounted at was made for it as well.
    pub directory: bool,
}

/// What a read cache did since the mount, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReadCacheStatus {
    /// Its counts and sizes, in fields of their own.
    #[serde(flatten)]
    pub counts: fs::ReadCacheStatistics,
    /// Hits among all reads of blocks, from 0 to 1; `None` before the first.
    pub hit_ratio: Option<f64>,
}

impl From<fs::ReadCacheStatistics> for ReadCacheStatus {
    fn from(counts: fs::ReadCacheStatistics) -> ReadCacheStatus {
        ReadCacheStatus {
            counts,
            hit_ratio: counts.hit_ratio(),
        }
    }
}

/// What the read cache did for one file since it has copies of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CachedFile {
    /// The file's inode.
    pub inode: u64,
    /// Blocks read from DRAM.
    pub hits: u64,
    /// Blocks read from the medium.
    pub misses: u64,
    /// Hits among both, from 0 to 1; `None` before the first.
    pub hit_ratio: Option<f64>,
    /// Blocks copied to DRAM.
    pub fills: u64,
    /// Copies that a write ended.
    pub invalidations: u64,
    /// Bytes of DRAM that hold copies.
    pub bytes: u64,
    /// Bytes of the table beside them.
    pub table_bytes: u64,
}

impl From<fs::ReadCacheFile> for CachedFile {
    fn from(file: fs::ReadCacheFile) -> CachedFile {
        let reads = file.hits + file.misses;
        CachedFile {
            inode: file.file,
            hits: file.hits,
            misses: file.misses,
            hit_ratio: (reads > 0).then(|| file.hits as f64 / reads as f64),
            fills: file.fills,
            invalidations: file.invalidations,
            bytes: file.bytes,
            table_bytes: file.table_bytes,
        }
    }
}

/// Space of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Unit of the next two, in bytes.
    pub block_bytes: u32,
    /// Blocks of the pool.
    pub blocks: u64,
    /// Free ones among them.
    pub free_blocks: u64,
    /// Free ones that files can take; the rest is kept so that a full pool can be written. 0 if the server is too old to say.
    #[serde(default)]
    pub available_blocks: u64,
    /// Inodes of the pool.
    pub inodes: u64,
    /// Free ones among them.
    pub free_inodes: u64,
}

/// A question to a live server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Its [`Status`], as JSON.
    Stat,
    /// Its metrics, in Prometheus' text format.
    Metrics,
    /// The files that its read cache has copies of, those with most hits first: a list of [`CachedFile`], as JSON. Takes it longer
    /// than the others the more copies there are.
    Files,
    /// The processes that read and write files directly: a list of [`ClientStatus`], as JSON.
    Clients,
    /// Begins to copy everything that is dirty to the home; the answer is empty. [`TierStatus`]
    /// says when that is done.
    Flush,
}

impl Question {
    fn word(self) -> &'static str {
        match self {
            Question::Stat => "stat",
            Question::Metrics => "metrics",
            Question::Files => "files",
            Question::Clients => "clients",
            Question::Flush => "flush",
        }
    }
}

/// Why a live server gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no socket or nobody listens.
    #[error("no server answers for pool {pool}: {source}; is the pool mounted?")]
    NoServer {
        /// The pool asked about.
        pool: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The socket is not for this user.
    #[error(
        "not allowed to ask the server of pool {pool}: only root and the user who mounted it may"
    )]
    Denied {
        /// The pool asked about.
        pool: PathBuf,
    },
    /// The conversation broke off.
    #[error("the server of pool {pool} broke off: {source}")]
    BrokenOff {
        /// The pool asked about.
        pool: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is none in this protocol.
    #[error(
        "the server of pool {pool} speaks another protocol than version {PROTOCOL_VERSION}: update the older of the two"
    )]
    OtherProtocol {
        /// The pool asked about.
        pool: PathBuf,
    },
    /// The server is older than the question.
    #[error(
        "the server of pool {pool} does not know the question `{question}`: it was started by an older version; unmount and mount again"
    )]
    OlderServer {
        /// The pool asked about.
        pool: PathBuf,
        /// The word of the question.
        question: &'static str,
    },
    /// The server refused.
    #[error("the server of pool {pool} refused: {reason}")]
    Refused {
        /// The pool asked about.
        pool: PathBuf,
        /// Its reason.
        reason: String,
    },
}

/// Asks the server that holds `pool`.
///
/// # Errors
///
/// Nobody serves the pool, or the server cannot be understood. Waits 2 seconds for each step at
/// most, and 10 for all.
pub fn ask(pool: &Path, question: Question) -> Result<String, AskError> {
    let no_server = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => AskError::Denied { pool: pool.into() },
        _ => AskError::NoServer {
            pool: pool.into(),
            source,
        },
    };
    let broken_off = |source: io::Error| AskError::BrokenOff {
        pool: pool.into(),
        source,
    };
    let stream = connect(pool).map_err(no_server)?;
    let mut stream = Timed::new(&stream, ANSWER_PATIENCE);
    stream
        .write_all(format!("perdure {PROTOCOL_VERSION} {}\n", question.word()).as_bytes())
        .map_err(broken_off)?;
    let head = read_line(&mut stream).map_err(broken_off)?;
    let other = || AskError::OtherProtocol { pool: pool.into() };
    let (good, length) = parse_answer(&head).ok_or_else(other)?;
    let mut text = vec![0; length];
    stream.read_exact(&mut text).map_err(broken_off)?;
    let text = String::from_utf8(text).map_err(|_| other())?;
    if good {
        Ok(text)
    } else if text.starts_with(UNKNOWN_QUESTION) {
        Err(AskError::OlderServer {
            pool: pool.into(),
            question: question.word(),
        })
    } else {
        Err(AskError::Refused {
            pool: pool.into(),
            reason: text,
        })
    }
}

fn connect(pool: &Path) -> io::Result<UnixStream> {
    connect_to(&Place::of(pool)?)
}

/// Connects to the socket itself, not to its name, which the pool's owner can make a link any time.
fn connect_to(place: &Place) -> io::Result<UnixStream> {
    let at = place.directory.socket(&place.name)?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let path = format!("/proc/self/fd/{}", at.as_raw_fd());
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The listening socket of a server; the name goes when this is dropped.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    place: Place,
}

impl ControlSocket {
    /// Binds the socket of `pool`, in its `directory` if there is one. The caller has the pool's
    /// lock: a socket that is there is a killed server's, or another read-only mount's, which keeps
    /// it.
    pub(crate) fn bind(
        pool: &Path,
        directory: Option<&Arc<PoolDirectory>>,
    ) -> io::Result<ControlSocket> {
        let place = match directory {
            Some(directory) => Place::in_pool(Arc::clone(directory)),
            None => {
                if is_device(pool)? {
                    std::fs::create_dir_all(DEVICE_SOCKETS)?;
                }
                Place::of(pool)?
            }
        };
        match place.directory.socket(&place.name) {
            Ok(_) if connect_to(&place).is_ok() => {
                return Err(io::Error::other(
                    "another read-only mount of the pool answers there",
                ));
            }
            Ok(_) => place.directory.remove(&place.name)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        // Before the name exists: at no moment may anybody else connect.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &place.address()?)?;
        rustix::net::listen(&socket, 16)?;
        Ok(ControlSocket {
            listener: UnixListener::from(socket),
            place,
        })
    }

    /// Answers questions on a thread of its own until the returned handle is dropped.
    pub(crate) fn start(self, answers: impl Answers) -> io::Result<ControlThread> {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let seen = stop.clone();
        let thread = std::thread::Builder::new()
            .name("perdure-control".to_owned())
            .spawn(move || self.run(&seen, &answers))?;
        Ok(ControlThread {
            stop,
            thread: Some(thread),
        })
    }

    fn run(&self, stop: &OwnedFd, answers: &impl Answers) {
        loop {
            let mut waiting = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            match rustix::event::poll(&mut waiting, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the control socket stops listening");
                    return;
                }
            }
            if !waiting[1].revents().is_empty() {
                return;
            }
            if let Ok((stream, _)) = self.listener.accept()
                && let Err(error) = answer(stream, answers)
            {
                tracing::debug!(%error, "a client of the control socket went away");
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A name that is left behind is removed by the next server.
        let _ = self.place.directory.remove(&self.place.name);
    }
}

/// A running control socket. Dropping it stops the thread and removes the socket's name.
pub(crate) struct ControlThread {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let (Ok(_), Some(thread)) = (told, self.thread.take()) {
            // A panic of that thread was logged when it happened and concerns nobody else.
            let _ = thread.join();
        }
    }
}

fn answer(stream: UnixStream, answers: &impl Answers) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut stream = Timed::new(&stream, ANSWER_PATIENCE);
    let outcome = match parse_question(&read_line(&mut stream)?) {
        Ok(Question::Stat) => to_json(&answers.status()),
        Ok(Question::Metrics) => telemetry::render(&answers.status()).map_err(str::to_owned),
        Ok(Question::Files) => to_json(&answers.files()),
        Ok(Question::Clients) => to_json(&answers.clients()),
        Ok(Question::Flush) => answers.flush().map(|()| String::new()),
        Err(reason) => Err(reason),
    };
    let (word, text) = match &outcome {
        Ok(text) => ("ok", text),
        Err(reason) => ("error", reason),
    };
    stream.write_all(format!("perdure {PROTOCOL_VERSION} {word} {}\n", text.len()).as_bytes())?;
    stream.write_all(text.as_bytes())
}

fn to_json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// Reads to the end of a line that is 64 bytes long at most. Byte by byte: what follows belongs to the text.
fn read_line(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(REQUEST_BYTES_MAX);
    let mut byte = [0];
    while line.len() < REQUEST_BYTES_MAX {
        stream.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return Ok(line);
        }
        line.push(byte[0]);
    }
    Ok(line)
}

fn parse_question(line: &[u8]) -> Result<Question, String> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    match words.as_slice() {
        [b"perdure", b"1", b"stat"] => Ok(Question::Stat),
        [b"perdure", b"1", b"metrics"] => Ok(Question::Metrics),
        [b"perdure", b"1", b"files"] => Ok(Question::Files),
        [b"perdure", b"1", b"clients"] => Ok(Question::Clients),
        [b"perdure", b"1", b"flush"] => Ok(Question::Flush),
        [b"perdure", b"1", ..] => Err(format!(
            "{UNKNOWN_QUESTION}; `stat`, `metrics`, `files` and `clients` are known"
        )),
        [b"perdure", ..] => {
            Err("another version of the protocol; this server speaks version 1".to_owned())
        }
        _ => Err("not a question of this protocol".to_owned()),
    }
}

fn parse_answer(line: &[u8]) -> Option<(bool, usize)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let known = words.next()? == "perdure" && words.next()?.parse() == Ok(PROTOCOL_VERSION);
    let good = match words.next()? {
        "ok" => true,
        "error" => false,
        _ => return None,
    };
    let length = words
        .next()?
        .parse()
        .ok()
        .filter(|length| *length <= ANSWER_BYTES_MAX)?;
    (known && words.next().is_none()).then_some((good, length))
}

/// The directory and name of a pool's socket.
struct Place {
    directory: Arc<PoolDirectory>,
    name: String,
}

fn is_device(pool: &Path) -> io::Result<bool> {
    Ok(!std::fs::metadata(pool)?.is_dir())
}

impl Place {
    fn in_pool(directory: Arc<PoolDirectory>) -> Place {
        Place {
            directory,
            name: CONTROL_SOCKET.to_owned(),
        }
    }

    fn of(pool: &Path) -> io::Result<Place> {
        if !is_device(pool)? {
            return Ok(Place::in_pool(Arc::new(PoolDirectory::open(pool)?)));
        }
        let device = pool.file_name().unwrap_or_default().to_string_lossy();
        Ok(Place {
            directory: Arc::new(PoolDirectory::open(Path::new(DEVICE_SOCKETS))?),
            name: format!("{device}.{CONTROL_SOCKET}"),
        })
    }

    /// The address to bind. A socket's path may have 107 bytes only; a pool's may be longer.
    fn address(&self) -> io::Result<SocketAddrUnix> {
        let directory = self.directory.handle().as_raw_fd();
        let path = format!("/proc/self/fd/{directory}/{}", self.name);
        Ok(SocketAddrUnix::new(path)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends a byte now and then is always in time for the next one, not for all.
    #[test]
    fn a_slow_server_is_not_waited_for_longer_than_for_all_steps() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let slow = std::thread::spawn(move || {
            while theirs.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut endless = vec![0; 1 << 20];
        let mut stream = Timed::new(&ours, Duration::from_millis(100));
        let outcome = stream
            .read_exact(&mut endless)
            .map_err(|error| error.kind());
        let late = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(outcome.is_err_and(|kind| late.contains(&kind)));
        drop(ours);
        slow.join().expect("no panic");
    }
}
