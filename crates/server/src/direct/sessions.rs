//! Who is taken in: as many processes as there are places, and of one user not all of them.

use parking_lot::Mutex;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Processes served at a time. The others use the kernel.
pub(super) const PLACES: usize = 256;

/// How long their end is waited for when the mount ends. Nothing that a process does should make it take so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Threads that talk to processes.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Vec<(u32, JoinHandle<()>)>>);

impl Sessions {
    /// Has `start` make the thread that talks to a process of this user, if there is a place for it: whether there was.
    ///
    /// # Errors
    ///
    /// That of `start`.
    pub(super) fn take_in(
        &self,
        user: u32,
        start: impl FnOnce() -> io::Result<JoinHandle<()>>,
    ) -> io::Result<bool> {
        let mut threads = self.0.lock();
        threads.retain(|(_, thread)| !thread.is_finished());
        if !has_place(user, threads.iter().map(|(user, _)| *user)) {
            return Ok(false);
        }
        threads.push((user, start()?));
        Ok(true)
    }

    /// Whether any process is served.
    pub(super) fn are_any(&self) -> bool {
        self.0
            .lock()
            .iter()
            .any(|(_, thread)| !thread.is_finished())
    }

    /// Waits until all of them have ended, but not for ever: whether they have.
    pub(super) fn join(&self) -> bool {
        let threads = std::mem::take(&mut *self.0.lock());
        let until = Instant::now() + PATIENCE;
        for (user, thread) in threads {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_micros(100));
            }
            if !thread.is_finished() {
                tracing::error!(user, "a process's conversation does not end");
                return false;
            }
            // A panic of that thread was logged when it happened.
            let _ = thread.join();
        }
        true
    }
}

/// Whether one more process of this user gets a place beside those that have one, given by their users.
///
/// A user may have as many places as he leaves free, so whoever comes next always finds some. Root could stop the server as well, so it is trusted with all of them.
fn has_place(user: u32, taken: impl Iterator<Item = u32> + Clone) -> bool {
    let free = PLACES.saturating_sub(taken.clone().count());
    let own = taken.filter(|other| *other == user).count();
    free > 0 && (user == 0 || own < free)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes in processes of a user until there is no place for one more: how many.
    fn fill(taken: &mut Vec<u32>, user: u32) -> usize {
        let before = taken.len();
        while has_place(user, taken.iter().copied()) {
            taken.push(user);
        }
        taken.len() - before
    }

    #[test]
    fn a_user_leaves_places_for_others() {
        let mut taken = Vec::new();
        assert_eq!(fill(&mut taken, 1000), 128);
        assert_eq!(fill(&mut taken, 1000), 0);
        assert_eq!(fill(&mut taken, 1001), 64);
        assert_eq!(fill(&mut taken, 1002), 32);
        assert_eq!(fill(&mut taken, 1000), 0, "not more than before");
        taken.retain(|user| *user != 1001);
        assert!(
            has_place(1002, taken.iter().copied()),
            "places are free again"
        );
    }

    #[test]
    fn root_may_have_all_and_nobody_more() {
        let mut taken = Vec::new();
        assert_eq!(fill(&mut taken, 0), PLACES);
        assert!(!has_place(1000, taken.iter().copied()));
        let mut taken = vec![1000; 128];
        assert_eq!(fill(&mut taken, 0), 128);
    }

    #[test]
    fn a_thread_that_has_ended_gives_its_place_back() {
        let sessions = Sessions::default();
        let ends_at_once = || std::thread::Builder::new().spawn(|| {});
        for _ in 0..1000 {
            while !sessions.take_in(1000, ends_at_once).expect("a thread") {
                std::thread::yield_now();
            }
        }
        assert!(sessions.join());
    }
}
