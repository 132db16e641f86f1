//! Threads that use descriptors at once, in all interleavings of few steps, with all that the
//! memory model allows.
//!
//! The model is a kernel of three numbers, which are given out from the lowest, as files are
//! opened, duplicated and closed. A file is nothing but how far its position has come: reading
//! moves it by one. So a thread that finds another file behind a number than the kernel has sees
//! another description, and two threads that believe that a position is theirs lose a step.

mod passing;
mod scene;

use self::passing::{
    a_giver_beside_a_giver, a_lender_beside_others, a_reader_beside_a_giver,
    a_reader_beside_a_reader, a_taker_beside_others,
};
use self::scene::{FIRST, LAST, Scene, be_the_other};
use crate::Found;
use loom::sync::Arc;

/// What two threads do at once, from what `begin` has made; then what `end` finds. All
/// interleavings in which they are interrupted three times at most, which take a second in release;
/// with six, four minutes, and nothing more was found.
fn explore(begin: fn(&Scene), one: fn(&Scene), other: fn(&Scene), end: fn(&Scene)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let scene = Arc::new(Scene::new());
        begin(&scene);
        let theirs = Arc::clone(&scene);
        let thread = loom::thread::spawn(move || {
            be_the_other();
            one(&theirs);
        });
        other(&scene);
        thread.join().expect("it ends");
        scene.check();
        end(&scene);
    });
}

fn nothing(_: &Scene) {}

/// `find` would look at it the next time.
fn open_and_use(scene: &Scene) {
    let number = scene.open();
    for _ in 0..2 {
        assert!(matches!(scene.numbers.find(number, false), Found::Kernel));
    }
}

fn open_one(scene: &Scene) {
    scene.open_and_look();
}

/// The thread beside owns its line of that file's readers.
fn open_for_an_owner(scene: &Scene) {
    scene.open_and_look();
    scene.give_to_other();
}

fn open_two(scene: &Scene) {
    scene.open_and_look();
    scene.open_and_look();
}

fn close_and_open(scene: &Scene) {
    scene.close(FIRST);
    scene.open();
}

fn close_and_open_to_look(scene: &Scene) {
    scene.close(FIRST);
    scene.open_and_look();
}

fn read_first(scene: &Scene) {
    scene.read(FIRST);
}

fn a_look_beside_a_close() {
    explore(open_and_use, read_first, close_and_open, nothing);
}

fn a_reader_beside_a_close() {
    explore(open_one, read_first, close_and_open_to_look, nothing);
}

fn an_owner_beside_a_close() {
    explore(
        open_for_an_owner,
        read_first,
        close_and_open_to_look,
        nothing,
    );
}

fn readers_beside_a_look() {
    let read = |scene: &Scene| (0..3).for_each(|_| scene.read(FIRST));
    explore(
        |scene| _ = scene.open(),
        read,
        read_first,
        |scene| assert_eq!(scene.position(FIRST), 4),
    );
}

fn close_second_and_open(scene: &Scene) {
    scene.close(FIRST + 1);
    scene.open();
}

fn a_duplicate_beside_another_close() {
    explore(
        open_two,
        |scene| _ = scene.dup(FIRST),
        close_second_and_open,
        nothing,
    );
}

/// By a thread that closes all that it does not know.
fn a_duplicate_beside_its_close() {
    explore(
        open_one,
        |scene| _ = scene.dup(FIRST),
        close_second_and_open,
        nothing,
    );
}

fn a_duplicate_beside_its_sources_close() {
    explore(
        open_one,
        |scene| _ = scene.dup(FIRST),
        close_and_open,
        nothing,
    );
}

fn duplicates_to_one_number() {
    explore(
        open_two,
        |scene| scene.dup2(FIRST, LAST),
        |scene| scene.dup2(FIRST + 1, LAST),
        nothing,
    );
}

fn a_duplicate_beside_its_targets_close() {
    explore(
        open_two,
        |scene| scene.dup2(FIRST, FIRST + 1),
        close_second_and_open,
        nothing,
    );
}

fn dup_and_read(scene: &Scene) {
    let copy = scene.dup(FIRST).expect("it is open");
    scene.read(copy);
}

/// Each reads a byte of the file at the first number, which nobody has looked at.
fn explore_reads(one: fn(&Scene), other: fn(&Scene)) {
    explore(
        |scene| _ = scene.open(),
        one,
        other,
        |scene| assert_eq!(scene.position(FIRST), 2),
    );
}

fn a_duplicate_beside_a_reader() {
    explore_reads(dup_and_read, read_first);
}

fn duplicates_of_one_number() {
    explore_reads(dup_and_read, dup_and_read);
}

fn a_duplicate_beside_an_opener() {
    explore(
        |scene| _ = scene.open(),
        |scene| _ = scene.dup(FIRST),
        |scene| _ = scene.open_and_look(),
        nothing,
    );
}

fn a_duplicate_beside_its_targets_reader() {
    explore(
        open_two,
        |scene| scene.dup2(FIRST, FIRST + 1),
        |scene| scene.read(FIRST + 1),
        nothing,
    );
}

fn duplicates_round_about() {
    explore(
        open_two,
        |scene| scene.dup2(FIRST, FIRST + 1),
        |scene| scene.dup2(FIRST + 1, FIRST),
        nothing,
    );
}

fn a_child_beside_a_duplicate() {
    explore(
        open_one,
        |scene| _ = scene.dup(FIRST),
        Scene::fork_and_read,
        nothing,
    );
}

fn a_child_beside_a_reader() {
    explore(open_and_use, read_first, Scene::fork_and_read, |scene| {
        assert_eq!(scene.position(FIRST), 2)
    });
}

fn a_child_beside_an_opener() {
    let open_and_read = |scene: &Scene| {
        open_and_use(scene);
        scene.read(FIRST);
    };
    explore(nothing, open_and_read, Scene::fork_and_read, nothing);
}

macro_rules! explorations {
    ($($name:ident),* $(,)?) => {
        $(
            mod $name {
                #[test]
                fn is_sound() {
                    super::$name();
                }
            }
        )*
    };
}

explorations!(
    a_look_beside_a_close,
    a_reader_beside_a_close,
    an_owner_beside_a_close,
    readers_beside_a_look,
    a_duplicate_beside_another_close,
    a_duplicate_beside_its_close,
    a_duplicate_beside_its_sources_close,
    duplicates_to_one_number,
    a_duplicate_beside_its_targets_close,
    a_duplicate_beside_a_reader,
    duplicates_of_one_number,
    a_duplicate_beside_an_opener,
    a_duplicate_beside_its_targets_reader,
    duplicates_round_about,
    a_child_beside_a_duplicate,
    a_child_beside_a_reader,
    a_child_beside_an_opener,
    a_reader_beside_a_reader,
    a_reader_beside_a_giver,
    a_giver_beside_a_giver,
    a_taker_beside_others,
    a_lender_beside_others,
);

/// Each bug is noticed. The process has one switch, so the bugs take turns.
#[cfg(feature = "deliberate-bugs")]
#[test]
fn bites() {
    use pmem::deliberate::{Bug, set};
    let cases: [(Bug, fn()); 8] = [
        (Bug::BelieveOldNumber, a_reader_beside_a_close),
        (Bug::EndUsedPlace, a_reader_beside_a_close),
        (Bug::TakeMovingPosition, readers_beside_a_look),
        (Bug::MissTraceOfClose, a_duplicate_beside_its_close),
        (Bug::BelieveSecondDup2, duplicates_to_one_number),
        (Bug::MissGivenNumber, a_duplicate_beside_its_targets_close),
        (Bug::HandOverTwice, a_giver_beside_a_giver),
        (Bug::LeavePositionFree, a_taker_beside_others),
    ];
    for (bug, exploration) in cases {
        set(Some(bug));
        let outcome = std::panic::catch_unwind(exploration);
        set(None);
        assert!(outcome.is_err(), "{bug:?} was not noticed");
    }
}
