//! `perdure cp`: a tree survives the way into a pool and out again.

use crate::common::{inside, make_pool, place, run, succeed};
use perdure::Pool;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// What is compared of each object of a tree.
fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut inodes: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).expect("metadata");
        let name = path.strip_prefix(root).expect("below the root").to_owned();
        let kind = match metadata.file_type() {
            kind if kind.is_symlink() => {
                format!("-> {}", fs::read_link(&path).expect("a link").display())
            }
            kind if kind.is_dir() => {
                let mut children: Vec<_> = fs::read_dir(&path)
                    .expect("a directory")
                    .map(|entry| entry.expect("an entry").path())
                    .collect();
                children.sort();
                pending.extend(children.into_iter().rev());
                String::from("directory")
            }
            kind if kind.is_file() => {
                let first = inodes.entry(metadata.ino()).or_insert_with(|| name.clone());
                let content = fs::read(&path).expect("a file");
                let sum = content.iter().fold(0u64, |sum, byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
                });
                format!(
                    "file {} {sum:x}, links {}, first {}",
                    metadata.len(),
                    metadata.nlink(),
                    first.display()
                )
            }
            _ => String::from("special"),
        };
        let mode = if metadata.is_symlink() {
            0
        } else {
            metadata.mode()
        };
        let mut about = format!(
            "{kind} mode {mode:o} owner {}:{}",
            metadata.uid(),
            metadata.gid()
        );
        about += &format!(
            " modified {}.{:09}",
            metadata.mtime(),
            metadata.mtime_nsec()
        );
        found.insert(name, about);
    }
    found
}

fn plant(root: &Path) {
    fs::create_dir_all(root.join("deep/er/still")).expect("directories");
    fs::create_dir(root.join("empty")).expect("a directory");
    fs::write(root.join("deep/text"), "some text\n").expect("a file");
    fs::write(root.join("deep/er/none"), "").expect("an empty file");
    let content: Vec<u8> = (0..3_000_000u32)
        .map(|index| index.wrapping_mul(index) as u8)
        .collect();
    fs::write(root.join("deep/er/large"), content).expect("a file of several chunks");
    fs::hard_link(root.join("deep/text"), root.join("deep/er/still/same text"))
        .expect("a hard link");
    symlink("../text", root.join("deep/er/link")).expect("a link");
    symlink("/nowhere/at all", root.join("dangling")).expect("a link");
    fs::write(root.join("odd \u{1F980} name\n"), "x").expect("a file");
    let sparse = File::create_new(root.join("sparse")).expect("a file");
    sparse.write_all_at(b"middle", 5 << 20).expect("data");
    sparse.set_len(9 << 20).expect("a hole at the end");
    for (index, name) in ["deep/text", "deep/er/large", "empty", "deep"]
        .iter()
        .enumerate()
    {
        let path = root.join(name);
        let mode = [0o640, 0o4755, 0o1777, 0o500][index];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        let time = UNIX_EPOCH + Duration::new(1_000_000_000 + index as u64, 123_456_789);
        File::open(&path)
            .and_then(|file| file.set_modified(time))
            .expect("a time");
    }
    let attribute = [root.join("deep/text"), root.join("deep/er")];
    for path in attribute {
        let set = rustix_set(&path, "user.colour", b"green\0blue");
        assert!(set, "shared memory holds user attributes");
    }
}

fn rustix_set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

fn attribute(path: &Path, name: &str) -> Vec<u8> {
    let mut buffer = vec![0; 100];
    let length = rustix::fs::lgetxattr(path, name, &mut buffer[..]).expect("an attribute");
    buffer.truncate(length);
    buffer
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let place = place();
    let pool = make_pool(place.path());
    let (tree, back) = (place.path().join("tree"), place.path().join("back"));
    plant(&tree);
    let before = picture(&tree);

    let said = succeed([
        "cp",
        "-r",
        tree.to_str().expect("text"),
        &inside(&pool, "/"),
    ])
    .stdout;
    assert!(
        said.contains("copied 5 files, 5 directories, 3 links"),
        "{said}"
    );
    succeed([
        "cp",
        "-r",
        &inside(&pool, "/tree"),
        back.to_str().expect("text"),
    ]);
    assert_eq!(picture(&back), before);
    assert_eq!(picture(&tree), before, "the source is as it was");
    assert_eq!(
        attribute(&back.join("deep/text"), "user.colour"),
        b"green\0blue"
    );
    assert_eq!(
        attribute(&back.join("deep/er"), "user.colour"),
        b"green\0blue"
    );

    // The hole is a hole on both sides.
    let sparse = fs::metadata(back.join("sparse")).expect("metadata");
    assert!(
        sparse.blocks() * 512 < 1 << 20,
        "{} blocks",
        sparse.blocks()
    );
    let open = Pool::open(&pool).expect("opened");
    let inside_pool = open.metadata("tree/sparse").expect("metadata");
    assert!(inside_pool.len() == 9 << 20 && inside_pool.blocks() * 512 < 1 << 20);
    assert_eq!(
        open.metadata("tree/deep/text").expect("metadata").nlink(),
        2
    );
}

#[test]
fn a_copy_inside_and_between_pools() {
    let place = place();
    let pool = make_pool(place.path());
    let other_place = crate::common::place();
    let other = make_pool(other_place.path());
    let tree = place.path().join("tree");
    plant(&tree);
    succeed([
        "cp",
        "-r",
        tree.to_str().expect("text"),
        &inside(&pool, "/first"),
    ]);
    succeed([
        "cp",
        "-r",
        &inside(&pool, "/first"),
        &inside(&pool, "/second"),
    ]);
    succeed([
        "cp",
        "-r",
        &inside(&pool, "/second"),
        &inside(&other, "/third"),
    ]);
    let back = place.path().join("back");
    succeed([
        "cp",
        "-r",
        &inside(&other, "/third"),
        back.to_str().expect("text"),
    ]);
    assert_eq!(picture(&back), picture(&tree));
}

#[test]
fn a_second_copy_replaces_and_merges() {
    let place = place();
    let pool = make_pool(place.path());
    let tree = place.path().join("tree");
    plant(&tree);
    let source = tree.to_str().expect("text");
    succeed(["cp", "-r", source, &inside(&pool, "/")]);
    Pool::open(&pool)
        .expect("opened")
        .write("tree/extra", "kept")
        .expect("written");
    fs::write(tree.join("deep/text"), "other text, longer than the first").expect("written");
    fs::remove_file(tree.join("dangling")).expect("removed");
    fs::write(tree.join("dangling"), "a file now").expect("written");
    succeed(["cp", "-r", source, &inside(&pool, "/")]);
    let back = place.path().join("back");
    succeed([
        "cp",
        "-r",
        &inside(&pool, "/tree"),
        back.to_str().expect("text"),
    ]);
    assert_eq!(fs::read(back.join("extra")).expect("kept"), b"kept");
    fs::remove_file(back.join("extra")).expect("removed");
    let (mut left, mut right) = (picture(&back), picture(&tree));
    // Removing `extra` touched the directory itself.
    left.remove(Path::new(""));
    right.remove(Path::new(""));
    assert_eq!(left, right);
}

#[test]
fn one_file_goes_where_it_should() {
    let place = place();
    let pool = make_pool(place.path());
    let file = place.path().join("file");
    fs::write(&file, "content").expect("written");
    let source = file.to_str().expect("text");
    succeed(["cp", source, &inside(&pool, "/renamed")]);
    succeed(["cp", source, &inside(&pool, "/")]);
    symlink(&file, place.path().join("link")).expect("a link");
    // Without -r the file behind a link is copied.
    succeed([
        "cp",
        place.path().join("link").to_str().expect("text"),
        &inside(&pool, "/followed"),
    ]);
    let open = Pool::open(&pool).expect("opened");
    for name in ["renamed", "file", "followed"] {
        assert_eq!(open.read(name).expect(name), b"content");
        assert!(open.symlink_metadata(name).expect(name).is_file());
    }
    open.create_dir("directory").expect("made");
    open.close().expect("closed");
    // A directory does not become a file, and the other way round.
    let outcome = run(["cp", source, &inside(&pool, "/directory/file")]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    fs::create_dir(place.path().join("renamed")).expect("made");
    let outcome = run([
        "cp",
        "-r",
        place.path().join("renamed").to_str().expect("text"),
        &inside(&pool, "/"),
    ]);
    assert_eq!(outcome.code, 1, "{outcome:#?}");
    assert!(
        outcome
            .stderr
            .contains("/renamed: is there and not a directory"),
        "{outcome:#?}"
    );
}
