use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use txn::Waits;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// The state of a thread of the model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Does {
    /// Reads its first request: the gate does not know it.
    ReadsFirst,
    Reads,
    Works,
    /// For the disk.
    Waits,
    Parks,
    Gone,
}

/// Threads, and the gate's state, which each step changes under its lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Model {
    threads: Vec<Does>,
    state: State<usize>,
    is_unmounted: bool,
}

impl Model {
    fn new(threads: usize) -> Model {
        Model {
            threads: vec![Does::ReadsFirst; threads],
            state: State::default(),
            is_unmounted: false,
        }
    }

    fn count(&self, wanted: &[Does]) -> usize {
        let is_wanted = |does: &&Does| wanted.contains(does);
        self.threads.iter().filter(is_wanted).count()
    }

    /// All models that one step of the thread leads to.
    fn steps(&self, thread: usize, most: usize) -> Vec<Model> {
        let to = |does| {
            let mut next = self.clone();
            next.threads[thread] = does;
            next
        };
        match self.threads[thread] {
            Does::ReadsFirst if self.is_unmounted => vec![to(Does::Gone)],
            Does::Reads if self.is_unmounted => {
                let mut next = to(Does::Gone);
                for woken in next.state.ends() {
                    next.threads[woken] = Does::Reads;
                }
                vec![next]
            }
            Does::ReadsFirst => {
                let mut next = to(Does::Works);
                next.state.joins();
                vec![next]
            }
            Does::Reads => vec![to(Does::Works)],
            Does::Works => {
                let mut waits = to(Does::Waits);
                if let Some(woken) = waits.state.waits(most) {
                    waits.threads[woken] = Does::Reads;
                }
                let mut answers = to(Does::Reads);
                if answers.state.answers(most, thread).is_none() {
                    answers.threads[thread] = Does::Parks;
                }
                vec![waits, answers]
            }
            Does::Waits => {
                let mut next = to(Does::Works);
                next.state.joins();
                vec![next]
            }
            Does::Parks | Does::Gone => Vec::new(),
        }
    }

    fn check(&self, most: usize) {
        let awake = self.count(&[Does::ReadsFirst, Does::Reads, Does::Works]);
        let parked = self.count(&[Does::Parks]);
        assert_eq!(
            self.state.active,
            self.count(&[Does::Reads, Does::Works]),
            "{self:?}"
        );
        assert_eq!(self.state.parked.len(), parked, "{self:?}");
        assert!(
            parked == 0 || self.state.active >= fewest(most),
            "too few read while others are parked: {self:?}"
        );
        assert!(
            awake > 0 || parked == 0 || self.count(&[Does::Gone]) > 0,
            "nobody reads: {self:?}"
        );
    }
}

/// Goes through every order of steps.
fn explore(threads: usize, most: usize) -> (usize, usize) {
    let mut seen = HashSet::from([Model::new(threads)]);
    let mut left: Vec<Model> = seen.iter().cloned().collect();
    let mut most_parked = 0;
    while let Some(model) = left.pop() {
        model.check(most);
        most_parked = most_parked.max(model.count(&[Does::Parks]));
        let mut next: Vec<Model> = (0..threads)
            .flat_map(|thread| model.steps(thread, most))
            .collect();
        if !model.is_unmounted {
            let mut unmounted = model.clone();
            unmounted.is_unmounted = true;
            next.push(unmounted);
        }
        assert!(
            !next.is_empty() || model.count(&[Does::Gone]) == threads,
            "threads sleep for ever: {model:?}"
        );
        next.retain(|model| seen.insert(model.clone()));
        left.append(&mut next);
    }
    (seen.len(), most_parked)
}

#[test]
fn in_every_order_of_steps_a_thread_reads_and_all_threads_end() {
    for (threads, most) in [(2, 2), (3, 1), (4, 2), (5, 3), (5, 4)] {
        let (models, parked) = explore(threads, most);
        assert!(models > threads, "{threads} threads");
        assert_eq!(parked, threads - most, "{threads} threads");
    }
}

/// A thread that does what it is told, as one that reads requests.
struct Reader {
    orders: Sender<Order>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

#[derive(Clone, Copy)]
enum Order {
    /// A request without a wait.
    Answer,
    /// A request that waits for the disk until the next order.
    Wait,
}

impl Reader {
    fn new(gate: &Arc<Gate>) -> Reader {
        let gate = Arc::clone(gate);
        let ((orders, ordered), (tell, done)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            while let Ok(order) = ordered.recv() {
                let turn = gate.turn();
                if let Order::Wait = order {
                    gate.begins();
                    let _ = tell.send(());
                    let _ = ordered.recv();
                    gate.ends();
                }
                drop(turn);
                let _ = tell.send(());
            }
        });
        Reader {
            orders,
            done,
            thread,
        }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the thread is there");
    }

    fn is_done(&self) {
        self.done
            .recv_timeout(PATIENCE)
            .expect("the thread goes on");
    }

    fn end(self) {
        drop(self.orders);
        self.thread.join().expect("no panic");
    }
}

fn until(is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "it never came so");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_parked_thread_takes_over_when_the_others_wait_and_ends_with_them() {
    let gate = Arc::new(Gate::new(Some(2)));
    let parked = || gate.state.lock().parked.len();
    let [first, second, third, fourth] = std::array::from_fn(|_| Reader::new(&gate));
    for reader in [&first, &second] {
        reader.order(Order::Answer);
        reader.is_done();
    }
    third.order(Order::Answer);
    until(|| parked() == 1);
    first.order(Order::Wait);
    first.is_done();
    assert_eq!(parked(), 1, "one thread is left to read");
    second.order(Order::Wait);
    second.is_done();
    third.is_done();
    assert_eq!(parked(), 0);
    first.order(Order::Answer);
    first.is_done();
    second.order(Order::Answer);
    until(|| parked() == 1);
    fourth.order(Order::Answer);
    until(|| parked() == 2);
    // The connection ends: a thread that reads notices, and those that sleep are woken by its end.
    first.end();
    second.is_done();
    fourth.is_done();
    for reader in [second, third, fourth] {
        reader.end();
    }
}

#[test]
fn waits_of_other_threads_and_gates_without_a_limit_count_for_nothing() {
    let gate = Arc::new(Gate::new(Some(2)));
    gate.begins();
    gate.ends();
    assert_eq!(gate.state.lock().active, 0, "this thread reads nothing");
    let open = Arc::new(Gate::open());
    drop(open.turn());
    open.begins();
    open.ends();
    assert_eq!(open.state.lock().active, 0);
    assert_eq!(
        (open.readers(10), gate.readers(10), gate.readers(1)),
        (10, 2, 1)
    );
}
