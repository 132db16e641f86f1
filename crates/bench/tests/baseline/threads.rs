//! Several threads at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use perdure_bench::baseline::{Handle, Options, Pmfs, PmfsError};
use pmem::Region;

use crate::tree::{Contents, contents};

/// A small generator, so that a thread's operations are the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What one thread does: files of its own, in a directory of its own and in one that all share.
fn work(pmfs: &Pmfs, thread: u64, steps: u64) -> Contents {
    let mut chance = Chance(thread);
    let mut files: BTreeMap<String, (Handle, Vec<u8>)> = BTreeMap::new();
    for step in 0..steps {
        let directory =
            ["/shared".to_owned(), format!("/own{thread}")][chance.below(2) as usize].clone();
        let path = format!("{directory}/{thread}-{}", chance.below(24));
        match chance.below(5) {
            0 | 1 if files.contains_key(&path) => {
                pmfs.unlink(&path).expect("there");
                files.remove(&path);
            }
            0 | 1 => {
                let handle = pmfs.create(&path).expect("room");
                files.insert(path, (handle, Vec::new()));
            }
            2 if !files.contains_key(&path) => {
                assert_eq!(pmfs.open(&path).map(drop), Err(PmfsError::NotFound));
            }
            2 | 3 => {
                let Some((handle, content)) = files.get_mut(&path) else {
                    continue;
                };
                let data = vec![step as u8; chance.below(6000) as usize];
                let landed = pmfs.append(handle, &data).expect("room");
                assert_eq!(landed, content.len() as u64);
                content.extend_from_slice(&data);
                pmfs.sync(handle);
            }
            _ => {
                let Some((_, content)) = files.get(&path) else {
                    continue;
                };
                let handle = pmfs.open(&path).expect("there");
                let mut read = vec![0; content.len() + 1];
                let length = pmfs.read_at(&handle, 0, &mut read).expect("readable");
                assert_eq!(&read[..length], content);
            }
        }
    }
    let own = files
        .into_iter()
        .map(|(path, (_, content))| (path, Some(content)));
    own.collect()
}

fn run(pmfs: &Pmfs, threads: u64, steps: u64) -> Contents {
    pmfs.create_dir("/shared").expect("room");
    let mut all = Contents::from([("/shared".to_owned(), None)]);
    for thread in 0..threads {
        let path = format!("/own{thread}");
        pmfs.create_dir(&path).expect("room");
        all.insert(path, None);
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(pmfs, thread, steps)))
            .collect();
        for worker in workers {
            all.extend(worker.join().expect("no panic"));
        }
    });
    all
}

#[test]
fn threads_do_not_disturb_each_other() {
    for dentry_cache in [true, false] {
        let options = Options { dentry_cache };
        let region = Arc::new(Region::anonymous(24 << 20));
        let pmfs = Pmfs::format(Arc::clone(&region), options).expect("room");
        let expected = run(&pmfs, 4, 6000);
        pmfs.verify().expect("sound");
        assert_eq!(contents(&pmfs), expected);
        drop(pmfs);
        let pmfs = Pmfs::recover(region, options).expect("sound");
        pmfs.verify().expect("sound");
        assert_eq!(contents(&pmfs), expected);
    }
}

/// How long one thread waits for the others to have met it. They do within 0.1 s, if they get a processor.
const MEETING_MAX: Duration = Duration::from_secs(60);

/// A file that one thread removes while others open and read it is whole for who has it, or not there.
#[test]
fn a_removed_file_stays_whole_for_who_has_it() {
    let pmfs = Pmfs::format(Region::anonymous(4 << 20), Options::default()).expect("room");
    let opened = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut read = [0; 10_000];
                loop {
                    let Ok(handle) = pmfs.open("/file") else {
                        if pmfs.open("/end").is_ok() {
                            break;
                        }
                        continue;
                    };
                    opened.fetch_add(1, Ordering::Relaxed);
                    let length = pmfs.read_at(&handle, 0, &mut read).expect("readable");
                    assert!(length == 0 || length == read.len(), "{length} bytes");
                    assert!(read[..length].iter().all(|&byte| byte == read[0]));
                }
            });
        }
        // On a busy machine the others may not have run at all when 3,000 rounds are over.
        let begin = Instant::now();
        let is_met = || opened.load(Ordering::Relaxed) >= 100 || begin.elapsed() > MEETING_MAX;
        for round in (0..).take_while(|&round| round < 3000 || !is_met()) {
            let handle = pmfs.create("/file").expect("room");
            pmfs.write_at(&handle, 0, &[round as u8; 10_000])
                .expect("room");
            drop(handle);
            pmfs.unlink("/file").expect("there");
        }
        pmfs.create("/end").expect("room");
    });
    assert!(opened.into_inner() >= 100);
    pmfs.verify().expect("sound");
    assert_eq!(pmfs.statistics().inodes_in_use, 2);
}

/// Power cuts while three threads are in the middle of something.
#[test]
fn a_power_cut_among_threads_leaves_a_sound_file_system() {
    let region = Arc::new(Region::emulated(1 << 20));
    let pmfs = Pmfs::format(Arc::clone(&region), Options::default()).expect("room");
    let emulator = region.emulator().expect("emulated");
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failures);
    let mut scratch = None;
    emulator.on_fence(move |fence| {
        if fence.number() % 23 != 0 {
            return;
        }
        let point = fence.crash_point();
        let scratch = scratch.get_or_insert_with(|| pmem::emulator::Scratch::new(&point));
        for choice in point.enumerate(4, fence.number()) {
            let region = scratch.apply(&point, &choice);
            let result = Pmfs::recover(Arc::clone(region), Options::default())
                .map_err(|error| error.to_string())
                .and_then(|pmfs| pmfs.verify().map_err(|error| error.to_string()));
            if let Err(error) = result {
                seen.lock().expect("lock").push(error);
            }
        }
    });
    pmfs.create_dir("/shared").expect("room");
    for thread in 0..3 {
        pmfs.create_dir(format!("/own{thread}")).expect("room");
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let pmfs = &pmfs;
            scope.spawn(move || short_files(pmfs, thread));
        }
    });
    emulator.ignore_fences();
    assert_eq!(failures.lock().expect("lock").first(), None);
    pmfs.verify().expect("sound");
}

fn short_files(pmfs: &Pmfs, thread: u64) {
    for round in 0..60 {
        let directory = if round % 2 == 0 {
            "/shared".to_owned()
        } else {
            format!("/own{thread}")
        };
        let path = format!("{directory}/{thread}-{}", round % 5);
        let handle = pmfs.create(&path).expect("room");
        pmfs.append(&handle, &[round; 5000]).expect("room");
        pmfs.truncate(&handle, 4000).expect("works");
        if round % 3 == 0 {
            drop(handle);
            pmfs.unlink(&path).expect("there");
        } else {
            pmfs.unlink(&path).expect("there");
            drop(handle);
        }
    }
}
