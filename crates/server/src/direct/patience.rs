//! How long requests of others wait for a process: in the middle of a direct write, or to give back what it has mapped.
//!
//! Those requests are answered by as many threads as there are processors, so who waits keeps others waiting. An honest process takes microseconds. One that was late is not waited for again soon, however many
//! files it has; and all processes of a user together are waited for so long only (`accounts`). Nothing depends on it that the wait was long enough: a lease is forced, and blocks are held.

use super::accounts::Account;
use super::leased::Process;
use std::time::{Duration, Instant};

/// How long a process that was not waited for to the end is not waited for again.
const IMPATIENT_FOR: Duration = Duration::from_secs(1);
/// What is waited for takes less than this as a rule, so for so long it is not worth to sleep.
const SPIN: Duration = Duration::from_micros(20);
/// What is waited for in any case, if the process itself was not late: about what a large write takes. Nobody is charged for it.
const FREE: Duration = Duration::from_millis(1);

/// A wait for one process.
pub(super) struct Wait<'p> {
    process: &'p Process,
    begin: Instant,
    /// Up to here the user was charged for it.
    charged: Instant,
    patience: Duration,
}

impl Process {
    /// Waits for it from now on, as if since `begin`.
    pub(super) fn wait_since(&self, begin: Instant, patience: Duration) -> Wait<'_> {
        let now = Instant::now();
        Wait {
            process: self,
            begin,
            charged: now + FREE,
            patience,
        }
    }

    fn was_late(&self) -> bool {
        let was_late = *self.was_late.lock();
        was_late.is_some_and(|at| at.elapsed() < IMPATIENT_FOR)
    }
}

impl Wait<'_> {
    /// How long it lasts.
    pub(super) fn waited(&self) -> Duration {
        self.begin.elapsed()
    }

    /// What was waited for has not come yet: whether the wait goes on.
    pub(super) fn goes_on(&mut self) -> bool {
        let waited = self.waited();
        if waited <= SPIN {
            return true;
        }
        if self.process.was_late() || waited > self.patience || !self.charge() {
            self.give_up();
            return false;
        }
        true
    }

    /// The process is not waited for any longer.
    pub(super) fn give_up(&self) {
        *self.process.was_late.lock() = Some(Instant::now());
    }

    /// Whether there is patience with the process's user.
    fn charge(&mut self) -> bool {
        let now = Instant::now();
        let time = now.saturating_duration_since(self.charged);
        if time.is_zero() {
            return true;
        }
        self.charged = now;
        self.process.account.spend(time)
    }
}

/// Has `wait` wait for what processes of this user may make last, for as long as there is patience with him, and `most` at most: what came of it, or `None` if there is none.
pub(super) fn wait_for<T>(
    account: &Account,
    most: Duration,
    wait: impl FnOnce(Duration) -> T,
) -> Option<T> {
    let most = most.min(account.patience());
    if most.is_zero() {
        return None;
    }
    let begin = Instant::now();
    let outcome = wait(most);
    account.spend(begin.elapsed());
    Some(outcome)
}

/// Between two looks, of a wait that began then.
pub(super) fn pause(waited: Duration) {
    if waited > SPIN {
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::accounts::{Accounts, Limits};

    #[test]
    fn who_has_made_others_wait_too_long_is_not_waited_for_and_others_are() {
        let accounts = Accounts::new(Limits {
            attachments: 0,
            map_bytes: 0,
            seen_blocks: 0,
        });
        let (slow, most) = (accounts.of(1000), Duration::from_millis(20));
        let (begin, mut waited) = (Instant::now(), Duration::ZERO);
        while begin.elapsed() < Duration::from_millis(1500) {
            let sleep = |time| {
                std::thread::sleep(time);
                time
            };
            waited += wait_for(&slow, most, sleep).unwrap_or_default();
        }
        let allowed = Duration::from_secs(1) + begin.elapsed() / 10 + most;
        assert!(waited <= allowed, "{waited:?} of {allowed:?}");
        assert_eq!(wait_for(&accounts.of(1001), most, |time| time), Some(most));
        assert_eq!(wait_for(&accounts.of(0), most, |time| time), Some(most));
    }
}
