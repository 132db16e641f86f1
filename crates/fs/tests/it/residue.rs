//! Who may map a user's segments sees nothing in them that others have left: of files that were removed, of names, or of anything.

use crate::common::{new_region, open};
use perdure_fs::{AllocateOptions, FileSystem, FsError, NewInode, Node};
use pmem::Region;
use scatter::SegmentNumber;
use std::sync::Mutex;
use txn::{Content, Domain, Metadata, Mode, PoolState, Segments};

const BLOCK: u64 = 4096;
const SECRET: &[u8] = b"nobody else may read this";
pub(crate) const SEGMENT_BYTES: u64 = 1 << 20;
/// Of a segment that is cleared step by step.
const PATIENCE_BLOCKS: u64 = 100;
/// A deliberate bug is one of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn new_pool() -> Region {
    new_region(16 << 20, SEGMENT_BYTES, 2)
}

fn mount(region: Region) -> FileSystem {
    open(region, Mode::ReadWrite).expect("mount")
}

/// The medium as the power cut leaves it that comes now.
fn image(files: &FileSystem) -> Region {
    Region::from_image(files.store().region().image())
}

fn make(files: &FileSystem, name: &[u8], user: u32) -> Node {
    let new = NewInode {
        uid: user,
        ..NewInode::file(0o600)
    };
    files.create(&files.root(), name, &new).expect("create")
}

/// A user fills the pool with secrets, and removes them.
pub(crate) fn leave_secrets(files: &FileSystem, user: u32) {
    let node = make(files, b"secrets", user);
    let block = SECRET.repeat(BLOCK as usize / SECRET.len());
    let mut at = 0;
    while files.write(&node, at * BLOCK, &block).is_ok() {
        at += 1;
    }
    assert!(at > 2000, "{at} blocks");
    drop(node);
    files.unlink(&files.root(), b"secrets").expect("removed");
    files.store().checkpoint();
}

/// What the server does before a process of `user` gets a segment: `None` if it does not get it, else its bytes.
fn map(files: &FileSystem, user: u32, number: u32) -> Option<Vec<u8>> {
    let (store, segment) = (files.store(), SegmentNumber(number));
    let domain = store.hand_out(segment)?;
    if !matches!(domain, Domain::Owner { uid, .. } if uid == user) {
        store.take_in(segment);
        return None;
    }
    while !store.prepare(segment, PATIENCE_BLOCKS).0 {}
    let geometry = store.geometry();
    let at = geometry.first_block().offset() + u64::from(number) * SEGMENT_BYTES;
    let mut bytes = vec![0; SEGMENT_BYTES as usize];
    store.region().read(at, &mut bytes);
    store.take_in(segment);
    Some(bytes)
}

/// How many segments a user may map, and in how many of them there are secrets.
pub(crate) fn look(files: &FileSystem, user: u32) -> (usize, usize) {
    let segments = files.store().geometry().segments;
    let mapped = (0..segments).filter_map(|number| map(files, user, number));
    mapped.fold((0, 0), |(mapped, secrets), bytes| {
        let has_secret = bytes.windows(SECRET.len()).any(|window| window == SECRET);
        (mapped + 1, secrets + usize::from(has_secret))
    })
}

/// A file with blocks that are written, in part as well, and such that are only reserved.
pub(crate) fn write_own(files: &FileSystem, user: u32) -> Result<(), FsError> {
    let node = make(files, b"own", user);
    let content = [user as u8; 5 * BLOCK as usize];
    files.write(&node, 0, &content)?;
    files.write(&node, 20 * BLOCK + 100, b"a few bytes")?;
    let options = AllocateOptions::default();
    files.allocate(&node, 40 * BLOCK, 700 * BLOCK, options)?;
    let mut found = [0; 5 * BLOCK as usize];
    files.read(&node, 0, &mut found)?;
    assert_eq!(found, content);
    Ok(())
}

/// Whether a user sees what another one has left.
fn is_seen(files: &FileSystem, user: u32) -> bool {
    write_own(files, user).expect("room");
    let (mapped, secrets) = look(files, user);
    assert!(mapped > 2, "{mapped}");
    secrets > 0
}

#[test]
fn nothing_of_others_is_seen() {
    let _turn = ONE_AT_A_TIME.lock();
    for (before, user) in [(1, 2), (0, 2), (u32::MAX, 1)] {
        let files = mount(new_pool());
        leave_secrets(&files, before);
        assert!(!is_seen(&files, user), "of {before}");
    }
}

#[test]
fn nor_behind_a_power_cut_or_by_the_next_server() {
    let _turn = ONE_AT_A_TIME.lock();
    let files = mount(new_pool());
    leave_secrets(&files, 1);
    let files = mount(image(&files));
    write_own(&files, 2).expect("room");
    // Nobody has mapped a segment: what is in leaves that were not used is still there.
    let files = mount(image(&files));
    let (mapped, secrets) = look(&files, 2);
    assert!(mapped > 2 && secrets == 0);
    let files = mount(image(&files));
    assert_eq!(look(&files, 2), (mapped, 0));
}

/// Nothing is overwritten without need: the medium wears, and it takes time.
#[test]
fn what_is_ones_own_stays_and_is_not_looked_at_again() {
    let _turn = ONE_AT_A_TIME.lock();
    let files = mount(new_pool());
    leave_secrets(&files, 1);
    write_own(&files, 2).expect("room");
    look(&files, 2);
    let store = files.store();
    let segments = store.geometry().segments;
    let own = |number: &u32| {
        let owner = store.hand_out(SegmentNumber(*number));
        store.take_in(SegmentNumber(*number));
        matches!(owner, Some(Domain::Owner { uid: 2, .. }))
    };
    let own: Vec<u32> = (0..segments).filter(own).collect();
    let is_known = |number: &u32| {
        store.domains().entry(*number).content(*number) == Content::Users(2)
            && store.prepare(SegmentNumber(*number), 1) == (true, 0)
    };
    assert!(own.iter().all(is_known));
    // Its owner may find his own secrets there again, and root anybody's.
    files.unlink(&files.root(), b"own").expect("removed");
    leave_secrets(&files, 2);
    assert!(is_seen(&files, 2));
    files.unlink(&files.root(), b"own").expect("removed");
    files.store().checkpoint();
    assert!(is_seen(&files, 0));
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn what_is_left_is_noticed() {
    use pmem::deliberate::{Bug, set};
    let _turn = ONE_AT_A_TIME.lock();
    let files = mount(new_pool());
    leave_secrets(&files, 1);
    set(Some(Bug::KeepResidue));
    let is_seen = is_seen(&files, 2);
    set(None);
    assert!(is_seen);
}
