//! A file set as Filebench makes it: a tree of directories, files of random sizes of which some are there, and picking in rotation.

use super::{IO_BYTES, LOG_BYTES, Personality, Random};
use crate::error::BenchError;
use crate::target::Target;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Directory of the file set.
const ROOT: &str = "bigfileset";
/// Directory of Webserver's log.
const LOG_ROOT: &str = "logfiles";
const LOG: &str = "logfiles/00000001";
/// The log is at most this share of the set.
const LOG_SHARE: u64 = 32;
const LOG_BYTES_MIN: u64 = 64 << 10;
/// Bytes of the writes that make the first files: as Filebench's own, far larger than the measured I/O.
const FILL_BYTES: usize = 1 << 20;
/// Content repeats after so many bytes, which is no multiple of a block.
const PATTERN_BYTES: usize = 65_521;

/// The file is there.
const EXISTS: u32 = 1 << 31;
/// A thread is about to create, open or remove it.
const BUSY: u32 = 1 << 30;
/// The other bits count the threads that have it open.
const OPENED: u32 = 1;

/// Version of the files that are there at the start.
const FIRST: u32 = 0;

/// One file of the set, there or not. On a line of its own: threads work on neighbours, and the set is not what is measured.
#[repr(align(64))]
struct Entry {
    path: String,
    /// Size when it is written whole.
    whole_bytes: u64,
    state: AtomicU32,
    /// Bytes that it should have now.
    size_bytes: AtomicU64,
    /// How often it was created since then; its content depends on it.
    version: AtomicU32,
}

/// The log, which all threads append to.
pub(super) struct Log {
    /// Size at which it is begun anew.
    pub(super) bytes_max: u64,
    /// Goes up whenever the log is begun anew. Only changed under the lock.
    pub(super) generation: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Held while the log's name is removed, made or opened.
    pub(super) name: Mutex<()>,
}

/// A file set and what is known of its files. Threads share it without a lock.
pub(crate) struct FileSet {
    personality: Personality,
    seed: u64,
    directories: Vec<String>,
    entries: Vec<Entry>,
    /// Where the search for a file that is not there goes on; one for all threads, as in Filebench.
    absent_rotor: AtomicUsize,
    pub(super) log: Log,
    reads_left_out: bool,
    pattern: Box<[u8]>,
}

impl FileSet {
    /// Plans the set; nothing is made yet. `mean_bytes` is the mean size of a file.
    pub(crate) fn plan(
        personality: Personality,
        files: usize,
        mean_bytes: u64,
        seed: u64,
    ) -> FileSet {
        let mut random = Random::new(seed);
        let mut tree = Tree::default();
        tree.plan(files, personality.directory_width(), &mut random);
        let entry = |path| Entry {
            path,
            whole_bytes: random.gamma(mean_bytes as f64) as u64,
            state: AtomicU32::new(0),
            size_bytes: AtomicU64::new(0),
            version: AtomicU32::new(FIRST),
        };
        let entries = tree.files.into_iter().map(entry).collect();
        let mut bytes = Random::new(seed ^ 0x0070_6174_7465_726e);
        let pattern = (0..PATTERN_BYTES + FILL_BYTES).map(|_| 0_u8);
        let mut pattern: Box<[u8]> = pattern.collect();
        for byte in &mut pattern[..PATTERN_BYTES] {
            *byte = bytes.next() as u8;
        }
        for at in PATTERN_BYTES..pattern.len() {
            pattern[at] = pattern[at - PATTERN_BYTES];
        }
        FileSet {
            personality,
            seed,
            directories: tree.directories,
            entries,
            absent_rotor: AtomicUsize::new(0),
            log: Log {
                bytes_max: (files as u64 * mean_bytes / LOG_SHARE).clamp(LOG_BYTES_MIN, LOG_BYTES),
                generation: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                name: Mutex::new(()),
            },
            reads_left_out: false,
            pattern,
        }
    }

    /// From now on reads are counted but not done where they write nothing: in Webserver, whose files do not change, so that reading one changes its
    /// access time once. For runs of which only the writes matter.
    pub(crate) fn leave_out_reads_that_write_nothing(&mut self) {
        self.reads_left_out = self.personality == Personality::Webserver;
    }

    pub(super) fn reads_left_out(&self) -> bool {
        self.reads_left_out
    }

    /// Makes the directories and the files that are there at the start, in random order.
    pub(crate) fn populate<T: Target>(&self, target: &T) -> Result<(), BenchError> {
        for directory in &self.directories {
            target.create_dir(directory)?;
        }
        let mut random = Random::new(self.seed ^ 0x0066_696c_6c00_0000);
        let percent = self.personality.preallocated_percent();
        for index in random.order(self.entries.len()) {
            if random.below(100) >= percent {
                continue;
            }
            let file = target.create(&self.entries[index].path)?;
            for chunk in chunks(self.entries[index].whole_bytes, FILL_BYTES) {
                self.append(target, index, &file, chunk)?;
            }
            self.entries[index].state.store(EXISTS, Ordering::Release);
        }
        if self.personality == Personality::Webserver {
            target.create_dir(LOG_ROOT)?;
            drop(target.create(LOG)?);
        }
        Ok(())
    }

    pub(crate) fn personality(&self) -> Personality {
        self.personality
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn files(&self) -> usize {
        self.entries.len()
    }

    /// How often files were made since the set was populated, on average.
    pub(crate) fn mean_version(&self) -> f64 {
        let version = |entry: &Entry| f64::from(entry.version.load(Ordering::Relaxed));
        self.entries.iter().map(version).sum::<f64>() / self.entries.len().max(1) as f64
    }

    /// Files that are there since the set was populated.
    pub(crate) fn first_files(&self) -> usize {
        let is_first = |entry: &&Entry| {
            entry.version.load(Ordering::Relaxed) == FIRST
                && entry.state.load(Ordering::Relaxed) & EXISTS != 0
        };
        self.entries.iter().filter(is_first).count()
    }

    pub(super) fn path(&self, index: usize) -> &str {
        &self.entries[index].path
    }

    pub(super) fn log_path(&self) -> &str {
        LOG
    }

    pub(super) fn whole_bytes(&self, index: usize) -> u64 {
        self.entries[index].whole_bytes
    }

    /// The next file that is there, from `rotor` on; it is busy until [`release`](Self::release). With `unopened`, one that nobody has open.
    pub(super) fn pick_present(&self, rotor: &mut usize, unopened: bool) -> Option<usize> {
        let wanted =
            |state: u32| state & (EXISTS | BUSY) == EXISTS && (!unopened || state == EXISTS);
        self.pick(*rotor, wanted)
            .inspect(|index| *rotor = index + 1)
    }

    /// The next file that is not there; it is busy until [`release`](Self::release).
    pub(super) fn pick_absent(&self) -> Option<usize> {
        let rotor = self.absent_rotor.load(Ordering::Relaxed);
        let picked = self.pick(rotor, |state| state & (EXISTS | BUSY) == 0)?;
        self.absent_rotor.store(picked + 1, Ordering::Relaxed);
        Some(picked)
    }

    fn pick(&self, from: usize, wanted: impl Fn(u32) -> bool) -> Option<usize> {
        let count = self.entries.len();
        let from = from % count.max(1);
        (from..count).chain(0..from).find(|&index| {
            let word = &self.entries[index].state;
            let state = word.load(Ordering::Relaxed);
            wanted(state)
                && word
                    .compare_exchange(state, state | BUSY, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// The picked file was created and is open.
    pub(super) fn created(&self, index: usize) {
        let entry = &self.entries[index];
        entry.version.fetch_add(1, Ordering::Relaxed);
        entry.size_bytes.store(0, Ordering::Relaxed);
        entry.state.store(EXISTS | OPENED, Ordering::Release);
    }

    /// The picked file is open once more.
    pub(super) fn opened(&self, index: usize) {
        // Taking the mark away and counting is one addition.
        let state = &self.entries[index].state;
        state.fetch_sub(BUSY - OPENED, Ordering::Release);
    }

    /// One user of the file closed it.
    pub(super) fn closed(&self, index: usize) {
        self.entries[index]
            .state
            .fetch_sub(OPENED, Ordering::Release);
    }

    /// The picked file was removed.
    pub(super) fn removed(&self, index: usize) {
        self.entries[index].state.store(0, Ordering::Release);
    }

    /// Nothing was done with the picked file.
    pub(super) fn release(&self, index: usize) {
        self.entries[index]
            .state
            .fetch_and(!BUSY, Ordering::Release);
    }

    /// Appends `bytes` bytes of the file's content.
    #[inline]
    pub(super) fn append<T: Target>(
        &self,
        target: &T,
        index: usize,
        file: &T::File,
        bytes: usize,
    ) -> Result<(), BenchError> {
        let entry = &self.entries[index];
        let at = entry.size_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        target.append(file, self.content(index, at, bytes))
    }

    /// What the file holds, by its number, its version and the place.
    #[inline]
    fn content(&self, index: usize, at: u64, bytes: usize) -> &[u8] {
        let version = self.entries[index].version.load(Ordering::Relaxed);
        let salt = index as u64 * 7919 + u64::from(version) * 104_729;
        let from = ((salt + at) % PATTERN_BYTES as u64) as usize;
        &self.pattern[from..from + bytes]
    }

    /// Bytes of the log's next append.
    #[inline]
    pub(super) fn log_content(&self, bytes: usize) -> &[u8] {
        &self.pattern[..bytes]
    }

    /// Compares the whole tree with what it should be: names, sizes, and contents unless several threads appended to one file at the same moment.
    pub(crate) fn verify<T: Target>(&self, target: &T, contents: bool) -> Result<(), BenchError> {
        let mut found = Vec::new();
        let directories = self.directories.iter().map(String::as_str).collect();
        list(target, ROOT, &directories, &mut found)?;
        found.sort();
        let exists = |entry: &&Entry| entry.state.load(Ordering::Relaxed) & EXISTS != 0;
        let present = self.entries.iter().filter(exists);
        let mut expected: Vec<String> = present.map(|entry| entry.path.clone()).collect();
        expected.sort();
        if found != expected {
            let (found, expected) = (found.len(), expected.len());
            return wrong(format!(
                "{found} files where {expected} should be, or others"
            ));
        }
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.state.load(Ordering::Relaxed) & EXISTS == 0 {
                continue;
            }
            let size_bytes = entry.size_bytes.load(Ordering::Relaxed);
            let found_bytes = target.status(&entry.path)?;
            if found_bytes != size_bytes {
                let path = &entry.path;
                return wrong(format!(
                    "{path}: {found_bytes} bytes, should be {size_bytes}"
                ));
            }
            if contents {
                self.verify_content(target, index, size_bytes)?;
            }
        }
        if contents && self.personality == Personality::Webserver {
            let (found, expected) = (target.status(LOG)?, self.log.bytes.load(Ordering::Relaxed));
            if found != expected {
                return wrong(format!("{LOG}: {found} bytes, should be {expected}"));
            }
        }
        Ok(())
    }

    fn verify_content<T: Target>(
        &self,
        target: &T,
        index: usize,
        size_bytes: u64,
    ) -> Result<(), BenchError> {
        let path = self.path(index);
        let file = target.open(path)?;
        let (mut at, mut buffer) = (0, vec![0; FILL_BYTES]);
        while at < size_bytes {
            let read = target.read_at(&file, &mut buffer, at)?;
            if read == 0 || buffer[..read] != *self.content(index, at, read) {
                return wrong(format!("{path}: other content in the {read} bytes at {at}"));
            }
            at += read as u64;
        }
        Ok(())
    }
}

/// Paths of all files below `directory`; what is not one of `directories` is a file.
fn list<T: Target>(
    target: &T,
    directory: &str,
    directories: &HashSet<&str>,
    files: &mut Vec<String>,
) -> Result<(), BenchError> {
    for name in target.names(directory)? {
        let path = format!("{directory}/{name}");
        match directories.contains(path.as_str()) {
            true => list(target, &path, directories, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn wrong(what: String) -> Result<(), BenchError> {
    Err(BenchError::WrongData(what))
}

/// Lengths of the pieces of at most `step` bytes that `bytes` are made of.
pub(super) fn chunks(bytes: u64, step: usize) -> impl Iterator<Item = usize> {
    let step = step as u64;
    (0..bytes.div_ceil(step)).map(move |piece| step.min(bytes - piece * step) as usize)
}

/// The tree of directories, as Filebench plans it: files in leaves only, depth by the logarithm of their number, widths and depths gamma
/// distributed.
#[derive(Default)]
struct Tree {
    directories: Vec<String>,
    files: Vec<String>,
}

impl Tree {
    fn plan(&mut self, files: usize, width: usize, random: &mut Random) {
        self.directories.push(ROOT.to_owned());
        if files <= width {
            // One directory, whatever the dice say: the width stands for "all in one".
            self.leaf(format!("{ROOT}/00000001"), files);
            return;
        }
        let depth = (files as f64).ln() / (width as f64).ln();
        let mut serial = 0;
        while self.files.len() < files {
            serial += 1;
            let path = format!("{ROOT}/{serial:08}");
            self.branch(path, 1, (files, width as f64, depth), random);
        }
    }

    fn branch(
        &mut self,
        path: String,
        level: usize,
        means: (usize, f64, f64),
        random: &mut Random,
    ) {
        let (files, width, depth) = means;
        let leaf_level = (random.gamma(depth) as usize).max(1);
        let entries = (random.gamma(width) as usize).max(1);
        if level + 1 >= leaf_level {
            let entries = entries.min(files - self.files.len());
            self.leaf(path, entries);
            return;
        }
        self.directories.push(path.clone());
        for serial in 1..=entries {
            if self.files.len() >= files {
                break;
            }
            self.branch(format!("{path}/{serial:08}"), level + 1, means, random);
        }
    }

    fn leaf(&mut self, path: String, entries: usize) {
        let files = (1..=entries).map(|serial| format!("{path}/{serial:08}"));
        self.files.extend(files);
        self.directories.push(path);
    }
}

const _: () = assert!(IO_BYTES <= FILL_BYTES);
