//! Names of inodes that somebody else uses at the same moment.

use crate::common::{new_region, open};
use perdure_fs::{FileSystem, NewInode, Node};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use txn::Mode;

/// A link to a directory is refused, also below itself, while that changes.
#[test]
fn a_link_to_a_directory_above_waits_for_nobody() {
    let region = new_region(8 << 20, 256 << 10, 4);
    let files = open(region, Mode::ReadWrite).expect("mount");
    let directory = |parent: &Node, name: &[u8]| {
        let made = files.make_directory(parent, name, &NewInode::file(0o755));
        made.expect("a directory")
    };
    let above = directory(&files.root(), b"above");
    let below = directory(&above, b"below");
    files
        .create(&below, b"file", &NewInode::file(0o644))
        .expect("create");
    let (tell, told) = mpsc::channel();
    for is_link in [true, false] {
        let (files, tell) = (files.clone(), tell.clone());
        let (above, below) = (above.clone(), below.clone());
        std::thread::spawn(move || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(2) {
                let outcome = match is_link {
                    true => files.link(&above, &below, b"link"),
                    false => files.remove_directory(&above, b"below"),
                };
                assert!(outcome.is_err());
            }
            tell.send(()).expect("somebody waits");
        });
    }
    for _ in 0..2 {
        let outcome = told.recv_timeout(Duration::from_secs(20));
        outcome.expect("two threads wait for each other");
    }
}

/// A file without a name gets one while somebody asks for its number: whether both have the same state of it.
fn has_one_state(files: &FileSystem) -> bool {
    let root = files.root();
    let node = files
        .create_unnamed(&NewInode::file(0o644))
        .expect("create");
    let number = node.number();
    let other = std::thread::scope(|scope| {
        let finder = scope.spawn(|| {
            loop {
                if let Ok(found) = files.node(number) {
                    return found;
                }
            }
        });
        files.link(&node, &root, b"name").expect("link");
        finder.join().expect("found")
    });
    files.write(&node, 0, &[1; 5000]).expect("write");
    let size = files.attributes(&other).expect("attributes").size_bytes;
    drop((node, other));
    files.unlink(&root, b"name").expect("unlink");
    size == 5000
}

#[test]
fn a_file_that_gets_a_name_has_one_state() {
    let region = new_region(16 << 20, 256 << 10, 4);
    let files = open(region, Mode::ReadWrite).expect("mount");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        assert!(has_one_state(&files));
    }
}
