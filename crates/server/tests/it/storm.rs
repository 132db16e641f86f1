//! Mounts whose files a process uses directly, and a storm of operations on one file, which is
//! compared with a vector.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use direct::Client;
use fs::{FileSystem, MountOptions};
use perdure_server::{Mounting, Running, spawn};
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore};

pub(crate) const BLOCK: usize = 4096;

pub(crate) struct Mounted {
    pub(crate) running: Option<Running<PmemStore>>,
    _folder: TempDir,
    pub(crate) place: std::path::PathBuf,
    pub(crate) pool: std::path::PathBuf,
}

pub(crate) fn mount() -> Mounted {
    let mut mounted = place_with(0);
    mounted.start();
    mounted
}

/// A pool on a device of so many blocks, or none, that is not mounted yet.
pub(crate) fn place_with(device_blocks: u32) -> Mounted {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let (pool, place) = (folder.path().join("pool"), folder.path().join("mnt"));
    std::fs::create_dir(&place).expect("a mount point");
    let options = FormatOptions {
        size_bytes: 256 << 20,
        volatile: true,
        device_blocks,
        ..FormatOptions::default()
    };
    let owner = (rustix::process::geteuid(), rustix::process::getegid());
    fs::mkfs(&pool, &options, (owner.0.as_raw(), owner.1.as_raw())).expect("mkfs");
    Mounted {
        running: None,
        _folder: folder,
        place,
        pool,
    }
}

impl Mounted {
    pub(crate) fn start(&mut self) {
        let store = self.store();
        let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
        self.serve(files);
    }

    pub(crate) fn store(&self) -> PmemStore {
        PmemStore::open(&self.pool, Mode::ReadWrite, true).expect("open")
    }

    pub(crate) fn serve(&mut self, files: FileSystem) {
        let mounting = Mounting::new(&self.pool, &self.place);
        self.running = Some(spawn(files, &mounting).expect("serve"));
    }

    pub(crate) fn open(&self, name: &str) -> File {
        open(&self.place.join(name))
    }
}

pub(crate) fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("open")
}

/// A file that is read and written directly where that is possible, else through the kernel, as the
/// preload library does; it counts which.
pub(crate) struct Direct<'d> {
    pub(crate) file: &'d File,
    pub(crate) direct: Arc<direct::File>,
    pub(crate) done_directly: u64,
    pub(crate) by_kernel: u64,
}

/// A server that did not answer is tried again after a second.
pub(crate) fn look(client: &Client, file: &File) -> Arc<direct::File> {
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_secs(10) {
        if let Some(found) = client.look(file.as_fd()) {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("a file of the mount is none");
}

impl<'d> Direct<'d> {
    pub(crate) fn new(client: &Client, file: &'d File) -> Direct<'d> {
        Direct {
            file,
            direct: look(client, file),
            done_directly: 0,
            by_kernel: 0,
        }
    }

    pub(crate) fn count(&mut self, is_direct: bool) {
        match is_direct {
            true => self.done_directly += 1,
            false => self.by_kernel += 1,
        }
    }

    pub(crate) fn write(&mut self, data: &[u8], offset: u64) {
        let written = self
            .direct
            .write_at(self.file.as_fd(), &[IoSlice::new(data)], offset);
        self.count(written.is_some());
        match written {
            Some(bytes) => assert_eq!(bytes, data.len()),
            None => self.file.write_all_at(data, offset).expect("write"),
        }
    }

    pub(crate) fn read(&mut self, bytes: usize, offset: u64) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        let read = self.direct.read_at(
            self.file.as_fd(),
            &mut [IoSliceMut::new(&mut buffer)],
            offset,
        );
        self.count(read.is_some());
        let read = read.unwrap_or_else(|| self.file.read_at(&mut buffer, offset).expect("read"));
        buffer.truncate(read);
        buffer
    }
}

pub(crate) fn step(random: &mut u64) -> usize {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize
}

/// Does random writes, appends and reads, and compares them with a vector. Now and then another
/// program looks or writes through the kernel.
pub(crate) fn storm(mounted: &Mounted, name: &str, others: usize, operations: usize) -> (u64, u64) {
    storm_with(mounted, name, (others, operations), |_| ())
}

/// The same; between two operations something else happens that changes no content.
pub(crate) fn storm_with(
    mounted: &Mounted,
    name: &str,
    (others, operations): (usize, usize),
    mut between: impl FnMut(usize),
) -> (u64, u64) {
    let client = Client::default();
    let file = mounted.open(name);
    let other = mounted.open(name);
    let mut own = Direct::new(&client, &file);
    let mut model: Vec<u8> = Vec::new();
    let mut random = others as u64;
    for round in 0..operations {
        between(round);
        let bytes = match step(&mut random) % 4 {
            0 => BLOCK,
            1 => step(&mut random) % 100 + 1,
            2 => step(&mut random) % (3 * BLOCK) + 1,
            _ => step(&mut random) % 600 + 1,
        };
        let offset = match step(&mut random) % 4 {
            0 => model.len(),
            1 => step(&mut random) % (model.len() / BLOCK + 1) * BLOCK,
            _ => step(&mut random) % (model.len() + 1),
        };
        let offset = offset.min(4 << 20);
        let data: Vec<u8> = (0..bytes).map(|at| (round + at) as u8).collect();
        match step(&mut random) % 3 {
            0 => {
                let end = model.len().min(offset + bytes);
                assert_eq!(
                    own.read(bytes, offset as u64),
                    model[offset.min(end)..end],
                    "round {round}"
                );
            }
            _ => {
                own.write(&data, offset as u64);
                write_to(&mut model, &data, offset);
            }
        }
        if others > 0 && step(&mut random).is_multiple_of(others) {
            beside(&other, &mut model, (&data, offset), &mut random);
        }
    }
    let through_the_mount = std::fs::read(mounted.place.join(name)).expect("read");
    assert!(through_the_mount == model, "the file in the end");
    (own.done_directly, own.by_kernel)
}

pub(crate) fn write_to(model: &mut Vec<u8>, data: &[u8], offset: usize) {
    let end = offset + data.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset..end].copy_from_slice(data);
}

/// Does something to the file through the kernel, as another program would.
fn beside(other: &File, model: &mut Vec<u8>, (data, offset): (&[u8], usize), random: &mut u64) {
    match step(random) % 4 {
        0 => {
            other.write_all_at(data, offset as u64).expect("write");
            write_to(model, data, offset);
        }
        1 => {
            let size = step(random) % (model.len() + 1);
            other.set_len(size as u64).expect("truncate");
            model.truncate(size);
        }
        2 => assert_eq!(other.metadata().expect("stat").size(), model.len() as u64),
        _ => {
            let mut all = vec![0; model.len() + 1];
            let read = other.read_at(&mut all, 0).expect("read");
            assert!(all[..read] == model[..read]);
        }
    }
}
