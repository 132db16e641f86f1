//! Numbers of threads, small and used again, for what each thread keeps apart.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Threads that have something of their own at one time; further ones share what is kept for the number after the last.
pub(crate) const THREADS: usize = 64;

/// Numbers whose threads have ended.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Number = Number::new();
    /// The same without a destructor; this before it is known.
    static KNOWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A thread's number, given back when it ends.
struct Number(usize);

impl Number {
    fn new() -> Number {
        let reused = FREE.lock().pop();
        Number(reused.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // Other destructors of this thread may still come by.
        KNOWN.set(THREADS);
        FREE.lock().push(self.0);
    }
}

/// This thread's number: no other living thread has it if it is less than [`THREADS`]; else it is [`THREADS`].
#[inline]
pub(crate) fn number() -> usize {
    match KNOWN.get() {
        usize::MAX => find(),
        number => number,
    }
}

#[cold]
fn find() -> usize {
    let number = NUMBER.try_with(|number| number.0).unwrap_or(THREADS);
    let number = number.min(THREADS);
    KNOWN.set(number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_threads_have_different_numbers_and_later_ones_have_them_again() {
        let numbers = |count: usize| -> Vec<usize> {
            let barrier = std::sync::Barrier::new(count);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..count)
                    .map(|_| {
                        scope.spawn(|| {
                            let number = number();
                            barrier.wait();
                            assert_eq!(number, super::number());
                            number
                        })
                    })
                    .collect();
                let numbers = threads
                    .into_iter()
                    .map(|thread| thread.join().expect("ends"));
                numbers.collect()
            })
        };
        for _ in 0..50 {
            let mut own = numbers(8);
            own.retain(|&number| number < THREADS);
            let count = own.len();
            own.sort_unstable();
            own.dedup();
            assert_eq!(own.len(), count, "no number twice");
        }
        assert!(numbers(THREADS + 1).contains(&THREADS));
        assert!(number() <= THREADS);
    }
}
