//! A log against a model: batches in flight, power failures and kills at every point, many
//! generations.

use crate::given::{Seen, bytes, formatted, read, replay};
use perdure_wal::testing::SimulatedDisk;
use perdure_wal::{Log, Placed, UNIT_BYTES};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;

/// How a step ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// All writes complete.
    Finish,
    /// The power fails after so many completions; `pick` chooses what survives.
    Cut { after: usize, pick: usize },
    /// The process is killed after so many completions.
    Kill { after: usize },
}

/// Batches that are on their way at the same time, beside a root or alone.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Bytes of the batches' entries.
    pub(crate) sizes: Vec<usize>,
    /// Moves the root first; it is on its way with the batches.
    pub(crate) moves_root: bool,
    /// Chooses the write that completes next.
    pub(crate) order: Vec<usize>,
    pub(crate) then: Then,
}

/// The batches that the log should hold.
#[derive(Debug, Default)]
struct Model {
    /// All batches since the log was made; number n is at n - 1.
    batches: Vec<Seen>,
    /// Generations of roots that may count.
    generations: Vec<u64>,
}

impl Model {
    /// Judges an image of a disk whose log has acknowledged `acknowledged` batches; returns how
    /// many it has.
    fn judge(&self, image: &[u8], acknowledged: usize) -> Result<usize, String> {
        let disk = Arc::new(SimulatedDisk::from_image(image.to_vec()));
        let (root, seen, replayed) = read(&disk).map_err(|error| error.to_string())?;
        if !self.generations.contains(&root.generation) {
            return Err(format!(
                "root {} is none of {:?}",
                root.generation, self.generations
            ));
        }
        if let Some(lost) = replayed.lost {
            return Err(format!("batch {lost} counts as lost"));
        }
        let first = root.number as usize - 1;
        let end = first + seen.len();
        let expected = self
            .batches
            .get(first..end)
            .ok_or("batches that never were")?;
        if seen != expected {
            return Err(format!("stale or torn batches from number {}", first + 1));
        }
        if end < acknowledged || root.sequence != last_of(&self.batches[..first]) {
            return Err(format!(
                "{end} of {acknowledged} acknowledged batches; {:?}",
                replayed.why
            ));
        }
        Ok(end)
    }
}

fn last_of(batches: &[Seen]) -> u64 {
    batches.last().map_or(0, |batch| batch.last)
}

/// A log and its model.
pub(crate) struct World {
    disk: Arc<SimulatedDisk>,
    log: Arc<Log>,
    model: Model,
    seed: u64,
    /// Crash images judged.
    pub(crate) images: usize,
}

impl World {
    pub(crate) fn new(units: usize) -> World {
        let disk = formatted(units);
        let (_, log) = replay(&disk);
        World {
            disk,
            model: Model {
                batches: Vec::new(),
                generations: vec![log.root().generation],
            },
            log: Arc::new(log),
            seed: 0,
            images: 0,
        }
    }

    /// Runs a step, and judges every power failure at every point of it.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        let finished = AtomicUsize::new(0);
        self.disk.hold(true);
        let result = std::thread::scope(|scope| {
            let result = self.in_flight(step, scope, &finished);
            // A mistake that was found must not leave threads that wait.
            if result.is_err() {
                self.disk.cut();
            }
            result
        });
        let Some(disk) = result? else {
            self.disk.hold(false);
            self.model.generations = vec![self.log.root().generation];
            return Ok(());
        };
        self.mount(disk)
    }

    fn in_flight<'scope>(
        &mut self,
        step: &Step,
        scope: &'scope Scope<'scope, '_>,
        finished: &'scope AtomicUsize,
    ) -> Result<Option<SimulatedDisk>, String> {
        let mut threads = 0;
        if step.moves_root {
            let (log, to) = (Arc::clone(&self.log), self.log.durable_root());
            self.model.generations.push(self.log.root().generation + 1);
            scope.spawn(move || {
                let _ = log.advance(to);
                finished.fetch_add(1, Ordering::SeqCst);
            });
            threads += 1;
            self.settle(threads, finished);
        }
        for &size in &step.sizes {
            let Some(placed) = self.place(size) else {
                break;
            };
            let log = Arc::clone(&self.log);
            scope.spawn(move || {
                let _ = log.write(placed);
                finished.fetch_add(1, Ordering::SeqCst);
            });
            threads += 1;
            self.settle(threads, finished);
        }
        self.judge_all()?;
        let mut choices = step.order.iter().cycle();
        for completed in 0.. {
            match step.then {
                Then::Cut { after, pick } if after == completed => return self.cut(pick).map(Some),
                Then::Kill { after } if after == completed => return Ok(Some(self.disk.kill())),
                _ => (),
            }
            let held = self.disk.held_places().len();
            if held == 0 {
                break;
            }
            self.disk.release(choices.next().expect("not empty") % held);
            self.settle(threads, finished);
            self.judge_all()?;
        }
        Ok(None)
    }

    /// Waits until every thread has ended or waits for its write.
    fn settle(&self, threads: usize, finished: &AtomicUsize) {
        while self.disk.held_places().len() + finished.load(Ordering::SeqCst) < threads {
            std::thread::yield_now();
        }
    }

    fn place(&mut self, size: usize) -> Option<Placed> {
        let last = last_of(&self.model.batches) + 1 + size as u64 % 3;
        self.seed += 1;
        let payload = bytes(self.seed, size);
        let mut buffer = self.log.buffer();
        buffer.payload().extend_from_slice(&payload);
        let first = last_of(&self.model.batches) + 1;
        let placed = self.log.place(buffer, first, last, false).ok()?;
        self.model.batches.push(Seen {
            number: placed.number(),
            last,
            payload,
        });
        Some(placed)
    }

    fn acknowledged(&self) -> usize {
        let sequence = self.log.durable_sequence();
        self.model
            .batches
            .iter()
            .take_while(|batch| batch.last <= sequence)
            .count()
    }

    fn judge_all(&mut self) -> Result<(), String> {
        let acknowledged = self.acknowledged();
        let mut result = Ok(());
        let mut images = 0;
        self.disk.for_each_crash(&mut |crash, image| {
            images += 1;
            if result.is_ok() {
                result = self
                    .model
                    .judge(image, acknowledged)
                    .map(|_| ())
                    .map_err(|reason| format!("{reason} after {crash:?}"));
            }
        });
        self.images += images;
        result
    }

    /// One of the disks that a power failure leaves.
    fn cut(&mut self, pick: usize) -> Result<SimulatedDisk, String> {
        let mut images = Vec::new();
        self.disk
            .for_each_crash(&mut |_, image| images.push(image.to_vec()));
        self.disk.cut();
        Ok(SimulatedDisk::from_image(
            images.swap_remove(pick % images.len()),
        ))
    }

    /// Mounts a disk after a failure: the log goes on with what survived.
    fn mount(&mut self, disk: SimulatedDisk) -> Result<(), String> {
        let acknowledged = self.acknowledged();
        let end = self.model.judge(&disk.image(), acknowledged)?;
        self.model.batches.truncate(end);
        let disk = Arc::new(disk);
        let (_, log) = replay(&disk);
        if log.durable_sequence() != last_of(&self.model.batches) {
            return Err("the log goes on at another record than it has".to_owned());
        }
        self.model.generations = vec![log.root().generation];
        (self.disk, self.log) = (disk, Arc::new(log));
        self.judge_all()
    }
}

pub(crate) fn run(units: usize, steps: &[Step]) -> Result<usize, String> {
    let mut world = World::new(units);
    for (index, step) in steps.iter().enumerate() {
        world
            .step(step)
            .map_err(|reason| format!("step {index}: {reason}"))?;
    }
    Ok(world.images)
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![4 => 0_usize..4000, 2 => 4000_usize..13_000, 1 => Just(4032_usize), 1 => Just(4033_usize)];
    prop::collection::vec(size, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let then = prop_oneof![
        6 => Just(Then::Finish),
        3 => (0_usize..5, any::<usize>()).prop_map(|(after, pick)| Then::Cut { after, pick }),
        1 => (0_usize..5).prop_map(|after| Then::Kill { after }),
    ];
    (
        sizes(),
        prop::bool::weighted(0.4),
        prop::collection::vec(0_usize..12, 1..6),
        then,
    )
        .prop_map(|(sizes, moves_root, order, then)| Step {
            sizes,
            moves_root,
            order,
            then,
        })
}

pub(crate) fn script() -> impl Strategy<Value = (usize, Vec<Step>)> {
    (8_usize..24, prop::collection::vec(step(), 1..24))
}

proptest! {
    // A case judges a thousand images.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, max_shrink_iters: 2000, ..ProptestConfig::default() })]
    #[test]
    fn every_power_failure_leaves_a_prefix_with_all_acknowledged_batches((units, steps) in script()) {
        if let Err(reason) = run(units, &steps) {
            panic!("{reason}");
        }
    }
}

#[test]
fn a_long_life_of_a_small_ring() {
    let mut images = 0;
    let mut world = World::new(12);
    for round in 0..120_usize {
        let step = Step {
            sizes: vec![100 + round * 37 % 9000, 3000],
            moves_root: round % 2 == 1,
            order: vec![round % 3, round % 2],
            then: match round % 10 {
                4 => Then::Cut {
                    after: round % 3,
                    pick: round * 7,
                },
                9 => Then::Kill { after: round % 3 },
                _ => Then::Finish,
            },
        };
        world
            .step(&step)
            .unwrap_or_else(|reason| panic!("round {round}: {reason}"));
        images = world.images;
    }
    assert!(
        world.log.root().position > 10 * 12 * UNIT_BYTES as u64,
        "ten laps: {:?}",
        world.log.root()
    );
    assert!(images > 5000, "{images}");
}
