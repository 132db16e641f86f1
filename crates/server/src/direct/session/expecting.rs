//! Questions that are about to come: they are waited for awake, because to wake a processor takes as long as to answer.

use super::{Held, Session};
use crate::direct::awake::{Awake, AwakeForAll, Place};
use crate::direct::makers::Bell;
use rustix::thread::sched_yield;
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::Store;

/// How long a question is waited for without sleeping.
const AWAKE: Duration = Duration::from_micros(50);

/// The same for the next journal of a process, if the last one came as soon: all requests of a transaction find a processor awake, not only the one for the journal.
const AWAKE_BETWEEN: Duration = Duration::from_micros(500);

/// What a conversation expects next.
pub(super) struct Expecting {
    awake: Arc<Awake>,
    /// It rings when the thread that makes the process's journals has made one.
    bell: Arc<Bell>,
    /// That thread.
    maker: Option<u32>,
    /// The attachment of the last journal, and when it was answered.
    journal: Option<(u32, Instant)>,
    /// A journal was made, and nobody has asked for it yet.
    is_journal_made: bool,
    /// Until then a question is expected.
    until: Option<Instant>,
    /// That this conversation is the one that stays awake between journals.
    between: Option<AwakeForAll>,
    /// Where it is, then.
    place: Place,
}

/// How a question is waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Look {
    Awake,
    Asleep,
    /// Asleep from now on, and the file that was made was no journal.
    AwakeInVain,
}

impl Expecting {
    pub(super) fn new(bell: Bell, awake: &Arc<Awake>) -> Expecting {
        Expecting {
            awake: Arc::clone(awake),
            bell: Arc::new(bell),
            maker: None,
            journal: None,
            is_journal_made: false,
            until: None,
            between: None,
            place: Place::default(),
        }
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Who has asked this asks something else next.
    pub(super) fn next_question(&mut self) {
        let now = Instant::now();
        if self.awake.is_allowed(now) {
            self.until = self.until.max(Some(now + AWAKE));
        }
    }

    /// A file was made, and a question about it is expected.
    fn file_made(&mut self) {
        self.bell.hush();
        self.is_journal_made = true;
        self.next_question();
    }

    /// A journal was attached, or not: the next question is about the next one. Who makes them runs on this processor.
    fn journal_answered(&mut self, now: Instant, attachment: Option<u32>, processor: Option<u16>) {
        self.expect_nothing();
        let last = self.journal.take();
        self.journal = attachment.map(|number| (number, now));
        let is_soon = |(_, at): (u32, Instant)| now.duration_since(at) < AWAKE_BETWEEN;
        if self.journal.is_some() && last.is_some_and(is_soon) && self.awake.is_allowed(now) {
            self.between = self.awake.stay();
            self.until = self.between.as_ref().map(|_| now + AWAKE_BETWEEN);
        }
        self.place.clear(self.between.as_ref().and(processor));
    }

    fn expect_nothing(&mut self) {
        self.until = None;
        self.between = None;
        self.is_journal_made = false;
    }

    /// Nothing is expected that is worth to be awake for.
    fn sleep(&mut self) {
        self.expect_nothing();
        self.place.return_to_all();
    }

    fn look(&mut self, now: Instant) -> Look {
        match self.until {
            None => Look::Asleep,
            Some(until) if now < until => Look::Awake,
            Some(_) => {
                let was_journal_made = self.is_journal_made;
                self.sleep();
                match was_journal_made {
                    true => Look::AwakeInVain,
                    false => Look::Asleep,
                }
            }
        }
    }

    /// Nothing has come yet. Who asks one question after another may himself have the processor for longer, so only of journals it is looked whether others need it.
    pub(super) fn give_way(&mut self) {
        let waits_for_journal = self.is_journal_made || self.between.is_some();
        if !waits_for_journal {
            sched_yield();
        } else if !self.awake.give_way() {
            self.sleep();
        }
    }
}

impl<S: Store> Session<S> {
    /// Whether a question is expected at this moment. When a file was made and nobody asked for it in time, the next one is not expected to be a journal.
    pub(super) fn is_awake(&mut self) -> bool {
        let look = self.expecting.look(Instant::now());
        if look == Look::AwakeInVain {
            self.expect_none();
        }
        look == Look::Awake
    }

    /// The process has its answer about a journal: it is expected to make another one, and to ask nothing before that.
    pub(super) fn journal_answered(&mut self, is_attached: bool, processor: Option<u16>) {
        let shared = Arc::clone(&self.service.shared);
        let makers = &shared.direct.makers;
        let last = match self.attached.last_key_value() {
            Some((&number, Held::Leased(lessee, ..))) if is_attached => {
                Some((number, lessee.inode))
            }
            _ => None,
        };
        let number = last.map(|(number, _)| number);
        let now = Instant::now();
        self.expecting.journal_answered(now, number, processor);
        let maker = last.and_then(|(_, inode)| makers.maker_of(inode));
        if maker.is_some() && maker != self.expecting.maker {
            self.expect_none();
            self.expecting.maker = maker;
            maker.inspect(|maker| makers.expect(*maker, &self.expecting.bell));
        }
    }

    /// The process has made a journal, and will ask for it in a moment. What is left of the one before is cleared away meanwhile.
    pub(super) fn expect_journal(&mut self) {
        let last = self.expecting.journal.map(|(number, _)| number);
        let last = last.and_then(|number| Some((number, self.attached.get(&number)?)));
        if let Some((number, Held::Leased(lessee, ..))) = last {
            let makers = &self.service.shared.direct.makers;
            if makers.maker_of(lessee.inode).is_some() {
                // Who rings had no processor until now: the file that he means was asked for long ago, it is this one.
                return self.expecting.bell.hush();
            }
            if lessee.has_left() {
                self.detach_keeping_memory(number);
                self.describe();
            }
        }
        self.expecting.file_made();
    }

    /// Nothing comes any more.
    pub(super) fn stop_expecting(&mut self) {
        self.expecting.sleep();
        self.expect_none();
    }

    /// No journal of this process is expected any more.
    fn expect_none(&mut self) {
        if let Some(maker) = self.expecting.maker.take() {
            let makers = &self.service.shared.direct.makers;
            makers.forget(maker, &self.expecting.bell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(1);

    fn expecting(awake: &Arc<Awake>) -> Expecting {
        Expecting::new(Bell::new().expect("a bell"), awake)
    }

    #[test]
    fn a_question_is_waited_for_awake_for_a_while_and_a_journal_in_vain_once() {
        let (mut expecting, now) = (expecting(&Arc::default()), Instant::now());
        assert_eq!(expecting.look(now), Look::Asleep);
        expecting.next_question();
        assert_eq!(expecting.look(now), Look::Awake);
        assert_eq!(expecting.look(Instant::now() + AWAKE), Look::Asleep);
        expecting.file_made();
        assert_eq!(expecting.look(now), Look::Awake);
        assert_eq!(expecting.look(Instant::now() + AWAKE), Look::AwakeInVain);
        assert_eq!(expecting.look(now), Look::Asleep);
        expecting.file_made();
        expecting.journal_answered(now, Some(1), None);
        assert_eq!(expecting.look(now), Look::Asleep);
    }

    #[test]
    fn between_journals_that_follow_each_other_one_conversation_is_awake() {
        let (awake, now) = (Arc::default(), Instant::now());
        let [mut expecting, mut other] = [(); 2].map(|()| expecting(&awake));
        let second = now + AWAKE_BETWEEN - SHORT;
        for (journal, at) in [(1, now), (2, second)] {
            assert_eq!(expecting.look(at), Look::Asleep, "before {journal}");
            expecting.journal_answered(at, Some(journal), None);
            other.journal_answered(at, Some(journal), None);
        }
        assert_eq!(expecting.look(second), Look::Awake);
        assert_eq!(other.look(second), Look::Asleep, "one is enough");
        // While another file is made too.
        expecting.file_made();
        assert_eq!(expecting.look(second + AWAKE_BETWEEN - SHORT), Look::Awake);
        expecting.journal_answered(second + AWAKE_BETWEEN - SHORT, Some(3), None);
        let third = second + AWAKE_BETWEEN - SHORT;
        assert_eq!(expecting.look(third), Look::Awake);
        assert_eq!(expecting.look(third + AWAKE_BETWEEN), Look::Asleep);
        expecting.journal_answered(third + AWAKE_BETWEEN, Some(4), None);
        let fourth = third + AWAKE_BETWEEN;
        assert_eq!(expecting.look(fourth), Look::Asleep, "it came late");
        other.journal_answered(second + SHORT, Some(3), None);
        assert_eq!(other.look(second + SHORT), Look::Awake, "nobody else is");
    }

    #[test]
    fn who_hangs_up_leaves_it_to_others_to_be_awake() {
        let (awake, now) = (Arc::default(), Instant::now());
        let [mut expecting, mut other] = [(); 2].map(|()| expecting(&awake));
        for journal in [1, 2] {
            expecting.journal_answered(now, Some(journal), None);
        }
        assert_eq!(expecting.look(now), Look::Awake);
        expecting.sleep();
        for journal in [1, 2] {
            other.journal_answered(now, Some(journal), None);
        }
        assert_eq!(other.look(now), Look::Awake);
        assert_eq!(expecting.look(now), Look::Asleep);
    }

    #[test]
    fn a_journal_that_was_refused_is_followed_by_none() {
        let (mut expecting, now) = (expecting(&Arc::default()), Instant::now());
        expecting.journal_answered(now, Some(1), None);
        expecting.journal_answered(now, None, None);
        expecting.journal_answered(now, Some(2), None);
        assert_eq!(expecting.look(now), Look::Asleep);
    }

    #[test]
    fn nobody_is_awake_where_others_want_the_processor() {
        let awake = Arc::new(Awake::default());
        let (mut expecting, now) = (expecting(&awake), Instant::now());
        assert!(!awake.is_unwelcome(now) && awake.is_unwelcome(now));
        expecting.next_question();
        assert_eq!(expecting.look(now), Look::Asleep);
        for at in [now, now + SHORT] {
            expecting.journal_answered(at, Some(1), None);
        }
        assert_eq!(expecting.look(now), Look::Asleep);
        expecting.file_made();
        assert_eq!(expecting.look(now), Look::Asleep);
    }
}
