//! A file that the program maps into its memory.

use super::{File, Holds, State};
use crate::attachment::Attachment;
use crate::layout::{SLOTS, head, slot_at};
use crate::mapped::{MapRequest, Mapped, Plan, Wanted, leave_all_of, runs_of, tidy};
use crate::policy::Purpose;
use crate::protocol::Kind;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

impl File {
    /// The program is about to map a part of the file: which blocks can be laid over what the kernel maps then. `None` if the mapping has to be the kernel's; then the
    /// file has to be [left to it](Self::leave_to_kernel).
    pub fn plan_mapping(
        self: &Arc<Self>,
        descriptor: BorrowedFd<'_>,
        request: &MapRequest,
    ) -> Option<Plan> {
        let wanted = Wanted::of(request)?;
        tidy();
        let _inside = self.enter()?;
        // Given back, it is the kernel's, which may not know how long the file is.
        self.tell_kernel_size(descriptor);
        let mut state = self.exclusive()?;
        self.end_if_over(&mut state);
        if self.connection.is_lost() || state.policy.is_pausing(Purpose::Reading) {
            return None;
        }
        if matches!(state.holds, Holds::Nothing) {
            self.attach_for(&mut state, descriptor, Purpose::Reading, None);
        }
        let State { holds, mapped, .. } = &mut *state;
        let Holds::Reading {
            attachment,
            size_bytes,
        } = holds
        else {
            return None;
        };
        let wanted = wanted.inside(*size_bytes)?;
        let runs = runs_of(attachment, &self.connection, wanted)?;
        if mapped.is_none() {
            *mapped = self.begin_mapping(attachment).map(Arc::new);
        }
        let mapped = mapped.as_ref().filter(|mapped| !mapped.is_left())?;
        Some(Plan::new(self, mapped, wanted, runs))
    }

    /// Asks the server whether blocks of an attachment may be mapped; it tells from then on when it wants them back.
    fn begin_mapping(&self, attachment: &Attachment) -> Option<Mapped> {
        let connection = &self.connection;
        let (reply, beside) = connection
            .ask(Kind::Mapping, attachment.number(), 0, 0, None)
            .ok()?;
        let keeper = connection.keeper(beside)?;
        let slot = usize::try_from(reply.words[0]).ok();
        let slot = slot.filter(|slot| *slot < SLOTS)?;
        let head = attachment.memory().again(head::BYTES).ok()?;
        let connection = Arc::clone(connection);
        Some(Mapped::new(connection, keeper, head, slot_at(slot)))
    }

    /// A part of it is mapped no more. If the program has closed the file, it goes with the last one.
    pub(crate) fn unmapped(&self) {
        if let Some(_inside) = self.enter()
            && let Some(mut state) = self.exclusive_to_leave()
            && state.is_closed
        {
            self.let_go(&mut state);
            self.start_again(&mut state);
        }
    }

    /// Gives the mappings that lie on blocks to the kernel.
    pub(super) fn leave_mappings(&self, state: &State) {
        if let Some(mapped) = &state.mapped {
            leave_all_of(mapped);
        }
    }
}
