//! What makes it PMFS and not just any file system.

use std::sync::Arc;

use perdure_bench::baseline::{Handle, Options, Pmfs, PmfsError};
use pmem::{BLOCK_BYTES, Counters, Offset, Region};

fn new(bytes: u64) -> Pmfs {
    Pmfs::format(Region::anonymous(bytes), Options::default()).expect("room")
}

fn names(pmfs: &Pmfs, directory: &str) -> Vec<String> {
    let entries = pmfs.read_dir(directory).expect("a directory");
    let text = |name| String::from_utf8(name).expect("text");
    entries.into_iter().map(|entry| text(entry.name)).collect()
}

/// A file of one block full of `byte`.
fn block_of(pmfs: &Pmfs, path: &str, byte: u8) -> Handle {
    let handle = pmfs.create(path).expect("room");
    pmfs.append(&handle, &[byte; BLOCK_BYTES]).expect("room");
    handle
}

/// The block that is full of `byte`.
fn place_of(pmfs: &Pmfs, byte: u8) -> u64 {
    let blocks = pmfs.statistics().blocks;
    let is_it = |block: &u64| {
        let start = Offset::new(block * BLOCK_BYTES as u64);
        pmfs.region().equals(start, &[byte; BLOCK_BYTES])
    };
    (0..blocks).find(is_it).expect("somewhere")
}

#[test]
fn the_first_free_block_is_used_again_and_again() {
    let pmfs = new(4 << 20);
    for byte in 1..=50 {
        block_of(&pmfs, &format!("/{byte}"), byte);
    }
    let first = place_of(&pmfs, 1);
    assert_eq!(pmfs.statistics().in_use_ranges, 1);
    for byte in 1..=50 {
        assert!(place_of(&pmfs, byte) >= first, "in the order of creation");
    }
    let freed = place_of(&pmfs, 7);
    let later = place_of(&pmfs, 30);
    pmfs.unlink("/30").expect("there");
    pmfs.unlink("/7").expect("there");
    assert_eq!(pmfs.statistics().in_use_ranges, 3);
    for byte in 60..80 {
        block_of(&pmfs, "/again", byte);
        assert_eq!(
            place_of(&pmfs, byte),
            freed,
            "the rear of the region is never used"
        );
        pmfs.unlink("/again").expect("there");
    }
    block_of(&pmfs, "/first", 90);
    block_of(&pmfs, "/second", 91);
    assert_eq!((place_of(&pmfs, 90), place_of(&pmfs, 91)), (freed, later));
    assert_eq!(pmfs.statistics().in_use_ranges, 1);
}

#[test]
fn room_behind_a_name_is_found_from_the_front() {
    let pmfs = new(4 << 20);
    pmfs.create_dir("/d").expect("room");
    for name in ["aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"] {
        pmfs.create(format!("/d/{name}")).expect("room");
    }
    pmfs.unlink("/d/bbbbbbbb").expect("there");
    pmfs.create("/d/much-longer-name").expect("room");
    assert_eq!(
        names(&pmfs, "/d"),
        ["aaaaaaaa", "cccccccc", "dddddddd", "much-longer-name"]
    );
    pmfs.create("/d/eeeeeeee").expect("room");
    assert_eq!(
        names(&pmfs, "/d"),
        [
            "aaaaaaaa",
            "eeeeeeee",
            "cccccccc",
            "dddddddd",
            "much-longer-name"
        ]
    );
    // Two neighbours gone: their bytes are one piece, behind the name before.
    pmfs.unlink("/d/cccccccc").expect("there");
    pmfs.unlink("/d/eeeeeeee").expect("there");
    pmfs.create("/d/as-long-as-both-are").expect("room");
    assert_eq!(
        names(&pmfs, "/d"),
        [
            "aaaaaaaa",
            "as-long-as-both-are",
            "dddddddd",
            "much-longer-name"
        ]
    );
    pmfs.verify().expect("sound");
}

#[test]
fn the_first_entry_of_a_block_is_marked_dead_and_used_again() {
    let pmfs = new(4 << 20);
    // 16 and 16 bytes of `.` and `..`, then entries of 268 bytes: 15 in the first block.
    let name = |number: usize| format!("/{number:0255}");
    for number in 0..20 {
        pmfs.create(name(number)).expect("room");
    }
    let before = pmfs.statistics().blocks_in_use;
    let order = names(&pmfs, "/");
    pmfs.unlink(name(15)).expect("there");
    pmfs.create(name(99)).expect("room");
    let now = names(&pmfs, "/");
    let place =
        |order: &[String], number| order.iter().position(|found| name(number)[1..] == *found);
    assert_eq!(
        place(&order, 15),
        place(&now, 99),
        "15 begins the second block"
    );
    assert_eq!(pmfs.statistics().blocks_in_use, before);
    pmfs.verify().expect("sound");
}

#[test]
fn a_removed_file_keeps_its_blocks_until_it_is_closed() {
    let pmfs = new(4 << 20);
    let before = pmfs.statistics();
    let handle = block_of(&pmfs, "/file", 1);
    pmfs.append(&handle, &[1; 100_000]).expect("room");
    let second = handle.clone();
    pmfs.unlink("/file").expect("there");
    drop(handle);
    let mut read = [0; 8];
    assert_eq!(pmfs.read_at(&second, 50_000, &mut read), Ok(8));
    assert_eq!(read, [1; 8]);
    assert!(pmfs.statistics().blocks_in_use > before.blocks_in_use + 24);
    pmfs.truncate(&second, 10)
        .expect("works without a name too");
    pmfs.verify().expect("sound");
    drop(second);
    assert_eq!(pmfs.statistics(), before);
    pmfs.verify().expect("sound");
}

#[test]
fn large_files_have_maps_of_two_levels() {
    let pmfs = new(40 << 20);
    let before = pmfs.statistics();
    let handle = pmfs.create("/file").expect("room");
    let data: Vec<u8> = (0..7 << 20).map(|index: u32| (index >> 9) as u8).collect();
    pmfs.append(&handle, &data).expect("room");
    pmfs.write_at(&handle, 20 << 20, b"far").expect("room");
    let mut read = vec![1; (20 << 20) + 4];
    assert_eq!(pmfs.read_at(&handle, 0, &mut read), Ok((20 << 20) + 3));
    assert!(read[..7 << 20] == data && read[7 << 20..20 << 20].iter().all(|&byte| byte == 0));
    assert_eq!(&read[20 << 20..(20 << 20) + 3], b"far");
    // 1,792 blocks of data, 4 nodes above them, the root; the far block and its node.
    let used = pmfs.statistics().blocks_in_use - before.blocks_in_use;
    assert_eq!(used, 1792 + 4 + 1 + 2);
    pmfs.verify().expect("sound");
    pmfs.truncate(&handle, 3 << 20).expect("works");
    pmfs.verify().expect("sound");
    assert_eq!(
        pmfs.write_at(&handle, u64::MAX, b"x"),
        Err(PmfsError::FileTooLarge)
    );
    pmfs.unlink("/file").expect("there");
    drop(handle);
    assert_eq!(pmfs.statistics(), before);
}

#[test]
fn a_known_name_is_not_searched() {
    let many = 2000;
    for (dentry_cache, is_searched) in [(true, false), (false, true)] {
        let region = Arc::new(Region::anonymous(16 << 20));
        let pmfs = Pmfs::format(Arc::clone(&region), Options { dentry_cache }).expect("room");
        for number in 0..many {
            pmfs.create(format!("/{number:08}")).expect("room");
        }
        // Whoever searches the directory meets this.
        let mut at = (0..region.length() - 24).step_by(4).map(Offset::new);
        let is_it = |&at: &Offset| region.equals(at + 12, b"00000003");
        let entry = at.find(is_it).expect("somewhere");
        let sound: u64 = region.load(entry + 8);
        region.store(entry + 8, &[0; 2]).leave_to_checkpoint();
        let result = pmfs.open("/00001999").map(drop);
        assert_eq!(result.is_err(), is_searched, "{result:?}");
        assert!(pmfs.create("/unheard-of").is_err(), "creation searches");
        assert!(pmfs.unlink("/00001999").is_err(), "removal searches");
        region
            .store(entry + 8, &sound.to_le_bytes())
            .leave_to_checkpoint();
        pmfs.unlink("/00001999").expect("there");
        pmfs.verify().expect("sound");
    }
}

/// The price of consistency, in fences: as many as PMFS has, or fewer.
#[test]
fn operations_cost_as_many_fences_as_in_pmfs() {
    let pmfs = new(16 << 20);
    let fences = |what: &dyn Fn()| {
        let before = Counters::snapshot();
        what();
        (Counters::snapshot() - before).fences
    };
    // The new inode, the directory, the entry; changes; commit.
    assert_eq!(fences(&|| drop(pmfs.create("/a"))), 5);
    let handle = pmfs.open("/a").expect("there");
    // The inode; data and changes; commit.
    assert_eq!(
        fences(&|| {
            pmfs.append(&handle, &[1; 512]).expect("room");
        }),
        3
    );
    assert_eq!(
        fences(&|| {
            pmfs.append(&handle, &[1; 512]).expect("room");
        }),
        1
    );
    assert_eq!(
        fences(&|| pmfs.write_at(&handle, 0, &[1; 512]).expect("room")),
        1
    );
    assert_eq!(fences(&|| pmfs.sync(&handle)), 1);
    drop(handle);
    // Inode, entry, directory, truncate list; changes; commit. Then inode, truncate list; changes; commit.
    assert_eq!(fences(&|| pmfs.unlink("/a").expect("there")), 10);
}

#[test]
fn wrong_paths_are_refused() {
    let pmfs = new(4 << 20);
    pmfs.create("/file").expect("room");
    pmfs.create_dir("/dir").expect("room");
    let error = |result: Result<Handle, PmfsError>| result.map(drop).expect_err("refused");
    assert_eq!(error(pmfs.create("/file/x")), PmfsError::NotADirectory);
    assert_eq!(error(pmfs.open("/file/x")), PmfsError::NotADirectory);
    assert_eq!(error(pmfs.open("/dir")), PmfsError::IsADirectory);
    assert_eq!(error(pmfs.create("/nowhere/x")), PmfsError::NotFound);
    assert_eq!(error(pmfs.create("/")), PmfsError::InvalidPath);
    assert_eq!(error(pmfs.create("/dir/../x")), PmfsError::InvalidPath);
    assert_eq!(error(pmfs.create("/x".repeat(300))), PmfsError::NotFound);
    let long = "x".repeat(256);
    assert_eq!(
        error(pmfs.create(&long)),
        PmfsError::NameTooLong { length: 256 }
    );
    assert_eq!(pmfs.unlink("/dir"), Err(PmfsError::IsADirectory));
    pmfs.open("//./file")
        .expect("empty components and `.` mean nothing");
}

#[test]
fn regions_that_are_none_of_ours_are_refused() {
    assert!(Pmfs::recover(Region::anonymous(1 << 20), Options::default()).is_err());
    assert!(Pmfs::format(Region::anonymous(8192), Options::default()).is_err());
    let pmfs = new(1 << 20);
    block_of(&pmfs, "/file", 1);
    let image = pmfs.region().image();
    // No damage of one word makes recovery panic; most of it is noticed.
    for at in (0..64 * 1024).step_by(8) {
        let region = Region::from_image(&image);
        region
            .store(Offset::new(at), &[0xff; 8])
            .leave_to_checkpoint();
        if let Ok(pmfs) = Pmfs::recover(region, Options::default()) {
            let _no_panic = pmfs.verify();
            let _no_panic = pmfs.open("/file").map(|handle| pmfs.size(&handle));
            let _no_panic = pmfs.create("/other").map(drop);
            let _no_panic = pmfs.unlink("/file");
        }
    }
}
