//! Several threads at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use pmem::Region;
use pmem::emulator::{Fence, Scratch};

use super::model::{Contents, contents};
use super::{Bug, Chance, Design, deliberate, disk, plain};
use crate::baseline::journaling::{Handle, JournalingFs, MountError, Options};

/// The work of one thread: files of its own, in a directory that all share.
fn work(fs: &JournalingFs, thread: u64, steps: u64) -> Contents {
    let mut chance = Chance(thread);
    let mut files: BTreeMap<String, (Handle, Vec<u8>)> = BTreeMap::new();
    for step in 0..steps {
        let path = format!("/shared/{thread}-{}", chance.below(5));
        match chance.below(9) {
            0 if files.contains_key(&path) => {
                fs.unlink(&path).expect("there");
                files.remove(&path);
            }
            0 | 1 if !files.contains_key(&path) => {
                let handle = fs.create(&path).expect("room");
                files.insert(path, (handle, Vec::new()));
            }
            1..=4 => {
                let Some((handle, content)) = files.get_mut(&path) else {
                    continue;
                };
                let data = vec![step as u8 | 1; chance.below(30_000) as usize];
                let offset = chance.below(content.len() as u64 + 1).min(30_000);
                fs.write_at(handle, offset, &data).expect("room");
                let end = offset as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            }
            _ => {
                let Some((_, content)) = files.get(&path) else {
                    continue;
                };
                let handle = fs.open(&path).expect("there");
                let mut read = vec![0; content.len() + 1];
                let length = fs.read_at(&handle, 0, &mut read).expect("readable");
                assert!(read[..length] == *content, "{path}");
            }
        }
    }
    let own = files.into_iter();
    own.map(|(path, (_, content))| (path, Some(content)))
        .collect()
}

#[test]
fn threads_do_not_disturb_each_other() {
    for (design, operations_per_commit) in Design::ALL.into_iter().zip([1, 3, 1]) {
        let options = Options {
            operations_per_commit,
            access_times: true,
        };
        let (region, disk) = (Arc::new(Region::anonymous(design.least_bytes())), disk());
        let fs = design.format(&region, &disk, options);
        fs.create_dir("/shared").expect("room");
        let mut expected = Contents::from([("/shared".to_owned(), None)]);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|thread| {
                    scope.spawn({
                        let fs = &fs;
                        move || work(fs, thread, 500)
                    })
                })
                .collect();
            for worker in workers {
                expected.extend(worker.join().expect("no panic"));
            }
        });
        let counts = fs.statistics().cache;
        assert!(counts.evictions > 20, "{design:?}: {counts:?}");
        fs.verify().expect("sound");
        assert!(contents(&fs).expect("readable") == expected);
        drop(fs);
        let fs = design.recover(&region, &disk, options).expect("sound");
        fs.verify().expect("sound");
        assert!(contents(&fs).expect("readable") == expected);
    }
}

const WRITERS: usize = 3;
const FILE_BYTES: usize = 9000;

/// Recovers some states of one moment. Each file has one version: the last that its writer knows
/// to be durable, or the next one.
fn look(
    fence: &Fence<'_>,
    scratch: &mut Option<Scratch>,
    recover: &dyn Fn(&Arc<Region>) -> Result<JournalingFs, MountError>,
    durable: &[AtomicU8; WRITERS],
) -> Result<(), String> {
    let point = fence.crash_point();
    let scratch = scratch.get_or_insert_with(|| Scratch::new(&point));
    for choice in point.enumerate(6, fence.number()) {
        let fs = recover(scratch.apply(&point, &choice)).map_err(|error| error.to_string())?;
        fs.verify().map_err(|error| error.to_string())?;
        let found = contents(&fs).map_err(|error| error.to_string())?;
        for (writer, durable) in durable.iter().enumerate() {
            let content = found[&format!("/{writer}")].as_deref().unwrap_or_default();
            let version = content.first().copied().unwrap_or_default();
            let is_whole = content.iter().all(|&byte| byte == version);
            let known = durable.load(Ordering::SeqCst);
            if !is_whole || content.len() != FILE_BYTES || ![known, known + 1].contains(&version) {
                return Err(format!("version {version} instead of {known}"));
            }
        }
    }
    Ok(())
}

/// Three threads overwrite a file each; the power fails at their fences.
fn cut_power_among_threads(design: Design, bug: Option<Bug>) -> Result<(), String> {
    let (region, disk) = (Arc::new(Region::emulated(design.least_bytes())), disk());
    let fs = design.format(&region, &disk, plain());
    for writer in 0..WRITERS {
        let file = fs.create(format!("/{writer}")).expect("room");
        fs.append(&file, &[1; FILE_BYTES]).expect("room");
    }
    let durable: Arc<[AtomicU8; WRITERS]> = Arc::new([1; WRITERS].map(AtomicU8::new));
    let failure = Arc::new(Mutex::new(Ok(())));
    let (known, noted, mut scratch) = (Arc::clone(&durable), Arc::clone(&failure), None);
    let emulator = region.emulator().expect("emulated");
    emulator.on_fence(move |fence| {
        let mut noted = noted.lock().expect("lock");
        if noted.is_ok() {
            let recover = |image: &Arc<Region>| design.recover(image, &disk, plain());
            *noted = look(fence, &mut scratch, &recover, &known);
        }
    });
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (fs, durable) = (&fs, &durable[writer]);
            scope.spawn(move || {
                deliberate::set(bug);
                let file = fs.open(format!("/{writer}")).expect("there");
                for version in 2..8 {
                    let data = [version; FILE_BYTES];
                    fs.write_at(&file, 0, &data).expect("room");
                    durable.store(version, Ordering::SeqCst);
                }
            });
        }
    });
    emulator.ignore_fences();
    let failure = failure.lock().expect("lock");
    failure.clone()
}

#[test]
fn power_failures_among_threads_leave_whole_versions() {
    for (design, bug) in [
        (Design::Tinca, Bug::TailBeforeRoles),
        (Design::SpindleMended, Bug::HeadBeforeEntries),
    ] {
        assert_eq!(cut_power_among_threads(design, None), Ok(()), "{design:?}");
        let noticed = cut_power_among_threads(design, Some(bug));
        assert!(noticed.is_err(), "{design:?} with {bug:?}");
    }
}
