//! A file that gets another owner leaves the segments of the old one, who may map them at any time.

use crate::common::{new_region, open};
use lease::Place;
use perdure_fs::{AllocateOptions, FileSystem, FsError, NewInode, Node, SetAttributes, XattrMode};
use pmem::Region;
use scatter::DomainId;
use std::sync::{Arc, Mutex};
use txn::{Mode, PoolState};

const BLOCK: u64 = 4096;
/// A deliberate bug is one of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn new_pool(size_bytes: u64) -> FileSystem {
    open(new_region(size_bytes, 256 << 10, 2), Mode::ReadWrite).expect("mount")
}

fn make(files: &FileSystem, user: u32) -> Node {
    let new = NewInode {
        uid: user,
        ..NewInode::file(0o600)
    };
    files.create(&files.root(), b"file", &new).expect("create")
}

fn give(files: &FileSystem, node: &Node, user: u32) -> Result<(), FsError> {
    let change = SetAttributes {
        uid: Some(user),
        ..SetAttributes::default()
    };
    files.set_attributes(node, &change).map(drop)
}

/// The domains in which the file's first `count` blocks lie, without holes.
fn domains(files: &FileSystem, node: &Node, count: u64) -> Vec<DomainId> {
    let mut found = Vec::new();
    let visit = |_, place| {
        if let Some(Place::At(block) | Place::Unwritten(block)) = place {
            found.extend(files.store().allocator().domain_of(block));
        }
    };
    files.places(node, 0, count, visit).expect("places");
    found
}

fn read(files: &FileSystem, node: &Node) -> Vec<u8> {
    let size = files.attributes(node).expect("attributes").size_bytes;
    let mut bytes = vec![0; size as usize];
    assert_eq!(files.read(node, 0, &mut bytes).expect("read"), bytes.len());
    bytes
}

/// Makes a file with whatever a file can consist of, and gives it from one user to another: whether none of its blocks lies in anybody's segments then.
fn is_out_of_reach(from: u32, to: u32) -> bool {
    let files = new_pool(32 << 20);
    let node = make(&files, from);
    let blocks = 1500;
    let bytes: Vec<u8> = (0..blocks * BLOCK).map(|i| (i / 7 % 251) as u8).collect();
    files.write(&node, 100, &bytes).expect("write");
    let far = 20_000 * BLOCK;
    files.write(&node, far, b"far away").expect("write");
    let options = AllocateOptions {
        keep_size: true,
        ..AllocateOptions::default()
    };
    files
        .allocate(&node, far + 10 * BLOCK, 20 * BLOCK, options)
        .expect("room");
    let hole = AllocateOptions {
        keep_size: true,
        punch_hole: true,
        ..AllocateOptions::default()
    };
    for index in (40..400).step_by(2) {
        files
            .allocate(&node, index * BLOCK, BLOCK, hole)
            .expect("a hole");
    }
    let (before, was) = (
        read(&files, &node),
        files.attributes(&node).expect("attributes"),
    );
    let all = 20_031;
    let count = domains(&files, &node, all).len();
    assert_eq!(count, 1501 - 180 + 1 + 20);
    give(&files, &node, to).expect("another owner");
    let is = files.attributes(&node).expect("attributes");
    assert_eq!(
        (is.uid, is.sectors, is.modified),
        (to, was.sectors, was.modified)
    );
    assert!(read(&files, &node) == before);
    let domains = domains(&files, &node, all);
    assert_eq!(domains.len(), count);
    domains.into_iter().all(DomainId::is_server_only)
}

#[test]
fn a_file_that_is_given_to_somebody_leaves_the_segments_of_who_had_it() {
    let _turn = ONE_AT_A_TIME.lock();
    assert!(is_out_of_reach(1, 2));
    assert!(is_out_of_reach(1, 0), "to root as well");
    assert!(!is_out_of_reach(0, 1), "root's segments are root's alone");
    assert!(!is_out_of_reach(1, 1), "nothing changes");
}

type Giver = fn(&FileSystem, &Node);

/// Ways to make a file one that gives rights to who executes it.
const GIVERS: [(&str, Giver); 3] = [
    ("set-user-id", |files, node| set_mode(files, node, 0o4755)),
    ("set-group-id", |files, node| set_mode(files, node, 0o2711)),
    ("capability", |files, node| {
        files
            .set_xattr(node, b"security.capability", &[1; 20], XattrMode::Any)
            .expect("setcap");
    }),
];

fn set_mode(files: &FileSystem, node: &Node, mode: u32) {
    let change = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    files.set_attributes(node, &change).expect("chmod");
}

/// Whether no block of a program lies where its owner could change it once who executes it gets rights, also what is written later, also after a mount.
fn is_out_of_the_owners_reach(owner: u32, give: Giver) -> bool {
    let files = new_pool(32 << 20);
    let node = make(&files, owner);
    files
        .write(&node, 0, &[1; 600 * BLOCK as usize])
        .expect("write");
    give(&files, &node);
    let mut content = read(&files, &node);
    assert!(content.iter().all(|byte| *byte == 1));
    files.write(&node, 700 * BLOCK, &[2; 5000]).expect("write");
    content.resize(700 * BLOCK as usize, 0);
    content.extend([2; 5000]);
    drop(node);
    let region = Arc::new(Region::from_image(files.store().region().image()));
    let files = open(region, Mode::ReadWrite).expect("mount");
    let node = files.lookup(&files.root(), b"file").expect("it is there");
    files.write(&node, 800 * BLOCK, &[3; 100]).expect("write");
    let found = domains(&files, &node, 801);
    assert_eq!(found.len(), 603);
    assert!(read(&files, &node).starts_with(&content));
    found.into_iter().all(DomainId::is_server_only)
}

#[test]
fn a_program_that_gives_rights_is_out_of_its_owners_reach() {
    let _turn = ONE_AT_A_TIME.lock();
    for (name, give) in GIVERS {
        assert!(is_out_of_the_owners_reach(1, give), "{name}");
    }
    assert!(!is_out_of_the_owners_reach(0, GIVERS[1].1), "root's own");
    let chmod: Giver = |files, node| set_mode(files, node, 0o755);
    assert!(!is_out_of_the_owners_reach(1, chmod), "no rights");
}

#[test]
fn what_the_new_owner_writes_goes_to_his_segments() {
    let _turn = ONE_AT_A_TIME.lock();
    let files = new_pool(32 << 20);
    let node = make(&files, 1);
    files
        .write(&node, 0, &[1; 8 * BLOCK as usize])
        .expect("write");
    give(&files, &node, 2).expect("another owner");
    files
        .write(&node, 3 * BLOCK, &[2; BLOCK as usize])
        .expect("write");
    // In place.
    files.write(&node, 5 * BLOCK, &[2; 100]).expect("write");
    let domains = domains(&files, &node, 8);
    let own: Vec<usize> = (0..8).filter(|&at| !domains[at].is_server_only()).collect();
    assert_eq!(own, [3]);
}

#[test]
fn without_room_the_file_stays_whole_and_its_owners() {
    let _turn = ONE_AT_A_TIME.lock();
    let files = new_pool(8 << 20);
    let node = make(&files, 1);
    let mut size = 0;
    while files.write(&node, size, &[7; 16 * BLOCK as usize]).is_ok() {
        size += 16 * BLOCK;
    }
    let error = give(&files, &node, 2).expect_err("no room");
    assert!(matches!(error, FsError::NoSpace), "{error}");
    assert_eq!(files.attributes(&node).expect("attributes").uid, 1);
    assert!(read(&files, &node).iter().all(|byte| *byte == 7));
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn blocks_that_are_left_behind_are_noticed() {
    use pmem::deliberate::{Bug, set};
    let _turn = ONE_AT_A_TIME.lock();
    set(Some(Bug::LeaveBlocksBehind));
    let is_out_of_reach = is_out_of_reach(1, 2);
    let programs = GIVERS.map(|(_, give)| is_out_of_the_owners_reach(1, give));
    set(None);
    assert!(!is_out_of_reach);
    assert_eq!(programs, [false; 3]);
}
