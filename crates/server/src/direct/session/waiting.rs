//! What the thread of a conversation waits for.

use super::Session;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use txn::Store;

/// What the thread waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Event {
    Request,
    /// It has made a file that it is expected to ask for.
    Made,
    /// It has given mappings back for which nobody waits any longer.
    GaveBack,
    /// It is time to look whether it uses its leases.
    LookDue,
    Death,
    Stop,
}

/// What there is to be dealt with at once.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    stop: bool,
    death: bool,
    made: bool,
    request: bool,
    gave_back: bool,
}

impl Ready {
    /// What comes first. A look at the leases comes before what the process asks for, which may be more and more.
    fn first(self, is_look_due: bool) -> Option<Event> {
        let events = [
            (self.stop, Event::Stop),
            (self.death, Event::Death),
            (is_look_due, Event::LookDue),
            (self.made, Event::Made),
            (self.request, Event::Request),
            (self.gave_back, Event::GaveBack),
        ];
        events
            .into_iter()
            .find_map(|(is_there, event)| is_there.then_some(event))
    }
}

impl<S: Store> Session<S> {
    /// Waits for what comes next. Who `listens` no more hears of its death and of the mount's end only.
    pub(super) fn wait(&mut self, listens: bool) -> io::Result<Event> {
        loop {
            let is_awake = listens && self.is_awake();
            let caller = self.process.caller.socket();
            let mut waiting = [
                PollFd::new(&self.service.stop, PollFlags::IN),
                PollFd::new(&self.process_ended, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(self.expecting.bell(), PollFlags::IN),
                PollFd::new(caller.unwrap_or(&self.socket), PollFlags::IN),
            ];
            let watched = match (listens, caller) {
                (true, Some(_)) => 5,
                (true, None) => 4,
                (false, _) => 2,
            };
            // The words of one that hung up are looked at now and then.
            let soon = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            let is_late = !listens && !self.is_at_rest();
            let look = self.looks.due_in();
            let is_look_due = look.is_some_and(|left| left.is_zero());
            // What no `Timespec` can say is as good as for ever.
            let look = look.and_then(|left| Timespec::try_from(left).ok());
            let until = match is_awake {
                true => Some(Timespec::default()),
                false if is_late => Some(soon),
                false => look,
            };
            match rustix::event::poll(&mut waiting[..watched], until.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let is_there = |index: usize| index < watched && !waiting[index].revents().is_empty();
            let ready = Ready {
                stop: is_there(0),
                death: is_there(1),
                request: is_there(2),
                made: is_there(3),
                gave_back: is_there(4) || is_late,
            };
            if let Some(event) = ready.first(is_look_due) {
                return Ok(event);
            }
            if is_awake {
                self.expecting.give_way();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_requests_keeps_off_neither_a_look_nor_an_end() {
        let mut ready = Ready {
            request: true,
            gave_back: true,
            ..Ready::default()
        };
        assert_eq!(ready.first(false), Some(Event::Request));
        assert_eq!(ready.first(true), Some(Event::LookDue));
        ready.death = true;
        assert_eq!(ready.first(true), Some(Event::Death));
        ready.stop = true;
        assert_eq!(ready.first(true), Some(Event::Stop));
        let gave_back = Ready {
            gave_back: true,
            ..Ready::default()
        };
        assert_eq!(gave_back.first(false), Some(Event::GaveBack));
        assert_eq!(Ready::default().first(true), Some(Event::LookDue));
        assert_eq!(Ready::default().first(false), None);
    }
}
