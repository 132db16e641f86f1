//! Threads that ask the kernel before a request is answered.
//!
//! The kernel may send pages to the server before it answers. So a thread that answers requests
//! never asks: if all of them waited, no thread would take the pages. The request's answer moves to
//! threads of this module instead, two kinds of them:
//!
//! * An *asker* opens files of the mount, whose requests this server answers. If the server is
//!   killed meanwhile, the kernel ends the connection when the last descriptor of it is closed, and
//!   the asker would wait until then. So askers have no descriptors but their own.
//! * A *speaker* has those of the process: it gives answers, and tells the kernel to drop pages.

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
use super::kernel::drop_range;

/// Enough that a file with many dirty pages does not delay answers about others much.
const ASKERS: usize = 4;
/// One for each asker, so that none waits for another, and one for drops without a question.
const SPEAKERS: usize = ASKERS + 1;

/// Over io_uring a processor's requests come to its own threads only, so two of them may wait if
/// there are three.
const WAITING_MAX: usize = 2;

/// Answers one request. `None`: there is no way to ask the kernel.
type Question = Box<dyn FnOnce(Option<&Kernel>) + Send>;

/// Work for a speaker.
pub(super) type Speech = Box<dyn FnOnce() + Send>;

/// The threads, from [`start`](Questions::start) to [`end`](Questions::end).
#[derive(Default)]
pub(crate) struct Questions {
    askers: Mutex<Option<Sender<Question>>>,
    speakers: Mutex<Option<Sender<Speech>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Numbers of the askers, as the kernel shows them in requests.
    numbers: OnceLock<Vec<u32>>,
    /// So many more threads that answer requests may wait for the kernel: there are others.
    may_wait: AtomicUsize,
    notifier: OnceLock<Notifier>,
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
        let speakers = self.start_speakers()?;
        let kernel = Arc::new(Kernel {
            mountpoint,
            device_minor,
            notifier: notifier.clone(),
            speakers: speakers.clone(),
        });
        let (askers, questions) = channel::<Question>();
        let questions = Arc::new(Mutex::new(questions));
        let (tell, told) = channel();
        for _ in 0..ASKERS {
            let (kernel, questions, tell) = (kernel.clone(), questions.clone(), tell.clone());
            let thread = std::thread::Builder::new()
                .name("perdure-pages".to_owned())
                .spawn(move || {
                    let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32);
                    drop(tell);
                    leave_descriptors();
                    work(&questions, |question| question(Some(&kernel)));
                })?;
            self.threads.lock().push(thread);
        }
        drop(tell);
        let may_wait = answering_threads.saturating_sub(1).min(WAITING_MAX);
        self.may_wait.store(may_wait, Ordering::Relaxed);
        let _ = self.notifier.set(notifier);
        let _ = self.numbers.set(told.iter().collect());
        *self.speakers.lock() = Some(speakers);
        *self.askers.lock() = Some(askers);
        Ok(())
    }

    fn start_speakers(&self) -> io::Result<Sender<Speech>> {
        let (speakers, speeches) = channel::<Speech>();
        let speeches = Arc::new(Mutex::new(speeches));
        for _ in 0..SPEAKERS {
            let speeches = speeches.clone();
            let thread = std::thread::Builder::new()
                .name("perdure-speak".to_owned())
                .spawn(move || work(&speeches, |speech| speech()))?;
            self.threads.lock().push(thread);
        }
        Ok(speakers)
    }

    /// Whether a thread of this module made the request: it is to be answered at once.
    pub(crate) fn is_asked_by(&self, thread: u32) -> bool {
        self.numbers
            .get()
            .is_some_and(|numbers| numbers.contains(&thread))
    }

    /// Has `question` run on a thread that may ask the kernel; without such threads here and now.
    /// Its answer is to be given by [`Kernel::speak`].
    pub(crate) fn defer(&self, question: impl FnOnce(Option<&Kernel>) + Send + 'static) {
        let askers = self.askers.lock().clone();
        match askers {
            Some(askers) => {
                if let Err(refused) = askers.send(Box::new(question)) {
                    (refused.0)(None);
                }
            }
            None => question(None),
        }
    }

    /// Drops a range of pages, then runs `answer`: here if few other answering threads wait for the
    /// kernel, otherwise on another thread. A page without a pending request goes in a microsecond.
    pub(crate) fn drop_range(
        &self,
        inode: u64,
        range: Range<u64>,
        answer: impl FnOnce() + Send + 'static,
    ) {
        let length = range.end - range.start;
        let Some(notifier) = self.notifier.get() else {
            return answer();
        };
        if self.may_wait() {
            drop_range(notifier, inode, range.start, length);
            self.may_wait.fetch_add(1, Ordering::Release);
            return answer();
        }
        let notifier = notifier.clone();
        let speech: Speech = Box::new(move || {
            drop_range(&notifier, inode, range.start, length);
            answer();
        });
        match self.speakers.lock().clone() {
            Some(speakers) => {
                if let Err(refused) = speakers.send(speech) {
                    (refused.0)();
                }
            }
            None => speech(),
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
        *self.askers.lock() = None;
        *self.speakers.lock() = None;
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic of that thread was logged when it happened.
            let _ = thread.join();
        }
    }
}

fn work<T>(waiting: &Mutex<Receiver<T>>, run: impl Fn(T)) {
    loop {
        let job = waiting.lock().recv();
        match job {
            Ok(job) => run(job),
            Err(_) => return,
        }
    }
}

/// Gives this thread a table of descriptors of its own, with none but `/dev/null` as the standard
/// ones: a process that waits for the end of our output must not wait for this thread.
fn leave_descriptors() {
    // SAFETY: the calls change descriptors of this thread alone, once it has a table of its own.
    // Nothing that it runs from here on uses a descriptor that another thread has opened.
    let left = unsafe {
        libc::unshare(libc::CLONE_FILES) == 0 && {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            let are_replaced = (0..3).all(|standard| libc::dup2(null, standard) == standard);
            are_replaced && libc::close_range(3, libc::c_uint::MAX, 0) == 0
        }
    };
    if !left {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "a thread that asks the kernel shares descriptors");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors() -> Vec<String> {
        let names = std::fs::read_dir("/proc/thread-self/fd").expect("a directory");
        let target = |name: std::fs::DirEntry| std::fs::read_link(name.path()).ok();
        let targets = names.filter_map(|name| target(name.expect("a name")));
        targets.map(|target| target.display().to_string()).collect()
    }

    #[test]
    fn an_asker_holds_no_descriptor_of_the_process() {
        let (mut output, held) = std::io::pipe().expect("a pipe");
        let (left, has_left) = channel();
        let (end, is_ended) = channel::<()>();
        let asker = std::thread::spawn(move || {
            leave_descriptors();
            let _ = left.send(descriptors());
            let _ = is_ended.recv();
        });
        let mut theirs = has_left.recv().expect("the thread says so");
        // The directory that it looks at is open, too.
        theirs.retain(|target| !target.contains("/fd"));
        assert_eq!(theirs, ["/dev/null"; 3]);
        drop(held);
        // Its end is seen while the thread lives.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut output, &mut rest).expect("the end");
        drop(end);
        asker.join().expect("no panic");
    }
}
