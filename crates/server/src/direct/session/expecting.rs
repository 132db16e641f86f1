//! Questions that are about to come: they are waited for awake, because to wake a processor takes as long as to answer.

use super::{Held, Session};
use crate::direct::makers::Bell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::Store;

/// How long a question is waited for without sleeping.
const AWAKE: Duration = Duration::from_micros(50);

/// What a conversation expects next.
pub(super) struct Expecting {
    /// It rings when the thread that makes the process's journals has made one.
    bell: Arc<Bell>,
    /// That thread.
    maker: Option<u32>,
    /// The attachment of the last journal.
    journal: Option<u32>,
    /// A journal was made, and nobody has asked for it yet.
    is_journal_made: bool,
    /// Until then a question is expected.
    until: Option<Instant>,
}

impl Expecting {
    pub(super) fn new(bell: Bell) -> Expecting {
        Expecting {
            bell: Arc::new(bell),
            maker: None,
            journal: None,
            is_journal_made: false,
            until: None,
        }
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Who has asked this asks something else next.
    pub(super) fn next_question(&mut self) {
        self.until = Some(Instant::now() + AWAKE);
    }

    /// No question is expected for the moment.
    fn is_answered(&mut self) {
        self.until = None;
        self.is_journal_made = false;
    }

    fn look(&mut self, now: Instant) -> Look {
        match self.until {
            None => Look::Asleep,
            Some(until) if now < until => Look::Awake,
            Some(_) => {
                let was_journal_made = self.is_journal_made;
                self.is_answered();
                match was_journal_made {
                    true => Look::AwakeInVain,
                    false => Look::Asleep,
                }
            }
        }
    }
}

/// How a question is waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Look {
    Awake,
    Asleep,
    /// Asleep from now on, and the file that was made was no journal.
    AwakeInVain,
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
    pub(super) fn journal_answered(&mut self) {
        self.expecting.is_answered();
        let Some((&number, Held::Leased(lessee, ..))) = self.attached.last_key_value() else {
            return;
        };
        self.expecting.journal = Some(number);
        let shared = Arc::clone(&self.service.shared);
        let Some(maker) = shared.direct.makers.maker_of(lessee.inode) else {
            return;
        };
        if self.expecting.maker != Some(maker) {
            self.expect_none();
            self.expecting.maker = Some(maker);
            shared.direct.makers.expect(maker, &self.expecting.bell);
        }
    }

    /// The process has made a journal, and will ask for it in a moment. What is left of the one before is cleared away meanwhile.
    pub(super) fn expect_journal(&mut self) {
        self.expecting.bell.hush();
        self.expecting.is_journal_made = true;
        self.expecting.next_question();
        let last = self.expecting.journal.take();
        let last = last.and_then(|number| Some((number, self.attached.get(&number)?)));
        if let Some((number, Held::Leased(lessee, ..))) = last
            && lessee.has_left()
        {
            self.detach_keeping_memory(number);
            self.describe();
        }
    }

    /// No journal of this process is expected any more.
    pub(super) fn expect_none(&mut self) {
        if let Some(maker) = self.expecting.maker.take() {
            let makers = &self.service.shared.direct.makers;
            makers.forget(maker, &self.expecting.bell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_waited_for_awake_for_a_while_and_a_journal_in_vain_once() {
        let mut expecting = Expecting::new(Bell::new().expect("a bell"));
        let at_first = Instant::now();
        assert_eq!(expecting.look(at_first), Look::Asleep);
        expecting.next_question();
        assert_eq!(expecting.look(at_first), Look::Awake);
        assert_eq!(expecting.look(Instant::now() + AWAKE), Look::Asleep);
        expecting.is_journal_made = true;
        expecting.next_question();
        assert_eq!(expecting.look(at_first), Look::Awake);
        assert_eq!(expecting.look(Instant::now() + AWAKE), Look::AwakeInVain);
        assert_eq!(expecting.look(at_first), Look::Asleep);
        expecting.is_journal_made = true;
        expecting.next_question();
        expecting.is_answered();
        assert_eq!(expecting.look(Instant::now() + AWAKE), Look::Asleep);
    }
}
