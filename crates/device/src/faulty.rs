//! A device in memory that fails in every way: for tests, and for crash exploration together with
//! power cuts.
//!
//! Every outcome can be repeated: a fault is [armed](Faulty::arm) for a certain request, and the
//! caller's seed decides which versions a power cut leaves. Like a disk it has a cache that a power
//! cut empties: each block keeps any version written since the last flush, or sectors of several
//! (reordered, lost and torn writes).

use crate::block::{DeviceBlock, Run};
use crate::device::{Device, DeviceError, ReadRequest, Token, WriteRequest};
use parking_lot::Mutex;
use pmem::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

const SECTOR_BYTES: usize = 512;

type Content = Arc<[u8; BLOCK_BYTES]>;

/// A way to fail.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Fault {
    /// Reading reports an error.
    Read,
    /// Beginning to write reports an error, although half of the blocks are written.
    Write,
    /// Waiting for a write reports an error, although half of the blocks are written.
    Wait,
    /// A flush reports an error; the next power cut loses the writes that it was to make durable.
    Flush,
    /// Only the first half of each block is written, and no call reports it.
    Torn,
    /// Nothing is written, and no call reports it.
    Lost,
    /// Each block is written one block behind its place, and no call reports it.
    Misdirected,
    /// A read returns the content that the last write of a block replaced, and no call reports it.
    Stale,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 8] = [
        Fault::Read,
        Fault::Write,
        Fault::Wait,
        Fault::Flush,
        Fault::Torn,
        Fault::Lost,
        Fault::Misdirected,
        Fault::Stale,
    ];

    /// The kind of request that it goes with.
    fn request(self) -> usize {
        match self {
            Fault::Read | Fault::Stale => 0,
            Fault::Write | Fault::Torn | Fault::Lost | Fault::Misdirected => 1,
            Fault::Wait => 2,
            Fault::Flush => 3,
        }
    }
}

/// Requests that a device has had.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Batches read.
    pub reads: u64,
    /// Batches written.
    pub writes: u64,
    /// Writes waited for.
    pub waits: u64,
    /// Flushes.
    pub flushes: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Armed faults that a request has met.
    pub faults: u64,
}

#[derive(Clone, Debug, Default)]
struct Block {
    /// The version that a power cut leaves at least.
    durable: Option<Content>,
    /// The versions written since the last flush, the newest last.
    cached: Vec<Content>,
    /// The version that a failed flush was to make durable: reads return it until the power fails,
    /// and no later flush writes it.
    doomed: Option<Content>,
    /// The version that the last write replaced.
    before: Option<Content>,
}

impl Block {
    fn now(&self) -> Option<&Content> {
        self.cached
            .last()
            .or(self.doomed.as_ref())
            .or(self.durable.as_ref())
    }

    fn write(&mut self, content: Content) {
        self.before = self.now().cloned();
        self.cached.push(content);
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    blocks: BTreeMap<u64, Block>,
    armed: Vec<(Fault, u64)>,
    /// By kind of request, see [`Fault::request`].
    requests: [u64; 4],
    counts: Counts,
    is_gone: bool,
    next_token: u64,
    /// Writes that were begun; they take effect at their wait.
    begun: BTreeMap<u64, Vec<(u64, Content)>>,
}

impl State {
    fn is_there(&self) -> Result<(), DeviceError> {
        match self.is_gone {
            true => Err(DeviceError::Missing),
            false => Ok(()),
        }
    }

    /// The fault that is armed for this request, which is counted.
    fn meet(&mut self, request: usize) -> Option<Fault> {
        let index = self.requests[request];
        self.requests[request] += 1;
        let is_now = |(fault, at): &(Fault, u64)| fault.request() == request && *at == index;
        let place = self.armed.iter().position(is_now)?;
        self.counts.faults += 1;
        Some(self.armed.swap_remove(place).0)
    }

    fn put(&mut self, blocks: &[(u64, Content)]) {
        for (block, content) in blocks {
            self.blocks
                .entry(*block)
                .or_default()
                .write(Arc::clone(content));
        }
    }
}

/// Called before each request that changes something.
type Watch = Box<dyn FnMut() + Send>;

/// The device.
pub struct Faulty {
    blocks: u64,
    delay: Mutex<Duration>,
    state: Mutex<State>,
    watch: Mutex<Option<Watch>>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(
            formatter,
            "device of {} blocks, {:?}",
            self.blocks, state.counts
        )
    }
}

fn failed(what: &str) -> DeviceError {
    DeviceError::Failed(format!("{what}: an error that a test asked for"))
}

/// The next of a row of numbers that look random.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Faulty {
    /// A device of zeros.
    pub fn new(blocks: u64) -> Faulty {
        Faulty::with_state(blocks, State::default())
    }

    fn with_state(blocks: u64, state: State) -> Faulty {
        Faulty {
            blocks,
            delay: Mutex::default(),
            state: Mutex::new(state),
            watch: Mutex::default(),
        }
    }

    /// Calls `watch` from now on before each write, wait and flush: moments at which the power may
    /// fail.
    pub fn on_request(&self, watch: impl FnMut() + Send + 'static) {
        *self.watch.lock() = Some(Box::new(watch));
    }

    /// Ends the calls of [`on_request`](Self::on_request).
    pub fn ignore_requests(&self) {
        *self.watch.lock() = None;
    }

    fn be_watched(&self) {
        if let Some(watch) = &mut *self.watch.lock() {
            watch();
        }
    }

    /// Returns a hash of the durable content, to compare states after power cuts.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (index, block) in &self.state.lock().blocks {
            (index, &block.durable).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Arms a fault: from now on `after` requests of its kind succeed, and the next one meets the
    /// fault. Other faults stay armed.
    pub fn arm(&self, fault: Fault, after: u64) {
        let mut state = self.state.lock();
        let at = state.requests[fault.request()] + after;
        state.armed.push((fault, at));
    }

    /// Disarms all faults. Returns how many were left.
    pub fn disarm(&self) -> usize {
        std::mem::take(&mut self.state.lock().armed).len()
    }

    /// The device goes, or comes back with all that it had.
    pub fn set_gone(&self, is_gone: bool) {
        self.state.lock().is_gone = is_gone;
    }

    /// Each request takes so long from now on.
    pub fn set_delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    /// Returns the number of its requests.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Changes a bit of a block, where it lies.
    pub fn flip(&self, block: DeviceBlock, bit: usize) {
        let mut state = self.state.lock();
        let block = state.blocks.entry(block.get()).or_default();
        let mut content = block.now().map_or([0; BLOCK_BYTES], |content| **content);
        content[bit / 8 % BLOCK_BYTES] ^= 1 << (bit % 8);
        let content = Arc::new(content);
        *block = Block {
            durable: Some(content),
            ..Block::default()
        };
    }

    /// The same device at this moment, for a power cut to come.
    pub fn snapshot(&self) -> Faulty {
        let mut state = self.state.lock().clone();
        state.armed.clear();
        Faulty::with_state(self.blocks, state)
    }

    /// Blocks of which a power cut may leave more than one version.
    pub fn unsettled(&self) -> usize {
        let state = self.state.lock();
        let is_cached = |block: &&Block| !block.cached.is_empty();
        let begun: usize = state.begun.values().map(Vec::len).sum();
        begun + state.blocks.values().filter(is_cached).count()
    }

    /// Returns the device after a power cut at this moment. Each block has its durable version, any
    /// later one, or sectors of these, as `seed` selects. With seed 0 every write arrives, with
    /// seed 1 none.
    pub fn cut(&self, seed: u64) -> Faulty {
        let mut state = self.state.lock().clone();
        let mut random = seed;
        // Writes that were begun and not waited for may have arrived as well.
        for (_, blocks) in std::mem::take(&mut state.begun) {
            state.put(&blocks);
        }
        for block in state.blocks.values_mut() {
            let versions: Vec<Option<Content>> = std::iter::once(block.durable.clone())
                .chain(block.cached.drain(..).map(Some))
                .collect();
            block.durable = match seed {
                0 => versions.last().cloned().flatten(),
                1 => versions.first().cloned().flatten(),
                _ => survivor(&versions, &mut random),
            };
            (block.before, block.doomed) = (None, None);
        }
        state.armed.clear();
        state.is_gone = false;
        Faulty::with_state(self.blocks, state)
    }

    fn take_time(&self) {
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
    }
}

/// One of the versions, or sectors of all of them.
fn survivor(versions: &[Option<Content>], random: &mut u64) -> Option<Content> {
    let count = versions.len() as u64;
    if !draw(random).is_multiple_of(4) || count == 1 {
        return versions[(draw(random) % count) as usize].clone();
    }
    let mut torn = [0; BLOCK_BYTES];
    for sector in torn.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let (index, bytes) = sector;
        if let Some(content) = &versions[(draw(random) % count) as usize] {
            bytes.copy_from_slice(&content[index * SECTOR_BYTES..][..SECTOR_BYTES]);
        }
    }
    Some(Arc::new(torn))
}

impl Device for Faulty {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.take_time();
        let mut state = self.state.lock();
        state.is_there()?;
        state.counts.reads += 1;
        state.counts.blocks_read += requests.len() as u64;
        let fault = state.meet(Fault::Read.request());
        if fault == Some(Fault::Read) {
            return Err(failed("read"));
        }
        for request in requests {
            if request.block.get() >= self.blocks {
                return Err(failed("read behind the end"));
            }
            let block = state.blocks.get(&request.block.get());
            let content = match fault {
                Some(Fault::Stale) => block.and_then(|block| block.before.as_ref()),
                _ => block.and_then(Block::now),
            };
            match content {
                Some(content) => request.into.copy_from_slice(&content[..]),
                None => request.into.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, requests: &[WriteRequest<'_>]) -> Result<Token, DeviceError> {
        self.take_time();
        self.be_watched();
        let mut state = self.state.lock();
        state.is_there()?;
        state.counts.writes += 1;
        let fault = state.meet(Fault::Write.request());
        let mut blocks = Vec::new();
        for request in requests {
            let whole = request.bytes.as_chunks::<BLOCK_BYTES>().0;
            for (index, content) in (request.start.get()..).zip(whole) {
                if index >= self.blocks {
                    return Err(failed("write behind the end"));
                }
                blocks.push((index, Arc::new(*content)));
            }
        }
        state.counts.blocks_written += blocks.len() as u64;
        match fault {
            Some(Fault::Write) => {
                blocks.truncate(blocks.len() / 2);
                state.put(&blocks);
                return Err(failed("write"));
            }
            Some(Fault::Lost) => blocks.clear(),
            Some(Fault::Torn) => {
                for (index, content) in &mut blocks {
                    let old = state.blocks.get(index).and_then(Block::now);
                    let old = old.map_or([0; BLOCK_BYTES], |content| **content);
                    Arc::make_mut(content)[BLOCK_BYTES / 2..]
                        .copy_from_slice(&old[BLOCK_BYTES / 2..]);
                }
            }
            Some(Fault::Misdirected) => {
                for (index, _) in &mut blocks {
                    *index = (*index + 1) % self.blocks;
                }
            }
            _ => {}
        }
        let token = state.next_token;
        state.next_token += 1;
        state.begun.insert(token, blocks);
        Ok(Token(token))
    }

    fn wait(&self, token: Token) -> Result<(), DeviceError> {
        self.take_time();
        self.be_watched();
        let mut state = self.state.lock();
        let Some(mut blocks) = state.begun.remove(&token.0) else {
            return Err(failed("wait for a write that nobody began"));
        };
        state.is_there()?;
        state.counts.waits += 1;
        let has_failed = state.meet(Fault::Wait.request()).is_some();
        if has_failed {
            blocks.truncate(blocks.len() / 2);
        }
        state.put(&blocks);
        match has_failed {
            true => Err(failed("wait for a write")),
            false => Ok(()),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.take_time();
        self.be_watched();
        let mut state = self.state.lock();
        state.is_there()?;
        state.counts.flushes += 1;
        let has_failed = state.meet(Fault::Flush.request()).is_some();
        for block in state.blocks.values_mut() {
            let Some(newest) = block.cached.pop() else {
                continue;
            };
            block.cached.clear();
            match has_failed {
                true => block.doomed = Some(newest),
                false => (block.durable, block.doomed) = (Some(newest), None),
            }
        }
        match has_failed {
            true => Err(failed("flush")),
            false => Ok(()),
        }
    }

    fn trim(&self, runs: &[Run]) {
        let mut state = self.state.lock();
        for index in runs.iter().flat_map(|run| run.indexes()) {
            state.blocks.remove(&index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(device: &Faulty, block: u64, byte: u8) -> Result<(), DeviceError> {
        let token = device.write(&[WriteRequest {
            start: DeviceBlock::new(block),
            bytes: &[byte; BLOCK_BYTES],
        }])?;
        device.wait(token)
    }

    fn read(device: &Faulty, block: u64) -> Result<[u8; BLOCK_BYTES], DeviceError> {
        let mut into = [0xee; BLOCK_BYTES];
        let block = DeviceBlock::new(block);
        device.read(&mut [ReadRequest {
            block,
            into: &mut into,
        }])?;
        Ok(into)
    }

    #[test]
    fn faults_come_when_they_are_armed_and_go() {
        for fault in Fault::ALL {
            let device = Faulty::new(4);
            write(&device, 0, 1).expect("good");
            device.arm(fault, 1);
            let good = write(&device, 1, 1).and_then(|()| read(&device, 0));
            device.flush().expect("not yet");
            assert_eq!(good.map(|content| content[0]), Ok(1), "{fault:?}");
            let written = write(&device, 0, 2);
            let found = read(&device, 0);
            let flushed = device.flush();
            let (first, last) = match fault {
                Fault::Read => (0, 0),
                Fault::Torn => (2, 1),
                Fault::Flush => (2, 2),
                _ => (1, 1),
            };
            assert_eq!(
                written.is_err(),
                [Fault::Write, Fault::Wait].contains(&fault)
            );
            assert_eq!(flushed.is_err(), fault == Fault::Flush);
            match found {
                Ok(found) => assert_eq!((found[0], found[4095]), (first, last), "{fault:?}"),
                Err(_) => assert_eq!(fault, Fault::Read),
            }
            assert_eq!(device.disarm(), 0, "{fault:?}");
            write(&device, 0, 3).expect("good again");
            assert_eq!(read(&device, 0).map(|content| content[0]), Ok(3));
        }
    }

    #[test]
    fn a_power_cut_leaves_what_was_flushed() {
        let device = Faulty::new(2);
        write(&device, 0, 1).expect("good");
        device.flush().expect("good");
        write(&device, 0, 2).expect("good");
        write(&device, 0, 3).expect("good");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let left = read(&device.cut(seed), 0).expect("good");
            seen.insert(left[0]);
            assert!(
                left.as_chunks::<512>()
                    .0
                    .iter()
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
            );
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(read(&device.cut(0), 0).map(|content| content[0]), Ok(3));
        assert_eq!(read(&device.cut(1), 0).map(|content| content[0]), Ok(1));
        device.arm(Fault::Flush, 0);
        device.flush().expect_err("armed");
        device.flush().expect("it says so once");
        assert_eq!(read(&device, 0).map(|content| content[0]), Ok(3));
        assert_eq!(read(&device.cut(0), 0).map(|content| content[0]), Ok(1));
    }

    #[test]
    fn a_device_that_is_gone_comes_back() {
        let device = Faulty::new(2);
        write(&device, 0, 1).expect("good");
        device.set_gone(true);
        assert_eq!(read(&device, 0), Err(DeviceError::Missing));
        assert_eq!(write(&device, 0, 2), Err(DeviceError::Missing));
        device.set_gone(false);
        assert_eq!(read(&device, 0).map(|content| content[0]), Ok(1));
    }
}
