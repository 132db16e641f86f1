//! Two disks that forget what is not durable. After a power cut each sector that was written since
//! the last flush has its last durable bytes, or those of any write since then: whole sectors, any
//! subset of them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use txn::Disks;
use txn::checksum::{crc32c, mix64};
use wal::Disk;

/// Unit that a power cut never tears.
pub const SECTOR_BYTES: usize = 512;
/// Position of the log's disk.
pub const LOG: usize = 0;
/// Position of the image's disk.
pub const IMAGE: usize = 1;

/// Runs at each start and end of a write, and before and after each flush.
pub type Hook = Arc<dyn Fn(&Medium) + Send + Sync>;

/// A sector that was written and is not durable.
#[derive(Clone)]
struct Sector {
    at: usize,
    bytes: Arc<[u8]>,
    hash: u64,
    write: u64,
    /// Reads see it: it is in the disk's cache, and not on its way.
    is_cached: bool,
}

/// One disk.
#[derive(Clone)]
struct Side {
    durable: Arc<Vec<u8>>,
    /// Of each durable sector.
    hashes: Arc<Vec<u64>>,
    /// Of the durable bytes: the hashes of all sectors, combined in any order.
    hash: u64,
    loose: Vec<Sector>,
    writes: u64,
}

fn sector_hash(side: usize, at: usize, bytes: &[u8]) -> u64 {
    let (low, high) = bytes.split_at(bytes.len() / 2);
    let check = u64::from(crc32c(low)) << 32 | u64::from(crc32c(high));
    mix64(check ^ mix64((side as u64) << 40 | at as u64))
}

impl Side {
    fn new(side: usize, durable: Arc<Vec<u8>>) -> Side {
        let sectors = durable.chunks(SECTOR_BYTES).enumerate();
        let hashes = sectors.map(|(index, bytes)| sector_hash(side, index * SECTOR_BYTES, bytes));
        let hashes: Vec<u64> = hashes.collect();
        Side {
            hash: hashes.iter().fold(0, |all, hash| all ^ hash),
            hashes: Arc::new(hashes),
            durable,
            loose: Vec::new(),
            writes: 0,
        }
    }

    fn start(&mut self, side: usize, at: u64, bytes: &[u8], is_cached: bool) -> u64 {
        assert!(
            (at as usize).is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES),
            "whole sectors"
        );
        assert!(
            at as usize + bytes.len() <= self.durable.len(),
            "a write behind the disk's end"
        );
        self.writes += 1;
        let sectors = bytes.chunks(SECTOR_BYTES).enumerate();
        self.loose.extend(sectors.map(|(index, bytes)| Sector {
            at: at as usize + index * SECTOR_BYTES,
            bytes: bytes.into(),
            hash: sector_hash(side, at as usize + index * SECTOR_BYTES, bytes),
            write: self.writes,
            is_cached,
        }));
        self.writes
    }

    /// Some sectors become durable; the bytes of earlier writes in their places cannot come back.
    fn settle(&mut self, is_meant: impl Fn(&Sector) -> bool) {
        let loose = std::mem::take(&mut self.loose);
        let durable = Arc::make_mut(&mut self.durable);
        let hashes = Arc::make_mut(&mut self.hashes);
        let mut newest: BTreeMap<usize, u64> = BTreeMap::new();
        for sector in loose.iter().filter(|sector| is_meant(sector)) {
            let place = &mut durable[sector.at..sector.at + SECTOR_BYTES];
            place.copy_from_slice(&sector.bytes);
            let hash = &mut hashes[sector.at / SECTOR_BYTES];
            self.hash ^= *hash ^ sector.hash;
            *hash = sector.hash;
            newest.insert(sector.at, sector.write);
        }
        let is_left = |sector: &Sector| {
            !is_meant(sector)
                && newest
                    .get(&sector.at)
                    .is_none_or(|write| *write < sector.write)
        };
        self.loose = loose.into_iter().filter(is_left).collect();
    }

    fn picks(&self) -> Vec<Pick> {
        let count = self.loose.len();
        let mut picks = vec![Pick::None];
        if count > 0 {
            picks.push(Pick::All);
        }
        if count < 2 {
            return picks;
        }
        let starts = (1..count).filter(|&at| self.loose[at].write != self.loose[at - 1].write);
        let mut edges: Vec<usize> = starts.collect();
        edges.extend([1, count / 2, count - 1]);
        edges.sort_unstable();
        edges.dedup();
        picks.extend(
            edges
                .iter()
                .flat_map(|&at| [Pick::Before(at), Pick::From(at)]),
        );
        picks.extend((0..count).flat_map(|at| [Pick::One(at), Pick::AllBut(at)]));
        picks
    }

    /// The sectors that survive, by place; of one place the newest.
    fn survivors(&self, pick: Pick) -> BTreeMap<usize, &Sector> {
        let sectors = self.loose.iter().enumerate();
        let survivors = sectors.filter(|(index, _)| pick.has(*index));
        survivors.map(|(_, sector)| (sector.at, sector)).collect()
    }

    fn hash_of(&self, pick: Pick, has_doubles: bool) -> u64 {
        let change =
            |hash: u64, sector: &Sector| hash ^ self.hashes[sector.at / SECTOR_BYTES] ^ sector.hash;
        if has_doubles {
            return self
                .survivors(pick)
                .values()
                .copied()
                .fold(self.hash, change);
        }
        let sectors = self.loose.iter().enumerate();
        let survivors = sectors.filter(|(index, _)| pick.has(*index));
        survivors.map(|(_, sector)| sector).fold(self.hash, change)
    }

    /// Whether two of the sectors have one place.
    fn has_doubles(&self) -> bool {
        let mut places: Vec<usize> = self.loose.iter().map(|sector| sector.at).collect();
        places.sort_unstable();
        places.windows(2).any(|pair| pair[0] == pair[1])
    }

    fn cut(&self, pick: Pick) -> CutDisk {
        let survivors = self.survivors(pick).into_iter();
        let over = survivors.map(|(at, sector)| (at, Arc::clone(&sector.bytes)));
        CutDisk {
            base: Arc::clone(&self.durable),
            over: Mutex::new(over.collect()),
        }
    }

    /// Makes the sectors durable that a choice leaves.
    fn keep(&mut self, pick: Pick) {
        let mut index = 0;
        self.loose.retain(|_| {
            index += 1;
            pick.has(index - 1)
        });
        self.settle(|_| true);
    }
}

/// Which sectors of one disk survive, of those that are not durable, in the order in which they
/// were written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pick {
    /// None.
    None,
    /// All.
    All,
    /// Those before this one.
    Before(usize),
    /// This one and those behind it.
    From(usize),
    /// This one.
    One(usize),
    /// All but this one.
    AllBut(usize),
}

impl Pick {
    fn has(self, index: usize) -> bool {
        match self {
            Pick::None => false,
            Pick::All => true,
            Pick::Before(end) => index < end,
            Pick::From(start) => index >= start,
            Pick::One(one) => index == one,
            Pick::AllBut(one) => index != one,
        }
    }
}

/// The sectors that survive on both disks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Choice(pub [Pick; 2]);

impl Choice {
    /// All sectors that were written, or only the durable ones.
    pub fn whole(survives: bool) -> Choice {
        let pick = if survives { Pick::All } else { Pick::None };
        Choice([pick; 2])
    }
}

/// Both disks at one moment.
#[derive(Clone)]
pub struct Point {
    sides: [Side; 2],
    has_doubles: [bool; 2],
}

/// Choices that are tried whatever the limit is.
const FIRST: usize = 6;

impl Point {
    /// At most `limit` choices: those of one disk beside few of the other. Which of too many are
    /// taken depends on `turn`.
    pub fn choices(&self, limit: usize, turn: u64) -> Vec<Choice> {
        let [logs, images] = [LOG, IMAGE].map(|side| self.sides[side].picks());
        let few = |picks: &[Pick]| -> Vec<Pick> { picks.iter().copied().take(4).collect() };
        let (few_logs, few_images) = (few(&logs), few(&images));
        let mut all = Vec::new();
        for &log in &logs {
            all.extend(few_images.iter().map(|&image| Choice([log, image])));
        }
        for &image in images.iter().skip(few_images.len()) {
            all.extend(few_logs.iter().map(|&log| Choice([log, image])));
        }
        if all.len() <= limit {
            return all;
        }
        let mut taken: Vec<Choice> = all.drain(..FIRST.min(limit)).collect();
        let (rest, count) = (all.len(), limit - taken.len());
        let first = turn as usize % rest;
        taken.extend((0..count).map(|index| all[(first + index * rest / count.max(1)) % rest]));
        taken
    }

    /// Returns the hash of the bytes that a choice leaves on both disks.
    pub fn hash(&self, choice: Choice) -> u64 {
        let hashes = [LOG, IMAGE]
            .map(|side| self.sides[side].hash_of(choice.0[side], self.has_doubles[side]));
        hashes[LOG].rotate_left(1) ^ hashes[IMAGE]
    }

    /// Returns the disks that a choice leaves; they keep every later write.
    pub fn cut(&self, choice: Choice) -> Disks {
        let [log, image] = [LOG, IMAGE].map(|side| Arc::new(self.sides[side].cut(choice.0[side])));
        Disks { log, image }
    }

    /// Returns the disks that a choice leaves; their power can be cut again.
    pub fn medium(&self, choice: Choice) -> Arc<Medium> {
        let mut sides = self.sides.clone();
        for side in [LOG, IMAGE] {
            sides[side].keep(choice.0[side]);
        }
        Medium::over(sides)
    }

    /// The disks of the process after one that was killed: a write on its way ends in the cache or
    /// is lost.
    pub fn killed(&self, completes: bool) -> Arc<Medium> {
        let mut sides = self.sides.clone();
        for side in &mut sides {
            side.loose.retain(|sector| sector.is_cached || completes);
            side.loose
                .iter_mut()
                .for_each(|sector| sector.is_cached = true);
        }
        Medium::over(sides)
    }

    /// Whether a write is on its way.
    pub fn is_any_on_its_way(&self) -> bool {
        let mut loose = self.sides.iter().flat_map(|side| &side.loose);
        loose.any(|sector| !sector.is_cached)
    }

    /// Whether everything that was written is durable.
    pub fn is_durable(&self) -> bool {
        self.sides.iter().all(|side| side.loose.is_empty())
    }
}

/// The disks of log and image.
pub struct Medium {
    sides: Mutex<[Side; 2]>,
    hook: Mutex<Option<Hook>>,
}

impl fmt::Debug for Medium {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loose = self.sides.lock().each_ref().map(|side| side.loose.len());
        write!(formatter, "Medium({loose:?} sectors loose)")
    }
}

impl Medium {
    /// Disks with durable content: log and image.
    pub fn new(contents: [Vec<u8>; 2]) -> Arc<Medium> {
        let [log, image] = contents.map(Arc::new);
        Medium::over([Side::new(LOG, log), Side::new(IMAGE, image)])
    }

    fn over(sides: [Side; 2]) -> Arc<Medium> {
        Arc::new(Medium {
            sides: Mutex::new(sides),
            hook: Mutex::default(),
        })
    }

    /// For opening a pool.
    pub fn disks(self: &Arc<Self>) -> Disks {
        let [log, image] = [LOG, IMAGE].map(|side| {
            let medium = Arc::clone(self);
            Arc::new(MediumDisk { medium, side })
        });
        Disks { log, image }
    }

    /// Sets what runs at each event.
    pub fn on_event(&self, hook: Option<Hook>) {
        *self.hook.lock() = hook;
    }

    /// Both disks now.
    pub fn point(&self) -> Point {
        let sides = self.sides.lock().clone();
        Point {
            has_doubles: sides.each_ref().map(Side::has_doubles),
            sides,
        }
    }

    fn event(&self) {
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook(self);
        }
    }
}

struct MediumDisk {
    medium: Arc<Medium>,
    side: usize,
}

impl fmt::Debug for MediumDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {:?}", self.name(), self.medium)
    }
}

impl Disk for MediumDisk {
    fn length_bytes(&self) -> u64 {
        self.medium.sides.lock()[self.side].durable.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let sides = self.medium.sides.lock();
        let side = &sides[self.side];
        let (start, end) = (at as usize, at as usize + into.len());
        into.copy_from_slice(&side.durable[start..end]);
        for sector in side.loose.iter().filter(|sector| sector.is_cached) {
            if (start..end).contains(&sector.at) {
                let from = sector.at - start;
                into[from..from + SECTOR_BYTES].copy_from_slice(&sector.bytes);
            }
        }
        Ok(())
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let write = self.medium.sides.lock()[self.side].start(self.side, at, bytes, false);
        self.medium.event();
        self.medium.sides.lock()[self.side].settle(|sector| sector.write == write);
        self.medium.event();
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.medium.sides.lock()[self.side].start(self.side, at, bytes, true);
        self.medium.event();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.medium.event();
        self.medium.sides.lock()[self.side].settle(|sector| sector.is_cached);
        self.medium.event();
        Ok(())
    }

    fn name(&self) -> String {
        ["the log's disk", "the image's disk"][self.side].to_owned()
    }
}

/// A disk after a power cut: bytes that others have too, and sectors over them.
struct CutDisk {
    base: Arc<Vec<u8>>,
    over: Mutex<BTreeMap<usize, Arc<[u8]>>>,
}

impl fmt::Debug for CutDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.name())
    }
}

impl Disk for CutDisk {
    fn length_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let (start, end) = (at as usize, at as usize + into.len());
        into.copy_from_slice(&self.base[start..end]);
        for (at, bytes) in self.over.lock().range(start..end) {
            into[at - start..at - start + SECTOR_BYTES].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(at, bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let sectors = bytes.chunks(SECTOR_BYTES).enumerate();
        let sectors =
            sectors.map(|(index, bytes)| (at as usize + index * SECTOR_BYTES, bytes.into()));
        self.over.lock().extend(sectors);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "a disk after a power cut".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image_of(disk: &Arc<dyn Disk>) -> Vec<u8> {
        let mut image = vec![0; disk.length_bytes() as usize];
        disk.read(0, &mut image).expect("a disk in memory");
        image
    }

    /// Writes that overlap: a flushed one, one in the cache, and one on its way.
    fn point() -> Point {
        let medium = Medium::new([vec![1; 8 * SECTOR_BYTES], vec![2; 8 * SECTOR_BYTES]]);
        let disks = medium.disks();
        let write = |disk: &Arc<dyn Disk>, sector: u64, byte: u8, sectors: usize| {
            let bytes = vec![byte; sectors * SECTOR_BYTES];
            disk.write(sector * SECTOR_BYTES as u64, &bytes)
                .expect("a disk in memory");
        };
        write(&disks.image, 0, 3, 2);
        disks.image.flush().expect("a disk in memory");
        write(&disks.image, 1, 4, 3);
        write(&disks.image, 2, 5, 1);
        let kept: Arc<Mutex<Option<Point>>> = Arc::default();
        let keep = Arc::clone(&kept);
        medium.on_event(Some(Arc::new(move |medium: &Medium| {
            keep.lock().get_or_insert_with(|| medium.point());
        })));
        let bytes = vec![6; 2 * SECTOR_BYTES];
        disks
            .log
            .write_durable(0, &bytes)
            .expect("a disk in memory");
        let point = kept.lock().take();
        point.expect("an event at the start of a write")
    }

    #[test]
    fn every_subset_that_is_promised_is_there_and_nothing_else() {
        let point = point();
        let choices = point.choices(usize::MAX, 0);
        let images: std::collections::BTreeSet<Vec<u8>> = choices
            .iter()
            .map(|choice| image_of(&point.cut(*choice).image))
            .collect();
        let with = |changes: &[(usize, u8)]| {
            let mut image = vec![2; 8 * SECTOR_BYTES];
            image[..2 * SECTOR_BYTES].fill(3);
            for &(sector, byte) in changes {
                image[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES].fill(byte);
            }
            image
        };
        let wanted = [
            with(&[]),
            with(&[(1, 4), (2, 5), (3, 4)]),
            with(&[(1, 4)]),
            with(&[(2, 4)]),
            with(&[(3, 4)]),
            with(&[(2, 5)]),
            with(&[(2, 5), (3, 4)]),
            with(&[(1, 4), (2, 5)]),
            with(&[(1, 4), (2, 4), (3, 4)]),
            with(&[(1, 4), (2, 4)]),
        ];
        assert_eq!(images, wanted.into_iter().collect());
    }

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        let point = point();
        for choice in point.choices(usize::MAX, 0) {
            let cut = point.cut(choice);
            let same = Medium::new([image_of(&cut.log), image_of(&cut.image)]).point();
            let again = point.medium(choice).point();
            let whole = Choice::whole(true);
            assert_eq!(point.hash(choice), same.hash(whole), "{choice:?}");
            assert_eq!(again.hash(whole), same.hash(whole), "{choice:?}");
        }
    }

    #[test]
    fn a_killed_process_leaves_its_cache() {
        let point = point();
        let completed = image_of(&point.killed(true).disks().log);
        assert_eq!(completed[..2 * SECTOR_BYTES], [6; 2 * SECTOR_BYTES]);
        assert_eq!(
            image_of(&point.killed(false).disks().log),
            [1; 8 * SECTOR_BYTES]
        );
        let image = image_of(&point.killed(false).disks().image);
        assert_eq!(image[2 * SECTOR_BYTES], 5);
    }
}
