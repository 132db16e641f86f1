//! Which segments of the pool a process gets.

use super::{Answer, Session, failed};
use ::direct::protocol::{Refusal, Reply, Row};
use scatter::SegmentNumber;
use std::fs::File;
use txn::{Domain, Store};

impl<S: Store> Session<S> {
    /// From here on it may map the segments of this domain.
    pub(super) fn allow(&mut self, domain: Domain, for_writing: bool) {
        match self.domains.iter_mut().find(|(known, _)| *known == domain) {
            Some((_, may_write)) => *may_write |= for_writing,
            None => self.domains.push((domain, for_writing)),
        }
    }

    /// The descriptors of those segments that the process may have.
    pub(super) fn segments(&mut self, row: Row, for_writing: bool) -> Answer {
        let (mut given, mut descriptors) = (0, Vec::new());
        let mut why_not = Refusal::Protocol;
        for (place, number) in row.wanted() {
            let segment = u32::try_from(number).map_err(|_| Refusal::Protocol);
            match segment.and_then(|number| self.segment(number, for_writing)) {
                Ok(file) => {
                    given |= 1 << place;
                    descriptors.push(file.into());
                }
                Err(refusal) => why_not = refusal,
            }
        }
        match given {
            0 => Err(why_not),
            given => Ok((Reply::of(&[given]), descriptors)),
        }
    }

    /// A segment of which the process has attached a file. It can do no more with its descriptor than with the file.
    fn segment(&mut self, number: u32, for_writing: bool) -> Result<File, Refusal> {
        let store = self.service.files().store();
        let domain = store
            .hand_out(SegmentNumber(number))
            .ok_or(Refusal::NotYours)?;
        let is_allowed = self
            .domains
            .iter()
            .any(|&(known, may_write)| known == domain && may_write >= for_writing);
        let opened = match is_allowed {
            true => self
                .service
                .open_segment(number, for_writing)
                .map_err(failed),
            false => Err(Refusal::NotYours),
        };
        // It is held once, however often it was handed out.
        if opened.is_err() || self.segments.contains_key(&number) {
            self.service.take_in(number);
        }
        let file = opened?;
        let for_writing = for_writing | self.segments.get(&number).is_some_and(|writes| *writes);
        self.segments.insert(number, for_writing);
        Ok(file)
    }
}
