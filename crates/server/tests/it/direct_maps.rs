//! Mappings that lie on the blocks of a file, on a real mount: what others write is seen at once, what is stopped keeps its blocks, what is gone keeps nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use direct::mapped::{self, Area, MapRequest};
use direct::{Client, SharedMemory};
use fs::{FileSystem, MountOptions};
use parking_lot::{Mutex, MutexGuard};
use perdure_server::control::{DirectStatus, Question, Status, ask};
use perdure_server::{Mounting, Running, spawn};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore};

const PAGE: usize = 4096;
const PAGES: usize = 128;
const BYTES: usize = PAGES * PAGE;

/// Mappings are the process's, and so is a deliberate bug: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

struct Mounted {
    running: Option<Running<PmemStore>>,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn mount() -> Mounted {
    let turn = TURN.lock();
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
    let store = PmemStore::open(&pool, Mode::ReadWrite, true).expect("open");
    let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
    let running = spawn(files, &Mounting::new(&pool, &place)).expect("serve");
    Mounted {
        running: Some(running),
        folder,
        _turn: turn,
    }
}

impl Mounted {
    fn open(&self, name: &str) -> File {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.folder.path().join("mnt").join(name))
            .expect("open")
    }

    fn status(&self) -> DirectStatus {
        let answer = ask(&self.folder.path().join("pool"), Question::Stat).expect("stat");
        let status: Status = serde_json::from_str(&answer).expect("JSON");
        status.direct.expect("direct access")
    }

    /// A file each of whose words is 1.
    fn make(&self, name: &str) -> File {
        let file = self.open(name);
        file.write_all_at(&page(1).repeat(PAGES), 0).expect("write");
        file
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.unmount().expect("unmounted");
        }
    }
}

fn page(version: u64) -> Vec<u8> {
    version.to_ne_bytes().repeat(PAGE / 8)
}

/// A mapping of a whole file, made as the preload library does it.
struct Mapping {
    start: *mut u8,
    is_direct: bool,
}

// SAFETY: it is memory that is only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(client: &Client, file: &File) -> Mapping {
        let request = MapRequest {
            bytes: BYTES,
            protection: libc::PROT_READ,
            flags: libc::MAP_SHARED,
            offset: 0,
        };
        let looked = client.look(file.as_fd()).expect("a file of the mount");
        let plan = looked.plan_mapping(file.as_fd(), &request);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                BYTES,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let start = start.expect("mapped");
        let is_direct = plan.is_some_and(|plan| plan.lay(start.expose_provenance(), file.as_fd()));
        if !is_direct {
            looked.leave_to_kernel(file.as_fd());
        }
        Mapping {
            start: start.cast(),
            is_direct,
        }
    }

    fn word(&self, page: usize) -> u64 {
        // SAFETY: mapped as long as this lives, and aligned.
        unsafe { self.start.add(page * PAGE).cast::<u64>().read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let area = Area {
            start: self.start.addr(),
            bytes: BYTES,
        };
        // SAFETY: nobody uses it any more.
        let call = || unsafe { munmap(self.start.cast(), BYTES) };
        mapped::changing(area, call, Result::is_ok).expect("unmapped");
    }
}

#[test]
fn what_others_write_is_seen_at_once() {
    let mounted = mount();
    let file = mounted.make("file");
    let client = Client::default();
    let mapping = Mapping::new(&client, &mounted.open("file"));
    assert!(mapping.is_direct);
    assert_eq!(mounted.status().files_mapped, 1);
    assert!((0..PAGES).all(|page| mapping.word(page) == 1));
    file.write_all_at(&page(2), 5 * PAGE as u64).expect("write");
    assert_eq!((mapping.word(5), mapping.word(6)), (2, 1));
    let direct = mounted.status();
    assert_eq!((direct.files_mapped, direct.mappings_taken_back), (0, 1));
    file.write_all_at(&page(3), 5 * PAGE as u64).expect("write");
    assert_eq!(mapping.word(5), 3, "by the kernel now");
    drop(mapping);
    // Whoever begins anew maps directly again.
    let again = Mapping::new(&Client::default(), &mounted.open("file"));
    assert!(again.is_direct);
    assert_eq!((again.word(4), again.word(5)), (1, 3));
    assert_eq!(mounted.status().mappings_not_given_back, 0);
}

#[test]
fn a_reader_by_the_kernel_and_a_change_of_mode_take_it_back() {
    let mounted = mount();
    let file = mounted.make("file");
    let client = Client::default();
    let mapping = Mapping::new(&client, &mounted.open("file"));
    assert!(mapping.is_direct);
    let taken_back = || mounted.status().mappings_taken_back;
    let mut read = [0; 8];
    file.read_exact_at(&mut read, 0).expect("read");
    assert_eq!(taken_back(), 1);
    assert!((0..PAGES).all(|page| mapping.word(page) == 1));
    drop(mapping);
    let again = Mapping::new(&Client::default(), &mounted.open("file"));
    assert!(again.is_direct);
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("mode");
    assert_eq!(taken_back(), 2);
    assert!((0..PAGES).all(|page| again.word(page) == 1));
}

/// So many mappings lie on blocks before the first write, and a busy machine has so long for them.
const ENOUGH: u64 = 3;
const LATEST: Duration = Duration::from_secs(60);

/// What who writes and who looks on tell each other, in memory that they share: the newest version of each page that is written, and these.
const ENDS: usize = PAGES;
const DIRECT: usize = PAGES + 1;
const STALE: usize = PAGES + 2;
const TOLD_BYTES: usize = (PAGES + 3) * 8;

fn told(path: &Path) -> SharedMemory {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).expect("a file");
    file.set_len(TOLD_BYTES as u64).expect("its length");
    SharedMemory::map_file(&file.into(), TOLD_BYTES, true).expect("mapped")
}

/// Where [`look_on`] finds the file and what it is told; and its seed.
const FILE: &str = "PERDURE_TEST_FILE";
const TOLD: &str = "PERDURE_TEST_TOLD";
const SEED: &str = "PERDURE_TEST_SEED";

/// A process of its own: in that of the server, a page that is waited for with the address space locked would keep the server from answering.
fn start_looking_on(mounted: &Mounted, seed: usize) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "direct_maps::look_on",
            "--ignored",
            "--nocapture",
        ])
        .env(FILE, mounted.folder.path().join("mnt/stormy"))
        .env(TOLD, mounted.folder.path().join("told"))
        .env(SEED, seed.to_string())
        .spawn()
        .expect("a process")
}

#[test]
#[ignore = "a part of the storms, which run it"]
fn look_on() {
    let variable = |name| std::env::var(name).expect("what the storms say");
    let told = told(Path::new(&variable(TOLD)));
    let mut at: usize = variable(SEED).parse().expect("a number");
    while told.word(ENDS * 8).load(Ordering::Relaxed) == 0 {
        let file = File::open(variable(FILE)).expect("open");
        let mapping = Mapping::new(&Client::default(), &file);
        let is_direct = u64::from(mapping.is_direct);
        told.word(DIRECT * 8)
            .fetch_add(is_direct, Ordering::Relaxed);
        for _ in 0..20_000 {
            at = (at + 37) % PAGES;
            let before = told.word(at * 8).load(Ordering::SeqCst);
            if mapping.word(at) < before {
                told.word(STALE * 8).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// This process writes pages and says so; others map, look whether they see at least that, and map again. How many mappings lay on blocks, and how often somebody saw what had been before.
fn storm(mounted: &Mounted, duration: Duration) -> (u64, u64) {
    let file = mounted.make("stormy");
    let told = told(&mounted.folder.path().join("told"));
    for at in 0..TOLD_BYTES / 8 {
        told.word(at * 8)
            .store(u64::from(at < PAGES), Ordering::SeqCst);
    }
    let lookers = [0, 1].map(|seed| start_looking_on(mounted, seed));
    // On a busy machine nobody might ever get to map between two writes.
    let begin = Instant::now();
    while told.word(DIRECT * 8).load(Ordering::Relaxed) < ENOUGH && begin.elapsed() < LATEST {
        std::thread::sleep(Duration::from_millis(1));
    }
    let begin = Instant::now();
    let mut version = 2;
    while begin.elapsed() < duration {
        let at = (version as usize * 31) % PAGES;
        let bytes = page(version);
        // Small ones go into the block that there is.
        let length = if version.is_multiple_of(3) { 8 } else { PAGE };
        file.write_all_at(&bytes[..length], (at * PAGE) as u64)
            .expect("write");
        told.word(at * 8).store(version, Ordering::SeqCst);
        version += 1;
        std::thread::sleep(Duration::from_micros(version * 97 % 3000));
    }
    told.word(ENDS * 8).store(1, Ordering::Relaxed);
    for mut looker in lookers {
        assert!(looker.wait().expect("it ends").success());
    }
    [DIRECT, STALE]
        .map(|at| told.word(at * 8).load(Ordering::SeqCst))
        .into()
}

#[test]
fn nobody_sees_what_was_before_a_write_that_has_returned() {
    let mounted = mount();
    let (direct, stale) = storm(&mounted, Duration::from_secs(2));
    assert_eq!(stale, 0, "{direct} mappings on blocks");
    assert!(direct >= ENOUGH, "{direct} mappings on blocks");
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn readers_who_are_told_too_late_are_noticed() {
    use pmem::deliberate::{Bug, set};
    let mounted = mount();
    set(Some(Bug::JoinUnwatched));
    let is_noticed = (0..10).any(|_| storm(&mounted, Duration::from_secs(2)).1 > 0);
    set(None);
    assert!(is_noticed);
}

/// How long what is mapped is not given back in [`write_and_look`] if the write waits for it: shorter than the server's patience.
const KEPT: Duration = Duration::from_millis(400);

/// Maps, and writes a page through the mount while the process is kept from giving back what it has mapped: what the mapping shows at once when the write has returned, and what it should.
///
/// A server that does not wait would be found out by chance only if nothing kept the process: it gives back in some microseconds.
fn write_and_look(mounted: &Mounted, version: u64) -> (u64, u64) {
    let file = mounted.open("looked at");
    let mapping = Mapping::new(&Client::default(), &file);
    assert!(mapping.is_direct);
    let at = version as usize % PAGES;
    assert_eq!(mapping.word(at), 1, "nobody has written there");
    let area = Area {
        start: mapping.start.addr(),
        bytes: BYTES,
    };
    let is_kept = Barrier::new(2);
    let (looked, has_looked) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let is_kept = &is_kept;
        scope.spawn(move || {
            let keep = || {
                is_kept.wait();
                // The server waits, or it does not and we have looked.
                let _ = has_looked.recv_timeout(KEPT);
            };
            // As if a call of the program went on that unmaps a part of it, and failed.
            mapped::changing(area, keep, |()| false);
        });
        is_kept.wait();
        file.write_all_at(&page(version), (at * PAGE) as u64)
            .expect("write");
        let seen = mapping.word(at);
        // Nobody listens any more if the server has waited.
        let _ = looked.send(());
        (seen, version)
    })
}

#[test]
fn who_writes_sees_it_in_his_mapping() {
    let mounted = mount();
    let _there = mounted.make("looked at");
    for version in 2..5 {
        let (seen, written) = write_and_look(&mounted, version);
        assert_eq!(seen, written);
    }
    assert_eq!(mounted.status().mappings_not_given_back, 0);
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn a_server_that_does_not_wait_is_noticed() {
    use pmem::deliberate::{Bug, set};
    let mounted = mount();
    let _there = mounted.make("looked at");
    set(Some(Bug::ForgetMappings));
    let (seen, written) = write_and_look(&mounted, 2);
    set(None);
    assert_ne!(seen, written);
}
