//! PMFS's truncate list: inodes that a power cut leaves with something to finish.
//!
//! On it are files without names that are still open, and files while they are cut: what recovery finds there, it removes or cuts. The list is
//! singly linked through the second line of the inodes; in memory each item knows both its neighbours.

use std::collections::HashMap;

use pmem::{Durable, Flushed, Offset, Region};

use super::layout::{CUT_IN_INODE, InodeNumber, NEXT_IN_INODE, TRUNCATE_HEAD_AT};

/// The list, under one lock for the whole file system.
#[derive(Default, Debug)]
pub(super) struct TruncateList {
    first: Option<InodeNumber>,
    items: HashMap<InodeNumber, Item>,
}

#[derive(Debug)]
struct Item {
    /// Where the inode lies.
    at: Offset,
    previous: Option<InodeNumber>,
    next: Option<InodeNumber>,
}

/// The store that takes an inode off the list.
#[derive(Copy, Clone, Debug)]
pub(super) struct Unlinking {
    pub(super) link_at: Offset,
    pub(super) next: u64,
}

fn word(number: Option<InodeNumber>) -> u64 {
    number.map_or(0, InodeNumber::get)
}

impl TruncateList {
    /// Puts an inode at the head. It is on the list for recovery once the batch is fenced.
    pub(super) fn add(
        &mut self,
        region: &Region,
        number: InodeNumber,
        at: Offset,
        cut_to_bytes: u64,
    ) -> Flushed {
        let mut item = region
            .store_u64(at + NEXT_IN_INODE, word(self.first))
            .flush();
        item.join(region.store_u64(at + CUT_IN_INODE, cut_to_bytes).flush());
        let _before_the_head: Durable = region.fence(item);
        let head = region.store_u64(TRUNCATE_HEAD_AT, number.get()).flush();

        if let Some(next) = self.first.and_then(|next| self.items.get_mut(&next)) {
            next.previous = Some(number);
        }
        let next = self.first.replace(number);
        let previous = None;
        self.items.insert(number, Item { at, previous, next });
        head
    }

    /// What has to be stored to take an inode off the list. `None` if it is not on it.
    pub(super) fn unlinking(&self, number: InodeNumber) -> Option<Unlinking> {
        let item = self.items.get(&number)?;
        let previous = item.previous.and_then(|previous| self.items.get(&previous));
        Some(Unlinking {
            link_at: previous.map_or(TRUNCATE_HEAD_AT, |previous| previous.at + NEXT_IN_INODE),
            next: word(item.next),
        })
    }

    /// Forgets an inode whose [`TruncateList::unlinking`] was stored.
    pub(super) fn forget(&mut self, number: InodeNumber) {
        let Some(item) = self.items.remove(&number) else {
            return;
        };
        match item
            .previous
            .and_then(|previous| self.items.get_mut(&previous))
        {
            Some(previous) => previous.next = item.next,
            None => self.first = item.next,
        }
        if let Some(next) = item.next.and_then(|next| self.items.get_mut(&next)) {
            next.previous = item.previous;
        }
    }

    /// Takes an inode off the list once what it was on the list for is durable.
    pub(super) fn remove(
        &mut self,
        region: &Region,
        number: InodeNumber,
        done: &Durable,
    ) -> Option<Durable> {
        done.assert_of(region);
        let Unlinking { link_at, next } = self.unlinking(number)?;
        let durable = region.fence(region.store_u64(link_at, next).flush());
        self.forget(number);
        Some(durable)
    }

    /// Inodes on the list.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }
}
