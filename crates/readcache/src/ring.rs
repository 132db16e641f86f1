//! Messages of two words from one thread to another, through a ring that the receiver never writes to.
//!
//! On the machines that this was measured on a line that another processor has changed comes after 190 ns; a queue whose receiver marks what it has taken costs the
//! sender one or two of these for each message. Here the sender only takes lines back that the receiver has looked at, asks for the next one ahead of time, and
//! looks where the receiver is when the ring seems full.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use crate::atomic::Atomic;

/// Words of a message.
const WORDS: usize = 2;
/// Messages of a cache line.
const PER_LINE: u64 = 4;

/// Messages from one thread at a time to one other.
pub(crate) struct Ring<W> {
    sender: CachePadded<Sender<W>>,
    /// Messages taken since the beginning.
    taken: CachePadded<W>,
    /// As many as a power of two.
    places: Box<[[W; WORDS]]>,
}

struct Sender<W> {
    /// Messages sent since the beginning.
    sent: W,
    /// How many of them were taken when the sender looked last.
    seen_taken: W,
}

impl<W: Atomic> Ring<W> {
    /// An empty ring of this many words, all zero.
    pub(crate) fn new(word: impl Fn() -> W, messages: usize) -> Ring<W> {
        Ring {
            sender: CachePadded::new(Sender {
                sent: word(),
                seen_taken: word(),
            }),
            taken: CachePadded::new(word()),
            places: (0..messages.next_power_of_two())
                .map(|_| [word(), word()])
                .collect(),
        }
    }

    #[inline]
    fn place(&self, number: u64) -> &[W; WORDS] {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// Whether there is no room for a message. By the sender.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let Sender { sent, seen_taken } = &*self.sender;
        let sent = sent.load(Ordering::Relaxed);
        let is_full = |taken: u64| sent.wrapping_sub(taken) >= self.places.len() as u64;
        if !is_full(seen_taken.load(Ordering::Relaxed)) {
            return false;
        }
        // What the receiver has read of the place comes before what is written to it next.
        let taken = self.taken.load(Ordering::Acquire);
        seen_taken.store(taken, Ordering::Relaxed);
        is_full(taken)
    }

    /// Sends a message; `false` if there is no room. By one thread at a time. In the one order of sequentially consistent accesses.
    #[inline]
    pub(crate) fn send(&self, message: [u64; WORDS]) -> bool {
        if self.is_full() {
            return false;
        }
        let sent = self.sender.sent.load(Ordering::Relaxed);
        for (word, value) in self.place(sent).iter().zip(message) {
            word.store(value, Ordering::Relaxed);
        }
        if sent.is_multiple_of(PER_LINE) {
            pmem::prefetch_for_write(self.place(sent + PER_LINE));
        }
        self.sender
            .sent
            .store(sent.wrapping_add(1), Ordering::SeqCst);
        true
    }

    /// Takes the message that was sent first of those that are left. By the receiver.
    pub(crate) fn take(&self) -> Option<[u64; WORDS]> {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.sender.sent.load(Ordering::SeqCst) == taken {
            return None;
        }
        let [first, second] = self.place(taken);
        let message = [
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed),
        ];
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(message)
    }

    /// Whether no message is left. By the receiver, in the one order of sequentially consistent accesses.
    pub(crate) fn is_empty(&self) -> bool {
        self.sender.sent.load(Ordering::SeqCst) == self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn messages_come_in_order_and_a_full_ring_takes_none() {
        let ring = Ring::new(|| AtomicU64::new(0), 3);
        let mut next = 0;
        for round in 0..100_u64 {
            assert!(ring.is_empty());
            let sent = (0..5).filter(|number| ring.send([round, *number])).count();
            assert_eq!((sent, ring.is_full(), ring.is_empty()), (4, true, false));
            for number in 0..4 {
                assert_eq!(ring.take(), Some([round, number]));
                next += 1;
            }
            assert_eq!(ring.take(), None);
        }
        assert_eq!(next, 400);
    }

    #[test]
    fn a_million_messages_go_from_thread_to_thread() {
        let ring = Ring::new(|| AtomicU64::new(0), 64);
        let count = if cfg!(debug_assertions) {
            100_000
        } else {
            1_000_000
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    while !ring.send([number, !number]) {
                        std::hint::spin_loop();
                    }
                }
            });
            for number in 0..count {
                let message = std::iter::repeat_with(|| ring.take()).flatten().next();
                assert_eq!(message, Some([number, !number]));
            }
        });
        assert!(ring.is_empty());
    }
}
