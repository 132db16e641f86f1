//! A file system whose every moment is looked at.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};

use device::faulty::Faulty;
use pmem::Region;
use pmem::emulator::{Choice, CrashPoint, Scratch};

use super::super::model::{Contents, contents};
use super::super::{Chance, Design, JournalingFs, Options, plain};
use crate::baseline::journaling::{Corruption, FsError};

const CRASH_DISK_BLOCKS: u64 = 256;

/// Index of a state that is half of a transaction.
pub(super) const HALF: usize = usize::MAX;

/// The states that are allowed, and the first that is not.
struct Explorer {
    design: Design,
    disk: Arc<Faulty>,
    /// Random states to look at for each moment.
    random: usize,
    allowed: Vec<Contents>,
    failure: Option<String>,
    seen: HashSet<(u64, u64)>,
    found: BTreeSet<usize>,
    looks: u64,
    /// Those that were examined: distinct within an operation.
    states: u64,
    scratch: Option<Scratch>,
}

impl Explorer {
    /// Looks at some states that a power failure at one moment may leave.
    fn look(&mut self, point: &CrashPoint<'_>) {
        let mut scratch = self.scratch.take().unwrap_or_else(|| Scratch::new(point));
        for choice in choices(point, self.looks, self.random) {
            self.looks += 1;
            let disk_seed = match self.disk.unsettled() {
                0 => 0,
                _ => self.looks % 5,
            };
            let disk = self.disk.cut(disk_seed);
            if self.failure.is_some()
                || !self.seen.insert((point.hash(&choice), disk.fingerprint()))
            {
                continue;
            }
            let disk = Arc::new(disk);
            let region = scratch.apply(point, &choice);
            self.states += 1;
            let examined = examine(self.design, region, &disk, &self.allowed);
            match examined {
                Ok(index) => {
                    self.found.insert(index);
                    if self.states.is_multiple_of(199) {
                        let image = point.image(&choice);
                        let disk = self.disk.cut(disk_seed);
                        let outcome = self.cut_recovery(&image, &disk, index);
                        self.failure = outcome.err();
                    }
                }
                Err(error) => {
                    let moment = (point.fence, point.moment);
                    self.failure = Some(format!("{error} ({moment:?}, {choice:?}, {disk_seed})"));
                }
            }
        }
        self.scratch = Some(scratch);
    }

    /// Cuts the power at each fence of a recovery, and recovers again: the same must be found.
    fn cut_recovery(&self, image: &[u8], disk: &Faulty, index: usize) -> Result<(), String> {
        let region = Arc::new(Region::emulated_from(image));
        let disk = Arc::new(disk.snapshot());
        let failure = Arc::new(Mutex::new(None));
        let (design, noted, again) = (self.design, Arc::clone(&failure), Arc::clone(&disk));
        let allowed = match self.allowed.get(index) {
            Some(state) => vec![state.clone(), state.clone()],
            None => self.allowed.clone(),
        };
        let emulator = region.emulator().expect("emulated");
        let mut scratch = None;
        emulator.on_fence(move |fence| {
            let point = fence.crash_point();
            let scratch = scratch.get_or_insert_with(|| Scratch::new(&point));
            for choice in choices(&point, fence.number(), 1) {
                let disk = Arc::new(again.cut(fence.number() % 3));
                let region = scratch.apply(&point, &choice);
                if let Err(error) = examine(design, region, &disk, &allowed) {
                    let error = format!("power failure in recovery: {error} {choice:?}");
                    noted.lock().expect("lock").get_or_insert(error);
                }
            }
        });
        drop(self.design.recover(&region, &disk, plain()));
        emulator.ignore_fences();
        match failure.lock().expect("lock").take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

/// Some states that a power failure may leave: nothing, all, the newest or the oldest line alone or
/// missing, and random lines and words.
fn choices(point: &CrashPoint<'_>, seed: u64, random: usize) -> Vec<Choice> {
    let lines = &point.pending;
    let last = lines.len().saturating_sub(1);
    let mut chance = Chance(seed);
    let mut choice = |survives: &dyn Fn(usize) -> bool, is_torn: bool| {
        let numbers = lines.iter().enumerate().flat_map(|(index, line)| {
            let whole = if survives(index) { line.radix() - 1 } else { 0 };
            let torn = is_torn && chance.below(4) == 0;
            let mut number = |radix| match torn {
                true => chance.below(u64::from(radix)) as u32,
                false => whole,
            };
            let numbers: Vec<u32> = (0..line.slots()).map(|_| number(line.radix())).collect();
            numbers
        });
        Choice(numbers.collect())
    };
    let mut all = vec![
        choice(&|_| false, false),
        choice(&|_| true, false),
        choice(&|index| index == 0, false),
        choice(&|index| index != 0, false),
        choice(&|index| index == last, false),
        choice(&|index| index != last, false),
    ];
    let mut lines = Chance(seed ^ 0x5555);
    for _ in 0..if last > 0 { random } else { 0 } {
        let odds = 1 + lines.below(7);
        let bits: Vec<bool> = (0..=last).map(|_| lines.below(8) < odds).collect();
        all.push(choice(&|index| bits[index], true));
    }
    all
}

/// The state that Spindle's published order loses: data of after with metadata of before.
fn is_half(found: &Contents, before: &Contents, after: &Contents) -> bool {
    let is_file_half = |path: &String, found: &Vec<u8>, before: &Vec<u8>| {
        let after = after.get(path).and_then(Option::as_ref);
        let is_of_after = |at: usize| after.and_then(|after| after.get(at)) == Some(&found[at]);
        found.len() == before.len()
            && (0..found.len()).all(|at| found[at] == before[at] || is_of_after(at))
    };
    found.keys().eq(before.keys())
        && found
            .iter()
            .all(|(path, node)| match (node, &before[path]) {
                (Some(found), Some(before)) => is_file_half(path, found, before),
                (found, before) => found == before,
            })
}

/// Recovers a state and says which of the allowed ones it is. Published Spindle may leave half a
/// transaction as well.
fn examine(
    design: Design,
    region: &Arc<Region>,
    disk: &Arc<Faulty>,
    allowed: &[Contents],
) -> Result<usize, String> {
    let fs = design
        .recover(region, disk, plain())
        .map_err(|error| format!("recovery: {error}"))?;
    let may_be_half = design == Design::SpindlePublished;
    let has_tail = match fs.verify() {
        Ok(()) => false,
        Err(FsError::Corrupt(Corruption::Tail { .. })) if may_be_half => true,
        Err(error) => return Err(format!("verify: {error}")),
    };
    let found = contents(&fs).map_err(|error| format!("contents: {error}"))?;
    let is_found = |allowed: &Contents| !has_tail && *allowed == found;
    if let Some(index) = allowed.iter().position(is_found) {
        return Ok(index);
    }
    match may_be_half && is_half(&found, &allowed[0], &allowed[1]) {
        true => Ok(HALF),
        false => Err(difference(&found, allowed)),
    }
}

/// How a state differs from the nearest of the allowed ones.
fn difference(found: &Contents, allowed: &[Contents]) -> String {
    let of = |allowed: &Contents| -> Vec<String> {
        let paths: BTreeSet<&String> = found.keys().chain(allowed.keys()).collect();
        let length = |side: &Contents, path| -> Option<Option<usize>> {
            let node = side.get(path)?;
            Some(node.as_ref().map(Vec::len))
        };
        paths
            .into_iter()
            .filter(|path| found.get(*path) != allowed.get(*path))
            .map(|path| {
                let (now, then) = (length(found, path), length(allowed, path));
                format!("{path}: {now:?} instead of {then:?}")
            })
            .collect()
    };
    let nearest = allowed.iter().map(of).min_by_key(Vec::len);
    format!("neither before nor after: {nearest:?}")
}

/// A file system whose every moment is looked at.
pub(super) struct Watched {
    pub(super) fs: JournalingFs,
    region: Arc<Region>,
    disk: Arc<Faulty>,
    explorer: Arc<Mutex<Explorer>>,
    /// States that a power failure may leave before the next commit.
    committed: Vec<Contents>,
    last: Contents,
}

impl Watched {
    pub(super) fn new(design: Design, options: Options, random: usize) -> Watched {
        // A group of operations needs more room in a transaction.
        let groups = if options.operations_per_commit > 1 {
            2
        } else {
            1
        };
        let region = Arc::new(Region::emulated(design.least_bytes() * groups));
        let disk = Arc::new(Faulty::new(CRASH_DISK_BLOCKS));
        let fs = design.format(&region, &disk, options);
        let explorer = Arc::new(Mutex::new(Explorer {
            design,
            disk: Arc::clone(&disk),
            random,
            allowed: Vec::new(),
            failure: None,
            seen: HashSet::new(),
            found: BTreeSet::new(),
            looks: 2,
            states: 0,
            scratch: None,
        }));
        let shared = Arc::clone(&explorer);
        let emulator = region.emulator().expect("emulated");
        emulator.on_fence(move |fence| {
            let point = fence.crash_point();
            shared.lock().expect("lock").look(&point);
        });
        let (shared, watched) = (Arc::clone(&explorer), Arc::clone(&region));
        disk.on_request(move || {
            let emulator = watched.emulator().expect("emulated");
            emulator.crash_now(|point| shared.lock().expect("lock").look(point));
        });
        Watched {
            fs,
            region,
            disk,
            explorer,
            committed: vec![Contents::new()],
            last: Contents::new(),
        }
    }

    /// Runs an operation that leads to `after`; says what was wrong, or which of the states before,
    /// and after it were found.
    pub(super) fn during(
        &mut self,
        after: &Contents,
        operation: impl FnOnce(&JournalingFs),
    ) -> Result<BTreeSet<usize>, String> {
        let mut allowed = vec![self.last.clone(), after.clone()];
        allowed.extend(self.committed.iter().cloned());
        {
            let mut explorer = self.explorer.lock().expect("lock");
            explorer.allowed = allowed;
            explorer.found.clear();
            // The same image is allowed or not, by operation.
            explorer.seen.clear();
        }
        let commits = self.fs.statistics().cache.commits;
        operation(&self.fs);
        if self.fs.statistics().cache.commits > commits {
            self.committed = vec![self.last.clone(), after.clone()];
        }
        self.last.clone_from(after);
        let mut explorer = self.explorer.lock().expect("lock");
        match explorer.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(std::mem::take(&mut explorer.found)),
        }
    }

    /// States that were examined.
    pub(super) fn states(&self) -> u64 {
        self.explorer.lock().expect("lock").states
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.region.emulator().expect("emulated").ignore_fences();
        self.disk.ignore_requests();
    }
}
