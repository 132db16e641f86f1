//! Direct access through a real mount: what a process writes without asking is what everybody reads, and the other way round.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use direct::Client;
use fs::{FileSystem, MountOptions};
use perdure_server::{Mounting, Running, spawn};
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore};

const BLOCK: usize = 4096;

struct Mounted {
    running: Option<Running<PmemStore>>,
    _folder: TempDir,
    place: std::path::PathBuf,
    pool: std::path::PathBuf,
}

fn mount() -> Mounted {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let (pool, place) = (folder.path().join("pool"), folder.path().join("mnt"));
    std::fs::create_dir(&place).expect("a mount point");
    let options = FormatOptions {
        size_bytes: 256 << 20,
        volatile: true,
        ..FormatOptions::default()
    };
    let owner = (rustix::process::geteuid(), rustix::process::getegid());
    fs::mkfs(&pool, &options, (owner.0.as_raw(), owner.1.as_raw())).expect("mkfs");
    let mut mounted = Mounted {
        running: None,
        _folder: folder,
        place,
        pool,
    };
    mounted.start();
    mounted
}

impl Mounted {
    fn start(&mut self) {
        let store = PmemStore::open(&self.pool, Mode::ReadWrite, true).expect("open");
        let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
        let mounting = Mounting::new(&self.pool, &self.place);
        self.running = Some(spawn(files, &mounting).expect("serve"));
    }

    fn open(&self, name: &str) -> File {
        open(&self.place.join(name))
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("open")
}

/// Reads and writes directly where that is possible, else through the kernel, as the preload library does; counts which.
struct Direct<'d> {
    file: &'d File,
    direct: Arc<direct::File>,
    done_directly: u64,
    by_kernel: u64,
}

/// A server that did not answer is tried again after a second.
fn look(client: &Client, file: &File) -> Arc<direct::File> {
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
    fn new(client: &Client, file: &'d File) -> Direct<'d> {
        Direct {
            file,
            direct: look(client, file),
            done_directly: 0,
            by_kernel: 0,
        }
    }

    fn count(&mut self, is_direct: bool) {
        match is_direct {
            true => self.done_directly += 1,
            false => self.by_kernel += 1,
        }
    }

    fn write(&mut self, data: &[u8], offset: u64) {
        let written = self
            .direct
            .write_at(self.file.as_fd(), &[IoSlice::new(data)], offset);
        self.count(written.is_some());
        match written {
            Some(bytes) => assert_eq!(bytes, data.len()),
            None => self.file.write_all_at(data, offset).expect("write"),
        }
    }

    fn read(&mut self, bytes: usize, offset: u64) -> Vec<u8> {
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

fn step(random: &mut u64) -> usize {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize
}

/// Random writes, appends and reads, compared with a vector. Now and then somebody else looks or writes through the kernel.
fn storm(mounted: &Mounted, name: &str, others: usize, operations: usize) -> (u64, u64) {
    let client = Client::default();
    let file = mounted.open(name);
    let other = mounted.open(name);
    let mut own = Direct::new(&client, &file);
    let mut model: Vec<u8> = Vec::new();
    let mut random = others as u64;
    for round in 0..operations {
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
            match step(&mut random) % 4 {
                0 => {
                    other.write_all_at(&data, offset as u64).expect("write");
                    write_to(&mut model, &data, offset);
                }
                1 => {
                    let size = step(&mut random) % (model.len() + 1);
                    other.set_len(size as u64).expect("truncate");
                    model.truncate(size);
                }
                2 => assert_eq!(
                    other.metadata().expect("stat").size(),
                    model.len() as u64,
                    "round {round}"
                ),
                _ => {
                    let mut all = vec![0; model.len() + 1];
                    let read = other.read_at(&mut all, 0).expect("read");
                    assert!(all[..read] == model[..read], "round {round}");
                }
            }
        }
    }
    let through_the_mount = std::fs::read(mounted.place.join(name)).expect("read");
    assert!(through_the_mount == model, "the file in the end");
    (own.done_directly, own.by_kernel)
}

fn write_to(model: &mut Vec<u8>, data: &[u8], offset: usize) {
    let end = offset + data.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset..end].copy_from_slice(data);
}

#[test]
fn a_process_alone_does_nearly_everything_itself() {
    let mounted = mount();
    let (direct, kernel) = storm(&mounted, "alone", 0, 20_000);
    assert!(kernel < 20, "{direct} directly, {kernel} by the kernel");
}

#[test]
fn others_see_what_it_wrote_and_it_sees_what_they_wrote() {
    let mounted = mount();
    let (direct, kernel) = storm(&mounted, "shared", 300, 20_000);
    assert!(direct > 1000, "{direct} directly, {kernel} by the kernel");
    let (direct, _) = storm(&mounted, "contended", 3, 3000);
    println!("contended: {direct} of 3000 directly");
}

/// Two processes use a file by turns: each begins through the kernel, because the other one has it, and goes on directly.
#[test]
fn by_turns_each_goes_directly_after_a_while() {
    const BURST: usize = 2000;
    let mounted = mount();
    let clients = [Client::default(), Client::default()];
    let files = [mounted.open("shared"), mounted.open("shared")];
    let [mut one, mut two] = [0, 1].map(|at: usize| Direct::new(&clients[at], &files[at]));
    let mut model = Vec::new();
    for turn in 0..20 {
        let own = if turn % 2 == 0 { &mut one } else { &mut two };
        for round in 0..BURST {
            let (data, block) = ([(turn + round) as u8; BLOCK], round % 64);
            own.write(&data, (block * BLOCK) as u64);
            write_to(&mut model, &data, block * BLOCK);
        }
    }
    let through_the_mount = std::fs::read(mounted.place.join("shared")).expect("read");
    assert!(through_the_mount == model);
    let (directly, by_kernel) = (
        one.done_directly + two.done_directly,
        one.by_kernel + two.by_kernel,
    );
    println!("{directly} directly, {by_kernel} by the kernel");
    assert!(
        directly > 4 * by_kernel,
        "{directly} directly, {by_kernel} by the kernel"
    );
}

#[test]
fn a_process_outlives_its_server_and_uses_the_next_one() {
    let mut mounted = mount();
    let client = Client::default();
    for round in 0..3_u8 {
        let file = mounted.open("file");
        let mut own = Direct::new(&client, &file);
        for block in 0..100 {
            own.write(&[round; BLOCK], block * BLOCK as u64);
        }
        assert!(own.done_directly > 50, "round {round}");
        let stale = Arc::clone(&own.direct);
        drop(file);
        let running = mounted.running.take().expect("it runs");
        running.unmount().expect("unmounted");
        let noted = std::fs::read_dir(mounted.pool.join("direct")).expect("a folder");
        let is_noted = |name: &str| name.starts_with("former-");
        let names: Vec<_> = noted
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert!(
            names.iter().any(|name| is_noted(&name.to_string_lossy())),
            "this process lives and has segments mapped: {names:?}"
        );
        mounted.start();
        let file = mounted.open("file");
        let written = stale.write_at(file.as_fd(), &[IoSlice::new(b"late")], 0);
        assert_eq!(written, None, "what was attached has ended");
        assert_eq!(
            std::fs::read(mounted.place.join("file")).expect("read"),
            [round; 100 * BLOCK]
        );
    }
}

/// The kernel does not know how long the file has become, so each request that it sends makes it drop a page, which the next one may have locked.
#[test]
fn appending_in_turn_directly_and_through_the_kernel_does_not_stop_the_mount() {
    let mounted = mount();
    let client = Client::default();
    let path = mounted.place.join("log");
    let mut options = OpenOptions::new();
    let mut log = options.append(true).create(true).open(path).expect("open");
    let direct = client.look(log.as_fd()).expect("a file of the mount");
    let mut done_directly = 0;
    for record in 0..5000_u64 {
        let bytes = record.to_le_bytes();
        // Now and then the program itself asks the kernel, which ends the lease.
        let by_kernel = record % 1000 == 999;
        let appended = (!by_kernel)
            .then(|| direct.append(log.as_fd(), &[IoSlice::new(&bytes)]))
            .flatten();
        match appended {
            Some(_) => done_directly += 1,
            None => log.write_all(&bytes).expect("append"),
        }
    }
    println!("{done_directly} directly");
    let written = std::fs::read(mounted.place.join("log")).expect("read");
    let expected: Vec<u8> = (0..5000_u64).flat_map(u64::to_le_bytes).collect();
    assert!(written == expected);
}
