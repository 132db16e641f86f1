//! A queue's stations: their number, and whether they are free.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use parking_lot::Mutex;

use super::alarm::{Alarm, Turns};
use super::processors::Processor;
use crate::device::Notifier;
use crate::types::INodeNo;

/// No queue gets more stations, however many of them wait.
pub(super) const STATIONS_MAX: usize = 64;

/// News for the thread that watches over stations.
#[derive(Debug)]
pub(super) enum Event {
    /// All stations of this queue wait for something else than a request.
    Wanted(usize),
    /// There is work again.
    Woken,
    /// A station has ended.
    Ended(std::io::Result<()>),
}

/// The queue of one processor.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) processor: Processor,
    index: usize,
    pub(super) alarm: Arc<Alarm>,
    /// A station came while there were others, and the kernel was not asked for a request since.
    lacks_request: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stations: Vec<Arc<Turns>>,
    /// Stations that wait for something else than a request.
    waiting: usize,
}

impl Queue {
    pub(super) fn new(processor: Processor, index: usize, alarm: Arc<Alarm>) -> Queue {
        Queue {
            processor,
            index,
            alarm,
            lacks_request: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// One more station, unless there are so many that this must not be.
    pub(super) fn add(&self) -> Option<Arc<Turns>> {
        let mut state = self.state.lock();
        (state.stations.len() < STATIONS_MAX).then(|| {
            let turns = Arc::<Turns>::default();
            state.stations.push(Arc::clone(&turns));
            turns
        })
    }

    /// Whether all stations wait.
    pub(super) fn lacks_one(&self) -> bool {
        let state = self.state.lock();
        state.waiting >= state.stations.len()
    }

    /// Makes the kernel send one request about nothing, so that it hands out those that gathered
    /// while no station was free. Call it on the queue's processor.
    ///
    /// The kernel takes the number of a file for that, so it fails while no request is about one.
    pub(super) fn ask_for_a_request(&self, notifier: &Notifier) {
        let ask = |inode| notifier.ask_for_a_request(INodeNo(inode)).is_ok();
        let is_sent = self.inodes().into_iter().any(ask);
        self.lacks_request.store(!is_sent, Ordering::Relaxed);
    }

    /// Whether the kernel is still to be asked.
    pub(super) fn lacks_request(&self) -> bool {
        self.lacks_request.load(Ordering::Relaxed)
    }

    /// Inodes that requests under way are about.
    fn inodes(&self) -> Vec<u64> {
        let state = self.state.lock();
        let busy = state.stations.iter().filter(|turns| turns.is_busy());
        busy.map(|turns| turns.inode()).collect()
    }

    /// The turns of all stations.
    pub(super) fn turns(&self) -> Vec<u64> {
        let state = self.state.lock();
        state.stations.iter().map(|turns| turns.get()).collect()
    }
}

/// A station's own view of its queue.
#[derive(Debug)]
struct Post {
    queue: Arc<Queue>,
    watch: Sender<Event>,
}

thread_local! {
    static POST: RefCell<Option<Post>> = const { RefCell::new(None) };
}

/// Makes this thread a station of the queue.
pub(super) fn take_post(queue: Arc<Queue>, watch: Sender<Event>) {
    POST.set(Some(Post { queue, watch }));
}

/// Ends it.
pub(super) fn leave_post() {
    POST.set(None);
}

/// Tells that this thread begins to wait for something that may take long, such as a disk. If it
/// answers requests of a queue whose other threads all wait, the queue gets a further one. Other
/// threads may call this, too.
pub fn begins_to_wait() {
    POST.with_borrow(|post| {
        if let Some(post) = post {
            let mut state = post.queue.state.lock();
            state.waiting += 1;
            let all_wait = state.waiting >= state.stations.len();
            drop(state);
            if all_wait {
                // A watch that has ended has no more stations.
                let _ = post.watch.send(Event::Wanted(post.queue.index));
            }
        }
    });
}

/// Ends what [`begins_to_wait`] began, on the same thread.
pub fn ends_waiting() {
    POST.with_borrow(|post| {
        if let Some(post) = post {
            post.queue.state.lock().waiting -= 1;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn queue() -> Arc<Queue> {
        let processor = Processor {
            number: 0,
            is_online: true,
        };
        Arc::new(Queue::new(processor, 3, Arc::default()))
    }

    #[test]
    fn the_last_one_that_waits_asks_for_another() {
        let (queue, (sender, events)) = (queue(), channel());
        let stations = [queue.add(), queue.add()];
        assert!(stations.iter().all(Option::is_some));
        let waits = |queue: &Arc<Queue>, sender: &Sender<Event>| {
            let (queue, sender) = (queue.clone(), sender.clone());
            std::thread::spawn(move || {
                take_post(queue, sender);
                begins_to_wait();
                leave_post();
            })
            .join()
            .expect("no panic");
        };
        waits(&queue, &sender);
        assert!(events.try_recv().is_err() && !queue.lacks_one());
        waits(&queue, &sender);
        assert!(matches!(events.try_recv(), Ok(Event::Wanted(3))));
        assert!(queue.lacks_one());
        queue.add().expect("a third");
        assert!(!queue.lacks_one());
    }

    #[test]
    fn threads_without_a_post_may_wait() {
        begins_to_wait();
        ends_waiting();
    }

    #[test]
    fn stations_are_bounded() {
        let queue = queue();
        let added = std::iter::from_fn(|| queue.add()).count();
        assert_eq!(added, STATIONS_MAX);
    }
}
