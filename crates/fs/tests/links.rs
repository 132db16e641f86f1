//! Names of inodes that somebody else uses at the same moment.

mod common;

use common::{new_region, open};
use perdure_fs::{NewInode, Node};
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
