//! Runs workloads on an emulated medium, beside their model, with a watcher at every fence.

use crate::catalogue;
use crate::clock;
use crate::disk::lab::DiskLab;
use crate::model::{Id, Model};
use crate::operation::{Live, Operation, Refusal};
use crate::recovery::{self, add_up, caught, check, has_read_cache, roam_after};
use crate::snapshot::{Fingerprint, Snapshot, Summary};
use crate::state_id::StateId;
use crate::tally::Tally;
use crate::watcher::{Depth, Failure, Watcher};
use crate::workload::{DEVICE_BLOCKS, Pool, Workload};
use device::faulty::Faulty;
use fs::FsError;
use parking_lot::Mutex;
use pmem::Region;
use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;
use txn::transaction::use_slot;

/// A pool with the start tree on it.
struct Prepared {
    image: Vec<u8>,
    model: Model,
    region: Option<Arc<Region>>,
    device: Option<Faulty>,
}

/// One thread's laboratory: regions are used again for every workload.
pub struct Lab {
    tally: Arc<Tally>,
    watcher: Arc<Mutex<Watcher>>,
    pools: HashMap<Pool, Prepared>,
    absent_paths: Vec<String>,
    /// Only one state is looked at.
    only: Option<StateId>,
    disk: DiskLab,
}

impl Lab {
    /// A laboratory that counts into `tally` and looks at `only`, or at everything.
    pub fn new(tally: Arc<Tally>, only: Option<StateId>) -> Lab {
        let depth = Depth {
            choices: 0,
            nested_choices: 0,
            nested_every: 0,
        };
        let watcher = Arc::new(Mutex::new(Watcher::new(Arc::clone(&tally), depth, only)));
        Lab {
            disk: DiskLab::new(Arc::clone(&tally), only),
            tally,
            watcher,
            pools: HashMap::new(),
            absent_paths: catalogue::known_paths(),
            only,
        }
    }

    /// How much is looked at for each kind of workload: bounded so that every short workload gets its share.
    fn depth(&self, workload: Workload) -> Depth {
        match workload {
            Workload::One(_) => Depth {
                choices: 256,
                nested_choices: 24,
                nested_every: 16,
            },
            Workload::Two(..)
            | Workload::Across(..)
            | Workload::Leased(..)
            | Workload::OnDevice(_) => Depth {
                choices: 16,
                nested_choices: 10,
                nested_every: 128,
            },
            Workload::Large(_) => Depth {
                choices: 24,
                nested_choices: 0,
                nested_every: 0,
            },
            // A pool of class log has a laboratory of its own.
            Workload::Long(_)
            | Workload::LongLeased(_)
            | Workload::LongMapped(_)
            | Workload::Disk(_) => Depth {
                choices: 16,
                nested_choices: 10,
                nested_every: 256,
            },
        }
    }

    /// Runs a workload and looks at all the states that its new steps can leave.
    pub fn run(&mut self, workload: Workload) -> Vec<Failure> {
        if let Workload::Disk(sequence) = workload {
            return self.disk.run(sequence);
        }
        let id = StateId {
            workload,
            step: 0,
            cut: None,
            second: None,
        };
        let depth = self.depth(workload);
        let run = caught(|| self.run_steps(id, depth));
        if let Err(reason) = run {
            // Whatever panicked may still hold the region.
            self.pools.remove(&workload.pool());
            self.watcher.lock().fail(reason);
        }
        self.tally.count_workload();
        self.watcher.lock().take_failures()
    }

    fn run_steps(&mut self, id: StateId, depth: Depth) -> Result<(), String> {
        self.watcher.lock().begin(id, Fingerprint(0), depth);
        let prepared = self.prepared(id.workload.pool())?;
        let (region, mut model) = (prepared.filled_region(), prepared.model.clone());
        recovery::use_device(prepared.new_device());
        clock::restart(id.workload.calls_per_tick());
        roam_after(id.workload.roam_after());
        has_read_cache(id.workload.has_read_cache());
        use_slot(0);
        let mut live = Live::mount(&region)?;
        let operations = id.workload.operations();
        for (step, operation) in operations.iter().enumerate() {
            let id = StateId { step, ..id };
            let is_wanted = self
                .only
                .is_none_or(|only| only.step == step && only.cut.is_some());
            if step >= id.workload.first_new_step() && is_wanted {
                self.watched_step(id, depth, &region, &mut live, &mut model, operation)?;
            } else {
                agree(&mut live, &mut model, operation)?;
            }
            if step >= id.workload.first_new_step() {
                let compared = compare(&live, &model, &self.absent_paths);
                compared.map_err(|difference| {
                    format!("after step {step}, {operation}: {difference}")
                })?;
            }
        }
        agree(&mut live, &mut model, &Operation::Release)?;
        let summary = Summary::of(live.files()).map_err(|error| error.to_string())?;
        add_up(live.files(), &summary)
            .map_err(|problem| format!("at the end, without a crash: {problem}"))?;
        drop(live);
        check(&region).map_err(|problem| format!("at the end, without a crash: {problem}"))
    }

    /// The power may go at each request to the device, too.
    fn watch_device(&self, device: &Faulty, region: &Arc<Region>) {
        let (watcher, region) = (Arc::clone(&self.watcher), Arc::clone(region));
        device.on_request(move || {
            if let Some(emulator) = region.emulator() {
                emulator.crash_now(|point| watcher.lock().during(point));
            }
        });
    }

    fn watched_step(
        &mut self,
        id: StateId,
        depth: Depth,
        region: &Arc<Region>,
        live: &mut Live,
        model: &mut Model,
        operation: &Operation,
    ) -> Result<(), String> {
        let fingerprint = |live: &Live| {
            let summary = live.seen(Summary::of)?.map_err(|error| error.to_string())?;
            Ok::<_, String>(summary.fingerprint)
        };
        let before =
            fingerprint(live).map_err(|error| format!("before step {}: {error}", id.step))?;
        {
            let mut watcher = self.watcher.lock();
            watcher.begin(id, before, depth);
            watcher.has_mapped(live.mapped());
        }
        if live.may_be_torn(operation) {
            let tree = live
                .seen(Snapshot::of)?
                .map_err(|error| error.to_string())?;
            self.watcher.lock().allow_torn(tree);
        }
        let emulator = region
            .emulator()
            .ok_or("the region has no emulated medium")?;
        let watcher = Arc::clone(&self.watcher);
        emulator.on_fence(move |fence| watcher.lock().during(&fence.crash_point()));
        let device = recovery::device();
        if let Some(device) = &device {
            self.watch_device(device, region);
            let fault = id.workload.fault();
            fault
                .into_iter()
                .for_each(|(fault, after)| device.arm(fault, after));
        }
        let agreed = agree(live, model, operation);
        emulator.ignore_fences();
        if let Some(device) = &device {
            device.ignore_requests();
            device.disarm();
        }
        agreed.map_err(|difference| format!("step {}, {operation}: {difference}", id.step))?;
        let after = fingerprint(live)
            .map_err(|error| format!("after step {}, {operation}: {error}", id.step))?;
        let mut watcher = self.watcher.lock();
        watcher.has_mapped(live.mapped());
        emulator.crash_now(|point| watcher.returned(point, after));
        watcher.settle(after, || live.seen(Snapshot::of).ok()?.ok());
        Ok(())
    }

    /// Makes the start tree of a pool now instead of with its first workload.
    ///
    /// # Errors
    ///
    /// What making it said.
    pub fn prepare(&mut self, pool: Pool) -> Result<(), String> {
        self.prepared(pool).map(drop)
    }

    fn prepared(&mut self, pool: Pool) -> Result<&mut Prepared, String> {
        match self.pools.entry(pool) {
            Entry::Occupied(made) => Ok(made.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Prepared::new(pool)?)),
        }
    }
}

impl Prepared {
    fn new(pool: Pool) -> Result<Prepared, String> {
        let options = pool.options();
        clock::restart(1);
        use_slot(0);
        let region = fs::mkfs_region(Region::anonymous(options.size_bytes), &options, (0, 0));
        let region = Arc::new(region.map_err(|error| error.to_string())?);
        let has_device = options.device_blocks > 0;
        let device = has_device.then(|| Arc::new(Faulty::new(DEVICE_BLOCKS.into())));
        recovery::use_device(device.clone());
        let (mut live, mut model) = (Live::mount(&region)?, Model::default());
        let sinks = if has_device {
            catalogue::sinks()
        } else {
            Vec::new()
        };
        for operation in catalogue::start().iter().chain(&sinks) {
            agree(&mut live, &mut model, operation)?;
        }
        compare(&live, &model, &[])?;
        live.unmount();
        Ok(Prepared {
            image: region.image(),
            model,
            region: None,
            device: device.map(|device| device.snapshot()),
        })
    }

    /// The device as the start tree has left it, for one workload.
    fn new_device(&self) -> Option<Arc<Faulty>> {
        let device = self.device.as_ref();
        device.map(|device| Arc::new(device.snapshot()))
    }

    /// An emulated region that holds the start tree durably.
    fn filled_region(&mut self) -> Arc<Region> {
        if let Some(region) = self.region.as_mut().and_then(Arc::get_mut) {
            region.refill(&self.image);
        } else {
            self.region = None;
        }
        let fill = || Arc::new(Region::emulated_from(&self.image));
        Arc::clone(self.region.get_or_insert_with(fill))
    }
}

/// Does an operation to both and demands the same answer.
///
/// A pool without room may refuse what the model allows, and so may one whose device met a fault;
/// nothing happens to either then.
///
/// # Errors
///
/// Both answers.
pub fn agree(live: &mut Live, model: &mut Model, operation: &Operation) -> Result<(), String> {
    let faults = || recovery::device().map_or(0, |device| device.counts().faults);
    let before = faults();
    agree_unless(live, model, operation, || faults() > before)
}

/// As [`agree`], for a device that `may_fail`.
///
/// # Errors
///
/// Both answers.
pub fn agree_unless(
    live: &mut Live,
    model: &mut Model,
    operation: &Operation,
    may_fail: impl FnOnce() -> bool,
) -> Result<(), String> {
    let mut next = model.clone();
    let wanted = next.apply(operation);
    match live.apply(operation) {
        Ok(()) if wanted.is_ok() => *model = next,
        // Nothing happened then, and the caller knows why.
        Err(Refusal::Fs(FsError::Device(_))) if may_fail() => {}
        Err(Refusal::Fs(error)) if is_exhausted(&error) => match operation {
            Operation::CreateUnnamed { .. } => model.release(),
            Operation::Lease { .. } => model.end_lease(),
            _ => {}
        },
        Err(Refusal::Fs(error)) if wanted == Err(error.errno()) => *model = next,
        found => return Err(format!("the answer is {found:?}, should be {wanted:?}")),
    }
    Ok(())
}

fn is_exhausted(error: &FsError) -> bool {
    matches!(
        error,
        FsError::NoSpace | FsError::NoInodes | FsError::TooLargeForJournal(_)
    )
}

/// Demands that the file system is as the model says, and that `absent` paths that the model lacks are not found.
///
/// # Errors
///
/// The first difference.
pub fn compare(live: &Live, model: &Model, absent: &[String]) -> Result<(), String> {
    let found = live
        .seen(Snapshot::of)?
        .map_err(|error| format!("reading: {error}"))?;
    let wanted = model.paths();
    if let Some(path) = found.0.keys().find(|path| !wanted.contains_key(*path)) {
        return Err(format!("{path} exists and should not"));
    }
    let mut numbers: BTreeMap<_, Id> = BTreeMap::new();
    for (path, id) in &wanted {
        let entry = found
            .0
            .get(path)
            .ok_or_else(|| format!("{path} is missing"))?;
        if let Some(difference) = model.difference(*id, entry) {
            return Err(format!("{path}: {difference}"));
        }
        if model.number_clash(&mut numbers, entry.attributes.inode, *id) {
            return Err(format!("{path}: its inode number is another file's"));
        }
    }
    for path in absent
        .iter()
        .filter(|path| !wanted.contains_key(&format!("/{path}")))
    {
        if live
            .exists(path)
            .map_err(|error| format!("{path}: {error}"))?
        {
            return Err(format!("{path} is found and should not exist"));
        }
    }
    Ok(())
}
