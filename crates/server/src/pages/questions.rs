//! Threads that ask the kernel before a request is answered.
//!
//! The kernel may send pages to the server before it answers. So a thread that answers requests
//! never asks: if all of them waited, no thread would take the pages. The request's answer moves to
//! a thread of this module instead.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use fuse::Notifier;
use parking_lot::Mutex;

use super::Kernel;

/// Enough that a file with many dirty pages does not delay answers about others much.
const THREADS: usize = 4;

/// Over io_uring a processor's requests come to its own threads only, so two of them may wait if
/// there are three.
const WAITING_MAX: usize = 2;

/// Answers one request. `None`: there is no way to ask the kernel.
type Job = Box<dyn FnOnce(Option<&Kernel>) + Send>;

/// The threads, from [`start`](Questions::start) to [`end`](Questions::end).
#[derive(Default)]
pub(crate) struct Questions {
    jobs: Mutex<Option<Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Thread numbers as the kernel shows them in requests.
    numbers: OnceLock<Vec<u32>>,
    /// How many more threads that answer requests may wait for the kernel, because there are others.
    may_wait: AtomicUsize,
    kernel: OnceLock<Arc<Kernel>>,
}

impl Questions {
    /// Starts the threads for a mount.
    pub(crate) fn start(
        &self,
        mountpoint: PathBuf,
        device_minor: Option<u32>,
        notifier: Notifier,
        answering_threads: usize,
    ) -> io::Result<()> {
        let kernel = Arc::new(Kernel {
            mountpoint,
            device_minor,
            notifier,
        });
        let (jobs, waiting) = channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        let (tell, told) = channel();
        for _ in 0..THREADS {
            let (kernel, waiting, tell) = (kernel.clone(), waiting.clone(), tell.clone());
            let thread = std::thread::Builder::new()
                .name("perdure-pages".to_owned())
                .spawn(move || {
                    let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32);
                    drop(tell);
                    work(&waiting, &kernel);
                })?;
            self.threads.lock().push(thread);
        }
        drop(tell);
        let may_wait = answering_threads.saturating_sub(1).min(WAITING_MAX);
        self.may_wait.store(may_wait, Ordering::Relaxed);
        let _ = self.kernel.set(kernel);
        let _ = self.numbers.set(told.iter().collect());
        *self.jobs.lock() = Some(jobs);
        Ok(())
    }

    /// Whether a thread of this module made the request: it is to be answered at once.
    pub(crate) fn is_asked_by(&self, thread: u32) -> bool {
        self.numbers
            .get()
            .is_some_and(|numbers| numbers.contains(&thread))
    }

    /// Has `job` run on a thread that may ask the kernel; without such threads here and now.
    pub(crate) fn defer(&self, job: impl FnOnce(Option<&Kernel>) + Send + 'static) {
        let jobs = self.jobs.lock().clone();
        match jobs {
            Some(jobs) => {
                if let Err(refused) = jobs.send(Box::new(job)) {
                    (refused.0)(None);
                }
            }
            None => job(None),
        }
    }

    /// Drops a range of pages, then runs `answer`: here if few other answering threads wait for the
    /// kernel, otherwise deferred. A page without a pending request goes in a microsecond.
    pub(crate) fn drop_range(
        &self,
        inode: u64,
        range: Range<u64>,
        answer: impl FnOnce() + Send + 'static,
    ) {
        let length = range.end - range.start;
        match self.kernel.get() {
            Some(kernel) if self.may_wait() => {
                kernel.drop_range(inode, range.start, length);
                self.may_wait.fetch_add(1, Ordering::Release);
                answer();
            }
            _ => self.defer(move |kernel| {
                if let Some(kernel) = kernel {
                    kernel.drop_range(inode, range.start, length);
                }
                answer();
            }),
        }
    }

    /// Takes the right to wait, if it is to be had.
    fn may_wait(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        let taken = self
            .may_wait
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        taken.is_ok()
    }

    /// Ends the threads after what they have begun. No request comes any more.
    pub(crate) fn end(&self) {
        *self.jobs.lock() = None;
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic of that thread was logged when it happened.
            let _ = thread.join();
        }
    }
}

fn work(waiting: &Mutex<Receiver<Job>>, kernel: &Kernel) {
    loop {
        let job = waiting.lock().recv();
        match job {
            Ok(job) => job(Some(kernel)),
            Err(_) => return,
        }
    }
}
