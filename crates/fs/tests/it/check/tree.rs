//! A file system with one of everything, and what it should hold.

use super::OPTIONS;
use perdure_fs::check::{Repaired, repair};
use perdure_fs::{
    AllocateOptions, Attributes, Clock, FileSystem, FileType, FsError, MountOptions, NewInode,
    Node, SetAttributes, Timestamp, XattrMode, mkfs_region,
};
use pmem::Region;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{FormatOptions, Mode, PmemStore};

/// Bytes of the pool: small, so that a check takes a fraction of a millisecond.
pub(crate) const POOL_BYTES: u64 = 2 << 20;

pub(crate) fn options() -> FormatOptions {
    FormatOptions {
        size_bytes: POOL_BYTES,
        segment_bytes: 64 << 10,
        journals: 2,
        journal_bytes: 16 << 10,
        volatile: true,
        ..FormatOptions::default()
    }
}

fn clock() -> Timestamp {
    Timestamp::from_nanoseconds(1_000_000_000)
}

pub(crate) fn mount(region: impl Into<Arc<Region>>) -> Result<FileSystem, txn::OpenError> {
    let store = PmemStore::open_region(region, Mode::ReadWrite)?;
    let access_time = perdure_fs::AccessTime::Never;
    FileSystem::mount(
        store,
        MountOptions {
            access_time,
            clock: Clock::Custom(clock),
            seed: Some(5),
            ..MountOptions::default()
        },
    )
}

pub(crate) fn empty() -> FileSystem {
    let region = mkfs_region(Region::anonymous(POOL_BYTES), &options(), (0, 0)).expect("mkfs");
    mount(region).expect("mount")
}

/// Directories, hard links, holes, unwritten blocks, a map of two levels, attributes small and large, links short and long,
/// special files, other owners, names that were removed.
pub(crate) fn populated() -> FileSystem {
    let files = empty();
    let root = files.root();
    let file = NewInode::file(0o644);
    let a = files
        .make_directory(&root, b"a", &NewInode::file(0o755))
        .expect("mkdir");
    let b = files
        .make_directory(&a, b"b", &NewInode::file(0o755))
        .expect("mkdir");
    let c = files
        .make_directory(&b, b"c", &NewInode::file(0o2755))
        .expect("mkdir");
    let deep = files.create(&c, b"deep", &file).expect("create");
    files.write(&deep, 10, b"deep down").expect("write");
    files.link(&deep, &root, b"hard link").expect("link");
    let three = files
        .create(
            &root,
            b"three-blocks",
            &NewInode {
                uid: 1000,
                gid: 1000,
                ..file
            },
        )
        .expect("create");
    let data: Vec<u8> = (0..9000u32).map(|index| (index % 251) as u8).collect();
    files.write(&three, 0, &data).expect("write");
    let sparse = files.create(&a, b"sparse", &file).expect("create");
    files.write(&sparse, 5, b"start").expect("write");
    files
        .write(&sparse, 600 * 4096, b"far away")
        .expect("write");
    files
        .set_attributes(
            &sparse,
            &SetAttributes {
                size_bytes: Some(1 << 30),
                ..Default::default()
            },
        )
        .expect("grow");
    let reserved = files.create(&a, b"reserved", &file).expect("create");
    files
        .allocate(
            &reserved,
            0,
            20_000,
            AllocateOptions {
                keep_size: true,
                ..Default::default()
            },
        )
        .expect("allocate");
    files
        .write(&reserved, 4096, b"second block")
        .expect("write");
    files
        .set_xattr(&deep, b"user.small", b"value", XattrMode::Any)
        .expect("xattr");
    files
        .set_xattr(&a, b"user.large", &data[..6000], XattrMode::Any)
        .expect("xattr");
    special(&files, &root, &b);
    drop((a, b, c, deep, three, sparse, reserved));
    fill(&files, &root);
    files
}

/// What is neither a file nor a directory.
fn special(files: &FileSystem, root: &Node, b: &Node) {
    files
        .make_symlink(root, b"short", b"a/b/c", 1, 2)
        .expect("symlink");
    files
        .make_symlink(root, b"long", &[b'x'; 300], 1, 2)
        .expect("symlink");
    files
        .create(
            b,
            b"pipe",
            &NewInode::file(FileType::Fifo.mode_bits() | 0o600),
        )
        .expect("mkfifo");
    let device = NewInode {
        mode: FileType::CharacterDevice.mode_bits() | 0o600,
        device: 259,
        ..NewInode::default()
    };
    files.create(b, b"device", &device).expect("mknod");
}

/// A directory of several blocks, from which names were removed.
fn fill(files: &FileSystem, root: &Node) {
    let file = NewInode::file(0o644);
    let many = files
        .make_directory(root, b"many", &NewInode::file(0o755))
        .expect("mkdir");
    for index in 0..24u8 {
        let mut name = format!("name {index} ").into_bytes();
        name.resize(200, b'n');
        let node = files.create(&many, &name, &file).expect("create");
        files.write(&node, 0, &[index + 1; 100]).expect("write");
        if index % 5 == 3 {
            drop(node);
            files.unlink(&many, &name).expect("unlink");
        }
    }
}

/// The image of a clean unmount.
pub(crate) fn unmounted(files: FileSystem) -> Vec<u8> {
    let watcher = files.clone();
    files.unmount();
    watcher.store().region().image()
}

/// The populated pool as a crash leaves it, all records retired.
pub(crate) fn crashed() -> Vec<u8> {
    let files = populated();
    files.checkpoint();
    files.store().region().image()
}

/// The image repaired.
pub(crate) fn repaired(image: &[u8]) -> (Arc<Region>, Repaired) {
    let region = Arc::new(Region::from_image(image));
    let repaired = repair(&region, &OPTIONS);
    (region, repaired)
}

/// One name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    pub(crate) attributes: Attributes,
    pub(crate) content: Vec<u8>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything that a file system holds, by path.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Snapshot(pub(crate) BTreeMap<String, Entry>);

impl Snapshot {
    /// Reads all of it; the tree must be whole.
    pub(crate) fn of(files: &FileSystem) -> Snapshot {
        Snapshot::try_of(files).expect("the tree can be read")
    }

    /// Reads all of it, or says what cannot be read.
    pub(crate) fn try_of(files: &FileSystem) -> Result<Snapshot, FsError> {
        let mut snapshot = Snapshot::default();
        snapshot.add(files, &files.root(), "", 0)?;
        Ok(snapshot)
    }

    fn add(
        &mut self,
        files: &FileSystem,
        directory: &Node,
        path: &str,
        depth: usize,
    ) -> Result<(), FsError> {
        let mut names = Vec::new();
        files.read_directory(directory, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })?;
        for name in names
            .into_iter()
            .filter(|name| name != b"." && name != b"..")
        {
            let node = files.lookup(directory, &name)?;
            let path = format!("{path}/{}", name.escape_ascii());
            let attributes = files.attributes(&node)?;
            let content = match attributes.file_type() {
                FileType::Regular => content(files, &node, attributes.size_bytes)?,
                FileType::Symlink => files.read_link(&node)?,
                _ => Vec::new(),
            };
            let mut xattrs = BTreeMap::new();
            for name in files.list_xattrs(&node)? {
                let value = files.get_xattr(&node, &name)?;
                xattrs.insert(name, value);
            }
            // A damaged tree that mounts may contain circles.
            if attributes.file_type() == FileType::Directory && depth < 20 {
                self.add(files, &node, &path, depth + 1)?;
            }
            self.0.insert(
                path,
                Entry {
                    attributes,
                    content,
                    xattrs,
                },
            );
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Inodes, the root included.
    pub(crate) fn inodes(&self) -> u64 {
        let numbers: BTreeSet<_> = self
            .0
            .values()
            .map(|entry| entry.attributes.inode)
            .collect();
        numbers.len() as u64 + 1
    }
}

/// The bytes of all stretches of data with their offsets.
fn content(files: &FileSystem, node: &Node, size: u64) -> Result<Vec<u8>, FsError> {
    let mut bytes = Vec::new();
    let mut at = 0;
    // Blocks that are reserved far behind the end or absurd sizes cost nothing: only data is read.
    while at < size && bytes.len() < 1 << 22 {
        let start = match files.seek_data(node, at) {
            Ok(start) => start,
            Err(FsError::NoData) => break,
            Err(error) => return Err(error),
        };
        let mut block = vec![0; 4096];
        let read = files.read(node, start, &mut block)?;
        bytes.extend_from_slice(&start.to_le_bytes());
        bytes.extend_from_slice(&block[..read]);
        at = start + read.max(1) as u64;
    }
    Ok(bytes)
}
