//! When a file is attached, and when again after the server said no.

use std::time::{Duration, Instant};

/// Reads without a write between them after which a file that was written to before counts as one that is only read.
const READS_WITHOUT_WRITE: u64 = 64;

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_OPERATIONS_MIN: u64 = 8;
const PAUSE_OPERATIONS_MAX: u64 = 8192;

/// What to attach a file for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// Reading.
    Reading,
    /// Reading and writing, as the only one.
    Writing,
}

/// How long to wait after a setback: in operations and in time, twice as long each time, and shorter by what the attachment before was worth.
///
/// So an attachment that lived through twice its cost leaves the pause as it was; where two processes use a file by turns for hundreds of operations each, the pause stays the
/// shortest, and where they use it at once, it gets so long that what is lost by trying is not worth mentioning.
#[derive(Debug, Default)]
struct Pause {
    /// Operations to let pass before the clock is looked at.
    operations: u64,
    until: Option<Instant>,
    last_operations: u64,
    last_pause: Duration,
    is_for_ever: bool,
}

impl Pause {
    fn is_over(&mut self) -> bool {
        if self.is_for_ever || self.operations > 0 {
            return false;
        }
        let is_over = self.until.is_none_or(|until| Instant::now() >= until);
        if is_over {
            self.until = None;
        }
        is_over
    }

    /// An attachment was worth so many times what it cost.
    fn shorten(&mut self, times: u64) {
        let worth = times.max(1);
        self.last_operations /= worth;
        self.last_pause /= u32::try_from(worth).unwrap_or(u32::MAX);
    }

    fn setback(&mut self) {
        self.last_operations =
            (self.last_operations * 2).clamp(PAUSE_OPERATIONS_MIN, PAUSE_OPERATIONS_MAX);
        self.last_pause = (self.last_pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.operations = self.last_operations;
        self.until = Some(Instant::now() + self.last_pause);
    }
}

/// Decides for one file, while it is not attached.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// Since the file was opened, attached or not, up to the last time that it was let go.
    all_operations: u64,
    is_expected: bool,
    /// The file is to be attached, whatever it has paid.
    is_due: bool,
    operations: u64,
    writes: u64,
    reads_since_write: u64,
    reading: Pause,
    writing: Pause,
}

impl Policy {
    /// Decides before an operation whether the file is attached now, and for which purpose.
    /// `has_paid` says whether the file has paid for an attachment, by its number of operations;
    /// `may_write` whether the descriptor at hand would do for writing.
    pub(crate) fn decide(
        &mut self,
        operation: Purpose,
        has_paid: impl FnOnce(Purpose, u64) -> bool,
        may_write: impl FnOnce() -> bool,
    ) -> Option<Purpose> {
        self.operations += 1;
        self.all_operations += 1;
        self.reading.operations = self.reading.operations.saturating_sub(1);
        self.writing.operations = self.writing.operations.saturating_sub(1);
        match operation {
            Purpose::Writing => {
                self.writes += 1;
                self.reads_since_write = 0;
            }
            Purpose::Reading => self.reads_since_write += 1,
        }
        let is_awaited = self.is_expected && operation == Purpose::Writing;
        let is_only_read = self.writes == 0 || self.reads_since_write >= READS_WITHOUT_WRITE;
        let purpose = match operation {
            Purpose::Reading if is_only_read || self.writing.is_for_ever => Purpose::Reading,
            _ => Purpose::Writing,
        };
        if !is_awaited && !self.is_due && !has_paid(purpose, self.operations) {
            return None;
        }
        let is_open_for_it = operation == purpose || may_write();
        (is_open_for_it && self.pause_mut(purpose).is_over()).then_some(purpose)
    }

    /// Whether the server's refusals are why the file is not attached.
    pub(crate) fn is_pausing(&self, purpose: Purpose) -> bool {
        let pause = self.pause(purpose);
        pause.is_for_ever || pause.until.is_some()
    }

    /// The server said no, or has taken the attachment back: not again too soon.
    pub(crate) fn setback(&mut self, purpose: Purpose) {
        self.pause_mut(purpose).setback();
    }

    /// It will always say no.
    pub(crate) fn give_up(&mut self, purpose: Purpose) {
        self.pause_mut(purpose).is_for_ever = true;
    }

    /// An attachment has ended that lived through so many operations, and was worth its price so
    /// many times.
    pub(crate) fn lived(&mut self, purpose: Purpose, operations: u64, times: u64) {
        self.all_operations = self.all_operations.saturating_add(operations);
        self.pause_mut(purpose).shorten(times);
    }

    /// Adds operations that were counted elsewhere, and the reads after the last write.
    pub(crate) fn add(&mut self, reads: u64, writes: u64, reads_since_write: u64) {
        self.operations += reads + writes;
        self.all_operations += reads + writes;
        self.writes += writes;
        self.reads_since_write = match writes {
            0 => self.reads_since_write + reads,
            _ => reads_since_write,
        };
    }

    /// Says whether only the payments of the file decide when it is attached.
    pub(crate) fn waits_for_payment(&self) -> bool {
        let waits = |pause: &Pause| pause.operations == 0 && pause.until.is_none();
        !self.is_expected && !self.is_due && waits(&self.reading) && waits(&self.writing)
    }

    /// The file is likely to be used often enough: the first write attaches it.
    pub(crate) fn expect_use(&mut self) {
        self.is_expected = true;
    }

    /// Whether a small lease will do.
    pub(crate) fn writes_little(&self) -> bool {
        self.is_expected
    }

    /// It did not do.
    pub(crate) fn expects_more(&mut self) {
        self.is_expected = false;
        self.is_due = true;
    }

    /// The file begins anew: what was done with it before does not count. How many operations that were.
    pub(crate) fn start_again(&mut self) -> u64 {
        self.count_again();
        self.is_expected = false;
        std::mem::take(&mut self.all_operations)
    }

    /// Attached for something else: operations count from here.
    pub(crate) fn count_again(&mut self) {
        self.is_due = false;
        self.operations = 0;
        self.writes = 0;
        self.reads_since_write = 0;
    }

    fn pause(&self, purpose: Purpose) -> &Pause {
        match purpose {
            Purpose::Reading => &self.reading,
            Purpose::Writing => &self.writing,
        }
    }

    fn pause_mut(&mut self, purpose: Purpose) -> &mut Pause {
        match purpose {
            Purpose::Reading => &mut self.reading,
            Purpose::Writing => &mut self.writing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Purpose::{Reading, Writing};

    /// Operations that pay for an attachment, here.
    const ENOUGH: u64 = 16;

    fn has_paid(_: Purpose, operations: u64) -> bool {
        operations >= ENOUGH
    }

    fn decide(policy: &mut Policy, operation: Purpose, times: usize) -> Option<Purpose> {
        let mut decision = None;
        for _ in 0..times {
            decision = policy.decide(operation, has_paid, || false);
        }
        decision
    }

    #[test]
    fn an_operation_attaches_after_some_others() {
        let before = ENOUGH as usize - 1;
        let mut policy = Policy::default();
        assert_eq!(decide(&mut policy, Reading, before), None);
        assert_eq!(decide(&mut policy, Reading, 1), Some(Reading));
        policy.start_again();
        assert_eq!(decide(&mut policy, Writing, before), None);
        assert_eq!(decide(&mut policy, Writing, 1), Some(Writing));
    }

    #[test]
    fn the_first_write_attaches_a_file_whose_use_is_expected() {
        let mut policy = Policy::default();
        policy.expect_use();
        assert_eq!(decide(&mut policy, Reading, 3), None);
        assert_eq!(decide(&mut policy, Writing, 1), Some(Writing));
        assert!(policy.writes_little());
        policy.expects_more();
        assert_eq!(decide(&mut policy, Writing, 1), Some(Writing));
        assert!(!policy.writes_little());
        policy.lived(Writing, 10, 0);
        assert_eq!(policy.start_again(), 15);
        assert_eq!(decide(&mut policy, Writing, 1), None);
    }

    #[test]
    fn a_file_that_is_written_too_waits_for_a_lease() {
        let mut policy = Policy::default();
        decide(&mut policy, Writing, 1);
        assert_eq!(
            decide(&mut policy, Reading, ENOUGH as usize),
            None,
            "own writes would end it"
        );
        assert_eq!(policy.decide(Reading, has_paid, || true), Some(Writing));
        assert_eq!(decide(&mut policy, Reading, 64), Some(Reading));
    }

    #[test]
    fn setbacks_are_waited_out_longer_each_time_until_one_was_worth_it() {
        let mut policy = Policy::default();
        decide(&mut policy, Writing, ENOUGH as usize);
        for expected in [8, 16, 32] {
            policy.setback(Writing);
            assert!(policy.is_pausing(Writing) && !policy.is_pausing(Reading));
            assert_eq!(policy.writing.operations, expected);
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(decide(&mut policy, Writing, expected as usize - 1), None);
            assert_eq!(decide(&mut policy, Writing, 1), Some(Writing));
        }
        policy.lived(Writing, 20_000, 1250);
        policy.setback(Writing);
        assert_eq!(policy.writing.operations, 8);
        policy.give_up(Writing);
        assert_eq!(decide(&mut policy, Writing, 100_000), None);
    }

    #[test]
    fn operations_that_were_counted_elsewhere_count() {
        let mut policy = Policy::default();
        policy.add(4, 1, 3);
        assert!(policy.waits_for_payment());
        assert_eq!(decide(&mut policy, Reading, 9), None);
        assert_eq!(policy.decide(Reading, has_paid, || true), None, "the 15th");
        assert_eq!(policy.decide(Reading, has_paid, || true), Some(Writing));
        policy.add(60, 0, 60);
        assert_eq!(policy.decide(Reading, has_paid, || true), Some(Reading));
        policy.setback(Reading);
        assert!(!policy.waits_for_payment(), "it waits for the time");
        assert_eq!(policy.start_again(), 77);
        policy.expect_use();
        assert!(!policy.waits_for_payment(), "the next write attaches it");
    }

    /// The pause after attachments that were worth `times` prices each, and then were taken back.
    fn pause_after(attachments: usize, times: u64) -> (u64, Duration) {
        let mut policy = Policy::default();
        for _ in 0..attachments {
            policy.lived(Writing, 0, times);
            policy.setback(Writing);
        }
        (policy.writing.operations, policy.writing.last_pause)
    }

    #[test]
    fn what_an_attachment_was_worth_shortens_the_pause() {
        let (shortest, longest) = (
            (PAUSE_OPERATIONS_MIN, PAUSE_MIN),
            (PAUSE_OPERATIONS_MAX, PAUSE_MAX),
        );
        assert_eq!(pause_after(30, 0), longest, "both at once");
        assert_eq!(pause_after(30, 1), longest, "not worth it");
        assert_eq!(pause_after(30, 2), shortest);
        assert_eq!(pause_after(30, 125), shortest, "by turns");
        let mut policy = Policy::default();
        for _ in 0..30 {
            policy.setback(Writing);
        }
        policy.lived(Writing, 0, 2);
        policy.setback(Writing);
        assert_eq!(policy.writing.operations, PAUSE_OPERATIONS_MAX, "as it was");
        policy.lived(Writing, 0, 8);
        policy.setback(Writing);
        assert_eq!(policy.writing.operations, PAUSE_OPERATIONS_MAX / 4);
        policy.lived(Writing, 0, 125);
        policy.setback(Writing);
        assert!(policy.writing.operations < 40, "one burst is enough");
        policy.lived(Writing, u64::MAX, u64::MAX);
        policy.setback(Writing);
        assert_eq!(policy.writing.operations, PAUSE_OPERATIONS_MIN);
    }
}
