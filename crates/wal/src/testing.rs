//! A simulated disk: it forgets what was not flushed, in every way that the failure model permits.
//!
//! After a power failure each sector has its last durable bytes, or those of any write since then:
//! whole sectors, any subset of them.

use crate::Disk;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Unit that a power failure never tears.
pub const SECTOR_BYTES: usize = 512;
/// With so few writes, every subset of them is tried.
const ALL_SUBSETS_MAX: usize = 4;

/// Runs at each event of a disk, outside of its lock.
pub type Hook = Arc<dyn Fn(&SimulatedDisk, Event) + Send + Sync>;

/// An event on a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// A durable write is on its way.
    Started,
    /// A durable write is durable.
    Completed,
    /// A write is in the disk's cache.
    Cached,
    /// A flush begins.
    Flushing,
    /// A flush has ended.
    Flushed,
}

/// The outcome of a power failure: the parts of the writes in flight that survive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Crash {
    /// For each write, in the order of their beginnings.
    pub survivors: Vec<Survivor>,
}

/// The part of a write that survives a power failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Survivor {
    /// Nothing.
    Nothing,
    /// All.
    All,
    /// These sectors.
    Sectors(Range<usize>),
    /// All but these sectors.
    AllBut(Range<usize>),
}

impl Survivor {
    fn has(&self, sector: usize) -> bool {
        match self {
            Survivor::Nothing => false,
            Survivor::All => true,
            Survivor::Sectors(sectors) => sectors.contains(&sector),
            Survivor::AllBut(sectors) => !sectors.contains(&sector),
        }
    }
}

/// How far a write has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Progress {
    /// On its way, held until the test lets it go.
    Held,
    /// On its way.
    Released,
    /// In the disk's cache: reads see it.
    Cached,
}

#[derive(Clone, Debug)]
struct Loose {
    id: u64,
    at: usize,
    bytes: Vec<u8>,
    /// Sectors that a later durable write has not replaced.
    live: Vec<bool>,
    progress: Progress,
}

impl Loose {
    fn sectors(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        (0..self.live.len())
            .filter(|&sector| self.live[sector])
            .map(|sector| (sector, sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES))
    }

    fn apply(&self, image: &mut [u8], survivor: &Survivor) {
        for (sector, range) in self.sectors() {
            if survivor.has(sector) {
                image[self.at + range.start..self.at + range.end]
                    .copy_from_slice(&self.bytes[range]);
            }
        }
    }
}

#[derive(Default)]
struct State {
    durable: Vec<u8>,
    loose: Vec<Loose>,
    next_id: u64,
    holds: bool,
    is_dead: bool,
    /// Durable writes until one that fails.
    fail_after: Option<u64>,
    unreadable: Range<u64>,
    flushes: u64,
    durable_writes: u64,
    hook: Option<Hook>,
}

/// A disk in memory that loses what is not durable.
#[derive(Default)]
pub struct SimulatedDisk {
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(
            formatter,
            "SimulatedDisk({} bytes, {} writes loose)",
            state.durable.len(),
            state.loose.len()
        )
    }
}

impl SimulatedDisk {
    /// Makes a disk of zeros.
    pub fn new(bytes: usize) -> SimulatedDisk {
        SimulatedDisk::from_image(vec![0; bytes])
    }

    /// Makes a disk with durable content.
    pub fn from_image(image: Vec<u8>) -> SimulatedDisk {
        let disk = SimulatedDisk::default();
        disk.state.lock().durable = image;
        disk
    }

    /// The bytes that reads see.
    pub fn image(&self) -> Vec<u8> {
        let state = self.state.lock();
        let mut image = state.durable.clone();
        for loose in state
            .loose
            .iter()
            .filter(|loose| loose.progress == Progress::Cached)
        {
            loose.apply(&mut image, &Survivor::All);
        }
        image
    }

    /// Changes durable bytes: damage.
    pub fn damage(&self, at: usize, change: impl FnOnce(&mut [u8])) {
        change(&mut self.state.lock().durable[at..]);
    }

    /// From now on durable writes wait until [`release`](SimulatedDisk::release).
    pub fn hold(&self, holds: bool) {
        self.state.lock().holds = holds;
    }

    /// Waits until so many durable writes are held.
    pub fn wait_for_held(&self, count: usize) {
        let mut state = self.state.lock();
        while held(&state).count() < count {
            self.changed.wait(&mut state);
        }
    }

    /// Completes the held write with this index, in the order of their beginnings; returns when it
    /// is durable.
    pub fn release(&self, index: usize) {
        let mut state = self.state.lock();
        let id = held(&state)
            .nth(index)
            .expect("a write with this index is held");
        release(&mut state, id);
        self.changed.notify_all();
        while state.loose.iter().any(|loose| loose.id == id) {
            self.changed.wait(&mut state);
        }
    }

    /// The places in the file of the held writes.
    pub fn held_places(&self) -> Vec<u64> {
        let state = self.state.lock();
        state
            .loose
            .iter()
            .filter(|loose| loose.progress == Progress::Held)
            .map(|loose| loose.at as u64)
            .collect()
    }

    /// The durable write after `writes` more fails once, and leaves nothing.
    pub fn fail_after(&self, writes: u64) {
        self.state.lock().fail_after = Some(writes);
    }

    /// Reads of these bytes fail.
    pub fn set_unreadable(&self, bytes: Range<u64>) {
        self.state.lock().unreadable = bytes;
    }

    /// Sets what runs at each event.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.state.lock().hook = hook;
    }

    /// Number of durable writes and of flushes.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.durable_writes, state.flushes)
    }

    /// Kills the process that uses the disk: its writes end in the disk's cache. Returns the disk
    /// as the next process sees it; every call on this one fails.
    pub fn kill(&self) -> SimulatedDisk {
        let mut state = self.state.lock();
        let mut loose = state.loose.clone();
        for write in &mut loose {
            write.progress = Progress::Cached;
        }
        let next = State {
            durable: state.durable.clone(),
            loose,
            next_id: state.next_id,
            ..State::default()
        };
        self.end(&mut state);
        SimulatedDisk {
            state: Mutex::new(next),
            changed: Condvar::new(),
        }
    }

    /// Cuts the power: every call fails from now on.
    pub fn cut(&self) {
        self.end(&mut self.state.lock());
    }

    fn end(&self, state: &mut State) {
        state.is_dead = true;
        state.loose.clear();
        self.changed.notify_all();
    }

    /// Gives `judge` each image that a power failure could leave now: of the writes that are not
    /// durable none, all, each alone, all but one, and each torn in several ways, beside none and
    /// all of the others.
    pub fn for_each_crash(&self, judge: &mut dyn FnMut(&Crash, &[u8])) {
        let (durable, loose) = {
            let state = self.state.lock();
            (state.durable.clone(), state.loose.clone())
        };
        let mut image = durable.clone();
        for survivors in subsets(&loose) {
            for (write, survivor) in loose.iter().zip(&survivors) {
                write.apply(&mut image, survivor);
            }
            judge(&Crash { survivors }, &image);
            for write in &loose {
                let range = write.at..write.at + write.bytes.len();
                image[range.clone()].copy_from_slice(&durable[range]);
            }
        }
    }

    fn run_hook(&self, event: Event) {
        let hook = self.state.lock().hook.clone();
        if let Some(hook) = hook {
            hook(self, event);
        }
    }

    fn start(state: &mut State, at: u64, bytes: &[u8], progress: Progress) -> u64 {
        assert!(
            (at as usize).is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES),
            "whole sectors"
        );
        assert!(
            at as usize + bytes.len() <= state.durable.len(),
            "a write behind the end"
        );
        let id = state.next_id;
        state.next_id += 1;
        state.loose.push(Loose {
            id,
            at: at as usize,
            bytes: bytes.to_vec(),
            live: vec![true; bytes.len() / SECTOR_BYTES],
            progress,
        });
        id
    }
}

fn held(state: &State) -> impl Iterator<Item = u64> + '_ {
    state
        .loose
        .iter()
        .filter(|loose| loose.progress == Progress::Held)
        .map(|loose| loose.id)
}

fn release(state: &mut State, id: u64) {
    for loose in &mut state.loose {
        if loose.id == id {
            loose.progress = Progress::Released;
        }
    }
}

/// Makes one write durable; sectors of earlier writes that it replaces cannot come back.
fn complete(state: &mut State, id: u64) {
    let Some(index) = state.loose.iter().position(|loose| loose.id == id) else {
        return;
    };
    let write = state.loose.remove(index);
    write.apply(&mut state.durable, &Survivor::All);
    for earlier in state.loose.iter_mut().filter(|earlier| earlier.id < id) {
        for sector in 0..earlier.live.len() {
            let place = earlier.at + sector * SECTOR_BYTES;
            if (write.at..write.at + write.bytes.len()).contains(&place) {
                earlier.live[sector] = false;
            }
        }
    }
}

/// Survivors of the `loose` writes, for each power failure that is tried.
fn subsets(loose: &[Loose]) -> Vec<Vec<Survivor>> {
    let count = loose.len();
    let of = |survives: &dyn Fn(usize) -> bool| -> Vec<Survivor> {
        (0..count)
            .map(|index| {
                if survives(index) {
                    Survivor::All
                } else {
                    Survivor::Nothing
                }
            })
            .collect()
    };
    let mut all = Vec::new();
    if count <= ALL_SUBSETS_MAX {
        all.extend((0..1_usize << count).map(|mask| of(&|index| mask >> index & 1 == 1)));
    } else {
        all.extend([of(&|_| false), of(&|_| true)]);
        for one in 0..count {
            all.extend([of(&|index| index == one), of(&|index| index != one)]);
        }
    }
    for (torn, write) in loose.iter().enumerate() {
        for survivor in torn_ways(write.live.len()) {
            for others in [false, true] {
                let mut survivors = of(&|_| others);
                survivors[torn] = survivor.clone();
                all.push(survivors);
            }
        }
    }
    all
}

/// Ways to tear a write: its beginning, its end, and all but a sector.
fn torn_ways(sectors: usize) -> Vec<Survivor> {
    let mut ways = Vec::new();
    let mut cuts = vec![1, sectors / 2, sectors.saturating_sub(1)];
    cuts.retain(|&cut| cut > 0 && cut < sectors);
    cuts.dedup();
    for cut in cuts {
        ways.extend([Survivor::Sectors(0..cut), Survivor::Sectors(cut..sectors)]);
    }
    if sectors > 2 {
        ways.push(Survivor::AllBut(sectors / 2..sectors / 2 + 1));
    }
    ways
}

fn dead() -> io::Error {
    io::Error::other("the disk has no power")
}

impl Disk for SimulatedDisk {
    fn length_bytes(&self) -> u64 {
        self.state.lock().durable.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        let end = at + into.len() as u64;
        if state.is_dead || (at < state.unreadable.end && state.unreadable.start < end) {
            return Err(io::Error::from_raw_os_error(
                rustix::io::Errno::IO.raw_os_error(),
            ));
        }
        into.copy_from_slice(&state.durable[at as usize..end as usize]);
        for loose in state
            .loose
            .iter()
            .filter(|loose| loose.progress == Progress::Cached)
        {
            for (_, range) in loose.sectors() {
                let place = (loose.at + range.start) as u64;
                if (at..end).contains(&place) {
                    let from = (place - at) as usize;
                    into[from..from + SECTOR_BYTES].copy_from_slice(&loose.bytes[range]);
                }
            }
        }
        Ok(())
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let id = {
            let mut state = self.state.lock();
            if state.is_dead {
                return Err(dead());
            }
            state.fail_after = match state.fail_after {
                Some(0) => {
                    state.fail_after = None;
                    return Err(io::Error::from_raw_os_error(
                        rustix::io::Errno::IO.raw_os_error(),
                    ));
                }
                after => after.map(|after| after - 1),
            };
            let progress = if state.holds {
                Progress::Held
            } else {
                Progress::Released
            };
            let id = SimulatedDisk::start(&mut state, at, bytes, progress);
            self.changed.notify_all();
            id
        };
        self.run_hook(Event::Started);
        {
            let mut state = self.state.lock();
            while !state.is_dead && held(&state).any(|other| other == id) {
                self.changed.wait(&mut state);
            }
            if state.is_dead {
                return Err(dead());
            }
            complete(&mut state, id);
            state.durable_writes += 1;
            self.changed.notify_all();
        }
        self.run_hook(Event::Completed);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            if state.is_dead {
                return Err(dead());
            }
            SimulatedDisk::start(&mut state, at, bytes, Progress::Cached);
        }
        self.run_hook(Event::Cached);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.run_hook(Event::Flushing);
        {
            let mut state = self.state.lock();
            if state.is_dead {
                return Err(dead());
            }
            let cached: Vec<u64> = state
                .loose
                .iter()
                .filter(|loose| loose.progress == Progress::Cached)
                .map(|loose| loose.id)
                .collect();
            for id in cached {
                complete(&mut state, id);
            }
            state.flushes += 1;
        }
        self.run_hook(Event::Flushed);
        Ok(())
    }

    fn name(&self) -> String {
        "simulated disk".to_owned()
    }
}
