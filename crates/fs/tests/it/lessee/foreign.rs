//! L5: what others have left in blocks that no process maps never becomes the content of a leased file.

use super::process::{
    BLOCK, Lessee, Process, SIZE, USER, after_power_cut, content, lease, make, new_pool, of, place,
};
use lease::Place;
use perdure_fs::lease::LeaseSize;
use perdure_fs::{AllocateOptions, FileSystem, Node, SetAttributes};
use pmem::{BLOCK_BYTES, BlockNumber};
use txn::PoolState;

const SECRET: u8 = 0x5e;
const SMALL: LeaseSize = LeaseSize {
    ring_blocks: 1,
    spare_blocks: 4,
};

fn is_shared(files: &FileSystem, block: BlockNumber) -> bool {
    let domain = files.store().allocator().domain_of(block);
    domain.is_some_and(scatter::DomainId::is_server_only)
}

/// Other users' files fill the pool, then half of them are removed.
fn remove_secrets(files: &FileSystem) {
    let root = files.root();
    let mut users = 2000;
    loop {
        let name = format!("of{users}");
        let other = files
            .create(&root, name.as_bytes(), &of(users))
            .expect("create");
        let write = |n| files.write(&other, n * BLOCK, &[SECRET; BLOCK_BYTES]);
        if (0..10).any(|n| write(n).is_err()) {
            break;
        }
        users += 1;
    }
    for user in (2000..users).step_by(2) {
        files
            .unlink(&root, format!("of{user}").as_bytes())
            .expect("unlink");
    }
    files.checkpoint();
}

#[test]
fn no_spare_block_comes_from_a_segment_that_several_share() {
    let files = new_pool(8 << 20, 256 << 10);
    let node = make(&files, "own", USER, 1);
    let mut lessee = lease(&files, &node, SIZE, Process::idle());
    remove_secrets(&files);
    let append = |lessee: &mut Lessee| {
        let end = lessee.writer.size_bytes();
        let data = [2; BLOCK_BYTES];
        lessee.writer.write(&mut lessee.map, end, &data, 5)
    };
    loop {
        while append(&mut lessee).is_ok() {}
        let told = files.fold_lease(&node).expect("folded");
        let (next, refilled) = told.expect("it is leased");
        assert!(refilled.iter().all(|spare| !is_shared(&files, spare.block)));
        if refilled.is_empty() {
            break;
        }
        lessee.writer.folded(next, refilled);
    }
    assert!(
        files.statistics().available_blocks > 100,
        "others have room"
    );
    let bytes = content(&files, &node);
    assert_eq!(bytes.len() as u64, lessee.writer.size_bytes());
    assert!(!bytes.contains(&SECRET));
}

/// A file of the user's with reserved blocks, one of them where several users' files are.
fn with_shared_reserve(files: &FileSystem) -> (Node, u64) {
    let room = make(files, "room", USER, 50);
    remove_secrets(files);
    let node = make(files, "own", USER, 0);
    files
        .allocate(&node, 0, 300 * BLOCK, AllocateOptions::default())
        .expect("room");
    drop(room);
    files.unlink(&files.root(), b"room").expect("unlink");
    files.checkpoint();
    let is_elsewhere = |index: &u64| match place(files, &node, *index) {
        Place::Unwritten(block) => is_shared(files, block),
        _ => false,
    };
    let index = (0..300).find(is_elsewhere).expect("a shared block");
    (node, index)
}

/// Makes a spare block of a reserved one, and then a written one: whether anybody's secret can be read after that.
fn shows_a_secret(files: &FileSystem, node: &Node, index: u64) -> bool {
    let lessee = lease(files, node, SMALL, Process::idle());
    let next = lessee.writer.next();
    lessee.forge(files, next, index, 0);
    lessee.forge(files, next + 1, index, 0);
    let is_in = |files: &FileSystem, node: &Node| content(files, node).contains(&SECRET);
    let next_mount = after_power_cut(files);
    let name = b"own";
    let there = next_mount.lookup(&next_mount.root(), name).expect("there");
    is_in(&next_mount, &there) || is_in(files, node)
}

#[test]
fn a_reserved_block_in_a_shared_segment_never_becomes_a_written_one() {
    let files = new_pool(8 << 20, 256 << 10);
    let (node, index) = with_shared_reserve(&files);
    assert!(!shows_a_secret(&files, &node, index));
}

#[test]
fn a_block_that_root_had_reserved_never_becomes_a_written_one() {
    let files = new_pool(8 << 20, 256 << 10);
    let root = files.root();
    let secret = make(&files, "secret", 0, 0);
    while files.append(&secret, &[SECRET; 16 * BLOCK_BYTES]).is_ok() {}
    drop(secret);
    files.unlink(&root, b"secret").expect("unlink");
    files.checkpoint();
    let node = make(&files, "own", 0, 0);
    files
        .allocate(&node, 0, 64 * BLOCK, AllocateOptions::default())
        .expect("room");
    let change = SetAttributes {
        uid: Some(USER),
        ..SetAttributes::default()
    };
    files.set_attributes(&node, &change).expect("chown");
    for index in 0..64 {
        assert!(!shows_a_secret(&files, &node, index), "block {index}");
    }
}
