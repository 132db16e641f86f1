//! Runs sequences beside their model, with a judge at every event of both disks.

use super::judge::Judge;
use super::medium::{Choice, Medium, Point};
use super::pool::{live, memory, prepared, save_image};
use super::sequence::{Sequence, Step};
use crate::catalogue;
use crate::clock;
use crate::lab::{agree, compare};
use crate::model::Model;
use crate::operation::Live;
use crate::recovery::{caught, roam_after};
use crate::snapshot::{Fingerprint, Snapshot, Summary};
use crate::state_id::StateId;
use crate::tally::Tally;
use crate::watcher::{Depth, Failure};
use crate::workload::Workload;
use parking_lot::Mutex;
use std::sync::Arc;
use txn::transaction::use_slot;
use txn::{Durability, PoolState};

/// One thread's laboratory.
pub struct DiskLab {
    tally: Arc<Tally>,
    only: Option<StateId>,
    absent_paths: Vec<String>,
}

/// A sequence on its way.
struct Run<'l> {
    sequence: Sequence,
    judge: Arc<Mutex<Judge>>,
    medium: Arc<Medium>,
    live: Option<Live>,
    model: Model,
    /// The model at each of the judge's trees.
    models: Vec<Model>,
    absent_paths: &'l [String],
}

fn depth(sequence: Sequence) -> Depth {
    let (choices, nested_choices, nested_every) = match sequence {
        Sequence::One(..) => (256, 24, 64),
        Sequence::Two(..) | Sequence::Beside(..) => (64, 12, 256),
        Sequence::Long(_) => (32, 12, 256),
    };
    Depth {
        choices,
        nested_choices,
        nested_every,
    }
}

impl DiskLab {
    /// A laboratory that counts into `tally` and looks at `only`, or at everything.
    pub fn new(tally: Arc<Tally>, only: Option<StateId>) -> DiskLab {
        DiskLab {
            tally,
            only,
            absent_paths: catalogue::known_paths(),
        }
    }

    /// Runs a sequence and looks at all that power cuts and kills can leave of it.
    pub fn run(&mut self, sequence: Sequence) -> Vec<Failure> {
        let id = StateId {
            workload: Workload::Disk(sequence),
            step: 0,
            cut: None,
            second: None,
        };
        let judge = Judge::new(
            Arc::clone(&self.tally),
            depth(sequence),
            self.only.filter(|only| only.cut.is_some()),
            id,
        );
        let judge = Arc::new(Mutex::new(judge));
        let run = caught(|| self.run_steps(sequence, &judge));
        let mut judge = judge.lock();
        if let Err(reason) = run {
            judge.fail(reason);
        }
        self.tally.count_workload();
        judge.take_failures()
    }

    fn run_steps(&self, sequence: Sequence, judge: &Arc<Mutex<Judge>>) -> Result<(), String> {
        let (medium, model) = prepared(sequence.number())?.start();
        let workload = Workload::Disk(sequence);
        clock::restart(workload.calls_per_tick());
        roam_after(workload.roam_after());
        use_slot(0);
        let live = live(&medium, None, sequence.durability())?;
        let mut run = Run {
            sequence,
            judge: Arc::clone(judge),
            medium,
            live: Some(live),
            models: vec![model.clone()],
            model,
            absent_paths: &self.absent_paths,
        };
        run.starts_anew()?;
        let steps = sequence.steps();
        for (index, step) in steps.iter().enumerate() {
            // The disks are kept at an event of this step if the next one cuts the power.
            let keep_at = match steps.get(index + 1) {
                Some(Step::CutPower(seed)) if !matches!(step, Step::CutPower(_)) => {
                    Some(seed % EVENTS_TO_CUT_IN)
                }
                _ => None,
            };
            judge.lock().begin(index, keep_at);
            run.step(step)
                .map_err(|reason| format!("step {index}, {step}: {reason}"))?;
        }
        Ok(())
    }
}

/// A power cut comes at one of so many events of the step before, or after it.
const EVENTS_TO_CUT_IN: u64 = 8;
/// Choices that a power cut of a long sequence takes one of.
const CUT_CHOICES: usize = 64;

impl Run<'_> {
    fn live(&mut self) -> &mut Live {
        self.live.as_mut().expect("mounted between steps")
    }

    fn tree(&self) -> Result<Fingerprint, String> {
        let live = self.live.as_ref().expect("mounted between steps");
        let summary = Summary::of(live.files()).map_err(|error| format!("reading: {error}"))?;
        Ok(summary.fingerprint)
    }

    /// The tree that is mounted now is durable.
    fn starts_anew(&mut self) -> Result<(), String> {
        let tree = self.tree()?;
        let region = self.live().files().store().shared_region();
        self.judge.lock().starts_with(tree, Some(region));
        self.models = vec![self.model.clone()];
        Judge::watch(&self.judge, &self.medium);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let newest = Some(0);
        let durable = match step {
            Step::Call(operation) => {
                let live = self.live.as_mut().expect("mounted between steps");
                agree(live, &mut self.model, operation)?;
                newest.filter(|_| self.sequence.durability() == Durability::Call)
            }
            Step::Sync => {
                let synced = self.live().files().sync();
                synced.map_err(|error| error.to_string())?;
                newest
            }
            Step::SyncBeside(operation) => {
                self.sync_beside(operation)?;
                Some(1)
            }
            Step::SaveImage => {
                save_image(self.live().files())?;
                None
            }
            Step::Reopen => {
                self.reopen()?;
                newest
            }
            Step::Kill => {
                self.kill()?;
                None
            }
            Step::CutPower(seed) => return self.cut_power(*seed),
        };
        self.ends(durable)
    }

    /// The step has returned.
    fn ends(&mut self, durable: Option<usize>) -> Result<(), String> {
        let after = self.tree()?;
        let live = self.live.as_ref().expect("mounted between steps");
        self.models.push(self.model.clone());
        let tree = || Snapshot::of(live.files()).ok();
        let point = self.medium.point();
        self.judge.lock().ends(after, durable, &point, tree);
        compare(live, &self.model, self.absent_paths)
    }

    fn sync_beside(&mut self, operation: &crate::operation::Operation) -> Result<(), String> {
        let mut beside = self.live().beside().ok_or("nothing is mounted")?;
        let mut model = self.model.clone();
        let operation = operation.clone();
        let outcome = Arc::new(Mutex::new(None));
        let told = Arc::clone(&outcome);
        let act = move || {
            use_slot(1);
            let agreed = agree(&mut beside, &mut model, &operation);
            use_slot(0);
            *told.lock() = Some(agreed.map(|()| model));
        };
        let files = self.live().files();
        let logger = files.store().logger().ok_or("the pool has no log")?;
        logger.before_next_copy(Box::new(act));
        let synced = files.sync();
        synced.map_err(|error| error.to_string())?;
        // A call that changes nothing has no batch.
        if let Some(agreed) = outcome.lock().take() {
            self.model = agreed?;
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.live.take().into_iter().for_each(Live::unmount);
        self.judge.lock().is_in(None);
        self.model.release();
        if !self.medium.point().is_durable() {
            return Err("an unmount leaves writes that are not durable".into());
        }
        self.mount(None)
    }

    fn mount(&mut self, left: Option<Arc<pmem::Region>>) -> Result<(), String> {
        let live = live(&self.medium, left, self.sequence.durability())?;
        let region = live.files().store().shared_region();
        self.live = Some(live);
        self.judge.lock().is_in(Some(region));
        Ok(())
    }

    fn kill(&mut self) -> Result<(), String> {
        let left = self.live().files().store().region().image();
        self.medium.on_event(None);
        self.medium = self.medium.point().killed(true);
        // The old server may still write to the old medium, which nothing reads any more.
        self.live = None;
        self.model.release();
        self.judge.lock().is_in(None);
        Judge::watch(&self.judge, &self.medium);
        self.mount(Some(Arc::new(memory(&left))))
    }

    /// The model goes back to the state that the disks turn out to have.
    fn cut_power(&mut self, seed: u64) -> Result<(), String> {
        let kept = self.judge.lock().take_kept();
        let (point, first) =
            kept.unwrap_or_else(|| (self.medium.point(), self.judge.lock().durable()));
        let choices = point.choices(CUT_CHOICES, seed);
        let choice = choices[(seed >> 8) as usize % choices.len()];
        self.cut_power_at(&point, choice, first)
    }

    fn cut_power_at(&mut self, point: &Point, choice: Choice, first: usize) -> Result<(), String> {
        self.medium.on_event(None);
        self.medium = point.medium(choice);
        self.live = None;
        self.judge.lock().is_in(None);
        self.mount(None)?;
        let found = self.tree()?;
        let place = self.judge.lock().place_of(found, first);
        let place = place.ok_or("a power cut leads to a tree that is not that after any call")?;
        self.model = self.models[place].clone();
        self.model.release();
        self.starts_anew()?;
        let live = self.live.as_ref().expect("just mounted");
        compare(live, &self.model, self.absent_paths)
    }
}
