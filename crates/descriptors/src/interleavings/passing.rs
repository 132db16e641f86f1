//! One who holds the lock of a position, and one who passes it by.

use super::scene::{Model, moved};
use crate::{KernelsPosition, Position, Step};
use locks::Hold;
use loom::sync::{Arc, Mutex};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// What somebody does to the position; how far he has come by that.
type Does = fn(&Shared, Hold) -> u64;

struct Shared {
    kernels: Mutex<u64>,
    position: Position<Model>,
}

impl KernelsPosition for &Shared {
    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        Ok(moved(
            &mut self.kernels.lock().expect("nobody panics with it"),
            to,
        ))
    }
}

impl Shared {
    fn read_by_kernel(&self) -> u64 {
        let step = self.seek(SeekFrom::Current(1));
        step.map_or(0, |_| 1)
    }

    /// Two bytes are asked for, and one is there.
    fn read(&self, hold: Hold) -> u64 {
        match self.position.advance(hold, 2) {
            Step::Kernels => self.read_by_kernel(),
            Step::From(_) => {
                self.position.retreat(hold, self, 1);
                1
            }
            Step::TooFar(place) => unreachable!("{place} is not far"),
        }
    }

    fn give_and_read(&self, hold: Hold) -> u64 {
        self.position.give(hold, self);
        self.read(hold)
    }

    fn take_and_read(&self, hold: Hold) -> u64 {
        self.position.take(self);
        self.read(hold)
    }

    fn lend(&self, hold: Hold) -> u64 {
        if !self.position.lend(self) {
            return self.read(hold);
        }
        let read = self.read_by_kernel();
        self.position.take(self);
        read
    }
}

/// At the end the position is where both have brought it, and nobody is about to hand it over.
fn explore(is_taken: bool, holder: Does, passer: Does) {
    loom::model(move || {
        let shared = Arc::new(Shared {
            kernels: Mutex::new(0),
            position: Position::modelled(),
        });
        if is_taken {
            assert!(shared.position.take(&*shared));
        }
        let theirs = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || passer(&theirs, Hold::Passing));
        let read = holder(&shared, Hold::Locked) + thread.join().expect("it ends");
        let place = match shared.position.get(Hold::Locked) {
            Some(place) => {
                assert!(shared.position.is_settled());
                Ok(place)
            }
            None => (&*shared).seek(SeekFrom::Current(0)),
        };
        assert_eq!(place, Ok(read));
    });
}

pub(super) fn a_reader_beside_a_reader() {
    explore(true, Shared::read, Shared::read);
}

pub(super) fn a_reader_beside_a_giver() {
    explore(true, Shared::read, Shared::give_and_read);
    explore(true, Shared::give_and_read, Shared::read);
}

pub(super) fn a_giver_beside_a_giver() {
    explore(true, Shared::give_and_read, Shared::give_and_read);
}

pub(super) fn a_taker_beside_others() {
    explore(false, Shared::take_and_read, Shared::read);
    explore(false, Shared::take_and_read, Shared::give_and_read);
}

pub(super) fn a_lender_beside_others() {
    explore(true, Shared::lend, Shared::read);
    explore(true, Shared::lend, Shared::give_and_read);
}
