//! Where the holder of a lease may go.

use pmem::BlockNumber;
use scatter::{DomainId, SegmentNumber};
use txn::layout::SegmentEntry;
use txn::{Corruption, Store};

/// Which segments are the domain's of a leased file. Each is asked about once: one that gets another owner meanwhile keeps its blocks, and in those is what its owner has left.
pub(super) struct OwnSegments<'s, S> {
    store: &'s S,
    domain: DomainId,
    known: Vec<Option<bool>>,
}

impl<'s, S: Store> OwnSegments<'s, S> {
    pub(super) fn new(store: &'s S, domain: DomainId) -> OwnSegments<'s, S> {
        OwnSegments {
            known: vec![None; store.geometry().segments as usize],
            store,
            domain,
        }
    }

    /// Whether the block lies in one of them. Fails if nobody knows whose its segment is.
    #[inline]
    pub(super) fn have(&mut self, block: BlockNumber) -> Result<bool, Corruption> {
        let segment = self.store.allocator().geometry().segment_of(block);
        let Some(SegmentNumber(segment)) = segment else {
            return Ok(false);
        };
        match self.known[segment as usize] {
            Some(is_domains) => Ok(is_domains),
            None => self.find_out(segment),
        }
    }

    fn find_out(&mut self, segment: u32) -> Result<bool, Corruption> {
        let owner = self.store.allocator().owner_of(SegmentNumber(segment));
        let is_domains = owner == Some(self.domain);
        if !is_domains {
            // A segment whose entry is damaged counts as one that several share.
            let at = self.store.geometry().segment_entry(segment);
            let entry: SegmentEntry = self.store.load(at);
            entry.domain(segment).map_err(|damaged| {
                Corruption::new(format!("segment {segment}"), damaged.to_string())
            })?;
        }
        self.known[segment as usize] = Some(is_domains);
        Ok(is_domains)
    }
}
