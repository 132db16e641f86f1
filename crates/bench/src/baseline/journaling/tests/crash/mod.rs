//! Power failures, at every fence and every request to the disk: some of the possible contents of
//! the region and the disk are recovered, verified, and compared with the states before and after
//! the operation.

mod explorer;

use std::collections::BTreeSet;

use super::model::{Contents, Load, Model, Operation};
use super::{Bug, Chance, Design, Options, plain, with_bug};
use explorer::{HALF, Watched};

/// Operations fit one transaction, so that nothing but before and after may be found.
const LOAD: Load = Load {
    bytes_max: 26_000,
    file_bytes_max: 60_000,
    names: 12,
};

/// Random operations.
fn random(seed: u64, count: usize) -> Vec<Operation> {
    let mut chance = Chance(seed);
    (0..count).map(|_| LOAD.operation(&mut chance)).collect()
}

/// Creates files, appends, overwrites, reads and removes more than the cache holds.
fn replacing(seed: u64) -> Vec<Operation> {
    let create = |name| Operation::Create { directory: 0, name };
    let append = |file| Operation::Append {
        file,
        length: 16_000 + 1000 * file,
    };
    let mut operations: Vec<Operation> = (0..5).map(create).collect();
    operations.extend((0..15).map(|index| append(index % 5)));
    let mut chance = Chance(seed);
    for _ in 0..16 {
        let (file, offset) = (chance.below(5), chance.below(10) * 4096);
        let length = 1 + chance.below(12_000);
        operations.push(match chance.below(3) {
            0 => Operation::Write {
                file,
                offset,
                length,
            },
            _ => Operation::Read {
                file,
                offset,
                length,
            },
        });
    }
    operations.extend([Operation::Unlink(1), Operation::Close(1), append(2)]);
    operations
}

/// Changes more metadata blocks than Spindle has room for: directories, inode-table blocks, leaves.
fn crowding() -> Vec<Operation> {
    let create = |number| Operation::Create {
        directory: number % 4,
        name: number,
    };
    let far = |file| Operation::Write {
        file,
        offset: 170_000,
        length: 100 + file,
    };
    let mut operations: Vec<Operation> = (0..3).map(Operation::CreateDir).collect();
    operations.extend((0..18).map(create));
    operations.extend([far(0), far(7), far(17), Operation::Close(3)]);
    operations.extend([
        Operation::Unlink(3),
        far(1),
        create(3),
        Operation::Unlink(12),
    ]);
    operations.extend([far(2), create(40), far(0), Operation::Unlink(0)]);
    operations
}

/// Removes a file, and makes a directory need a block: all in one transaction.
fn kinds() -> Vec<Operation> {
    let create = |directory| Operation::Create { directory, name: 0 };
    let append = Operation::Append {
        file: 0,
        length: 4096,
    };
    let before = [Operation::CreateDir(0), create(0), append, Operation::Sync];
    let after = [
        Operation::Close(0),
        Operation::Unlink(0),
        create(1),
        Operation::Sync,
    ];
    before.into_iter().chain(after).collect()
}

/// The result of an exploration.
struct Explored {
    states: u64,
    evictions: u64,
    /// Which of the allowed states were found.
    found: BTreeSet<usize>,
}

/// Runs operations with power failures at all moments.
fn run(design: Design, operations: &[Operation], options: Options) -> Result<Explored, String> {
    let mut watched = Watched::new(design, options, 1);
    let mut model = Model::new(Load {
        file_bytes_max: 200_000,
        ..LOAD
    });
    let mut found = BTreeSet::new();
    for (step, operation) in operations.iter().enumerate() {
        let mut outcome = Ok(());
        let after = model.predict(operation);
        let during = watched.during(&after, |fs| outcome = model.apply(fs, operation));
        found.extend(during.map_err(|error| format!("step {step}, {operation:?}: {error}"))?);
        outcome.map_err(|error| format!("step {step}, {operation:?}: {error}"))?;
    }
    Ok(Explored {
        states: watched.states(),
        evictions: watched.fs.statistics().cache.evictions,
        found,
    })
}

const GROUPED: Options = Options {
    operations_per_commit: 4,
    access_times: true,
};

fn explore(design: Design) {
    let replacing = |seed| run(design, &replacing(seed), plain()).expect("sound");
    let crowding = run(design, &crowding(), plain()).expect("sound");
    assert!(design == Design::Tinca || crowding.evictions >= 5);
    let all = [
        crowding,
        replacing(1),
        run(design, &random(1, 40), plain()).expect("sound"),
        run(design, &random(5, 40), GROUPED).expect("sound"),
        run(design, &kinds(), GROUPED).expect("sound"),
    ];
    assert!(all[1].evictions >= 15);
    let states: u64 = all.iter().map(|explored| explored.states).sum();
    println!("{design:?}: {states} states");
    assert!(states > 1500, "{states} states");
}

#[test]
fn tincas_power_failures_leave_all_of_an_operation_or_nothing() {
    explore(Design::Tinca);
}

#[test]
fn mended_spindles_power_failures_leave_all_of_an_operation_or_nothing() {
    explore(Design::SpindleMended);
}

/// Published order: nothing but the known half of a transaction is found in addition.
#[test]
fn published_spindles_power_failures_leave_no_more_than_half_a_transaction() {
    let design = Design::SpindlePublished;
    let mut found = BTreeSet::new();
    for operations in [random(1, 40), replacing(1)] {
        found.extend(run(design, &operations, plain()).expect("known").found);
    }
    assert!(found.contains(&HALF));
}

/// Published order: sound as well where an operation has no data that can be half of it.
#[test]
fn published_spindle_keeps_operations_that_are_metadata_alone() {
    let mut watched = Watched::new(Design::SpindlePublished, plain(), 8);
    let mut after = Contents::new();
    for name in ["/a", "/b", "/c"] {
        after.insert(name.to_owned(), Some(Vec::new()));
        let found = watched.during(&after, |fs| drop(fs.create(name).expect("room")));
        assert_eq!(found, Ok(BTreeSet::from([0, 1])));
    }
    after.remove("/b");
    let found = watched.during(&after, |fs| fs.unlink("/b").expect("there"));
    assert_eq!(found, Ok(BTreeSet::from([0, 1])));
}

/// Where a bug is looked for.
#[derive(Copy, Clone, Debug)]
enum Ground {
    Random,
    Replacing,
    /// A data block becomes a metadata block within one transaction.
    Kinds,
}

fn assert_noticed(design: Design, bugs: &[(Bug, Ground)]) {
    for &(bug, ground) in bugs {
        let outcome = with_bug(bug, || {
            (1..4).find_map(|seed| match ground {
                Ground::Random => run(design, &random(seed, 70), plain()).err(),
                Ground::Replacing => run(design, &replacing(seed), plain()).err(),
                Ground::Kinds => run(design, &kinds(), GROUPED).err(),
            })
        });
        println!("{design:?} {bug:?}: {outcome:?}");
        assert!(outcome.is_some(), "{design:?} with {bug:?}");
    }
}

const OF_BOTH: [(Bug, Ground); 2] = [
    (Bug::EvictWithoutDiskFlush, Ground::Replacing),
    (Bug::ReuseBeforeEntryIsFree, Ground::Replacing),
];

#[test]
fn bugs_of_tinca_are_noticed() {
    assert_noticed(Design::Tinca, &OF_BOTH);
    assert_noticed(
        Design::Tinca,
        &[
            (Bug::TailBeforeRoles, Ground::Random),
            (Bug::SkipLogRole, Ground::Random),
            (Bug::IgnoreRing, Ground::Random),
        ],
    );
}

#[test]
fn bugs_of_spindle_are_noticed() {
    assert_noticed(Design::SpindleMended, &OF_BOTH);
    assert_noticed(
        Design::SpindleMended,
        &[
            (Bug::SkipExtraEntry, Ground::Random),
            (Bug::IgnoreLap, Ground::Random),
            (Bug::ChangeBeforeUndo, Ground::Random),
            (Bug::HeadBeforeEntries, Ground::Random),
            (Bug::SkipUndo, Ground::Random),
            (Bug::ReuseInTransaction, Ground::Kinds),
        ],
    );
    assert_noticed(
        Design::SpindlePublished,
        &[
            (Bug::ChangeBeforeUndo, Ground::Random),
            (Bug::SkipUndo, Ground::Random),
        ],
    );
}
