//! Names of damaged inodes: listings show them, and whatever asks for more is told of the damage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use ::fs::InodeNumber;
use ::fs::format::RawInode;
use ::fs::format::inode::INODE_BYTES;
use zerocopy::FromBytes;

use crate::common::Mounted;

/// Changes a byte of the inode in the pool's files, so that its checksum does not match.
fn damage(pool: &Path, number: u64) {
    let number = InodeNumber::new(number);
    let mut damaged = 0;
    for entry in fs::read_dir(pool).expect("the pool") {
        let path = entry.expect("a file").path();
        if !path.is_file() {
            continue;
        }
        let bytes = fs::read(&path).expect("a segment");
        let file = File::options().write(true).open(&path).expect("a segment");
        for (slot, chunk) in (0..).zip(bytes.chunks_exact(INODE_BYTES)) {
            let raw = RawInode::read_from_bytes(chunk).expect("an inode's bytes");
            if !raw.is_free() && raw.is_intact(number) {
                let at = slot * INODE_BYTES as u64 + 40;
                file.write_all_at(&[chunk[40] ^ 0x5a], at).expect("damage");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0, "inode {number} is in no segment");
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("list");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("text");
    entries
        .map(|entry| name(entry.expect("an entry")))
        .collect()
}

fn error_of(result: std::io::Result<impl std::fmt::Debug>) -> Option<i32> {
    result.expect_err("the inode is damaged").raw_os_error()
}

#[test]
fn a_name_whose_inode_is_damaged_is_listed_and_says_so() {
    let mut mounted = Mounted::new();
    let all = ["before", "damaged", "damaged directory", "later"];
    let folder = mounted.path("folder");
    fs::create_dir(&folder).expect("mkdir");
    for name in all {
        match name.contains("directory") {
            true => fs::create_dir(folder.join(name)).expect("mkdir"),
            false => fs::write(folder.join(name), name).expect("write"),
        }
    }
    let number = |name: &str| fs::metadata(folder.join(name)).expect("stat").ino();
    let numbers = [number(all[1]), number(all[2])];
    let running = mounted.running.take().expect("mounted");
    running.unmount().expect("unmount");
    let Mounted { place, .. } = mounted;
    for number in numbers {
        damage(&place.pool(), number);
    }
    let mounted = Mounted::at(place);
    let folder = mounted.path("folder");
    // The first listing asks for attributes as well, the second one is of names only.
    for _ in 0..2 {
        assert_eq!(names(&folder), all.map(str::to_owned).into());
        let listed = fs::read_dir(&folder)
            .expect("list")
            .map(|entry| entry.expect("an entry"));
        let found: BTreeSet<u64> = listed.map(|entry| entry.ino()).collect();
        assert!(
            numbers.iter().all(|number| found.contains(number)),
            "{found:?}"
        );
    }
    for name in &all[1..3] {
        let path = folder.join(name);
        for _ in 0..2 {
            assert_eq!(error_of(fs::symlink_metadata(&path)), Some(libc::EUCLEAN));
            assert_eq!(error_of(File::open(&path)), Some(libc::EUCLEAN));
            assert_eq!(error_of(fs::read_dir(&path)), Some(libc::EUCLEAN));
        }
    }
    for name in [all[0], all[3]] {
        assert_eq!(fs::read_to_string(folder.join(name)).expect("read"), name);
    }
    for program in [&["ls", "-l"][..], &["find"], &["tar", "-cf", "/dev/null"]] {
        let [name, arguments @ ..] = program else {
            continue;
        };
        let run = Command::new(name)
            .args(arguments)
            .arg(&folder)
            .output()
            .expect(name);
        assert!(
            !run.status.success(),
            "{program:?} says nothing of the damage: {run:?}"
        );
    }
}
