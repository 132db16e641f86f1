//! Memory is used while the image is being read into it.
//!
//! A page of memory that is not there is *absent*, and a hole of the memory's file. Its first
//! access waits until a thread has read it from the image; a thread in the background reads the
//! rest. A page comes into being whole and only once, so no change is overwritten, and the holes
//! tell the server after a killed one what is left to do.

use super::image::{Image, Run};
use crate::descriptors::DescriptorRoom;
use crate::layout::Geometry;
use parking_lot::{Condvar, Mutex};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, Faults, Offset, Region};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wal::AlignedBuffer;

/// Threads that answer accesses. They mostly wait for the disk.
const ANSWERING: usize = 4;
/// Blocks around the one that is needed come along.
const WINDOW_BYTES: u64 = 128 << 10;
/// Bytes that the thread in the background reads at once.
const PIECE_BYTES: usize = 1 << 20;
/// After a read of the image that failed.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];
/// Until a part of the image that cannot be read is tried again, and memory is looked for again.
const LATER: Duration = Duration::from_secs(10);
const ROOM_PAUSE: Duration = Duration::from_millis(2);
/// The thread in the background is so much nicer than others.
const NICE: i32 = 10;
/// The thread in the background leaves the disk to accesses for so long, before each piece.
const WAY_MAX: Duration = Duration::from_millis(5);
const WAY_STEP: Duration = Duration::from_micros(200);
const BLOCK: u64 = BLOCK_BYTES as u64;

/// When a pool of class `log` is read into memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Loading {
    /// While it is used: blocks that are accessed at once, others in the background.
    #[default]
    Background,
    /// Before it is used.
    First,
    /// Blocks that are accessed, and no others. Processes get no segment for direct reads.
    Demand,
}

const NAMES: [(Loading, &str); 3] = [
    (Loading::Background, "background"),
    (Loading::First, "first"),
    (Loading::Demand, "demand"),
];

impl fmt::Display for Loading {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = NAMES.iter().filter(|(loading, _)| loading == self);
        formatter.write_str(names.next().map_or("", |(_, name)| name))
    }
}

/// No such time.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("give background, first or demand")]
pub struct ParseLoadingError;

impl std::str::FromStr for Loading {
    type Err = ParseLoadingError;

    fn from_str(text: &str) -> Result<Loading, ParseLoadingError> {
        let mut names = NAMES.iter().filter(|(_, name)| *name == text);
        names
            .next()
            .map(|(loading, _)| *loading)
            .ok_or(ParseLoadingError)
    }
}

/// The absent pages of an open pool's memory.
pub(crate) struct Loader {
    faults: Faults,
    image: Arc<Image>,
    geometry: Geometry,
    /// The rest is loaded when the pool is mounted, and not only when a test says so.
    loads_rest: bool,
    is_loaded: Box<[AtomicBool]>,
    left: AtomicU32,
    /// Of the segments, if they are files, until all are loaded.
    files: Mutex<Option<Arc<Files>>>,
    /// A segment that a process asked for, plus one: it is loaded next.
    wanted: AtomicU32,
    /// Accesses that are being answered.
    answering: AtomicU32,
    answered: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    /// No page is answered any more.
    ends: AtomicBool,
    /// Readable then.
    bell: OwnedFd,
    lacks_room: AtomicBool,
    is_unreadable: AtomicBool,
}

/// The memory's files.
pub(super) struct Files {
    pub(super) segments: Vec<File>,
    pub(super) _room: DescriptorRoom,
    /// All is loaded.
    pub(super) when_whole: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct State {
    may_begin: bool,
    stops: bool,
}

impl fmt::Debug for Loader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left.load(Ordering::Relaxed);
        write!(formatter, "Loader({left} segments left)")
    }
}

/// Its threads. They end before the memory is unmapped.
struct Threads {
    loader: Arc<Loader>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.loader.stop();
        self.loader.ends.store(true, Ordering::SeqCst);
        // The counter has room for it.
        let _ = rustix::io::write(&self.loader.bell, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // It has nothing to say, and a panic in it was printed.
            let _ = thread.join();
        }
    }
}

impl Loader {
    /// Segments that have absent pages are loaded from now on; the header is loaded. Fails where
    /// the kernel does not let this process wait for pages.
    pub(super) fn start(
        region: &Region,
        image: &Arc<Image>,
        (geometry, segments): (Geometry, &[u32]),
        files: Option<Files>,
        loading: Loading,
    ) -> io::Result<Arc<Loader>> {
        let faults = Faults::of(region)?;
        let is_loaded = (0..geometry.segments).map(|segment| !segments.contains(&segment));
        let loader = Arc::new(Loader {
            faults,
            image: Arc::clone(image),
            geometry,
            loads_rest: loading == Loading::Background,
            is_loaded: is_loaded.map(AtomicBool::new).collect(),
            left: AtomicU32::new(segments.len() as u32),
            files: Mutex::new(files.map(Arc::new)),
            wanted: AtomicU32::new(0),
            answering: AtomicU32::new(0),
            answered: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            ends: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            lacks_room: AtomicBool::new(false),
            is_unreadable: AtomicBool::new(false),
        });
        for &segment in segments {
            let range = loader.range_of(segment);
            let bytes = range.end - range.start;
            loader.faults.watch(Offset::new(range.start), bytes)?;
        }
        let mut threads = Threads {
            loader: Arc::clone(&loader),
            threads: Vec::new(),
        };
        for _ in 0..ANSWERING {
            threads.spawn("perdure-page", Loader::answer_all)?;
        }
        threads.spawn("perdure-load", Loader::load_rest)?;
        tracing::debug!(reach = ?loader.faults.reach(), "the image is read while the pool is used");
        region.keep(Box::new(threads));
        Ok(loader)
    }

    /// The pool is mounted.
    pub(crate) fn is_mounted(&self) {
        if self.loads_rest {
            self.begin();
        }
    }

    /// The thread in the background begins.
    pub(super) fn begin(&self) {
        self.state.lock().may_begin = true;
        self.changed.notify_all();
    }

    /// It ends. Accesses go on being answered.
    pub(crate) fn stop(&self) {
        self.state.lock().stops = true;
        self.changed.notify_all();
    }

    /// Whether other mappings of a segment show what it holds. If not, it is loaded next.
    pub(crate) fn is_loaded(&self, segment: u32) -> bool {
        let is_loaded = self.is_loaded.get(segment as usize);
        let is_loaded = is_loaded.is_none_or(|it| it.load(Ordering::Acquire));
        if !is_loaded {
            self.wanted.store(segment + 1, Ordering::Relaxed);
        }
        is_loaded || deliberate::is(Bug::ShowUnloaded)
    }

    /// Bytes that are absent, of segments that are not loaded.
    pub(crate) fn absent_bytes(&self) -> u64 {
        let files = self.files.lock().clone();
        let absent = |segment: u32| {
            let bytes = self.geometry.segment_bytes();
            let file = files
                .as_ref()
                .and_then(|files| files.segments.get(segment as usize));
            let there = file.and_then(|file| file.metadata().ok());
            bytes.saturating_sub(there.map_or(0, |there| there.blocks() * 512))
        };
        let is_left = |segment: &u32| !self.is_loaded[*segment as usize].load(Ordering::Relaxed);
        let segments = (0..self.geometry.segments).filter(is_left);
        segments.map(absent).sum()
    }

    /// Accesses that have waited for a page so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Memory gets a whole block that need not be read. Whether it was absent.
    pub(super) fn put_whole(&self, at: Offset, bytes: &[u8]) -> bool {
        bytes.len() == BLOCK_BYTES
            && at.is_aligned(BLOCK)
            && matches!(self.faults.put(at, bytes), Ok(put) if put.new_bytes > 0)
    }

    fn range_of(&self, segment: u32) -> Range<u64> {
        let bytes = self.geometry.segment_bytes();
        let first = self.geometry.first_block().offset().get() + u64::from(segment) * bytes;
        first..first + bytes
    }

    /// The life of a thread that answers accesses.
    fn answer_all(&self) {
        let mut buffer = AlignedBuffer::with_capacity(WINDOW_BYTES as usize);
        while !self.ends.load(Ordering::SeqCst) {
            match self.faults.next() {
                Ok(Some(at)) => {
                    self.answering.fetch_add(1, Ordering::Relaxed);
                    self.answer(at, &mut buffer);
                    self.answering.fetch_sub(1, Ordering::Relaxed);
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(None) => {
                    let both = [self.faults.as_fd(), self.bell.as_fd()];
                    let mut both = both.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
                    // An error shows at the next turn.
                    let _ = poll(&mut both, None);
                }
                Err(error) => {
                    tracing::error!(%error, "pages that are waited for cannot be learnt");
                    std::process::abort();
                }
            }
        }
    }

    fn answer(&self, at: Offset, buffer: &mut AlignedBuffer) {
        let window = at.get() / WINDOW_BYTES * WINDOW_BYTES;
        let (run, range) = self
            .image
            .run_around(at.get(), window..window + WINDOW_BYTES);
        let range = self.within_segment(at, range);
        match run {
            Run::Zeros => {
                self.put_until_room(|| self.faults.put_zeros(offset(&range), length(&range)))
            }
            Run::Data => self.answer_with_data(at, range, buffer),
        }
    }

    fn within_segment(&self, at: Offset, range: Range<u64>) -> Range<u64> {
        let first = self.geometry.first_block().offset().get();
        let segment = (at.get() - first) / self.geometry.segment_bytes();
        let whole = self.range_of(segment as u32);
        range.start.max(whole.start)..range.end.min(whole.end)
    }

    fn answer_with_data(&self, at: Offset, range: Range<u64>, buffer: &mut AlignedBuffer) {
        let alone = at.get()..at.get() + BLOCK;
        let mut read = self.read(&range, buffer).map(|()| range);
        if read.is_err() {
            // Another block of the window may be the damaged one.
            read = self.read(&alone, buffer).map(|()| alone);
        }
        match read {
            Ok(range) => {
                if deliberate::is(Bug::CountUnread) {
                    let needed = (at.get() - range.start) as usize;
                    buffer[..needed].fill(0);
                    buffer[needed + BLOCK_BYTES..].fill(0);
                }
                self.put_until_room(|| self.faults.put(offset(&range), buffer));
            }
            Err(_) if self.ends.load(Ordering::SeqCst) => {}
            Err(error) => self.give_up(at, &error),
        }
    }

    /// A thread needs what cannot be had. Nothing else can be shown to it, and a load cannot fail.
    fn give_up(&self, at: Offset, error: &io::Error) {
        tracing::error!(
            %error,
            image = self.image.name_at(at.get()),
            byte = at.get(),
            "a block of the pool's image cannot be read, and a thread needs it: this process ends by SIGBUS, and the disk is unchanged; look at the disk (dmesg), copy the pool to another one, mount it with -o load=first to see whether all can be read"
        );
        if self.faults.poison(at).is_err() {
            std::process::abort();
        }
    }

    /// Reads a part of the image, again if it fails.
    fn read(&self, range: &Range<u64>, buffer: &mut AlignedBuffer) -> io::Result<()> {
        buffer.resize(length(range) as usize);
        let mut pauses = PAUSES.iter();
        loop {
            let error = match self.image.read(range.start, buffer) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match pauses.next() {
                Some(&pause) if !self.ends.load(Ordering::SeqCst) => std::thread::sleep(pause),
                _ => return Err(error),
            }
        }
    }

    /// Without memory for a page its access waits: others have filled the file system.
    fn put_until_room<T>(&self, mut put: impl FnMut() -> io::Result<T>) {
        loop {
            match put() {
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => self.miss_room(),
                Ok(_) => return,
                Err(error) => {
                    tracing::error!(%error, "a page that is waited for cannot be put into memory");
                    std::process::abort();
                }
            }
            if self.ends.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn miss_room(&self) {
        if !self.lacks_room.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "no memory is left for the pool while it is loaded: the mount waits for some; remove files in /dev/shm, or make it larger: mount -o remount,size=BYTES /dev/shm"
            );
        }
        std::thread::sleep(ROOM_PAUSE);
    }

    /// The life of the thread in the background.
    fn load_rest(&self) {
        let mut buffer = AlignedBuffer::with_capacity(PIECE_BYTES);
        if !self.wait_to_begin() {
            return;
        }
        // Threads of the pool's users go first.
        let _ = rustix::process::nice(NICE);
        let begin = Instant::now();
        while !self.stops() {
            let mut failed = false;
            for next in 0..self.geometry.segments {
                let wanted = self.wanted.swap(0, Ordering::Relaxed).checked_sub(1);
                for segment in wanted.into_iter().chain([next]) {
                    failed |= self.load(segment, &mut buffer).is_err();
                }
                if self.stops() {
                    return;
                }
            }
            if !failed {
                break;
            }
            self.wait_for_stop(LATER);
        }
        if self.left.load(Ordering::Acquire) > 0 {
            return;
        }
        if let Some(files) = self.files.lock().take() {
            (files.when_whole)();
        }
        let seconds = begin.elapsed().as_secs_f64();
        tracing::info!(seconds, "the pool is loaded");
    }

    fn wait_to_begin(&self) -> bool {
        let mut state = self.state.lock();
        while !state.may_begin && !state.stops {
            self.changed.wait(&mut state);
        }
        !state.stops
    }

    fn wait_for_stop(&self, time: Duration) {
        let mut state = self.state.lock();
        if !state.stops {
            self.changed.wait_for(&mut state, time);
        }
    }

    fn stops(&self) -> bool {
        self.state.lock().stops
    }

    /// Loads a segment, and reserves memory for all of it. An error: not now.
    fn load(&self, segment: u32, buffer: &mut AlignedBuffer) -> io::Result<()> {
        if self.is_loaded[segment as usize].load(Ordering::Relaxed) {
            return Ok(());
        }
        let range = self.range_of(segment);
        let files = self.files.lock().clone();
        let file = files
            .as_ref()
            .map(|files| &files.segments[segment as usize]);
        for piece in self.image.pieces_of(range.clone(), PIECE_BYTES) {
            let inside = piece.start - range.start..piece.end - range.start;
            if file.is_some_and(|file| is_there(file, &inside)) {
                continue;
            }
            self.leave_way();
            if self.stops() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.read(&piece, buffer)
                .inspect_err(|error| self.miss(&piece, error))?;
            self.put_data(piece.start, buffer);
        }
        if let Some(file) = file {
            self.reserve(file)?;
        }
        self.faults
            .leave(Offset::new(range.start), length(&range))?;
        if let Some(file) = file {
            pmem::join_pages(file, length(&range), || !self.stops());
        }
        self.is_loaded[segment as usize].store(true, Ordering::Release);
        self.left.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Blocks of zeros come when the memory is reserved.
    fn put_data(&self, start: u64, bytes: &[u8]) {
        let mut at = 0;
        for run in bytes
            .chunks(BLOCK_BYTES)
            .collect::<Vec<_>>()
            .chunk_by(|one, other| is_zero(one) == is_zero(other))
        {
            let length = run.len() * BLOCK_BYTES;
            if !is_zero(run[0]) {
                let data = &bytes[at..at + length];
                self.put_until_room(|| self.faults.put(Offset::new(start + at as u64), data));
            }
            at += length;
        }
    }

    fn miss(&self, piece: &Range<u64>, error: &io::Error) {
        if !self.is_unreadable.swap(true, Ordering::Relaxed) {
            tracing::error!(
                %error,
                image = self.image.name_at(piece.start),
                byte = piece.start,
                "a part of the pool's image cannot be read: it is tried again now and then, and a thread that needs it ends this process; copy the pool to another disk"
            );
        }
    }

    fn leave_way(&self) {
        let begin = Instant::now();
        while self.answering.load(Ordering::Relaxed) > 0 && begin.elapsed() < WAY_MAX {
            std::thread::sleep(WAY_STEP);
        }
    }

    fn reserve(&self, file: &File) -> io::Result<()> {
        let bytes = self.geometry.segment_bytes();
        loop {
            match fallocate(file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::NOMEM) => self.miss_room(),
                Err(error) => return Err(error.into()),
            }
            if self.stops() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }
}

impl Threads {
    fn spawn(&mut self, name: &str, run: fn(&Loader)) -> io::Result<()> {
        let loader = Arc::clone(&self.loader);
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(thread.spawn(move || run(&loader))?);
        Ok(())
    }
}

fn offset(range: &Range<u64>) -> Offset {
    Offset::new(range.start)
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn is_zero(block: &[u8]) -> bool {
    *block == [0; BLOCK_BYTES]
}

/// Whether a part of a file of memory has no hole.
fn is_there(file: &File, range: &Range<u64>) -> bool {
    seek(file, SeekFrom::Hole(range.start)).is_ok_and(|hole| hole >= range.end)
}

#[cfg(test)]
mod tests;
