use super::*;
use crate::{Create, create};
use device::DeviceBlock;
use std::os::unix::fs::FileExt;

const POOL: [u8; 16] = [7; 16];
const BYTES: u64 = DATA_AT + 2048 * BLOCK;

/// A file on a disk, because files in memory take no O_DIRECT.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").expect("a directory")
}

fn options(path: &Path) -> Create<'_> {
    Create {
        path,
        pool: POOL,
        bytes: Some(BYTES),
        overwrite: false,
    }
}

fn content(seed: u64) -> [u8; BLOCK_BYTES] {
    std::array::from_fn(|at| (seed * 37 + at as u64 * 3 + at as u64 / 256) as u8)
}

fn read(home: &FileHome, blocks: &[u64]) -> Result<Vec<[u8; BLOCK_BYTES]>, DeviceError> {
    let mut all = vec![[0; BLOCK_BYTES]; blocks.len()];
    let mut requests: Vec<ReadRequest<'_>> = blocks
        .iter()
        .zip(&mut all)
        .map(|(&block, into)| ReadRequest {
            block: DeviceBlock::new(block),
            into,
        })
        .collect();
    home.read(&mut requests)?;
    Ok(all)
}

#[test]
fn what_is_written_is_read_in_any_order() {
    let place = place();
    let path = place.path().join("home");
    let header = create(&options(&path)).expect("room");
    assert_eq!(header.blocks, 2048);
    let home = FileHome::open(&path, &POOL, true).expect("a home");
    let blocks: Vec<[u8; BLOCK_BYTES]> = (0..600).map(content).collect();
    let write = |start: u64, blocks: &[[u8; BLOCK_BYTES]]| {
        WriteRequestOwned(start, blocks.as_flattened().to_vec())
    };
    let parts = [write(3, &blocks[..500]), write(900, &blocks[500..])];
    let requests: Vec<WriteRequest<'_>> = parts
        .iter()
        .map(|part| WriteRequest {
            start: DeviceBlock::new(part.0),
            bytes: &part.1,
        })
        .collect();
    let token = home.write(&requests).expect("a good disk");
    home.wait(token).expect("a good disk");
    home.flush().expect("a good disk");
    drop(home);
    let home = FileHome::open(&path, &POOL, true).expect("a home");
    let places: Vec<u64> = (0..600_u64).map(|index| (index * 7) % 600).collect();
    let at = |index: u64| if index < 500 { index + 3 } else { index + 400 };
    let wanted: Vec<u64> = places.iter().map(|&index| at(index)).collect();
    let found = read(&home, &wanted).expect("a good disk");
    for (index, found) in places.iter().zip(found) {
        assert!(found == content(*index), "block {index}");
    }
    let one = read(&home, &[3]).expect("a good disk");
    assert!(one[0] == content(0));
}

struct WriteRequestOwned(u64, Vec<u8>);

#[test]
fn blocks_behind_the_end_are_refused() {
    let place = place();
    let path = place.path().join("home");
    create(&options(&path)).expect("room");
    let home = FileHome::open(&path, &POOL, true).expect("a home");
    assert!(read(&home, &[2047]).is_ok());
    assert!(read(&home, &[2048]).is_err());
    assert!(read(&home, &[u64::MAX / BLOCK]).is_err());
    let request = WriteRequest {
        start: DeviceBlock::new(2047),
        bytes: &[1; 2 * BLOCK_BYTES],
    };
    assert!(home.write(&[request]).is_err());
}

#[test]
fn a_home_belongs_to_one_pool_and_one_process() {
    let place = place();
    let path = place.path().join("home");
    create(&options(&path)).expect("room");
    let home = FileHome::open(&path, &POOL, true).expect("a home");
    assert!(matches!(
        FileHome::open(&path, &POOL, true),
        Err(HomeError::InUse { .. })
    ));
    drop(home);
    let other = FileHome::open(&path, &[8; 16], true);
    assert!(matches!(other, Err(HomeError::OtherPool { .. })));
    assert!(matches!(
        create(&options(&path)),
        Err(HomeError::NotEmpty { .. })
    ));
    let overwrite = Create {
        overwrite: true,
        ..options(&path)
    };
    create(&overwrite).expect("it was said so");
}

#[test]
fn a_torn_header_leaves_the_other_one() {
    let place = place();
    let path = place.path().join("home");
    create(&options(&path)).expect("room");
    let home = FileHome::open(&path, &POOL, true).expect("a home");
    assert_eq!(home.count_mount(0).expect("a good disk"), 1);
    assert_eq!(home.count_mount(1).expect("a good disk"), 2);
    home.require_generation(2).expect("the same time");
    home.require_generation(1)
        .expect("the power failed in between");
    assert!(matches!(
        home.require_generation(0),
        Err(HomeError::OtherTime {
            older_or_newer: "newer",
            ..
        })
    ));
    assert!(matches!(
        home.require_generation(3),
        Err(HomeError::OtherTime {
            older_or_newer: "older",
            ..
        })
    ));
    drop(home);
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("a file");
    file.write_all_at(&[9; 30], HEADERS_AT[0])
        .expect("a good disk");
    let home = FileHome::open(&path, &POOL, true).expect("the other header");
    assert_eq!(home.generation(), 1);
    drop(home);
    file.write_all_at(&[9; 30], HEADERS_AT[1])
        .expect("a good disk");
    assert!(matches!(
        FileHome::open(&path, &POOL, true),
        Err(HomeError::NotAHome { .. })
    ));
    file.set_len(100).expect("a good disk");
    assert!(matches!(
        FileHome::open(&path, &POOL, true),
        Err(HomeError::NotAHome { .. })
    ));
}

#[test]
fn a_home_without_room_is_not_left_behind() {
    let place = place();
    let path = place.path().join("home");
    let small = Create {
        bytes: Some(DATA_AT),
        ..options(&path)
    };
    assert!(matches!(create(&small), Err(HomeError::TooSmall { .. })));
    assert!(!path.exists());
}

#[test]
fn a_home_is_never_ahead_by_more_than_one() {
    let place = place();
    let path = place.path().join("home");
    create(&options(&path)).expect("room");
    for _ in 0..3 {
        // The power fails each time before the memory counts.
        let home = FileHome::open(&path, &POOL, true).expect("a home");
        home.require_generation(0).expect("the same time");
        assert_eq!(home.count_mount(0).expect("a good disk"), 1);
    }
    let home = FileHome::open(&path, &POOL, true).expect("a home");
    // An old memory that is mounted by force: no copy of either has the next count.
    assert_eq!(home.count_mount(1).expect("a good disk"), 2);
    assert_eq!(home.count_mount(0).expect("a good disk"), 3);
    assert_eq!(home.count_mount(7).expect("a good disk"), 8);
}

#[test]
fn readers_share_a_home_and_a_writer_does_not() {
    let place = place();
    let path = place.path().join("home");
    create(&options(&path)).expect("room");
    let open = |writes| FileHome::open(&path, &POOL, writes);
    let one = open(false).expect("a home");
    let other = open(false).expect("readers share it");
    assert!(matches!(open(true), Err(HomeError::InUse { .. })));
    assert!(read(&one, &[7]).is_ok() && read(&other, &[7]).is_ok());
    drop((one, other));
    let _writer = open(true).expect("nobody reads it");
    assert!(matches!(open(false), Err(HomeError::InUse { .. })));
}
