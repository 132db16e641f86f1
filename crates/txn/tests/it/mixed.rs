//! A log beside an image of another moment is refused, or leads to a state that the pool once had.

use parking_lot::Mutex;
use perdure_txn::{
    Content, Disks, Durability, FormatOptions, Metadata, Mixture, OpenError, PmemStore, PoolState,
    Store, Transaction, format,
};
use pmem::{DurabilityClass, Offset, Region};
use scatter::{DomainId, Extent, Options, Purpose};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use wal::testing::SimulatedDisk;
use wal::{Disk, UNIT_BYTES};

const LATE: Durability = Durability::Fsync(Duration::from_secs(60));
const LOG: usize = 0;
const IMAGE: usize = 1;
/// Words that the changes are about, each in a block of its own.
const WORDS: usize = 4;

/// The bytes of both disks behind every write, and which of them were there at the same time.
#[derive(Debug, Default)]
struct History {
    contents: [Vec<Vec<u8>>; 2],
    moments: Vec<[usize; 2]>,
}

impl History {
    fn note(&mut self, side: usize, content: Vec<u8>) {
        if self.contents[side].last() != Some(&content) {
            self.contents[side].push(content);
        }
        if self.contents.iter().all(|contents| !contents.is_empty()) {
            let moment = [LOG, IMAGE].map(|side| self.contents[side].len() - 1);
            self.moments.push(moment);
        }
    }
}

/// A disk that keeps the history of its bytes.
#[derive(Debug)]
struct Recorded {
    disk: SimulatedDisk,
    side: usize,
    history: Arc<Mutex<History>>,
}

impl Recorded {
    fn note(&self, written: io::Result<()>) -> io::Result<()> {
        self.history.lock().note(self.side, self.disk.image());
        written
    }
}

impl Disk for Recorded {
    fn length_bytes(&self) -> u64 {
        self.disk.length_bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, into)
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.note(self.disk.write_durable(at, bytes))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.note(self.disk.write(at, bytes))
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }

    fn name(&self) -> String {
        ["the log", "the image"][self.side].into()
    }
}

/// The blocks of `words` are in use.
fn open(disks: &Disks, words: &[Offset]) -> Result<PmemStore, OpenError> {
    let store = PmemStore::open_disks(disks, None, LATE)?;
    let rebuild = store.rebuild()?;
    for word in words {
        let marked = rebuild.mark(Extent {
            start: word.block(),
            blocks: 1,
        });
        marked.expect("a block of its own");
    }
    store.install(rebuild, Options::default());
    Ok(store)
}

/// The pool's life: changes, checkpoints, a clean unmount and a kill.
struct Life {
    disks: Disks,
    history: Arc<Mutex<History>>,
    words: [Offset; WORDS],
    changes: u64,
}

impl Life {
    fn new() -> Life {
        let options = FormatOptions {
            size_bytes: 256 << 10,
            log: true,
            volatile: false,
            ..FormatOptions::tiny()
        };
        let superblock = options.superblock().expect("sound options");
        let memory = Region::anonymous_of(options.size_bytes, DurabilityClass::Log);
        let region = format::write_header(memory, &superblock, Content::Anybodys);
        let history = Arc::new(Mutex::new(History::default()));
        let disk = |side, bytes| {
            Arc::new(Recorded {
                disk: SimulatedDisk::new(bytes),
                side,
                history: Arc::clone(&history),
            }) as Arc<dyn Disk>
        };
        let disks = Disks {
            log: disk(LOG, 18 * UNIT_BYTES),
            image: disk(IMAGE, region.length() as usize),
        };
        disks.format(&region).expect("room");
        *history.lock() = History::default();
        for disk in [&disks.log, &disks.image] {
            let mut unit = wal::AlignedBuffer::new();
            unit.resize(UNIT_BYTES);
            disk.read(0, &mut unit).expect("a simulated disk");
            disk.write(0, &unit).expect("a simulated disk");
        }
        Life {
            disks,
            history,
            words: [Offset::new(0); WORDS],
            changes: 0,
        }
    }

    fn take_blocks(&mut self, store: &PmemStore) {
        let mut transaction = store.begin();
        for word in &mut self.words {
            let block = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary);
            *word = block.expect("room").offset();
            transaction.store_word(*word, 0);
        }
        transaction.commit().expect("a small record");
    }

    /// Odd changes are about the first and the third word, even ones about the others.
    fn change(&mut self, store: &PmemStore) {
        self.changes += 1;
        let first = 1 - self.changes as usize % 2;
        let mut transaction = store.begin();
        for word in [first, first + 2] {
            transaction.store_word(self.words[word], self.changes);
        }
        transaction.commit().expect("a small record");
    }

    /// So many changes with a batch each, then a checkpoint.
    fn round(&mut self, store: &PmemStore, changes: usize) {
        let logger = store.logger().expect("a pool with a log");
        for _ in 0..changes {
            self.change(store);
            logger.sync().expect("disks that work");
        }
        logger.checkpoint().expect("disks that work");
    }

    fn live() -> Life {
        let mut life = Life::new();
        let store = open(&life.disks, &[]).expect("a sound pool");
        life.take_blocks(&store);
        life.round(&store, 2);
        life.round(&store, 3);
        life.change(&store);
        store.close(&[]);
        drop(store);
        let store = open(&life.disks, &life.words).expect("a sound pool");
        life.round(&store, 2);
        life.change(&store);
        store
            .logger()
            .expect("a log")
            .sync()
            .expect("disks that work");
        // Killed.
        drop(store);
        let store = open(&life.disks, &life.words).expect("a sound pool");
        life.round(&store, 1);
        life.round(&store, 1);
        store.close(&[]);
        drop(store);
        life
    }

    /// Opens a pool that has this log and this image.
    fn open_mixed(&self, [log, image]: [usize; 2]) -> Result<[u64; WORDS], OpenError> {
        let history = self.history.lock();
        let disk = |side: usize, moment: usize| {
            let content = history.contents[side][moment].clone();
            Arc::new(SimulatedDisk::from_image(content)) as Arc<dyn Disk>
        };
        let disks = Disks {
            log: disk(LOG, log),
            image: disk(IMAGE, image),
        };
        drop(history);
        let store = open(&disks, &[])?;
        Ok(self.words.map(|word| store.load_word(word)))
    }

    fn was_ever(&self, words: [u64; WORDS]) -> bool {
        (0..=self.changes).any(|changes| {
            let odd = changes.div_ceil(2) * 2;
            let (odd, even) = (odd.saturating_sub(1), changes / 2 * 2);
            words == [odd, even, odd, even]
        })
    }
}

/// Opens every log beside every image. Returns the refusals, and the mixtures that lead to a state
/// that never was.
fn mix_all(life: &Life) -> (Vec<Mixture>, Vec<[usize; 2]>) {
    let [logs, images] = [LOG, IMAGE].map(|side| life.history.lock().contents[side].len());
    let (mut refusals, mut wrong) = (Vec::new(), Vec::new());
    for log in 0..logs {
        for image in 0..images {
            match life.open_mixed([log, image]) {
                Ok(words) if life.was_ever(words) => (),
                Ok(_) => wrong.push([log, image]),
                Err(OpenError::Mixed { mixture, .. }) => refusals.push(mixture),
                // A log in the middle of a write of a later mount.
                Err(OpenError::Log { .. }) => (),
                Err(error) => panic!("log {log}, image {image}: {error}"),
            }
        }
    }
    (refusals, wrong)
}

#[test]
fn log_and_image_of_different_moments_are_refused_or_sound() {
    let life = Life::live();
    let moments = life.history.lock().moments.clone();
    assert!(moments.len() > 50, "{} moments", moments.len());
    for moment in moments {
        let words = life.open_mixed(moment);
        let words = words.unwrap_or_else(|error| panic!("{moment:?}: {error}"));
        assert!(life.was_ever(words), "{moment:?}: {words:?}");
    }
    let (refusals, wrong) = mix_all(&life);
    assert!(wrong.is_empty(), "{wrong:?}");
    let is_any = |wanted: fn(&Mixture) -> bool| refusals.iter().any(wanted);
    assert!(is_any(|it| *it == Mixture::OtherUse));
    assert!(is_any(|it| matches!(it, Mixture::ImageIsOlder { .. })));
    assert!(is_any(|it| matches!(it, Mixture::LogIsOlder { .. })));
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn a_stamp_behind_the_blocks_is_noticed() {
    use pmem::deliberate::{self, Bug};
    deliberate::set(Some(Bug::StampBehindPieces));
    let life = Life::live();
    deliberate::set(None);
    let (_, wrong) = mix_all(&life);
    assert!(!wrong.is_empty(), "all mixtures are sound");
}
