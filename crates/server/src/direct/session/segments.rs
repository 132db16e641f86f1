//! Which segments of the pool a process gets.

use super::{Answer, Session, failed};
use crate::direct::sender::Sender;
use ::direct::protocol::{Refusal, Reply, Row, SEGMENTS_BESIDE};
use scatter::SegmentNumber;
use std::fs::File;
use std::os::fd::OwnedFd;
use txn::{Domain, Store};

/// Blocks that are cleared for one question: 128 MiB, some 20 ms. Whoever asks again gets the next ones.
const PATIENCE_BLOCKS: u64 = 1 << 15;

/// Whose segments the sender of a question may have, which is found out once for each owner.
struct Owners {
    sender: Sender,
    process: i32,
    known: Option<(u32, bool)>,
    /// The owner whose share was looked at last, and how many more segments fit it; `None` if none
    /// fitted.
    share: Option<(u32, Option<u64>)>,
}

impl Owners {
    fn new(sender: Sender, process: i32) -> Owners {
        Owners {
            sender,
            process,
            known: None,
            share: None,
        }
    }

    fn allows(&mut self, domain: Domain) -> bool {
        let Domain::Owner { uid, .. } = domain else {
            return false;
        };
        match self.known {
            Some((owner, allows)) if owner == uid => allows,
            _ => {
                let allows = self.sender.may_have(uid, self.process);
                self.known = Some((uid, allows));
                allows
            }
        }
    }
}

impl<S: Store> Session<S> {
    /// From here on it may map the segments of this domain.
    pub(super) fn allow(&mut self, domain: Domain, for_writing: bool) {
        match self.domains.iter_mut().find(|(known, _)| *known == domain) {
            Some((_, may_write)) => *may_write |= for_writing,
            None => self.domains.push((domain, for_writing)),
        }
    }

    /// The descriptors of those segments that the process may have.
    pub(super) fn segments(&mut self, row: Row, for_writing: bool, sender: Sender) -> Answer {
        let (mut given, mut later, mut descriptors) = (0, 0, Vec::new());
        let mut why_not = Refusal::Protocol;
        let mut patience_blocks = PATIENCE_BLOCKS;
        let mut owners = Owners::new(sender, self.process.id);
        for (place, number) in row.wanted() {
            let segment = u32::try_from(number).map_err(|_| Refusal::Protocol);
            let asked = |it| self.segment(it, for_writing, &mut owners, &mut patience_blocks);
            match segment.and_then(asked) {
                Ok(Some(file)) => {
                    given |= 1 << place;
                    descriptors.push(file.into());
                }
                Ok(None) => later |= 1 << place,
                Err(refusal) => why_not = refusal,
            }
        }
        match given | later {
            0 => Err(why_not),
            _ => Ok((Reply::of(&[given, later]), descriptors)),
        }
    }

    /// Those of these segments, for writing, that it has not got yet, which goes beside something else: as many as there is room for, and their numbers, each one too large.
    pub(super) fn segments_beside(
        &mut self,
        numbers: Vec<u32>,
        sender: Sender,
    ) -> ([u32; SEGMENTS_BESIDE], Vec<OwnedFd>) {
        let (mut given, mut descriptors) = ([0; SEGMENTS_BESIDE], Vec::new());
        let mut patience_blocks = PATIENCE_BLOCKS;
        let mut owners = Owners::new(sender, self.process.id);
        for number in numbers {
            // Also what it got a moment ago.
            let is_new = self.segments.get(&number) != Some(&true);
            let place = given.get_mut(descriptors.len());
            let Some(place) = place.filter(|_| is_new) else {
                continue;
            };
            // What it does not get here it asks for.
            if let Ok(Some(file)) = self.segment(number, true, &mut owners, &mut patience_blocks) {
                *place = number + 1;
                descriptors.push(file.into());
            }
        }
        (given, descriptors)
    }

    /// A segment of which the process has attached a file. `None` if what others have left there could not be cleared without
    /// making it wait for too long.
    fn segment(
        &mut self,
        number: u32,
        for_writing: bool,
        owners: &mut Owners,
        patience_blocks: &mut u64,
    ) -> Result<Option<File>, Refusal> {
        // Who may not have it changes nothing by asking.
        let domain = self
            .may_have(number, for_writing, owners)
            .ok_or(Refusal::NotYours)?;
        if !self.segments.contains_key(&number) && !self.has_room(domain, owners) {
            return Err(Refusal::NoRoom);
        }
        let store = self.service.files().store();
        let owner = store
            .hand_out(SegmentNumber(number))
            .ok_or(Refusal::NotYours)?;
        // It may have changed hands before it was held.
        let opened = match owner == domain {
            true if !self.clear(number, patience_blocks) => Ok(None),
            true => self
                .service
                .open_segment(number, for_writing)
                .map(Some)
                .map_err(failed),
            false => Err(Refusal::NotYours),
        };
        // It is held once, however often it was handed out.
        if !matches!(opened, Ok(Some(_))) || self.segments.contains_key(&number) {
            self.service.take_in(number);
        }
        let Some(file) = opened? else {
            return Ok(None);
        };
        let for_writing = for_writing | self.segments.get(&number).is_some_and(|writes| *writes);
        self.segments.insert(number, for_writing);
        Ok(Some(file))
    }

    /// Whether processes may get one more segment of a domain. Counts anew when that is used up.
    fn has_room(&self, domain: Domain, owners: &mut Owners) -> bool {
        let Domain::Owner { uid, .. } = domain else {
            return false;
        };
        let left = match owners.share {
            Some((user, None)) if user == uid => return false,
            Some((user, Some(left))) if user == uid && left > 0 => left,
            _ => self.service.segments_left(uid),
        };
        let left = left.checked_sub(1);
        owners.share = Some((uid, left));
        left.is_some()
    }

    /// Whose a segment is just now, if the process may have it.
    fn may_have(&self, number: u32, for_writing: bool, owners: &mut Owners) -> Option<Domain> {
        let store = self.service.files().store();
        let owner = store.allocator().owner_of(SegmentNumber(number))?;
        let mut domains = self.domains.iter();
        let (domain, _) = domains.find(|&&(domain, may_write)| {
            may_write >= for_writing && store.domain_number(domain) == owner
        })?;
        let is_allowed =
            self.service.may_have_segments(owners.sender.user) && owners.allows(*domain);
        is_allowed.then_some(*domain)
    }

    /// Clears what others have left in a segment, as far as there is patience for it. Whether nothing is left.
    fn clear(&self, number: u32, patience_blocks: &mut u64) -> bool {
        let store = self.service.files().store();
        let (is_clear, looked_at) = store.prepare(SegmentNumber(number), *patience_blocks);
        *patience_blocks = patience_blocks.saturating_sub(looked_at);
        is_clear
    }
}
