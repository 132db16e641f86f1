use super::*;
use crate::error::BenchError;
use crate::ops::bed::create_pool;
use crate::target::{Directory, Library, Target};
use std::hash::Hasher;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

const FILES: usize = 300;
const MEAN_BYTES: u64 = 6000;

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory")
}

fn library(place: &Path) -> Library {
    let pool = create_pool(&place.join("pool"), 64 << 20).expect("a pool");
    Library::new(pool).expect("its root")
}

/// Takes down what is asked of a directory, and can be told to lose the last byte of the longest appends.
struct Recorder {
    target: Directory,
    operations: Mutex<Vec<u64>>,
    forgets: bool,
}

impl Recorder {
    fn new(place: &Path, forgets: bool) -> Recorder {
        Recorder {
            target: Directory::new(place, "recorder"),
            operations: Mutex::default(),
            forgets,
        }
    }

    fn note(&self, name: &str, path: &str, bytes: &[u8]) {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(name.as_bytes());
        hasher.write(path.as_bytes());
        hasher.write(bytes);
        self.operations
            .lock()
            .expect("a lock")
            .push(hasher.finish());
    }

    fn operations(&self) -> Vec<u64> {
        self.operations.lock().expect("a lock").clone()
    }
}

impl Target for Recorder {
    type File = std::fs::File;

    fn label(&self) -> &str {
        self.target.label()
    }

    fn create_dir(&self, path: &str) -> Result<(), BenchError> {
        self.note("mkdir", path, &[]);
        self.target.create_dir(path)
    }

    fn create(&self, path: &str) -> Result<Self::File, BenchError> {
        self.note("create", path, &[]);
        self.target.create(path)
    }

    fn open(&self, path: &str) -> Result<Self::File, BenchError> {
        self.note("open", path, &[]);
        self.target.open(path)
    }

    fn remove(&self, path: &str) -> Result<(), BenchError> {
        self.note("remove", path, &[]);
        self.target.remove(path)
    }

    fn status(&self, path: &str) -> Result<u64, BenchError> {
        self.note("status", path, &[]);
        self.target.status(path)
    }

    fn read_at(
        &self,
        file: &Self::File,
        into: &mut [u8],
        offset: u64,
    ) -> Result<usize, BenchError> {
        self.note("read", "", &offset.to_le_bytes());
        self.target.read_at(file, into, offset)
    }

    fn append(&self, file: &Self::File, data: &[u8]) -> Result<(), BenchError> {
        self.note("append", "", data);
        let kept = data.len() - usize::from(self.forgets && data.len() > 1000);
        self.target.append(file, &data[..kept])
    }

    fn sync(&self, file: &Self::File) -> Result<(), BenchError> {
        self.note("sync", "", &[]);
        self.target.sync(file)
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, BenchError> {
        self.target.names(directory)
    }
}

fn recorded(personality: Personality, seed: u64) -> Vec<u64> {
    let place = place();
    let target = Recorder::new(place.path(), false);
    let set = FileSet::plan(personality, FILES, MEAN_BYTES, seed);
    set.populate(&target).expect("populated");
    run(&target, &set, 1, Stop::Turns(200), seed).expect("run");
    set.verify(&target, true).expect("as it should be");
    target.operations()
}

#[test]
fn one_thread_does_the_same_operations_for_the_same_seed() {
    for personality in Personality::ALL {
        let first = recorded(personality, 5);
        assert!(first.len() > 1000);
        assert!(first == recorded(personality, 5), "{personality}");
        assert!(first != recorded(personality, 6), "{personality}");
    }
}

#[test]
fn the_library_holds_what_the_personalities_wrote() {
    for personality in Personality::ALL {
        let place = place();
        let target = library(place.path());
        let set = FileSet::plan(personality, FILES, MEAN_BYTES, 7);
        set.populate(&target).expect("populated");
        set.verify(&target, true).expect("as planned");
        let outcome = run(&target, &set, 1, Stop::Turns(2000), 1).expect("run");
        set.verify(&target, true).expect("as it should be");
        let script = personality.script();
        assert_eq!(
            outcome.operations,
            2000 * script.len() as u64,
            "{personality}"
        );
        for flowop in Flowop::ALL {
            let in_script = script.iter().filter(|&&known| known == flowop).count() as u64;
            assert_eq!(
                outcome.counts[flowop as usize],
                2000 * in_script,
                "{personality}"
            );
        }
        assert!(outcome.rate > 0.0);
        assert!(!outcome.latencies().is_empty());
        assert_eq!(personality.replaces_files(), set.mean_version() > 2.0);
        target.close().expect("closed, so no file is open");
    }
}

#[test]
fn threads_share_a_set() {
    for personality in Personality::ALL {
        let place = place();
        let target = library(place.path());
        let set = FileSet::plan(personality, 60, MEAN_BYTES, 8);
        set.populate(&target).expect("populated");
        let stop = Stop::After(Duration::from_millis(100));
        let outcome = run(&target, &set, 4, stop, 1).expect("run");
        assert!(outcome.operations > 0);
        set.verify(&target, false).expect("as it should be");
        target.close().expect("closed, so no file is open");
    }
}

#[test]
fn a_file_system_that_loses_a_byte_is_caught() {
    let place = place();
    let target = Recorder::new(place.path(), true);
    let set = FileSet::plan(Personality::Varmail, FILES, 100, 9);
    set.populate(&target).expect("populated");
    run(&target, &set, 1, Stop::Turns(500), 1).expect("run");
    let verified = set.verify(&target, true);
    assert!(
        matches!(verified, Err(BenchError::WrongData(_))),
        "{verified:?}"
    );
}

#[test]
fn the_log_is_begun_anew() {
    let place = place();
    let target = library(place.path());
    // So small a set has the smallest log.
    let log_bytes = 64 << 10;
    let set = FileSet::plan(Personality::Webserver, 10, 100, 10);
    set.populate(&target).expect("populated");
    let turns = log_bytes / IO_BYTES as u64 * 5 / 4;
    run(&target, &set, 1, Stop::Turns(turns), 1).expect("run");
    set.verify(&target, true).expect("as it should be");
    let size = target.status("logfiles/00000001").expect("the log");
    assert!(size < log_bytes / 2, "{size}");
}

#[test]
fn trees_are_as_wide_as_asked_for() {
    let set = FileSet::plan(Personality::Webproxy, 32_768, 1, 11);
    let directories = |set: &FileSet| {
        let parent = |index| {
            set.path(index)
                .rsplit_once('/')
                .expect("a parent")
                .0
                .to_owned()
        };
        let parents = (0..set.files()).map(parent);
        parents
            .collect::<std::collections::BTreeSet<String>>()
            .len()
    };
    assert_eq!(directories(&set), 1);
    let set = FileSet::plan(Personality::Fileserver, 32_768, 1, 11);
    assert_eq!(set.files(), 32_768);
    let mean_width = 32_768 / directories(&set);
    assert!((15..=25).contains(&mean_width), "{mean_width}");
}
