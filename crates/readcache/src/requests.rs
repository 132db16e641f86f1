//! What the background thread is asked for.
//!
//! Each reader has a [`Ring`] of its own for the blocks that it wants copied; what makes room for others goes through one queue, and before everything else.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use pmem::BlockNumber;

use crate::ring::Ring;
use crate::threads::{self, THREADS};

/// Blocks that one thread can ask for before the background thread comes by; further ones are dropped, and come again with the next read.
const FILLS_MAX: usize = 1 << 10;
/// The same for what is urgent, of all threads.
const URGENT_MAX: usize = 256;

/// What goes before everything else.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Urgent {
    /// Make room for a block of a file.
    Room {
        /// Place of the file in the register.
        file: u32,
        /// The block.
        block: u64,
    },
    /// Make pages free.
    Reclaim,
    /// Give a file a table of this level.
    #[cfg(test)]
    Resize {
        /// Place of the file in the register.
        file: u32,
        /// The level.
        level: usize,
    },
}

/// Copy a block to where an entry is prepared for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Fill {
    /// Place of the file in the register.
    pub(crate) file: u32,
    /// Its table.
    pub(crate) level: u8,
    /// The entry's number in it.
    pub(crate) index: u32,
    /// The entry's life. It has another one as soon as it is prepared for anything else.
    pub(crate) life: u64,
    /// Where the block lies.
    pub(crate) home: BlockNumber,
}

impl Fill {
    const LEVEL_BITS: u32 = 5;
    const INDEX_BITS: u32 = 26;
    const FILE_BITS: u32 = 24;

    /// `None` beyond 16 M files with copies, or 4 PiB of medium.
    fn to_words(self) -> Option<[u64; 2]> {
        let level_and_index = u64::from(self.index) << Self::LEVEL_BITS | u64::from(self.level);
        let entry = self.life << (Self::LEVEL_BITS + Self::INDEX_BITS) | level_and_index;
        let home = self.home.get() << Self::FILE_BITS | u64::from(self.file);
        let message = [entry, home];
        (Fill::from_words(message) == self).then_some(message)
    }

    fn from_words([entry, home]: [u64; 2]) -> Fill {
        let level_and_index = entry & ((1 << (Self::LEVEL_BITS + Self::INDEX_BITS)) - 1);
        Fill {
            file: (home & ((1 << Self::FILE_BITS) - 1)) as u32,
            level: (level_and_index & ((1 << Self::LEVEL_BITS) - 1)) as u8,
            index: (level_and_index >> Self::LEVEL_BITS) as u32,
            life: entry >> (Self::LEVEL_BITS + Self::INDEX_BITS),
            home: BlockNumber::new(home >> Self::FILE_BITS),
        }
    }
}

/// All that was asked for and is not done.
pub(crate) struct Requests {
    /// One for each thread, made when it asks first, and one for all those that have no number of their own.
    rings: Box<[OnceLock<Ring<AtomicU64>>]>,
    /// Numbers of threads that have asked are less.
    numbers: AtomicUsize,
    /// Held by who sends through the last ring.
    many: Mutex<()>,
    urgent: ArrayQueue<Urgent>,
}

impl Requests {
    pub(crate) fn new() -> Requests {
        Requests {
            rings: (0..=THREADS).map(|_| OnceLock::new()).collect(),
            numbers: AtomicUsize::new(0),
            many: Mutex::new(()),
            urgent: ArrayQueue::new(URGENT_MAX),
        }
    }

    /// Does something with the calling thread's ring, as its only sender.
    #[inline]
    fn with_own<T>(&self, act: impl FnOnce(&Ring<AtomicU64>) -> T) -> T {
        let number = threads::number();
        let many = (number == THREADS).then(|| self.many.lock());
        let result = act(self.rings[number].get_or_init(|| self.make(number)));
        drop(many);
        result
    }

    #[cold]
    fn make(&self, number: usize) -> Ring<AtomicU64> {
        // In the one order too: who is about to sleep must not overlook a ring.
        self.numbers.fetch_max(number + 1, Ordering::SeqCst);
        Ring::new(|| AtomicU64::new(0), FILLS_MAX)
    }

    /// Whether the calling thread has asked for so much that nothing more is taken.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.with_own(Ring::is_full)
    }

    /// Whether the request was taken.
    #[inline]
    pub(crate) fn send(&self, fill: Fill) -> bool {
        fill.to_words()
            .is_some_and(|message| self.with_own(|ring| ring.send(message)))
    }

    /// The same, for what is urgent.
    pub(crate) fn send_urgent(&self, request: Urgent) -> bool {
        self.urgent.push(request).is_ok()
    }

    /// Rings of threads that have asked, after the one with this number, that one last.
    fn rings_after(&self, last: usize) -> impl Iterator<Item = (usize, &Ring<AtomicU64>)> {
        let numbers = self.numbers.load(Ordering::SeqCst).max(1);
        let numbers = (1..=numbers).map(move |step| (last + step) % numbers);
        numbers.filter_map(|number| Some((number, self.rings[number].get()?)))
    }

    /// The next request, of another thread than `last` if possible, which is set to that one's number. By the background thread.
    pub(crate) fn take(&self, last: &mut usize) -> Option<Fill> {
        self.rings_after(*last).find_map(|(number, ring)| {
            let fill = Fill::from_words(ring.take()?);
            *last = number;
            Some(fill)
        })
    }

    /// The same, of what is urgent.
    pub(crate) fn take_urgent(&self) -> Option<Urgent> {
        self.urgent.pop()
    }

    pub(crate) fn is_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// Whether nothing is left to do. By the background thread, in the one order of sequentially consistent accesses.
    pub(crate) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.rings_after(0).all(|(_, ring)| ring.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_two_words() {
        let largest = Fill {
            file: (1 << 24) - 1,
            level: 24,
            index: (1 << 26) - 1,
            life: (1 << 27) - 1,
            home: BlockNumber::new((1 << 40) - 1),
        };
        let words = largest.to_words().expect("it fits");
        assert_eq!(Fill::from_words(words), largest);
        let too_far = BlockNumber::new(1 << 40);
        let others = [
            Fill {
                file: 1 << 24,
                ..largest
            },
            Fill {
                home: too_far,
                ..largest
            },
        ];
        assert!(others.iter().all(|fill| fill.to_words().is_none()));
    }

    #[test]
    fn threads_take_turns_and_those_without_a_number_share_a_ring() {
        let requests = Requests::new();
        let barrier = std::sync::Barrier::new(THREADS + 8);
        let fill = |index| Fill {
            file: 1,
            level: 3,
            index,
            life: 5,
            home: BlockNumber::new(7),
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u32 + 8 {
                let (requests, barrier) = (&requests, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for number in 0..10 {
                        assert!(requests.send(fill(thread * 10 + number)));
                    }
                    barrier.wait();
                });
            }
        });
        assert!(!requests.is_empty());
        let mut last = 0;
        let mut numbers = Vec::new();
        let all = std::iter::from_fn(|| {
            let fill = requests.take(&mut last);
            numbers.push(last);
            fill
        });
        let mut all: Vec<u32> = all.map(|fill| fill.index).collect();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..10 * (THREADS as u32 + 8)));
        numbers.truncate(THREADS);
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() > THREADS / 2, "one after the other");
        assert!(requests.is_empty());
    }

    #[test]
    fn what_is_too_much_is_dropped() {
        let requests = Requests::new();
        let fill = Fill {
            file: 0,
            level: 0,
            index: 0,
            life: 0,
            home: BlockNumber::new(0),
        };
        let sent = (0..2 * FILLS_MAX).filter(|_| requests.send(fill)).count();
        assert_eq!((sent, requests.is_full()), (FILLS_MAX, true));
        let sent = (0..2 * URGENT_MAX).filter(|_| requests.send_urgent(Urgent::Reclaim));
        assert_eq!(sent.count(), URGENT_MAX);
    }
}
