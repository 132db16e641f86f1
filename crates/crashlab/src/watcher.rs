//! Looks at what a power cut may leave at one moment, and judges each image.

use crate::mapped::Mapped;
use crate::recovery::{self, caught, recover};
use crate::snapshot::{Fingerprint, Snapshot};
use crate::state_id::{Cut, StateId};
use crate::tally::Tally;
use device::faulty::Faulty;
use parking_lot::Mutex;
use pmem::Region;
use pmem::emulator::{Choice, CrashPoint, Scratch};
use std::sync::Arc;

/// A state that is not as it should be, or a run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What to replay.
    pub id: StateId,
    /// What is wrong.
    pub reason: String,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// Most choices at one moment.
    pub choices: usize,
    /// Most choices at one moment of a recovery.
    pub nested_choices: usize,
    /// Of how many states the recovery itself is cut once; 0 = of none.
    pub nested_every: u64,
}

/// Which trees may be found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Allowed {
    /// The one before the operation, or one that [`Watcher::settle`] will compare with that after it.
    BeforeOrAfter,
    /// This one only.
    Only(Fingerprint),
}

/// A tree that was recovered while an operation ran and is not that before it.
struct Candidate {
    fingerprint: Fingerprint,
    id: StateId,
    has_returned: bool,
    tree: Option<Snapshot>,
}

/// Judges the crash images of one step of a workload.
pub struct Watcher {
    tally: Arc<Tally>,
    depth: Depth,
    /// The only state to look at, in a replay.
    only: Option<StateId>,
    step: StateId,
    before: Fingerprint,
    /// What a process changes as it likes.
    mapped: Mapped,
    /// The tree before a step of which a power cut may leave any of the words.
    torn_from: Option<Snapshot>,
    scratch: Option<Scratch>,
    candidates: Vec<Candidate>,
    nested: Nested,
    failures: Vec<Failure>,
}

/// One in so many states is checked by `fsck` as well, which costs as much as all the rest. States of a recovery that was
/// cut, and replayed ones, all are.
const CHECK_EVERY: u64 = 4;
/// Failures of one step after which no more states of it are looked at.
const FAILURES_MAX: usize = 3;

impl Watcher {
    /// A watcher for any number of steps.
    pub fn new(tally: Arc<Tally>, depth: Depth, only: Option<StateId>) -> Watcher {
        let step = StateId {
            workload: crate::workload::Workload::One(0),
            step: 0,
            cut: None,
            second: None,
        };
        Watcher {
            nested: Nested {
                region: None,
                judge: Arc::new(Mutex::new(Judge::new(Arc::clone(&tally)))),
            },
            tally,
            depth,
            only,
            step,
            before: Fingerprint(0),
            mapped: Mapped::none(),
            torn_from: None,
            scratch: None,
            candidates: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// From here on a process has `mapped`.
    pub fn has_mapped(&mut self, mapped: &Mapped) {
        self.mapped.clone_from(mapped);
    }

    /// A new step begins: `before` is the tree now.
    pub fn begin(&mut self, step: StateId, before: Fingerprint, depth: Depth) {
        self.step = step;
        self.before = before;
        self.torn_from = None;
        self.depth = depth;
        self.candidates.clear();
    }

    /// As long as the step lasts, a mixture of this tree, that before it, with the one after it may be found: each word of a file is from one of them.
    pub fn allow_torn(&mut self, before: Snapshot) {
        self.torn_from = Some(before);
    }

    /// Looks at a moment while the operation runs.
    pub fn during(&mut self, point: &CrashPoint<'_>) {
        self.look(point, Allowed::BeforeOrAfter);
    }

    /// Looks at the moment after the operation returned: `after` is the tree now, and nothing else may be found.
    pub fn returned(&mut self, point: &CrashPoint<'_>, after: Fingerprint) {
        self.look(point, Allowed::Only(after));
    }

    fn look(&mut self, point: &CrashPoint<'_>, allowed: Allowed) {
        self.tally.count_point();
        // A state seen before an operation returned is another one after it: more is demanded of it. So is one in which a
        // process has more.
        let position = self.before.0
            ^ self.mapped.hash()
            ^ if allowed == Allowed::BeforeOrAfter {
                0
            } else {
                u64::MAX
            };
        let limit = self
            .only
            .and_then(|only| only.cut)
            .map_or(self.depth.choices, |cut| cut.limit);
        let devices = cuts_of_device(point.fence);
        let choices = point.enumerate(limit, point.fence);
        let both = choices.flat_map(|choice| {
            devices
                .iter()
                .map(move |device| (choice.clone(), device.clone()))
        });
        for (index, (choice, device)) in both.enumerate() {
            let cut = Cut {
                fence: point.fence,
                moment: point.moment,
                choice: index,
                limit,
            };
            let id = StateId {
                cut: Some(cut),
                ..self.step
            };
            if self.only.is_some_and(|only| only.cut != Some(cut))
                || self.failures.len() >= FAILURES_MAX
            {
                continue;
            }
            let left = device.as_ref().map_or(0, |device| device.fingerprint());
            let hash = point.hash(&choice) ^ position ^ left;
            let is_new = match device.is_some() {
                true => self.tally.is_new_on_device(hash),
                false => self.tally.is_new(hash),
            };
            if is_new {
                recovery::with_device(device, || self.judge(point, &choice, id, allowed, hash));
            }
        }
    }

    fn judge(
        &mut self,
        point: &CrashPoint<'_>,
        choice: &Choice,
        id: StateId,
        allowed: Allowed,
        hash: u64,
    ) {
        let scratch = self.scratch.get_or_insert_with(|| Scratch::new(point));
        let region = Arc::clone(scratch.apply(point, choice));
        let with_check = self.only.is_some() || hash.is_multiple_of(CHECK_EVERY);
        let found = caught(|| recover(&region, &self.mapped, with_check));
        drop(region);
        let fingerprint = match found {
            Ok(fingerprint) => fingerprint,
            Err(reason) => {
                // A panic may have left references to the region behind.
                self.scratch = None;
                self.failures.push(Failure { id, reason });
                return;
            }
        };
        let expected = match allowed {
            Allowed::Only(after) => after,
            Allowed::BeforeOrAfter => self.before,
        };
        let has_returned = matches!(allowed, Allowed::Only(_));
        let is_known = |candidate: &Candidate| {
            candidate.fingerprint == fingerprint && candidate.has_returned == has_returned
        };
        if fingerprint != expected && !self.candidates.iter().any(is_known) {
            let tree = self.tree_of(point, choice);
            self.candidates.push(Candidate {
                fingerprint,
                id,
                has_returned,
                tree,
            });
        }
        let wanted = self.only.and_then(|only| only.second);
        let every = self.depth.nested_every;
        if wanted.is_some() || (every > 0 && self.only.is_none() && hash.is_multiple_of(every)) {
            let image = point.image(choice);
            self.failures.extend(self.nested.explore(
                &image,
                &self.mapped,
                id,
                fingerprint,
                self.depth.nested_choices,
                wanted,
            ));
        }
    }

    /// The whole tree that an image recovers to.
    fn tree_of(&mut self, point: &CrashPoint<'_>, choice: &Choice) -> Option<Snapshot> {
        let region = Arc::clone(self.scratch.as_mut()?.apply(point, choice));
        tree_in(&region, &self.mapped)
    }

    /// The step is over: every tree that was found and is not that before it must be `after`, or between both if that is allowed.
    pub fn settle(&mut self, after: Fingerprint, tree: impl FnOnce() -> Option<Snapshot>) {
        let is_wrong = |candidate: &Candidate| candidate.fingerprint != after;
        let wrong: Vec<Candidate> = self.candidates.drain(..).filter(is_wrong).collect();
        if wrong.is_empty() {
            return;
        }
        let after = tree();
        let torn_from = self.torn_from.take();
        let is_between = |candidate: &Candidate| {
            let ends = torn_from.as_ref().zip(after.as_ref());
            let found = candidate.tree.as_ref().zip(ends);
            // What was found after the operation had returned must be whole.
            !candidate.has_returned
                && found.is_some_and(|(found, (before, after))| found.is_between(before, after))
        };
        let wrong = wrong.into_iter().filter(|it| !is_between(it));
        for Candidate {
            fingerprint,
            id,
            tree,
            ..
        } in wrong.take(FAILURES_MAX)
        {
            let mut reason = if fingerprint == self.before {
                "the operation had returned and is lost".to_string()
            } else {
                "the tree is neither that before nor that after the operation".to_string()
            };
            if let (Some(found), Some(after)) = (&tree, &after) {
                reason.push_str(&format!(
                    "; towards the tree after it:\n  {}",
                    after.differences(found).join("\n  ")
                ));
            }
            self.failures.push(Failure { id, reason });
        }
    }

    /// What went wrong since the last call.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }

    /// Notes a failure that has no crash state.
    pub fn fail(&mut self, reason: String) {
        self.failures.push(Failure {
            id: self.step,
            reason,
        });
    }
}

/// The devices that a power cut at this moment may leave to this thread's mounts: with all, none,
/// and some of the unflushed writes. Without a device one `None`.
fn cuts_of_device(fence: u64) -> Vec<Option<Arc<Faulty>>> {
    let Some(device) = recovery::device() else {
        return vec![None];
    };
    let seeds = match device.unsettled() {
        0 => 0..1,
        _ => 0..3,
    };
    // Seed 0 and 1 are all and nothing.
    let cut = |seed: u64| device.cut(if seed < 2 { seed } else { 2 + fence });
    seeds.map(|seed| Some(Arc::new(cut(seed)))).collect()
}

/// The whole tree that a region recovers to.
fn tree_in(region: &Arc<Region>, mapped: &Mapped) -> Option<Snapshot> {
    crate::clock::aside(|| {
        let scrambled = mapped.scramble(region);
        let files = recovery::mount(region).ok()?;
        scrambled.undo(region);
        Snapshot::of(&files).ok()
    })
}

/// Cuts the power once more, while a recovery runs.
struct Nested {
    region: Option<Arc<Region>>,
    judge: Arc<Mutex<Judge>>,
}

impl Nested {
    /// Recovers `image` on an emulated medium. Whatever a cut leaves there must recover to the same tree.
    fn explore(
        &mut self,
        image: &[u8],
        mapped: &Mapped,
        id: StateId,
        expected: Fingerprint,
        limit: usize,
        only: Option<Cut>,
    ) -> Vec<Failure> {
        let mut region = match self.region.take() {
            Some(region) if region.length() == image.len() as u64 => region,
            _ => self.new_region(image.len() as u64),
        };
        let Some(filled) = Arc::get_mut(&mut region) else {
            return Vec::new();
        };
        filled.refill(image);
        let renewed = self.judge.lock().renewed();
        *self.judge.lock() = Judge {
            id,
            mapped: mapped.clone(),
            expected,
            limit,
            only,
            ..renewed
        };
        let mounted = crate::clock::aside(|| caught(|| recovery::mount(&region).map(drop)));
        let mut judge = self.judge.lock();
        match mounted {
            Err(reason) => judge.failures.push(Failure {
                id,
                reason: format!("recovering again: {reason}"),
            }),
            Ok(()) => {
                if let Some(emulator) = region.emulator() {
                    emulator.crash_now(|point| judge.look(point));
                }
                self.region = Some(region);
            }
        }
        let mut failures = std::mem::take(&mut judge.failures);
        let other = judge.other.take();
        drop(judge);
        if let Some((failure, other)) = failures.last_mut().zip(other)
            && let Some(first) = self.tree_of(image, mapped)
        {
            let differences = first.differences(&other).join("\n  ");
            failure
                .reason
                .push_str(&format!("; towards that of the first:\n  {differences}"));
        }
        failures
    }

    /// The tree that an image recovers to when nothing is in the way.
    fn tree_of(&self, image: &[u8], mapped: &Mapped) -> Option<Snapshot> {
        let mut region = Arc::new(Region::emulated(image.len() as u64));
        Arc::get_mut(&mut region)?.refill(image);
        tree_in(&region, mapped)
    }

    fn new_region(&self, length: u64) -> Arc<Region> {
        let region = Region::emulated(length);
        let judge = Arc::clone(&self.judge);
        if let Some(emulator) = region.emulator() {
            emulator.on_fence(move |fence| judge.lock().look(&fence.crash_point()));
        }
        Arc::new(region)
    }
}

/// Judges the crash images of one recovery.
struct Judge {
    tally: Arc<Tally>,
    id: StateId,
    mapped: Mapped,
    expected: Fingerprint,
    limit: usize,
    only: Option<Cut>,
    scratch: Option<Scratch>,
    failures: Vec<Failure>,
    /// The tree of the last failure, if it is another one than the first recovery led to.
    other: Option<Snapshot>,
}

impl Judge {
    fn new(tally: Arc<Tally>) -> Judge {
        let id = StateId {
            workload: crate::workload::Workload::One(0),
            step: 0,
            cut: None,
            second: None,
        };
        Judge {
            tally,
            id,
            mapped: Mapped::none(),
            expected: Fingerprint(0),
            limit: 0,
            only: None,
            scratch: None,
            failures: Vec::new(),
            other: None,
        }
    }

    fn renewed(&mut self) -> Judge {
        Judge {
            scratch: self.scratch.take(),
            ..Judge::new(Arc::clone(&self.tally))
        }
    }

    fn look(&mut self, point: &CrashPoint<'_>) {
        self.tally.count_point();
        let limit = self.only.map_or(self.limit, |only| only.limit);
        for (index, choice) in point.enumerate(limit, point.fence).enumerate() {
            let cut = Cut {
                fence: point.fence,
                moment: point.moment,
                choice: index,
                limit,
            };
            if self.only.is_some_and(|only| only != cut) || !self.failures.is_empty() {
                continue;
            }
            if !self
                .tally
                .is_new_in_recovery(point.hash(&choice) ^ self.expected.0.rotate_left(1))
            {
                continue;
            }
            let scratch = self.scratch.get_or_insert_with(|| Scratch::new(point));
            let region = Arc::clone(scratch.apply(point, &choice));
            let found = caught(|| recover(&region, &self.mapped, true));
            drop(region);
            let reason = match found {
                Ok(fingerprint) if fingerprint == self.expected => continue,
                Ok(_) => {
                    self.other = tree_in(&Arc::clone(scratch.apply(point, &choice)), &self.mapped);
                    "a second recovery leads to another tree than the first".to_string()
                }
                Err(reason) => reason,
            };
            self.scratch = None;
            self.failures.push(Failure {
                id: StateId {
                    second: Some(cut),
                    ..self.id
                },
                reason,
            });
        }
    }
}
