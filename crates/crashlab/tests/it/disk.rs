//! Pools of class `log`: short sequences recover, and a log that fails makes the file system read-
//! only.

use fs::{FileSystem, FsError, MountOptions, NewInode};
use perdure_crashlab::disk::lab::DiskLab;
use perdure_crashlab::disk::sequence::{Sequence, Variant};
use pmem::{DurabilityClass, Region};
use std::sync::Arc;
use std::time::Duration;
use txn::{Disks, Durability, FormatOptions, PmemStore};
use wal::testing::SimulatedDisk;
use wal::{Disk, UNIT_BYTES};

#[test]
fn sequences_of_every_kind_recover() {
    let tally = Arc::default();
    let mut lab = DiskLab::new(Arc::clone(&tally), None);
    let sequences = [
        Sequence::One(Variant(1), 30),
        Sequence::One(Variant(7), 45),
        Sequence::Two(Variant(2), 12, 46),
        Sequence::Two(Variant(5), 45, 47),
        Sequence::Beside(1, 2),
        Sequence::Long(4),
        Sequence::Long(5),
    ];
    for sequence in sequences {
        let failures = lab.run(sequence);
        assert!(failures.is_empty(), "{failures:?}");
    }
    let counts = perdure_crashlab::tally::Tally::counts(&tally);
    assert!(counts.on_disks > 300, "{counts:?}");
    assert!(counts.in_recovery > 30, "{counts:?}");
}

fn mounted(durability: Durability) -> (Arc<SimulatedDisk>, Disks, FileSystem) {
    let options = FormatOptions {
        log: true,
        volatile: false,
        ..FormatOptions::tiny()
    };
    let memory = Region::anonymous_of(options.size_bytes, DurabilityClass::Log);
    let region = fs::mkfs_region(memory, &options, (0, 0)).expect("room");
    let log = Arc::new(SimulatedDisk::new(34 * UNIT_BYTES));
    let disks = Disks {
        log: Arc::clone(&log) as Arc<dyn Disk>,
        image: Arc::new(SimulatedDisk::new(region.length() as usize)),
    };
    disks.format(&region).expect("room");
    let files = mount(&disks, durability);
    (log, disks, files)
}

fn mount(disks: &Disks, durability: Durability) -> FileSystem {
    let store = PmemStore::open_disks(disks, None, durability).expect("a sound pool");
    let options = MountOptions {
        threads: 1,
        ..MountOptions::default()
    };
    FileSystem::mount(store, options).expect("a sound file system")
}

fn create(files: &FileSystem, name: &[u8]) -> Result<(), FsError> {
    let made = files.create(&files.root(), name, &NewInode::file(0o600));
    made.map(drop)
}

const EIO: i32 = 5;
const EROFS: i32 = 30;

#[test]
fn a_call_that_cannot_become_durable_says_so_and_no_other_begins() {
    for durability in [Durability::Call, Durability::Fsync(Duration::from_secs(60))] {
        let (log, disks, files) = mounted(durability);
        create(&files, b"before").expect("a disk that works");
        files.sync().expect("a disk that works");
        log.fail_after(0);
        let failed = match durability {
            Durability::Call => create(&files, b"lost"),
            Durability::Fsync(_) => {
                create(&files, b"lost").expect("nothing is waited for");
                files.sync()
            }
        };
        let failed = failed.expect_err("a write of the log that fails");
        assert_eq!(failed.errno(), EIO, "{failed}");
        assert!(failed.to_string().contains("simulated disk"), "{failed}");
        let refused = create(&files, b"later").expect_err("a pool whose log has failed");
        assert_eq!(refused.errno(), EROFS, "{refused}");
        let again = files.sync().expect_err("a sync after a failed one");
        assert_eq!(again.errno(), EIO, "{again}");
        drop(files);
        let files = mount(&disks, durability);
        let found = |name: &[u8]| files.lookup(&files.root(), name).is_ok();
        assert!(found(b"before") && !found(b"lost") && !found(b"later"));
    }
}
