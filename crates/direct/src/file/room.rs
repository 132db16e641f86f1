//! Room for one more lease, where leases that have ended are in the way.
//!
//! The server keeps the place of a lease that it has taken back until the process has let the file go, because the process may still be storing into it; and a process lets a file go when it
//! uses it the next time. One that has used as many files as there are places, and comes back to none of them, would have no lease any more.

use super::{File, Holds};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon all files are looked at again, which takes some microseconds for each; twice as late each time that nothing came of it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// When all files of a connection may be looked at.
#[derive(Debug)]
pub(crate) struct Tours {
    next: Option<Instant>,
    pause: Duration,
}

impl Default for Tours {
    fn default() -> Tours {
        Tours {
            next: None,
            pause: PAUSE_MIN,
        }
    }
}

impl Tours {
    /// Has `tour` made, if it is time to; it says whether something came of it, and so does this.
    fn make(&mut self, tour: impl FnOnce() -> bool) -> bool {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return false;
        }
        let is_worth_it = tour();
        self.pause = match is_worth_it {
            true => PAUSE_MIN,
            false => (self.pause * 2).min(PAUSE_MAX),
        };
        self.next = Some(Instant::now() + self.pause);
        is_worth_it
    }
}

impl File {
    /// Lets the other files of this process go whose leases others have ended. Whether there were any; this one is locked.
    #[cold]
    pub(super) fn make_room(&self) -> bool {
        // Somebody else is at it.
        let Some(mut tours) = self.connection.tours().try_lock() else {
            return false;
        };
        tours.make(|| {
            let mut let_go = 0;
            for file in self.connection.all_files() {
                if let Some(file) = file.upgrade()
                    && file.inode != self.inode
                {
                    let_go += usize::from(file.let_go_if_over());
                    file.drop_inside();
                }
            }
            let_go > 0
        })
    }

    /// Lets the file go if it is a lease that has ended. Who is using it does so himself, and is not waited for: he may be waiting for the file that the caller has locked.
    fn let_go_if_over(&self) -> bool {
        let Some(mut state) = self.state.change(Duration::ZERO) else {
            return false;
        };
        let is_over = match &state.holds {
            Holds::Lease(leased) => !leased.attachment().is_live(&self.connection),
            Holds::Nothing | Holds::Reading { .. } => false,
        };
        if is_over {
            self.end(&mut state);
        }
        is_over
    }

    /// Drops a reference to it inside of an operation, where nobody would be told that it was the last one.
    fn drop_inside(self: Arc<Self>) {
        if let Some(mut file) = Arc::into_inner(self) {
            let holds = std::mem::replace(&mut file.state.get_mut().holds, Holds::Nothing);
            file.detach_held(&holds);
            file.connection.forget_file(file.inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tours_that_nothing_comes_of_are_made_less_and_less_often() {
        let mut tours = Tours::default();
        let mut pauses = Vec::new();
        for is_worth_it in [false, false, true, false] {
            assert_eq!(tours.make(|| is_worth_it), is_worth_it);
            assert!(!tours.make(|| unreachable!("too soon")));
            pauses.push(tours.pause);
            tours.next = Some(Instant::now());
        }
        assert_eq!(pauses, [2, 4, 1, 2].map(Duration::from_secs));
        for _ in 0..10 {
            tours.next = None;
            tours.make(|| false);
        }
        assert_eq!(tours.pause, PAUSE_MAX);
    }
}
