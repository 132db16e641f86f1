//! The oracle: a recovered tree is that after some call, and no call is missing that was durable.

use super::medium::{Choice, Medium, Point};
use super::pool::{memory, mount};
use super::second::Second;
use crate::clock;
use crate::recovery::{self, caught};
use crate::snapshot::{Fingerprint, Snapshot, Summary};
use crate::state_id::{Cut, StateId};
use crate::tally::Tally;
use crate::watcher::{Depth, Failure};
use fs::FileSystem;
use parking_lot::Mutex;
use pmem::Region;
use pmem::emulator::Moment;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use txn::checksum::{crc32c, mix64};
use txn::{Disks, Durability, PmemStore};

/// One in so many states is used, added up and checked by `fsck` as well.
pub(super) const CHECK_EVERY: u64 = 4;
/// Failures of one step after which no more states of it are looked at.
const FAILURES_MAX: usize = 3;
/// Of a server that looks at a state: it writes nothing that it is not asked for.
pub(super) const WRITES_NOTHING: Durability = Durability::Fsync(Duration::from_secs(60));

/// A tree that was recovered while a call ran, and that is none of those before it.
struct Candidate {
    fingerprint: Fingerprint,
    id: StateId,
    tree: Option<Snapshot>,
}

/// Judges what power cuts and kills leave of one sequence.
pub struct Judge {
    tally: Arc<Tally>,
    depth: Depth,
    /// The only state to look at, in a replay.
    only: Option<StateId>,
    id: StateId,
    events: u64,
    /// The tree after each call, from one on that is durable.
    trees: Vec<Fingerprint>,
    /// Of these, the first that a power cut may leave.
    durable: usize,
    /// A step runs: its tree may be found as well.
    is_under_way: bool,
    candidates: Vec<Candidate>,
    memory: Option<Arc<Region>>,
    /// At which event of the step the disks are kept, and how they were.
    keep_at: Option<u64>,
    kept: Option<(Point, usize)>,
    failures: Vec<Failure>,
}

thread_local! {
    /// Memory of an earlier state: new memory costs as much as the rest of a recovery.
    static SCRATCH: Cell<Option<Arc<Region>>> = const { Cell::new(None) };
}

fn mount_scratch(disks: &Disks, left: Option<Region>) -> Result<FileSystem, String> {
    let scratch = SCRATCH
        .take()
        .filter(|region| Arc::strong_count(region) == 1);
    match (left, scratch) {
        (None, Some(scratch)) => {
            let store = PmemStore::open_disks_in(disks, scratch, WRITES_NOTHING);
            let store = store.map_err(|error| format!("open: {error}"))?;
            recovery::mount_store(store, Default::default(), false)
        }
        (left, _) => mount(disks, left.map(Arc::new), WRITES_NOTHING),
    }
}

/// Recovers what is on `disks` and in memory, and reads everything; then uses it, adds it up and
/// checks it if `with_check`.
///
/// # Errors
///
/// The fault of the recovered pool, in words.
pub fn recover(
    disks: &Disks,
    left: Option<Region>,
    with_check: bool,
) -> Result<Fingerprint, String> {
    clock::aside(|| {
        let files = mount_scratch(disks, left)?;
        let region = files.store().shared_region();
        let found = Summary::of(&files).map_err(|error| format!("reading: {error}"))?;
        if with_check {
            recovery::use_it(&files)?;
            recovery::add_up(&files, &found)?;
            drop(files);
            recovery::check(&region)?;
        } else {
            drop(files);
        }
        SCRATCH.set(Some(region));
        Ok(found.fingerprint)
    })
}

fn tree_of(disks: &Disks, left: Option<Region>) -> Option<Snapshot> {
    clock::aside(|| {
        let files = mount(disks, left.map(Arc::new), WRITES_NOTHING).ok()?;
        Snapshot::of(&files).ok()
    })
}

impl Judge {
    /// A judge of the sequence `id`.
    pub fn new(tally: Arc<Tally>, depth: Depth, only: Option<StateId>, id: StateId) -> Judge {
        Judge {
            tally,
            depth,
            only,
            id,
            events: 0,
            trees: Vec::new(),
            durable: 0,
            is_under_way: false,
            candidates: Vec::new(),
            memory: None,
            keep_at: None,
            kept: None,
            failures: Vec::new(),
        }
    }

    /// This tree is durable, in this memory; earlier trees do not count any more.
    pub fn starts_with(&mut self, tree: Fingerprint, memory: Option<Arc<Region>>) {
        self.trees = vec![tree];
        self.durable = 0;
        self.memory = memory;
    }

    /// The server goes on in other memory.
    pub fn is_in(&mut self, memory: Option<Arc<Region>>) {
        self.memory = memory;
    }

    /// Has every event of a medium looked at.
    pub fn watch(judge: &Arc<Mutex<Judge>>, medium: &Medium) {
        let judge = Arc::clone(judge);
        medium.on_event(Some(Arc::new(move |medium: &Medium| {
            judge.lock().during(&medium.point());
        })));
    }

    /// A step begins. The disks are kept as they are at its event `keep_at`.
    pub fn begin(&mut self, step: usize, keep_at: Option<u64>) {
        self.id.step = step;
        self.is_under_way = true;
        self.keep_at = keep_at;
        self.kept = None;
    }

    /// The disks at the event that was asked for, if the step has come so far, and the first tree
    /// that they may have.
    pub fn take_kept(&mut self) -> Option<(Point, usize)> {
        self.kept.take()
    }

    /// The first tree that a power cut may leave now.
    pub fn durable(&self) -> usize {
        self.durable
    }

    fn during(&mut self, point: &Point) {
        if self.keep_at == Some(0) {
            self.kept = Some((point.clone(), self.durable));
        }
        self.keep_at = self.keep_at.and_then(|events| events.checked_sub(1));
        self.look(point);
    }

    /// The step has returned, and the tree is `after` now. A power cut must leave this tree from
    /// here on, or one of so many before it, if `durable` says how many.
    pub fn ends(
        &mut self,
        after: Fingerprint,
        durable: Option<usize>,
        point: &Point,
        tree: impl FnOnce() -> Option<Snapshot>,
    ) {
        self.is_under_way = false;
        self.settle(after, tree);
        self.trees.push(after);
        if let Some(before) = durable {
            self.durable = self.trees.len() - 1 - before;
        }
        self.look(point);
    }

    /// Which of the trees from `first` on this is; the newest of those.
    pub fn place_of(&self, tree: Fingerprint, first: usize) -> Option<usize> {
        let place = self.trees.iter().rposition(|known| *known == tree)?;
        (place >= first).then_some(place)
    }

    /// Takes the failures that were found so far.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }

    /// Notes a failure that has no crash state.
    pub fn fail(&mut self, reason: String) {
        let id = self.id;
        self.failures.push(Failure { id, reason });
    }

    /// The trees that a state may have, as a number: the same bytes with other trees are another
    /// state.
    fn demand(&self) -> u64 {
        let trees = self.trees[self.durable..].iter();
        trees.fold(u64::from(self.is_under_way), |all, tree| {
            mix64(all.rotate_left(5) ^ tree.0)
        })
    }

    fn look(&mut self, point: &Point) {
        self.events += 1;
        self.tally.count_point();
        let limit = self.limit(self.depth.choices);
        let demand = self.demand();
        for (index, choice) in point.choices(limit, self.events).into_iter().enumerate() {
            let id = self.state(Moment::Between, index, limit);
            let hash = point.hash(choice) ^ demand;
            if self.is_wanted(id) && self.tally.is_new_on_disks(hash, false) {
                self.judge(point, choice, id, hash);
            }
        }
        let every = self.depth.nested_every;
        let wants_kill = self
            .only
            .is_some_and(|only| only.cut.is_some_and(|cut| cut.moment == Moment::After));
        let is_turn = every > 0 && mix64(demand ^ self.events).is_multiple_of(every / 8 + 1);
        if wants_kill || (self.only.is_none() && is_turn) {
            self.look_at_kills(point);
        }
    }

    fn limit(&self, usual: usize) -> usize {
        self.only
            .and_then(|only| only.cut)
            .map_or(usual, |cut| cut.limit)
    }

    fn state(&self, moment: Moment, choice: usize, limit: usize) -> StateId {
        let cut = Cut {
            fence: self.events,
            moment,
            choice,
            limit,
        };
        StateId {
            cut: Some(cut),
            ..self.id
        }
    }

    fn is_wanted(&self, id: StateId) -> bool {
        let is_it = self
            .only
            .is_none_or(|only| only.cut.is_none() || only.cut == id.cut);
        is_it && self.failures.len() < FAILURES_MAX
    }

    fn judge(&mut self, point: &Point, choice: Choice, id: StateId, hash: u64) {
        let with_check = self.only.is_some() || hash.is_multiple_of(CHECK_EVERY);
        let found = caught(|| recover(&point.cut(choice), None, with_check));
        let first = self.durable;
        let Some(found) = self.admit(found, id, first, || tree_of(&point.cut(choice), None)) else {
            return;
        };
        let wanted = self.only.and_then(|only| only.second);
        let every = self.depth.nested_every;
        if wanted.is_some() || (every > 0 && self.only.is_none() && hash.is_multiple_of(every)) {
            let second = Second {
                tally: Arc::clone(&self.tally),
                id,
                limit: self.depth.nested_choices,
                only: wanted,
                allowed: vec![found],
            };
            self.failures
                .extend(second.explore(&point.medium(choice), None, found));
        }
    }

    /// The server is killed now: a write on its way to a disk gets there, or does not.
    fn look_at_kills(&mut self, point: &Point) {
        let Some(memory_now) = self.memory.as_ref().map(|memory| memory.image()) else {
            return;
        };
        let (low, high) = memory_now.split_at(memory_now.len() / 2);
        let hash = u64::from(crc32c(low)) << 32 | u64::from(crc32c(high));
        let demand = mix64(self.demand() ^ hash);
        let limit = self.limit(self.depth.nested_choices);
        for completes in [true, false] {
            if !completes && !point.is_any_on_its_way() {
                continue;
            }
            let id = self.state(Moment::After, usize::from(completes), limit);
            let hash = point.hash(Choice::whole(completes)) ^ demand;
            if !self.is_wanted(id) || !self.tally.is_new_on_disks(hash, false) {
                continue;
            }
            let disks = || point.killed(completes).disks();
            let found = caught(|| recover(&disks(), Some(memory(&memory_now)), true));
            let newest = self.trees.len() - 1;
            let tree = || tree_of(&disks(), Some(memory(&memory_now)));
            let Some(found) = self.admit(found, id, newest, tree) else {
                continue;
            };
            let mut allowed = self.trees[self.durable..].to_vec();
            allowed.push(found);
            let second = Second {
                tally: Arc::clone(&self.tally),
                id,
                limit,
                only: self.only.and_then(|only| only.second),
                allowed,
            };
            let medium = point.killed(completes);
            let left = Arc::new(memory(&memory_now));
            self.failures
                .extend(second.explore(&medium, Some(left), found));
        }
    }

    /// Whether a tree may be found: one after a call from `first` on, or the one that the step will
    /// turn out to make.
    fn admit(
        &mut self,
        found: Result<Fingerprint, String>,
        id: StateId,
        first: usize,
        tree: impl FnOnce() -> Option<Snapshot>,
    ) -> Option<Fingerprint> {
        let found = match found {
            Ok(found) => found,
            Err(reason) => {
                self.failures.push(Failure { id, reason });
                return None;
            }
        };
        if self.trees[first..].contains(&found) {
            return Some(found);
        }
        if !self.is_under_way {
            let reason = self.reason(found);
            self.failures.push(Failure { id, reason });
            return None;
        }
        let mut known = self.candidates.iter();
        if !known.any(|candidate| candidate.fingerprint == found) {
            let tree = caught(|| Ok(tree())).ok().flatten();
            self.candidates.push(Candidate {
                fingerprint: found,
                id,
                tree,
            });
        }
        Some(found)
    }

    fn reason(&self, found: Fingerprint) -> String {
        match self.trees.iter().rposition(|tree| *tree == found) {
            Some(_) => "a call that was durable is lost".to_owned(),
            None => "the tree is not that after any call".to_owned(),
        }
    }

    /// Every new tree that was found during the step must be `after`.
    fn settle(&mut self, after: Fingerprint, tree: impl FnOnce() -> Option<Snapshot>) {
        let is_wrong = |candidate: &Candidate| candidate.fingerprint != after;
        let wrong: Vec<Candidate> = self.candidates.drain(..).filter(is_wrong).collect();
        if wrong.is_empty() {
            return;
        }
        let after = tree();
        for candidate in wrong.into_iter().take(FAILURES_MAX) {
            let mut reason = self.reason(candidate.fingerprint);
            if let Some((found, after)) = candidate.tree.as_ref().zip(after.as_ref()) {
                let differences = after.differences(found).join("\n  ");
                reason.push_str(&format!(
                    "; towards the tree after the step:\n  {differences}"
                ));
            }
            let id = candidate.id;
            self.failures.push(Failure { id, reason });
        }
    }
}
