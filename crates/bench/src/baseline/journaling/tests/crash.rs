//! Power failures, at every fence and every request to the disk: some of the possible contents of
//! the region and the disk are recovered, verified, and compared with the states before and after
//! the operation.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};

use device::faulty::Faulty;
use pmem::Region;
use pmem::emulator::{Choice, CrashPoint, Scratch};

use super::model::{Contents, Load, Model, Operation, contents};
use super::{Bug, Chance, Design, JournalingFs, Options, plain, with_bug};

const CRASH_DISK_BLOCKS: u64 = 256;

/// Operations fit one transaction, so that nothing but before and after may be found.
const LOAD: Load = Load {
    bytes_max: 26_000,
    file_bytes_max: 60_000,
    names: 12,
};

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
        let allowed = [self.allowed[index].clone()];
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

/// Recovers a state and says which of the allowed ones it is.
fn examine(
    design: Design,
    region: &Arc<Region>,
    disk: &Arc<Faulty>,
    allowed: &[Contents],
) -> Result<usize, String> {
    let fs = design
        .recover(region, disk, plain())
        .map_err(|error| format!("recovery: {error}"))?;
    fs.verify().map_err(|error| format!("verify: {error}"))?;
    let found = contents(&fs).map_err(|error| format!("contents: {error}"))?;
    allowed
        .iter()
        .position(|allowed| *allowed == found)
        .ok_or_else(|| difference(&found, allowed))
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

    fn states(&self) -> u64 {
        self.explorer.lock().expect("lock").states
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.region.emulator().expect("emulated").ignore_fences();
        self.disk.ignore_requests();
    }
}

/// Random operations.
fn random(seed: u64, count: usize) -> Vec<Operation> {
    let mut chance = Chance(seed);
    (0..count).map(|_| LOAD.operation(&mut chance)).collect()
}

/// Creates files, appends, overwrites, reads and removes more than the cache holds.
fn replacing(seed: u64) -> Vec<Operation> {
    let create = |name| Operation::Create { directory: 0, name };
    let append = |file| Operation::Append {
        file,
        length: 16_000 + 1000 * file,
    };
    let mut operations: Vec<Operation> = (0..5).map(create).collect();
    operations.extend((0..15).map(|index| append(index % 5)));
    let mut chance = Chance(seed);
    for _ in 0..16 {
        let (file, offset) = (chance.below(5), chance.below(10) * 4096);
        let length = 1 + chance.below(12_000);
        operations.push(match chance.below(3) {
            0 => Operation::Write {
                file,
                offset,
                length,
            },
            _ => Operation::Read {
                file,
                offset,
                length,
            },
        });
    }
    operations.extend([Operation::Unlink(1), Operation::Close(1), append(2)]);
    operations
}

/// Changes more metadata blocks than Spindle has room for: directories, inode-table blocks, leaves.
fn crowding() -> Vec<Operation> {
    let create = |number| Operation::Create {
        directory: number % 4,
        name: number,
    };
    let far = |file| Operation::Write {
        file,
        offset: 170_000,
        length: 100 + file,
    };
    let mut operations: Vec<Operation> = (0..3).map(Operation::CreateDir).collect();
    operations.extend((0..18).map(create));
    operations.extend([far(0), far(7), far(17), Operation::Close(3)]);
    operations.extend([
        Operation::Unlink(3),
        far(1),
        create(3),
        Operation::Unlink(12),
    ]);
    operations.extend([far(2), create(40), far(0), Operation::Unlink(0)]);
    operations
}

/// Removes a file, and makes a directory need a block: all in one transaction.
fn kinds() -> Vec<Operation> {
    let create = |directory| Operation::Create { directory, name: 0 };
    let append = Operation::Append {
        file: 0,
        length: 4096,
    };
    let before = [Operation::CreateDir(0), create(0), append, Operation::Sync];
    let after = [
        Operation::Close(0),
        Operation::Unlink(0),
        create(1),
        Operation::Sync,
    ];
    before.into_iter().chain(after).collect()
}

/// Runs operations; returns how many states were looked at, and how many blocks were replaced.
fn run(design: Design, operations: &[Operation], options: Options) -> Result<(u64, u64), String> {
    let mut watched = Watched::new(design, options, 2);
    let mut model = Model::new(Load {
        file_bytes_max: 200_000,
        ..LOAD
    });
    for (step, operation) in operations.iter().enumerate() {
        let mut outcome = Ok(());
        let after = model.predict(operation);
        let found = watched.during(&after, |fs| outcome = model.apply(fs, operation));
        found.map_err(|error| format!("step {step}, {operation:?}: {error}"))?;
        outcome.map_err(|error| format!("step {step}, {operation:?}: {error}"))?;
    }
    let counts = watched.fs.statistics().cache;
    Ok((watched.states(), counts.evictions))
}

const GROUPED: Options = Options {
    operations_per_commit: 4,
    access_times: true,
};

fn explore(design: Design) {
    let mut states = run(design, &kinds(), GROUPED).expect("sound").0;
    for (seed, options) in [(1, plain()), (5, GROUPED)] {
        states += run(design, &random(seed, 40), options).expect("sound").0;
        let (seen, evictions) = run(design, &replacing(seed), options).expect("sound");
        assert!(
            options == GROUPED || evictions >= 15,
            "{evictions} replacements"
        );
        states += seen;
    }
    let (seen, evictions) = run(design, &crowding(), plain()).expect("sound");
    println!(
        "{design:?}: {} states, {evictions} replacements of metadata",
        states + seen
    );
    assert!(design == Design::Tinca || evictions >= 5, "{evictions}");
    assert!(states + seen > 2000, "{states} states");
}

#[test]
fn tincas_power_failures_leave_all_of_an_operation_or_nothing() {
    explore(Design::Tinca);
}

#[test]
fn mended_spindles_power_failures_leave_all_of_an_operation_or_nothing() {
    explore(Design::SpindleMended);
}

/// Published order: sound as well where an operation has no data that can be half of it.
#[test]
fn published_spindle_keeps_operations_that_are_metadata_alone() {
    let mut watched = Watched::new(Design::SpindlePublished, plain(), 8);
    let mut after = Contents::new();
    for name in ["/a", "/b", "/c"] {
        after.insert(name.to_owned(), Some(Vec::new()));
        let found = watched.during(&after, |fs| drop(fs.create(name).expect("room")));
        assert_eq!(found, Ok(BTreeSet::from([0, 1])));
    }
    after.remove("/b");
    let found = watched.during(&after, |fs| fs.unlink("/b").expect("there"));
    assert_eq!(found, Ok(BTreeSet::from([0, 1])));
}

/// Where a bug is looked for.
#[derive(Copy, Clone, Debug)]
enum Ground {
    Random,
    Replacing,
    /// A data block becomes a metadata block within one transaction.
    Kinds,
}

fn assert_noticed(design: Design, bugs: &[(Bug, Ground)]) {
    for &(bug, ground) in bugs {
        let outcome = with_bug(bug, || {
            (1..4).find_map(|seed| match ground {
                Ground::Random => run(design, &random(seed, 70), plain()).err(),
                Ground::Replacing => run(design, &replacing(seed), plain()).err(),
                Ground::Kinds => run(design, &kinds(), GROUPED).err(),
            })
        });
        println!("{design:?} {bug:?}: {outcome:?}");
        assert!(outcome.is_some(), "{design:?} with {bug:?}");
    }
}

const OF_BOTH: [(Bug, Ground); 2] = [
    (Bug::EvictWithoutDiskFlush, Ground::Replacing),
    (Bug::ReuseBeforeEntryIsFree, Ground::Replacing),
];

#[test]
fn bugs_of_tinca_are_noticed() {
    assert_noticed(Design::Tinca, &OF_BOTH);
    assert_noticed(
        Design::Tinca,
        &[
            (Bug::TailBeforeRoles, Ground::Random),
            (Bug::SkipLogRole, Ground::Random),
            (Bug::IgnoreRing, Ground::Random),
        ],
    );
}

#[test]
fn bugs_of_spindle_are_noticed() {
    assert_noticed(Design::SpindleMended, &OF_BOTH);
    assert_noticed(
        Design::SpindleMended,
        &[
            (Bug::SkipExtraEntry, Ground::Random),
            (Bug::IgnoreLap, Ground::Random),
            (Bug::ChangeBeforeUndo, Ground::Random),
            (Bug::HeadBeforeEntries, Ground::Random),
            (Bug::SkipUndo, Ground::Random),
            (Bug::ReuseInTransaction, Ground::Kinds),
        ],
    );
}
