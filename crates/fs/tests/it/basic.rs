//! Every operation once, on a small pool, across clean and unclean remounts.

use perdure_fs::{
    AllocateOptions, FileSystem, FileType, FsError, InodeNumber, MountOptions, NewInode, Node,
    RenameOptions, SetAttributes, XattrMode, mkfs_region,
};
use pmem::Region;
use txn::{FormatOptions, Mode, OpenError, PmemStore};

const POOL_BYTES: u64 = 32 << 20;

fn options() -> FormatOptions {
    FormatOptions {
        size_bytes: POOL_BYTES,
        segment_bytes: 1 << 20,
        journals: 2,
        journal_bytes: 64 << 10,
        volatile: true,
        ..FormatOptions::default()
    }
}

fn new_pool() -> FileSystem {
    let region = mkfs_region(Region::anonymous(POOL_BYTES), &options(), (0, 0)).expect("mkfs");
    mount(region)
}

fn mount(region: Region) -> FileSystem {
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
    FileSystem::mount(store, MountOptions::default()).expect("mount")
}

/// The pool as a crash right now would leave it, mounted again.
fn crash(files: &FileSystem) -> FileSystem {
    mount(Region::from_image(files.store().region().image()))
}

fn names(files: &FileSystem, directory: &Node) -> Vec<String> {
    let mut names = Vec::new();
    files
        .read_directory(directory, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .expect("list");
    names.sort();
    names
}

fn content(files: &FileSystem, node: &Node) -> Vec<u8> {
    let size = files.attributes(node).expect("attributes").size_bytes as usize;
    let mut bytes = vec![0xee; size + 10];
    let read = files.read(node, 0, &mut bytes).expect("read");
    assert_eq!(read, size);
    bytes.truncate(read);
    bytes
}

#[test]
fn a_file_survives_a_crash_and_a_clean_remount() {
    let files = new_pool();
    let node = files
        .create(&files.root(), b"a", &NewInode::file(0o644))
        .expect("create");
    let data: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(files.write(&node, 3, &data).expect("write"), data.len());
    let mut expected = vec![0; 3];
    expected.extend_from_slice(&data);
    assert_eq!(content(&files, &node), expected);

    let after = crash(&files);
    let node = after.lookup(&after.root(), b"a").expect("lookup");
    assert_eq!(content(&after, &node), expected);
    drop(node);
    let image_source = after.clone();
    after.checkpoint();
    let free_blocks = after.statistics().free_blocks;
    after.unmount();
    let clean = crash(&image_source);
    assert!(clean.store().was_clean());
    let node = clean.lookup(&clean.root(), b"a").expect("lookup");
    assert_eq!(content(&clean, &node), expected);
    assert_eq!(clean.statistics().free_blocks, free_blocks);
}

#[test]
fn small_overwrites_and_appends() {
    let files = new_pool();
    let node = files
        .create(&files.root(), b"log", &NewInode::file(0o600))
        .expect("create");
    let mut model = Vec::new();
    for i in 0..3000u32 {
        let piece = vec![i as u8; (i % 97) as usize + 1];
        assert_eq!(
            files.append(&node, &piece).expect("append").at,
            model.len() as u64
        );
        model.extend_from_slice(&piece);
    }
    for i in 0..500u64 {
        let at = (i * 7919) % (model.len() as u64 - 100);
        let piece = vec![(i * 3) as u8; (i % 90) as usize + 1];
        files.write(&node, at, &piece).expect("write");
        model[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
    }
    assert_eq!(content(&files, &node), model);
    let after = crash(&files);
    let node = after.lookup(&after.root(), b"log").expect("lookup");
    assert_eq!(content(&after, &node), model);
}

#[test]
fn names_links_and_removal() {
    let files = new_pool();
    let root = files.root();
    let directory = files
        .make_directory(&root, b"d", &NewInode::file(0o755))
        .expect("mkdir");
    let file = files
        .create(&directory, b"f", &NewInode::file(0o644))
        .expect("create");
    files.write(&file, 0, b"content").expect("write");
    files.link(&file, &root, b"g").expect("link");
    assert_eq!(files.attributes(&file).expect("attributes").links, 2);
    assert_eq!(
        files
            .create(&directory, b"f", &NewInode::file(0o644))
            .unwrap_err(),
        FsError::AlreadyExists
    );
    assert_eq!(
        files.remove_directory(&root, b"d").unwrap_err(),
        FsError::DirectoryNotEmpty
    );
    files.unlink(&directory, b"f").expect("unlink");
    files.remove_directory(&root, b"d").expect("rmdir");
    assert_eq!(names(&files, &root), [".", "..", "g"]);
    let symlink = files
        .make_symlink(&root, b"s", b"g", 1, 2)
        .expect("symlink");
    assert_eq!(files.read_link(&symlink).expect("readlink"), b"g");
    let long = vec![b'x'; 4000];
    let symlink = files
        .make_symlink(&root, b"long", &long, 1, 2)
        .expect("symlink");
    assert_eq!(files.read_link(&symlink).expect("readlink"), long);
    let after = crash(&files);
    assert_eq!(names(&after, &after.root()), [".", "..", "g", "long", "s"]);
    let g = after.lookup(&after.root(), b"g").expect("lookup");
    assert_eq!(content(&after, &g), b"content");
    let long_link = after.lookup(&after.root(), b"long").expect("lookup");
    assert_eq!(after.read_link(&long_link).expect("readlink"), long);
}

#[test]
fn a_region_too_short_for_a_pool_is_refused() {
    for blocks in [1, 2, 3, 4, 5, 100] {
        let region = Region::anonymous(blocks * 4096);
        let error = PmemStore::open_region(region, Mode::ReadWrite).expect_err("no pool");
        assert!(
            matches!(
                error,
                OpenError::Truncated { .. } | OpenError::NotAPool { .. }
            ),
            "{error}"
        );
    }
    let image = new_pool().store().region().image();
    let cut = Region::from_image(&image[..8 << 20]);
    let error = PmemStore::open_region(cut, Mode::ReadWrite).expect_err("a part is missing");
    assert!(matches!(error, OpenError::Truncated { .. }), "{error}");
}

#[test]
fn an_unlinked_open_file_lives_until_its_last_node() {
    let files = new_pool();
    let root = files.root();
    let free = files.statistics().free_blocks;
    let node = files
        .create(&root, b"f", &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, &[7; 50_000]).expect("write");
    files.unlink(&root, b"f").expect("unlink");
    // Asking for it by number must not make a second owner, who would free it under the first.
    assert_eq!(files.node(node.number()).err(), Some(FsError::NotFound));
    assert_eq!(content(&files, &node), vec![7; 50_000]);
    // A crash now: recovery frees it.
    let after = crash(&files);
    after.checkpoint();
    // One block of the root directory and one of the inode table may have been added.
    assert!(after.statistics().free_blocks + 3 >= free);
    drop(node);
    // Free at once for whoever asks, and really after a checkpoint.
    assert!(files.statistics().free_blocks + 3 >= free);
    files.checkpoint();
    assert!(files.statistics().free_blocks + 3 >= free);
}

#[test]
fn unnamed_files_can_be_linked() {
    let files = new_pool();
    let node = files
        .create_unnamed(&NewInode::file(0o600))
        .expect("tmpfile");
    files.write(&node, 0, b"now you see me").expect("write");
    files.link(&node, &files.root(), b"visible").expect("link");
    drop(node);
    let after = crash(&files);
    let node = after.lookup(&after.root(), b"visible").expect("lookup");
    assert_eq!(content(&after, &node), b"now you see me");
    assert_eq!(after.attributes(&node).expect("attributes").links, 1);
}

#[test]
fn renames() {
    let files = new_pool();
    let root = files.root();
    let plain = RenameOptions::default();
    let a = files
        .make_directory(&root, b"a", &NewInode::file(0o755))
        .expect("mkdir");
    let b = files
        .make_directory(&root, b"b", &NewInode::file(0o755))
        .expect("mkdir");
    let file = files
        .create(&a, b"file", &NewInode::file(0o644))
        .expect("create");
    files.write(&file, 0, b"one").expect("write");
    files
        .rename(&a, b"file", &b, b"moved", plain)
        .expect("rename");
    assert_eq!(files.lookup(&a, b"file").unwrap_err(), FsError::NotFound);
    let other = files
        .create(&b, b"other", &NewInode::file(0o644))
        .expect("create");
    files.write(&other, 0, b"two").expect("write");
    drop(other);
    let no_replace = RenameOptions {
        no_replace: true,
        ..plain
    };
    assert_eq!(
        files
            .rename(&b, b"moved", &b, b"other", no_replace)
            .unwrap_err(),
        FsError::AlreadyExists
    );
    let exchange = RenameOptions {
        exchange: true,
        ..plain
    };
    files
        .rename(&b, b"moved", &b, b"other", exchange)
        .expect("exchange");
    assert_eq!(
        content(&files, &files.lookup(&b, b"moved").expect("lookup")),
        b"two"
    );
    files
        .rename(&b, b"moved", &b, b"other", plain)
        .expect("replace");
    assert_eq!(
        content(&files, &files.lookup(&b, b"other").expect("lookup")),
        b"two"
    );
    assert_eq!(names(&files, &b), [".", "..", "other"]);
    // Directories: into itself, across, over an empty one.
    assert!(matches!(
        files.rename(&root, b"a", &a, b"inside", plain),
        Err(FsError::InvalidArgument(_))
    ));
    files
        .rename(&root, b"a", &b, b"a", plain)
        .expect("move directory");
    assert_eq!(files.attributes(&root).expect("attributes").links, 3);
    assert_eq!(files.attributes(&b).expect("attributes").links, 3);
    assert_eq!(
        files.lookup(&a, b"..").expect("parent").number(),
        b.number()
    );
    files
        .make_directory(&root, b"empty", &NewInode::file(0o755))
        .expect("mkdir");
    files
        .rename(&b, b"a", &root, b"empty", plain)
        .expect("replace directory");
    assert_eq!(files.attributes(&b).expect("attributes").links, 2);
    assert_eq!(files.attributes(&root).expect("attributes").links, 4);
    let whiteout = RenameOptions {
        whiteout: true,
        ..plain
    };
    files
        .rename(&b, b"other", &root, b"w", whiteout)
        .expect("whiteout");
    let hidden = files.lookup(&b, b"other").expect("whiteout");
    assert_eq!(
        files.attributes(&hidden).expect("attributes").file_type(),
        FileType::CharacterDevice
    );
    let after = crash(&files);
    assert_eq!(names(&after, &after.root()), [".", "..", "b", "empty", "w"]);
}

#[test]
fn truncation_holes_and_allocation() {
    let files = new_pool();
    let node = files
        .create(&files.root(), b"f", &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, &[1; 20_000]).expect("write");
    let size = |bytes| SetAttributes {
        size_bytes: Some(bytes),
        ..SetAttributes::default()
    };
    files.set_attributes(&node, &size(5000)).expect("shrink");
    files.set_attributes(&node, &size(9000)).expect("grow");
    let mut model = vec![1; 5000];
    model.resize(9000, 0);
    assert_eq!(content(&files, &node), model);
    // Sparse, far away.
    files.write(&node, 1 << 40, b"far").expect("far write");
    assert_eq!(files.seek_data(&node, 10_000).expect("seek"), 1 << 40);
    assert_eq!(files.seek_hole(&node, 0).expect("seek"), 8192);
    assert_eq!(
        files.seek_hole(&node, 1 << 40).expect("seek"),
        (1 << 40) + 3
    );
    let before = files.attributes(&node).expect("attributes").sectors;
    files.set_attributes(&node, &size(9000)).expect("shrink");
    assert!(files.attributes(&node).expect("attributes").sectors < before);
    // Reserve, fill, punch.
    let keep = AllocateOptions {
        keep_size: true,
        ..AllocateOptions::default()
    };
    files.allocate(&node, 0, 100_000, keep).expect("allocate");
    assert_eq!(content(&files, &node), model);
    assert_eq!(
        files.attributes(&node).expect("attributes").sectors,
        8 * (25 + 4),
        "blocks and the path of nodes"
    );
    files.write(&node, 40_000, &[9; 10_000]).expect("fill");
    model.resize(40_000, 0);
    model.extend_from_slice(&[9; 10_000]);
    assert_eq!(content(&files, &node), model);
    let punch = AllocateOptions {
        punch_hole: true,
        ..AllocateOptions::default()
    };
    files.allocate(&node, 3000, 42_000, punch).expect("punch");
    model[3000..45_000].fill(0);
    assert_eq!(content(&files, &node), model);
    let zero = AllocateOptions {
        zero_range: true,
        ..AllocateOptions::default()
    };
    files.allocate(&node, 46_000, 10_000, zero).expect("zero");
    model[46_000..].fill(0);
    model.resize(56_000, 0);
    assert_eq!(content(&files, &node), model);
    let after = crash(&files);
    assert_eq!(
        content(&after, &after.lookup(&after.root(), b"f").expect("lookup")),
        model
    );
}

#[test]
fn extended_attributes() {
    let files = new_pool();
    let node = files
        .create(&files.root(), b"f", &NewInode::file(0o644))
        .expect("create");
    files
        .set_xattr(&node, b"user.small", b"value", XattrMode::Any)
        .expect("set");
    files
        .set_xattr(&node, b"user.large", &[5; 60_000], XattrMode::Create)
        .expect("set");
    assert_eq!(
        files.set_xattr(&node, b"user.small", b"", XattrMode::Create),
        Err(FsError::AlreadyExists)
    );
    assert_eq!(
        files.set_xattr(&node, b"user.none", b"", XattrMode::Replace),
        Err(FsError::NoAttribute)
    );
    let after = crash(&files);
    let node = after.lookup(&after.root(), b"f").expect("lookup");
    assert_eq!(
        after.get_xattr(&node, b"user.large").expect("get"),
        vec![5; 60_000]
    );
    assert_eq!(after.list_xattrs(&node).expect("list").len(), 2);
    after.remove_xattr(&node, b"user.large").expect("remove");
    after.remove_xattr(&node, b"user.small").expect("remove");
    assert_eq!(after.attributes(&node).expect("attributes").sectors, 0);
}

#[test]
fn many_files_many_remounts() {
    let files = new_pool();
    let root = files.root();
    for i in 0..2000u32 {
        let node = files
            .create(
                &root,
                format!("file-{i}").as_bytes(),
                &NewInode::file(0o644),
            )
            .expect("create");
        files.write(&node, 0, &i.to_le_bytes()).expect("write");
    }
    for i in (0..2000u32).step_by(2) {
        files
            .unlink(&root, format!("file-{i}").as_bytes())
            .expect("unlink");
    }
    let after = crash(&files);
    assert_eq!(names(&after, &after.root()).len(), 1002);
    for i in (1..2000u32).step_by(2) {
        let node = after
            .lookup(&after.root(), format!("file-{i}").as_bytes())
            .expect("lookup");
        assert_eq!(content(&after, &node), i.to_le_bytes());
    }
    assert!(after.store().recovered_records() > 0);
    assert_eq!(
        after.node(InodeNumber::new(1)).expect("root").number(),
        InodeNumber::ROOT
    );
}

#[test]
fn a_full_pool_still_overwrites_and_unlinks() {
    let files = new_pool();
    let root = files.root();
    let node = files
        .create(&root, b"big", &NewInode::file(0o644))
        .expect("create");
    let block = vec![1; 64 << 10];
    let mut written = 0;
    loop {
        match files.append(&node, &block) {
            Ok(_) => written += block.len(),
            Err(error) => {
                assert_eq!(error, FsError::NoSpace);
                break;
            }
        }
    }
    assert!(written as u64 > POOL_BYTES * 3 / 4, "{written}");
    for i in 0..200 {
        files
            .write(&node, i * 65_536, &[2; 65_536])
            .expect("overwrite in a full pool");
    }
    files.unlink(&root, b"big").expect("unlink");
    drop(node);
    let node = files
        .create(&root, b"again", &NewInode::file(0o644))
        .expect("create");
    files
        .write(&node, 0, &vec![3; written / 2])
        .expect("space is back");
}

#[test]
fn quotas_limit_users_and_groups_from_the_next_mount_on() {
    let files = new_pool();
    let root = files.root();
    let of = |uid| NewInode {
        mode: 0o644,
        uid,
        gid: 50,
        device: 0,
    };
    let first = files.create(&root, b"first", &of(1000)).expect("create");
    files.write(&first, 0, &[1; 8192]).expect("write");
    let text = b"user 1000 blocks 6 inodes 2\ngroup 50 inodes 3\n";
    files
        .set_xattr(&root, perdure_fs::quota::ATTRIBUTE, text, XattrMode::Any)
        .expect("limits");
    let bad = files.set_xattr(
        &root,
        perdure_fs::quota::ATTRIBUTE,
        b"nonsense",
        XattrMode::Any,
    );
    assert!(matches!(bad, Err(FsError::InvalidArgument(_))));

    let after = crash(&files);
    let root = after.root();
    let used = |files: &FileSystem| files.quotas()[0].2;
    // Two data blocks and one node of the block map.
    assert_eq!((used(&after).blocks, used(&after).inodes), (3, 1));
    let first = after.lookup(&root, b"first").expect("lookup");
    let refused = after.write(&first, 8192, &[2; 5 * 4096]).unwrap_err();
    assert_eq!(refused.errno(), 122, "EDQUOT");
    assert_eq!(used(&after).blocks, 3, "a refused write charges nothing");
    after
        .write(&first, 8192, &[2; 3 * 4096])
        .expect("up to the limit");
    after
        .write(&first, 0, &[3; 8192])
        .expect("overwrites always work");
    after
        .create(&root, b"second", &of(1000))
        .expect("second inode");
    assert!(matches!(
        after.create(&root, b"third", &of(1000)),
        Err(FsError::QuotaExceeded(_))
    ));
    after
        .create(&root, b"other", &of(2000))
        .expect("another user, same group");
    assert!(
        matches!(
            after.create(&root, b"more", &of(2000)),
            Err(FsError::QuotaExceeded(_))
        ),
        "the group's limit"
    );
    after.unlink(&root, b"second").expect("unlink");
    after
        .create(&root, b"third", &of(1000))
        .expect("there is room again");
    // Known subjects' limits change at once.
    after
        .set_xattr(
            &root,
            perdure_fs::quota::ATTRIBUTE,
            b"user 1000 inodes 9",
            XattrMode::Any,
        )
        .expect("limits");
    after
        .write(&first, 0, &[4; 100_000])
        .expect("no limit on blocks any more");
}

#[test]
fn attributes_by_name_are_those_of_the_inode() {
    let files = new_pool();
    let root = files.root();
    for name in ["used", "idle"] {
        let node = files
            .create(&root, name.as_bytes(), &NewInode::file(0o640))
            .expect("create");
        files.write(&node, 0, &[1; 5000]).expect("write");
    }
    // After a mount nobody uses any inode, and no directory has an index.
    let files = crash(&files);
    let root = files.root();
    let used = files.lookup(&root, b"used").expect("lookup");
    files.append(&used, b"more").expect("append");
    for name in [&b"used"[..], b"idle", b".", b".."] {
        let by_name = files.lookup_attributes(&root, name).expect("by name");
        let node = files.lookup(&root, name).expect("lookup");
        assert_eq!(by_name, files.attributes(&node).expect("attributes"));
    }
    assert!(matches!(
        files.lookup_attributes(&root, b"none"),
        Err(FsError::NotFound)
    ));
    assert!(matches!(
        files.lookup_attributes(&used, b"none"),
        Err(FsError::NotADirectory)
    ));
    assert!(matches!(
        files.lookup_attributes(&root, &[b'x'; 256]),
        Err(FsError::NameTooLong { .. })
    ));
}
