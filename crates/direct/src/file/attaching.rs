//! Attaches a file, releases it, and notes whether the attachment paid.

use super::{BLOCK, File, Holds, State};
use crate::attachment::Attachment;
use crate::layout::Counter;
use crate::leased::Leased;
use crate::line::NoAnswer;
use crate::mapped::tidy_of;
use crate::policy::Purpose;
use crate::price::{Call, Goods, Purchase};
use crate::protocol::{Prospect, Refusal};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::thread::sched_getcpu;
use std::os::fd::BorrowedFd;

impl File {
    #[cold]
    pub(super) fn attach_for_writing(
        &self,
        state: &mut State,
        descriptor: BorrowedFd<'_>,
        offset: Option<u64>,
    ) -> Option<Purchase> {
        self.end_if_over(state);
        // It goes through the kernel, and has the mappings taken back.
        if state.is_mapped() {
            return None;
        }
        // The write that comes now would end it, and look like a write of another process.
        if self.let_go(state).is_some() {
            self.count_again(state);
        }
        self.attach(state, descriptor, Purpose::Writing, offset)
    }

    /// The operation is done for which the file was attached.
    #[cold]
    pub(super) fn end_purchase(&self, purchase: Option<Purchase>) {
        if let Some(purchase) = purchase {
            self.connection.price().paid(&purchase);
        }
    }

    /// Attaches the file if it is time to, for an operation at an offset, or at its end.
    pub(super) fn attach(
        &self,
        state: &mut State,
        descriptor: BorrowedFd<'_>,
        operation: Purpose,
        offset: Option<u64>,
    ) -> Option<Purchase> {
        if self.connection.is_lost() {
            return None;
        }
        self.tell_policy(state);
        let (price, paid) = (self.connection.price(), self.waiting.paid());
        let has_paid = |purpose, operations| price.is_paid(purpose, operations, paid);
        let decision = state
            .policy
            .decide(operation, has_paid, || may_write(descriptor));
        let purchase =
            decision.and_then(|purpose| self.attach_for(state, descriptor, purpose, offset));
        self.wait_for_payment(state);
        purchase
    }

    pub(super) fn attach_for(
        &self,
        state: &mut State,
        descriptor: BorrowedFd<'_>,
        purpose: Purpose,
        offset: Option<u64>,
    ) -> Option<Purchase> {
        state.is_closed = false;
        let is_offered = purpose == Purpose::Reading || !self.connection.reads_only();
        if !is_offered || !self.connection.establish() {
            return None;
        }
        let (connection, inode) = (&*self.connection, self.inode);
        let prospect = Prospect {
            writes_little: purpose == Purpose::Writing && state.policy.writes_little(),
            first_block: offset.map(|offset| offset / BLOCK),
            processor: u16::try_from(sched_getcpu()).ok(),
        };
        let goods = Goods::of(purpose, prospect.writes_little);
        let purchase = Purchase::begin(goods);
        let answer = match purpose {
            Purpose::Reading => Attachment::ask(connection, inode, descriptor, purpose, prospect)
                .map(|(attachment, attached)| Holds::Reading {
                    attachment,
                    size_bytes: attached.size_bytes,
                }),
            Purpose::Writing => {
                let ask = || Leased::ask(connection, inode, descriptor, prospect);
                let answer = match ask() {
                    Err(NoAnswer::Refused(Refusal::NoRoom)) if self.make_room() => ask(),
                    answer => answer,
                };
                answer.map(|leased| Holds::Lease(Box::new(leased)))
            }
        };
        match answer {
            Ok(holds) => {
                state.holds = holds;
                self.waiting.stop();
                return Some(purchase);
            }
            Err(NoAnswer::Lost) => {}
            Err(NoAnswer::Refused(refusal)) => refused(state, refusal, purpose, descriptor),
        }
        None
    }

    /// Why an operation goes to the kernel.
    pub(super) fn why_not(&self, state: &State, operation: Purpose) -> Counter {
        if operation == Purpose::Writing && self.connection.reads_only() {
            return Counter::NotOffered;
        }
        match state.policy.is_pausing(operation) {
            true => Counter::Refused,
            false => Counter::NotAttached,
        }
    }

    /// Ends an attachment that the server has taken back, or cannot take back any more.
    pub(super) fn end_if_over(&self, state: &mut State) {
        let is_over = match self.held(state) {
            Some((attachment, _)) => !attachment.is_live(&self.connection),
            None => true,
        };
        if is_over {
            self.end(state);
        }
    }

    pub(super) fn end(&self, state: &mut State) {
        let was_in_use = match &state.holds {
            Holds::Lease(leased) => leased.is_in_use(),
            Holds::Nothing | Holds::Reading { .. } => true,
        };
        match self.let_go(state) {
            Some(purpose) if was_in_use => state.policy.setback(purpose),
            Some(_) => self.count_again(state),
            None => {}
        }
    }

    /// Releases the file, unless blocks of it are mapped. Returns its purpose.
    pub(super) fn let_go(&self, state: &mut State) -> Option<Purpose> {
        if let Some(mapped) = &state.mapped {
            // Mappings that were given back do not count.
            tidy_of(mapped);
        }
        if state.is_mapped() {
            return None;
        }
        if state.mapped.take().is_some_and(|mapped| mapped.is_left()) {
            state.policy.give_up(Purpose::Reading);
            state.policy.give_up(Purpose::Writing);
        }
        let holds = std::mem::replace(&mut state.holds, Holds::Nothing);
        state.base = None;
        let (goods, operations, written) = match holds {
            Holds::Nothing => return None,
            Holds::Reading { attachment, .. } => {
                attachment.detach(&self.connection);
                (Goods::Reading, attachment.operations(), 0)
            }
            Holds::Lease(leased) => {
                leased.detach(&self.connection);
                let goods = Goods::of(Purpose::Writing, leased.is_small());
                let told = (goods, leased.attachment().operations(), leased.records());
                leased.keep_memory(&self.connection);
                told
            }
        };
        self.judge(state, goods, operations, written.min(operations));
        Some(goods.purpose())
    }

    /// Compares the price of an attachment that has ended with the time that its operations would
    /// have taken in the kernel. `written` of them were writes.
    fn judge(&self, state: &mut State, goods: Goods, operations: u64, written: u64) {
        let price = self.connection.price();
        let of_writes = written.saturating_mul(price.usual_payment(Call::Write));
        let of_reads = (operations - written).saturating_mul(price.usual_payment(Call::Read));
        let worth = of_writes
            .saturating_add(of_reads)
            .saturating_add(self.waiting.take_spared());
        let times = price.ended(goods, operations, worth);
        state.worth = state.worth.saturating_add(worth);
        state.policy.lived(goods.purpose(), operations, times);
        if times == 0 {
            // The file pays for its next attachment from the beginning.
            state.worth += self.waiting.take_paid();
        }
    }
}

/// Notes that the server refused the file.
fn refused(state: &mut State, refusal: Refusal, purpose: Purpose, descriptor: BorrowedFd<'_>) {
    let is_final = match refusal {
        Refusal::NotYours | Refusal::Unsuitable | Refusal::Protocol => true,
        // Another descriptor may be open for more.
        Refusal::NotOurs => may_write(descriptor),
        _ => false,
    };
    match is_final {
        true => state.policy.give_up(purpose),
        false => state.policy.setback(purpose),
    }
}

/// Whether a descriptor would do for a lease.
fn may_write(descriptor: BorrowedFd<'_>) -> bool {
    fcntl_getfl(descriptor).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::RDWR)
}
