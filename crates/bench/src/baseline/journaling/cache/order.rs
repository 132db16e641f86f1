//! Which block is replaced next.

use std::collections::BTreeSet;

/// No slot.
const NONE: u32 = u32::MAX;

/// An order of slots, the next victim first.
#[derive(Debug)]
pub(super) enum Order {
    /// Least recently used first.
    Recency(Recency),
    /// Least counter first; of equal ones the lowest slot.
    Counter(Counters),
}

/// A list through the slots.
#[derive(Debug, Default)]
pub(super) struct Recency {
    /// Neighbours of each slot: towards the oldest, towards the newest.
    links: Vec<(u32, u32)>,
    oldest: u32,
    newest: u32,
}

/// How often each slot was used.
#[derive(Debug, Default)]
pub(super) struct Counters {
    counts: Vec<u64>,
    sorted: BTreeSet<(u64, u32)>,
}

impl Order {
    pub(super) fn recency(slots: u32) -> Order {
        Order::Recency(Recency {
            links: vec![(NONE, NONE); slots as usize],
            oldest: NONE,
            newest: NONE,
        })
    }

    pub(super) fn counter(slots: u32) -> Order {
        Order::Counter(Counters {
            counts: vec![0; slots as usize],
            sorted: BTreeSet::new(),
        })
    }

    /// Adds a slot that is not in the order: it was used once.
    pub(super) fn add(&mut self, slot: u32) {
        match self {
            Order::Recency(list) => list.push(slot),
            Order::Counter(counters) => {
                counters.counts[slot as usize] = 1;
                counters.sorted.insert((1, slot));
            }
        }
    }

    /// Notes a use of a slot in the order.
    pub(super) fn touch(&mut self, slot: u32) {
        match self {
            Order::Recency(list) => {
                if list.newest != slot {
                    list.unlink(slot);
                    list.push(slot);
                }
            }
            Order::Counter(counters) => {
                let count = &mut counters.counts[slot as usize];
                counters.sorted.remove(&(*count, slot));
                *count += 1;
                counters.sorted.insert((*count, slot));
            }
        }
    }

    /// Takes a slot out of the order.
    pub(super) fn remove(&mut self, slot: u32) {
        match self {
            Order::Recency(list) => list.unlink(slot),
            Order::Counter(counters) => {
                counters
                    .sorted
                    .remove(&(counters.counts[slot as usize], slot));
            }
        }
    }

    /// Returns the first slot that may be replaced.
    pub(super) fn victim(&self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        match self {
            Order::Recency(list) => list.iter().find(|&slot| may_go(slot)),
            Order::Counter(counters) => counters
                .sorted
                .iter()
                .map(|&(_, slot)| slot)
                .find(|&slot| may_go(slot)),
        }
    }
}

impl Recency {
    fn push(&mut self, slot: u32) {
        self.links[slot as usize] = (self.newest, NONE);
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.links[newest as usize].1 = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = self.links[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].1 = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].0 = older,
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let next = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(next(self.oldest), move |&slot| {
            next(self.links[slot as usize].1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(order: &mut Order) -> Vec<u32> {
        let next = |order: &mut Order| {
            let slot = order.victim(|_| true)?;
            order.remove(slot);
            Some(slot)
        };
        std::iter::from_fn(|| next(order)).collect()
    }

    #[test]
    fn the_least_recently_used_slot_goes_first() {
        let mut order = Order::recency(5);
        (0..5).for_each(|slot| order.add(slot));
        order.touch(0);
        order.touch(3);
        order.touch(4);
        order.remove(2);
        assert_eq!(order.victim(|slot| slot > 1), Some(3));
        assert_eq!(drained(&mut order), [1, 0, 3, 4]);
        order.add(2);
        assert_eq!(drained(&mut order), [2]);
    }

    #[test]
    fn the_slot_with_the_least_counter_goes_first() {
        let mut order = Order::counter(4);
        (0..4).for_each(|slot| order.add(slot));
        for slot in [0, 0, 2, 1, 1, 1] {
            order.touch(slot);
        }
        assert_eq!(order.victim(|slot| slot != 3), Some(2));
        assert_eq!(drained(&mut order), [3, 2, 0, 1]);
    }
}
