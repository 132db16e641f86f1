//! Requests over io_uring: each processor has a queue, and each queue stations.
//!
//! A request is answered on the processor of its caller, and the answer asks for the next request
//! at once: two switches of context, and no thread of another processor is woken.
//!
//! # Invariants
//!
//! * A station has one entry, so no request waits for a thread that has another one.
//! * A queue whose stations all have had their requests for [`PERIOD`] gets a further one: a
//!   request that waits for another request never stands still ([`run`]).
//! * What the kernel still sends over the classic queue is done before an answer says that there
//!   is no space ([`forgets`]).

mod alarm;
mod desk;
mod forgets;
mod memory;
mod processors;
mod queue;
mod station;
mod submission;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use desk::Desk;
pub use queue::{begins_to_wait, ends_waiting};

use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::device::{Device, Notifier};
use crate::filesystem::Filesystem;
use crate::handshake::Agreed;
use alarm::Alarm;
use forgets::Forgets;
use queue::{Event, Queue};
use station::{Shared, Station};
use submission::Ring;

/// So many answer two callers of a processor while a third one waits for the kernel.
pub const STATIONS_PER_PROCESSOR: usize = 3;

/// How long all stations of a queue may have had their requests before another one comes.
const PERIOD: Duration = Duration::from_millis(10);
/// After so many periods without a request nobody watches.
const QUIET_PERIODS: u32 = 10;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether requests can come over io_uring here: the system allows it, and so does this process's
/// sandbox.
///
/// # Errors
///
/// Why not, for people.
pub fn check_io_uring() -> Result<(), String> {
    match std::fs::read_to_string(SWITCH) {
        Ok(text) if matches!(text.trim(), "Y" | "1") => {}
        Ok(_) => {
            return Err(format!(
                "off in this system; to enable it: echo Y > {SWITCH}"
            ));
        }
        Err(_) => return Err("not in this kernel; Linux 6.14 and later have it".to_owned()),
    }
    processors::processors().map_err(|error| error.to_string())?;
    Ring::new()
        .map(drop)
        .map_err(|error| format!("this process may not use io_uring: {error}"))
}

/// Answers all requests of a connection until it ends. The calling thread watches over stations.
pub(crate) fn run<F: Filesystem>(
    files: Arc<F>,
    device: &Arc<Device>,
    agreed: Agreed,
    stations: usize,
    on_failure: &dyn Fn(),
) -> io::Result<()> {
    let (sender, events) = channel();
    let forgets = Forgets::new(device, agreed.buffer_bytes()).map(Arc::new);
    let alarm = Arc::<Alarm>::default();
    let queues: io::Result<Vec<Arc<Queue>>> = processors::processors().map(|all| {
        let queue = |(index, one)| Arc::new(Queue::new(one, index, Arc::clone(&alarm)));
        all.into_iter().enumerate().map(queue).collect()
    });
    let (forgets, queues) = match (forgets, queues) {
        (Ok(forgets), Ok(queues)) => (forgets, queues),
        (Err(error), _) | (_, Err(error)) => {
            on_failure();
            return Err(error);
        }
    };
    let mut watch = Watch {
        shared: Shared {
            files,
            device: Arc::clone(device),
            payload_bytes: agreed.payload_bytes.max(crate::abi::READ_BUFFER_BYTES_MIN),
            forgets,
            watch: sender,
        },
        events,
        seen: vec![Vec::new(); queues.len()],
        queues,
        alarm,
        threads: Vec::new(),
        live: 0,
        on_failure,
        outcome: Ok(()),
    };
    watch.open(stations);
    watch.run()
}

/// Watches over the stations of all queues.
struct Watch<'w, F> {
    shared: Shared<F>,
    events: Receiver<Event>,
    queues: Vec<Arc<Queue>>,
    /// Turns of the stations a period ago.
    seen: Vec<Vec<u64>>,
    alarm: Arc<Alarm>,
    threads: Vec<JoinHandle<()>>,
    /// Stations that have not ended.
    live: usize,
    on_failure: &'w dyn Fn(),
    outcome: io::Result<()>,
}

impl<F: Filesystem> Watch<'_, F> {
    /// Starts what a connection begins with. The kernel sends nothing until each queue has a
    /// station.
    fn open(&mut self, stations: usize) {
        for index in 0..self.queues.len() {
            let count = match self.queues[index].processor.is_online {
                true => stations,
                false => 1,
            };
            for number in 0..count {
                self.add(index, number > 0);
            }
        }
        let (forgets, files) = (self.shared.forgets.clone(), self.shared.files.clone());
        let reader = std::thread::Builder::new()
            .name("fuse-forget".to_owned())
            .spawn(move || forgets.run(&*files));
        match reader {
            Ok(reader) => self.threads.push(reader),
            Err(error) => self.fail(error),
        }
    }

    fn add(&mut self, index: usize, is_further: bool) {
        let queue = Arc::clone(&self.queues[index]);
        let Some(turns) = queue.add() else { return };
        let number = queue.processor.number;
        let station = Station {
            shared: self.shared.clone(),
            queue,
            turns,
            is_further,
        };
        let started = std::thread::Builder::new()
            .name(format!("fuse-cpu-{number}"))
            .spawn(move || station.run());
        match started {
            Ok(thread) => {
                self.threads.push(thread);
                self.live += 1;
            }
            // The stations that are there go on.
            Err(error) if is_further => tracing::warn!(%error, "no further thread for requests"),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: io::Error) {
        if self.outcome.is_ok() {
            self.outcome = Err(error);
            (self.on_failure)();
        }
    }

    fn run(mut self) -> io::Result<()> {
        let mut quiet_periods = 0;
        while self.live > 0 {
            match self.next(quiet_periods >= QUIET_PERIODS) {
                Some(Event::Wanted(index)) => {
                    if self.queues[index].lacks_one() {
                        self.add(index, true);
                    }
                }
                Some(Event::Woken) => quiet_periods = 0,
                Some(Event::Ended(outcome)) => {
                    self.live -= 1;
                    if let Err(error) = outcome {
                        self.fail(error);
                    }
                }
                None if self.look() => quiet_periods = 0,
                None => quiet_periods += 1,
            }
        }
        for thread in self.threads.drain(..) {
            // The server's methods catch panics; another one is told of by the runtime.
            if thread.join().is_err() && self.outcome.is_ok() {
                self.outcome = Err(io::Error::other("a thread panicked"));
            }
        }
        self.outcome
    }

    /// The next event, or none for a period. One that may sleep does so until there is a request.
    fn next(&self, may_sleep: bool) -> Option<Event> {
        if may_sleep {
            self.alarm.set(true);
            if self
                .queues
                .iter()
                .zip(&self.seen)
                .all(|(queue, seen)| &queue.turns() == seen)
            {
                return self.events.recv().ok();
            }
            self.alarm.set(false);
        }
        self.events.recv_timeout(PERIOD).ok()
    }

    /// Asks the kernel for a request in place of a station that could not.
    fn ask_for_a_request(&self, index: usize) {
        let everywhere = sched_getaffinity(None);
        let queue = &self.queues[index];
        queue.processor.enter();
        queue.ask_for_a_request(&Notifier(Arc::clone(&self.shared.device)));
        if let Ok(everywhere) = everywhere {
            let _ = sched_setaffinity(None, &everywhere);
        }
    }

    /// Looks at all stations. A queue of which each has had its request since the last look gets
    /// a further one. Returns whether any has a request or had one meanwhile.
    fn look(&mut self) -> bool {
        let mut is_busy = false;
        for index in 0..self.queues.len() {
            let turns = self.queues[index].turns();
            let busy = turns.iter().filter(|turn| **turn % 2 == 1).count();
            let has_changed = self.seen[index] != turns;
            is_busy |= has_changed || busy > 0;
            if !has_changed && busy == turns.len() {
                self.add(index, true);
            } else if busy > 0 && self.queues[index].lacks_request() {
                self.ask_for_a_request(index);
            }
            self.seen[index] = turns;
        }
        is_busy
    }
}
