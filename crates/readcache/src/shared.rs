//! What readers, writers and the background thread share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::file::FileCache;
use crate::frames::Frames;
use crate::hotness::Hotness;
use crate::requests::{Fill, Requests, Urgent};
use crate::statistics::Meter;

/// The files with copies, by the places that requests name.
#[derive(Default)]
struct Register {
    files: Vec<Weak<FileCache>>,
    free: Vec<u32>,
    /// Places whose file is gone. Requests that name them may still be on their way, and would be taken for another file's: its lives have the same numbers.
    gone: Vec<u32>,
    /// Those of them that were there when nothing was on its way last.
    passed: Vec<u32>,
}

pub(crate) struct Shared {
    pub(crate) frames: Frames,
    pub(crate) hotness: Hotness,
    pub(crate) meter: Meter,
    /// Counts what the background thread does; when an entry was read last is told by it. A clock that stands still while nothing is filled or
    /// evicted is as good for that as time.
    clock: AtomicU64,
    pub(crate) requests: Requests,
    /// Apart from what every hit reads.
    register: CachePadded<Mutex<Register>>,
    /// Set when the background thread must be woken up.
    is_asleep: AtomicBool,
    pub(crate) must_end: AtomicBool,
    pub(crate) thread: OnceLock<Thread>,
}

impl Shared {
    pub(crate) fn new(frames: Frames, hotness: Hotness) -> Shared {
        Shared {
            frames,
            hotness,
            meter: Meter::new(),
            clock: AtomicU64::new(1),
            requests: Requests::new(),
            register: CachePadded::default(),
            is_asleep: AtomicBool::new(false),
            must_end: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    #[inline]
    pub(crate) fn clock_now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Time goes on. Only the background thread moves it.
    pub(crate) fn advance_clock(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks the background thread for a copy; false if it has too much to do already.
    #[inline]
    pub(crate) fn ask(&self, fill: Fill) -> bool {
        let is_taken = self.requests.send(fill);
        // Either the thread sees the request before it sleeps, or we see that it sleeps: in the one order of sequentially consistent accesses.
        if self.is_asleep.load(Ordering::SeqCst) {
            self.wake();
        }
        is_taken
    }

    /// The same for what is urgent.
    pub(crate) fn ask_urgently(&self, request: Urgent) -> bool {
        let is_taken = self.requests.send_urgent(request);
        self.is_asleep.store(false, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        is_taken
    }

    /// Wakes the background thread up if it sleeps until somebody does.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) {
        if self.is_asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// The background thread is about to sleep: `false` if there is something to do after all.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        let may = self.requests.is_empty() && !self.must_end.load(Ordering::Relaxed);
        if !may {
            self.is_asleep.store(false, Ordering::Relaxed);
        }
        may
    }

    /// The background thread has slept. Whether somebody woke it up.
    pub(crate) fn was_woken(&self) -> bool {
        !self.is_asleep.swap(false, Ordering::Relaxed)
    }

    /// A new file.
    pub(crate) fn add_file(self: &Arc<Self>, tag: u64) -> Arc<FileCache> {
        let mut register = self.register.lock();
        let place = register.free.pop().unwrap_or(register.files.len() as u32);
        let file = Arc::new(FileCache::new(tag, place, Arc::clone(self)));
        let weak = Arc::downgrade(&file);
        match register.files.get_mut(place as usize) {
            Some(slot) => *slot = weak,
            None => register.files.push(weak),
        }
        file
    }

    /// The file at a place is gone.
    pub(crate) fn forget(&self, place: u32) {
        self.register.lock().gone.push(place);
    }

    /// Since the last call every ring was seen empty: no request is on its way any more that names a place whose file was gone by then. By the background thread.
    pub(crate) fn reuse_places(&self) {
        let mut register = self.register.lock();
        let register = &mut *register;
        register.free.append(&mut register.passed);
        std::mem::swap(&mut register.passed, &mut register.gone);
    }

    pub(crate) fn file(&self, place: u32) -> Option<Arc<FileCache>> {
        let register = self.register.lock();
        register.files.get(place as usize).and_then(Weak::upgrade)
    }

    /// All files there are.
    pub(crate) fn files(&self) -> Vec<Arc<FileCache>> {
        let register = self.register.lock();
        register.files.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_when_no_request_can_mean_its_last_file() {
        let frames = Frames::new(1 << 20).expect("memory");
        let shared = Arc::new(Shared::new(frames, Hotness::new(100, 1)));
        let first = shared.add_file(1);
        assert!(Arc::ptr_eq(&first, &shared.file(0).expect("it is there")));
        drop(first);
        assert!(shared.file(0).is_none());
        shared.reuse_places();
        let second = shared.add_file(2);
        assert!(shared.file(0).is_none(), "requests may be on their way");
        assert!(Arc::ptr_eq(&second, &shared.file(1).expect("it is there")));
        shared.reuse_places();
        let third = shared.add_file(3);
        assert!(Arc::ptr_eq(&third, &shared.file(0).expect("it is there")));
    }
}
