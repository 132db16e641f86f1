//! What the thread of a conversation waits for.

use super::Session;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use txn::Store;

/// What the thread waits for.
pub(super) enum Event {
    Request,
    /// It has given mappings back for which nobody waits any longer.
    GaveBack,
    /// It is time to look whether it uses its leases.
    LookDue,
    Death,
    Stop,
}

impl<S: Store> Session<S> {
    /// Waits for what comes next. Who `listens` no more hears of its death and of the mount's end only.
    pub(super) fn wait(&self, listens: bool) -> io::Result<Event> {
        loop {
            let caller = self.process.caller.socket();
            let mut waiting = [
                PollFd::new(&self.service.stop, PollFlags::IN),
                PollFd::new(&self.process_ended, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(caller.unwrap_or(&self.socket), PollFlags::IN),
            ];
            let watched = match (listens, caller) {
                (true, Some(_)) => 4,
                (true, None) => 3,
                (false, _) => 2,
            };
            // The words of one that hung up are looked at now and then.
            let soon = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            let is_late = !listens && !self.not_given_back.is_empty();
            let look = self.looks.due_in();
            let is_look_due = look.is_some_and(|left| left.is_zero());
            // What no `Timespec` can say is as good as for ever.
            let look = look.and_then(|left| Timespec::try_from(left).ok());
            let until = if is_late { Some(soon) } else { look };
            match rustix::event::poll(&mut waiting[..watched], until.as_ref()) {
                Ok(0) if is_look_due => return Ok(Event::LookDue),
                Ok(0) if is_late => return Ok(Event::GaveBack),
                Ok(0) => continue,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !waiting[0].revents().is_empty() {
                return Ok(Event::Stop);
            }
            if !waiting[1].revents().is_empty() {
                return Ok(Event::Death);
            }
            // Before what the process asks for, which may be more and more.
            if is_look_due {
                return Ok(Event::LookDue);
            }
            if listens && !waiting[2].revents().is_empty() {
                return Ok(Event::Request);
            }
            if listens && !waiting[3].revents().is_empty() {
                return Ok(Event::GaveBack);
            }
        }
    }
}
