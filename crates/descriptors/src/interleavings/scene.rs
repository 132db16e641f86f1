//! What the explorations stand on: a kernel, open files, and a process with a table.

use crate::meaning::Tag;
use crate::numbers::FIRST_OF_ITS_OWN;
use crate::{
    Descriptions, Ended, Found, KernelsPosition, Looked, Numbers, Place, Position, Step, Visit,
};
use locks::{Hold, Thread, Word};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Mutex, MutexGuard};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

/// Numbers of the kernel.
pub(super) const FIRST: RawFd = FIRST_OF_ITS_OWN;
pub(super) const LAST: RawFd = FIRST + 2;
const COUNT: usize = LAST as usize + 1;
const PLACES: usize = 3;
/// The thread that begins, and the one beside it.
const ONE: Thread = Thread::modelled(64);
const OTHER: Thread = Thread::modelled(65);

loom::thread_local! {
    static ME: Cell<Thread> = Cell::new(ONE);
}

/// This thread is the one beside.
pub(super) fn be_the_other() {
    ME.with(|me| me.set(OTHER));
}

/// A word of the model. What is sequentially consistent is so by a fence: loom takes only fences for that, and on x86-64, for which all of this is written, each locked instruction is one.
#[derive(Default)]
pub(super) struct Model(AtomicU64);

impl Word for Model {
    fn load(&self, ordering: Ordering) -> u64 {
        if ordering == SeqCst {
            fence(SeqCst);
        }
        self.0.load(ordering)
    }

    fn store(&self, word: u64, ordering: Ordering) {
        self.0.store(word, ordering);
        if ordering == SeqCst {
            fence(SeqCst);
        }
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        let outcome = self.0.compare_exchange(old, new, SeqCst, Relaxed);
        fence(SeqCst);
        outcome.is_ok()
    }

    fn add(&self, change: u64) -> u64 {
        let old = self.0.fetch_add(change, SeqCst);
        fence(SeqCst);
        old
    }

    // Together with the other side's it acts as a full one.
    fn light_fence() {
        fence(SeqCst);
    }

    fn heavy_fence() -> bool {
        fence(SeqCst);
        true
    }
}

/// What the kernel knows: which file is open under which number, and where each file's position is.
#[derive(Default)]
struct Kernel {
    open: [Option<usize>; COUNT],
    /// The same in a child, if there is one.
    child: [Option<usize>; COUNT],
    positions: Vec<u64>,
}

impl Kernel {
    fn file(&self, number: RawFd) -> Option<usize> {
        self.open[number as usize]
    }

    /// Gives out the lowest number.
    fn give(&mut self, file: usize) -> RawFd {
        let number = (FIRST..=LAST)
            .find(|number| self.file(*number).is_none())
            .expect("not so many are open");
        self.open[number as usize] = Some(file);
        number
    }

    fn open(&mut self) -> RawFd {
        self.positions.push(0);
        self.give(self.positions.len() - 1)
    }

    fn read(&mut self, number: RawFd) {
        if let Some(file) = self.file(number) {
            self.positions[file] += 1;
        }
    }
}

/// The kernel's position of one file.
#[derive(Clone, Copy)]
struct Seeking<'a>(&'a Files, usize);

impl KernelsPosition for Seeking<'_> {
    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        Ok(moved(&mut self.0.kernel().positions[self.1], to))
    }
}

/// Moves a position of the kernel's, and says where it is then.
pub(super) fn moved(position: &mut u64, to: SeekFrom) -> u64 {
    *position = match to {
        SeekFrom::Start(place) => place,
        SeekFrom::Current(bytes) => position.strict_add_signed(bytes),
        _ => unreachable!("nobody asks for that"),
    };
    *position
}

/// An open file that is ours.
struct Opened {
    file: usize,
    lock: Mutex<()>,
    position: Position<Model>,
    /// Until it is dropped; the model notices who looks beside that.
    is_there: UnsafeCell<bool>,
}

impl Opened {
    fn new(file: usize) -> Opened {
        let is_there = UnsafeCell::new(false);
        // SAFETY: nobody else has it.
        is_there.with_mut(|is_there| unsafe { *is_there = true });
        Opened {
            file,
            lock: Mutex::new(()),
            position: Position::modelled(),
            is_there,
        }
    }

    fn look(&self) -> &Opened {
        // SAFETY: what the model checks.
        self.is_there.with(|is_there| assert!(unsafe { *is_there }));
        self
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.look().lock.lock().expect("nobody panics with it")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: what the model checks.
        self.is_there
            .with_mut(|is_there| unsafe { *is_there = false });
    }
}

// SAFETY: what the model checks.
unsafe impl Sync for Opened {}

#[derive(Default)]
pub(super) struct Files {
    kernel: Mutex<Kernel>,
    places: [Place<Opened, 1, Model>; PLACES],
}

/// Somebody who uses what is in a place.
pub(super) struct Pin<'a> {
    files: &'a Files,
    index: usize,
    visit: Visit<'a, Model>,
}

impl Files {
    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().expect("nobody panics with it")
    }

    fn enter(&self, index: usize) -> Pin<'_> {
        let visit = self.places[index].enter(ME.with(Cell::get));
        Pin {
            files: self,
            index,
            visit,
        }
    }

    fn place(&self, file: usize) -> Option<Pin<'_>> {
        let filled = |pin: &Pin<'_>| pin.place().fill(|| Opened::new(file));
        (0..PLACES).map(|index| self.enter(index)).find(filled)
    }
}

impl Pin<'_> {
    fn place(&self) -> &Place<Opened, 1, Model> {
        &self.files.places[self.index]
    }

    fn opened(&self) -> &Opened {
        // SAFETY: only who went in while a number led here asks.
        let opened = unsafe { self.place().value() };
        opened
            .expect("a place that is pinned holds a description")
            .look()
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.place().leave(&self.visit);
        if self.place().is_dying()
            && let Ended::Free(opened) = self.place().end()
        {
            assert!(opened.is_some(), "it goes once");
        }
    }
}

impl Descriptions for Files {
    type Pin<'a> = Pin<'a>;

    fn pin(&self, index: usize, still_stands: impl FnOnce() -> bool) -> Option<Pin<'_>> {
        let pin = self.enter(index);
        still_stands().then_some(pin)
    }

    fn add_number(&self, pin: &Pin<'_>) -> bool {
        pin.place().add_number()
    }

    fn remove_number(&self, index: usize) {
        self.enter(index).place().remove_number();
    }

    fn give_up_position(&self, pin: &Pin<'_>, _number: RawFd) {
        let opened = pin.opened();
        let _alone = opened.lock();
        opened
            .position
            .give(Hold::Locked, Seeking(self, opened.file));
    }

    fn look(
        &self,
        number: RawFd,
        _name: Option<u64>,
        enter: impl FnOnce(usize) -> Option<bool>,
    ) -> Looked {
        let file = self.kernel().file(number);
        let Some((file, pin)) = file.and_then(|file| Some((file, self.place(file)?))) else {
            return Looked::Kernels;
        };
        let opened = pin.opened();
        let _alone = opened.lock();
        match enter(pin.index) {
            None => self.remove_number(pin.index),
            Some(true) => _ = opened.position.take(Seeking(self, file)),
            Some(false) => {}
        }
        Looked::Ours
    }

    fn is_inside(&self) -> bool {
        false
    }

    fn is_expected(&self, _name: u64) -> bool {
        false
    }

    fn is_off(&self) -> bool {
        false
    }

    fn settle(&self) {}
}

/// A process.
pub(super) struct Scene {
    pub(super) numbers: Numbers<Files, COUNT, Model>,
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene {
            numbers: Numbers::modelled(Files::default()),
        }
    }

    fn files(&self) -> &Files {
        self.numbers.descriptions()
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.files().kernel()
    }

    pub(super) fn open(&self) -> RawFd {
        let opening = self.numbers.opening();
        let number = self.kernel().open();
        self.numbers.opened(number, opening);
        number
    }

    pub(super) fn open_and_look(&self) -> RawFd {
        let number = self.open();
        assert!(self.numbers.find_now(number).is_some());
        number
    }

    /// The thread beside owns its line of the first file's readers.
    pub(super) fn give_to_other(&self) {
        self.files().places[0].give(OTHER);
    }

    pub(super) fn close(&self, number: RawFd) {
        self.numbers.closing(number);
        self.kernel().open[number as usize] = None;
    }

    pub(super) fn dup(&self, number: RawFd) -> Option<RawFd> {
        let duplication = self.numbers.duplicating(number);
        let mut kernel = self.kernel();
        let copy = kernel.file(number).map(|file| kernel.give(file));
        drop(kernel);
        duplication.duplicated(copy.unwrap_or(-1));
        copy
    }

    pub(super) fn dup2(&self, number: RawFd, copy: RawFd) {
        let duplication = self.numbers.duplicating(number);
        let target = self.numbers.giving(copy);
        let mut kernel = self.kernel();
        let file = kernel.file(number);
        if file.is_some() {
            kernel.open[copy as usize] = file;
        }
        drop(kernel);
        duplication.replaced(&target, file.is_some());
    }

    pub(super) fn read(&self, number: RawFd) {
        match self.numbers.find(number, true) {
            Found::Kernel => self.kernel().read(number),
            Found::Counted(then) => {
                self.kernel().read(number);
                self.numbers.landed(number, then);
            }
            Found::Ours(pin) => {
                let opened = pin.opened();
                let _alone = opened.lock();
                if opened.position.advance(Hold::Locked, 1) == Step::Kernels {
                    self.kernel().read(number);
                }
                // It stays up to the end, not only behind a fence of the steps before.
                opened.look();
            }
        }
    }

    /// A child is made, and reads at the first number, if that is open.
    pub(super) fn fork_and_read(&self) {
        self.numbers.begin_sharing();
        let mut kernel = self.kernel();
        kernel.read(FIRST);
        kernel.child = kernel.open;
        drop(kernel);
        self.numbers.end_sharing();
    }

    /// Where the position of the file behind a number is, whose ever it is.
    pub(super) fn position(&self, number: RawFd) -> u64 {
        let ours = self.numbers.ours(number);
        let place = ours.and_then(|pin| pin.opened().position.get(Hold::Locked));
        place.unwrap_or_else(|| {
            let kernel = self.kernel();
            kernel.positions[kernel.file(number).expect("it is open")]
        })
    }

    /// When nothing is under way any more: numbers lead to what is behind them, as many as each place believes, and all of those whose file's position is ours.
    pub(super) fn check(&self) {
        let mut leading = [0; PLACES];
        for number in FIRST..=LAST {
            if let Tag::Ours(index) = self.numbers.meaning(number).tag() {
                leading[index] += 1;
                self.check_one(number);
            }
            self.check_beside(number);
        }
        for (place, leading) in self.files().places.iter().zip(leading) {
            assert_eq!(place.numbers(), leading);
        }
    }

    fn check_one(&self, number: RawFd) {
        let pin = self.numbers.ours(number).expect("nothing changes");
        let opened = pin.opened();
        assert_eq!(Some(opened.file), self.kernel().file(number), "{number}");
        if opened.position.get(Hold::Locked).is_some() {
            assert!(opened.position.is_settled(), "nobody hands it over");
            let child = self.kernel().child;
            assert!(!child.contains(&Some(opened.file)), "a child has {number}");
            for other in self.same_as(number) {
                let tag = self.numbers.meaning(other).tag();
                assert_eq!(tag, Tag::Ours(pin.index), "{other} is beside {number}");
            }
        }
    }

    /// Whose position will be taken over is alone.
    fn check_beside(&self, number: RawFd) {
        if self.numbers.meaning(number).tag() == Tag::Fresh {
            assert_eq!(self.same_as(number), [number]);
        }
    }

    /// The numbers that share a description with this one.
    fn same_as(&self, number: RawFd) -> Vec<RawFd> {
        let kernel = self.kernel();
        let file = kernel.file(number);
        let is_same = |other: &RawFd| file.is_some() && kernel.file(*other) == file;
        (FIRST..=LAST).filter(is_same).collect()
    }
}
