//! Leased files: what the holder wrote is there for everybody else, whoever comes and however the lease ends.

use crate::common::{await_tick, new_region, open};
use lease::{FileMap, Place, Refusal, Ring, Salt, Spare, Trust, Writer};
use perdure_fs::check::{CheckOptions, check};
use perdure_fs::lease::{Grant, Holder, LeaseRemains, LeaseSize, TakenBack, Watcher};
use perdure_fs::{AllocateOptions, FileSystem, FsError, NewInode, Node, SetAttributes, XattrMode};
use pmem::{BLOCK_BYTES, BlockNumber, Region};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use txn::{Mode, PoolState};

const BLOCK: u64 = BLOCK_BYTES as u64;
const SIZE: LeaseSize = LeaseSize {
    ring_blocks: 2,
    spare_blocks: 32,
};

fn new_pool(size_bytes: u64) -> FileSystem {
    mount(new_region(size_bytes, 256 << 10, 2), Mode::ReadWrite)
}

fn mount(region: Region, mode: Mode) -> FileSystem {
    open(region, mode).expect("mount")
}

fn image(files: &FileSystem) -> Region {
    Region::from_image(files.store().region().image())
}

fn file(files: &FileSystem, name: &str, bytes: usize) -> Node {
    let node = files
        .create(&files.root(), name.as_bytes(), &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, &vec![1; bytes]).expect("write");
    node
}

fn content(files: &FileSystem, node: &Node) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let length = files.read(node, 0, &mut bytes).expect("read");
    bytes.truncate(length);
    bytes
}

/// A holder who answers at once, and remembers how his lease ended.
#[derive(Default)]
struct Process {
    ended: Mutex<Option<(LeaseRemains, u64)>>,
    is_busy: AtomicBool,
    folded: AtomicU64,
    grant: Mutex<Option<(Ring, Salt, Spare)>>,
    attributes: AtomicU64,
}

impl Holder for Process {
    fn attributes_changed(&self) {
        self.attributes.fetch_add(1, Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Relaxed)
    }

    fn folded(&self, next: u64, _refilled: &[Spare]) {
        self.folded.store(next, Ordering::Relaxed);
    }

    fn take_back(&self) -> TakenBack {
        TakenBack {
            trust: Trust::All,
            busy_block: None,
        }
    }

    fn ended(&self, remains: LeaseRemains, next: u64) {
        *self.ended.lock().expect("nobody panicked") = Some((remains, next));
    }
}

struct Map(HashMap<u64, Place>);

impl FileMap for Map {
    fn get(&self, index: u64) -> Option<Place> {
        Some(self.0.get(&index).copied().unwrap_or(Place::Hole))
    }

    fn set(&mut self, index: u64, block: BlockNumber) {
        self.0.insert(index, Place::At(block));
    }
}

fn lease(files: &FileSystem, node: &Node) -> (Arc<Process>, Writer, Map) {
    let process = Arc::new(Process::default());
    let holder: Arc<dyn Holder> = Arc::clone(&process) as _;
    let Grant {
        ring,
        salt,
        next,
        spares,
        size_bytes,
        ..
    } = files.lease(node, SIZE, holder).expect("a lease");
    *process.grant.lock().expect("nobody panicked") =
        spares.last().map(|spare| (ring.clone(), salt, *spare));
    let mut map = HashMap::new();
    files
        .places(node, 0, size_bytes.div_ceil(BLOCK), |index, place| {
            map.extend(place.map(|place| (index, place)));
        })
        .expect("places");
    let region = files.store().shared_region();
    let writer = Writer::new(region, ring, salt, next, spares, size_bytes);
    (process, writer, Map(map))
}

#[test]
fn a_file_that_gives_rights_is_written_through_the_kernel() {
    let files = new_pool(8 << 20);
    let node = file(&files, "program", 5000);
    let mode = |mode| SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    let is_refused = || {
        let holder = Arc::new(Process::default());
        match files.lease(&node, SIZE, holder) {
            Err(FsError::InvalidArgument(_)) => true,
            Err(error) => panic!("{error}"),
            Ok(_) => {
                files.end_lease(&node).expect("ended");
                false
            }
        }
    };
    for bits in [0o4755, 0o2755, 0o6755, 0o2644] {
        files.set_attributes(&node, &mode(bits)).expect("chmod");
        assert!(is_refused(), "{bits:o}");
    }
    files.set_attributes(&node, &mode(0o755)).expect("chmod");
    assert!(!is_refused());
    let (process, ..) = lease(&files, &node);
    let set = |name: &[u8]| files.set_xattr(&node, name, b"value", XattrMode::Any);
    set(b"user.colour").expect("an attribute");
    assert!(
        process.ended.lock().expect("lock").is_none(),
        "it is nobody's affair"
    );
    set(b"security.capability").expect("an attribute");
    assert!(process.ended.lock().expect("lock").is_some());
    assert!(is_refused());
    let removed = files.remove_xattr(&node, b"security.capability");
    removed.expect("it is there");
    assert!(!is_refused());
}

#[test]
fn who_reads_sees_what_the_holder_wrote_and_ends_the_lease() {
    let files = new_pool(8 << 20);
    let node = file(&files, "file", 3 * BLOCK_BYTES);
    let (process, mut writer, mut map) = lease(&files, &node);
    writer
        .write(&mut map, BLOCK, &[2; BLOCK_BYTES], 5)
        .expect("a write");
    writer
        .write(&mut map, 3 * BLOCK, b"tail", 5)
        .expect("an append");
    let attributes = files.attributes(&node).expect("attributes");
    assert!(
        process.ended.lock().expect("sound").is_none(),
        "looking at attributes ended the lease"
    );
    // The newest write is not known to be durable yet.
    assert!(attributes.size_bytes == 3 * BLOCK || attributes.size_bytes == 3 * BLOCK + 4);
    let mut wanted = vec![1; 3 * BLOCK_BYTES];
    wanted[BLOCK_BYTES..2 * BLOCK_BYTES].fill(2);
    wanted.extend(b"tail");
    assert_eq!(content(&files, &node), wanted);
    let ended = process.ended.lock().expect("sound").take();
    assert_eq!(ended.map(|(_, next)| next), Some(3));
    // The remains are dropped: the pool can be unmounted cleanly.
    let region = files.store().shared_region();
    drop(node);
    files.unmount();
    assert!(check(&region, &CheckOptions::default()).is_clean());
}

#[test]
fn everything_that_touches_the_file_ends_the_lease() {
    type Touch = fn(&FileSystem, &Node) -> Result<(), FsError>;
    let touches: [(&str, Touch); 6] = [
        ("write", |files, node| files.write(node, 0, b"x").map(drop)),
        ("append", |files, node| files.append(node, b"x").map(drop)),
        ("read", |files, node| {
            files.read(node, 0, &mut [0; 8]).map(drop)
        }),
        ("mode", |files, node| {
            let change = SetAttributes {
                mode: Some(0o600),
                ..SetAttributes::default()
            };
            files.set_attributes(node, &change).map(drop)
        }),
        ("punch", |files, node| {
            let options = AllocateOptions {
                punch_hole: true,
                keep_size: true,
                ..Default::default()
            };
            files.allocate(node, 0, BLOCK, options)
        }),
        ("seek", |files, node| files.seek_hole(node, 0).map(drop)),
    ];
    for (what, touch) in touches {
        let files = new_pool(8 << 20);
        let node = file(&files, "file", BLOCK_BYTES);
        let (process, mut writer, mut map) = lease(&files, &node);
        writer
            .write(&mut map, BLOCK, b"acknowledged", 5)
            .expect("a write");
        touch(&files, &node).expect(what);
        let ended = process.ended.lock().expect("sound").take();
        assert_eq!(ended.map(|(_, next)| next), Some(2), "{what}");
        let size = files.attributes(&node).expect("attributes").size_bytes;
        assert!(size >= BLOCK + 12, "{what}");
    }
}

#[test]
fn a_file_has_one_lease_at_a_time() {
    let files = new_pool(8 << 20);
    let node = file(&files, "file", 10);
    let _held = lease(&files, &node);
    let again = files.lease(&node, SIZE, Arc::new(Process::default()));
    assert!(matches!(again, Err(FsError::NotPermitted(_))));
    let root = files.lease(&files.root(), SIZE, Arc::new(Process::default()));
    assert!(matches!(root, Err(FsError::IsADirectory)));
}

#[test]
fn a_leased_file_stays_in_use_when_nobody_else_has_it() {
    let files = new_pool(8 << 20);
    let node = file(&files, "file", 10);
    let (_process, mut writer, mut map) = lease(&files, &node);
    drop(node);
    // Enough others to push it out of the cache of inodes, if it could be.
    for number in 0..4000 {
        drop(file(&files, &format!("other {number}"), 0));
    }
    writer.write(&mut map, 10, b"more", 5).expect("a write");
    let node = files.lookup(&files.root(), b"file").expect("there");
    assert_eq!(
        content(&files, &node),
        *b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01more"
    );
}

/// The holder appends until there is no room anywhere, and all of it is there in the end.
#[test]
fn appends_are_kept_when_the_pool_is_full() {
    let files = new_pool(4 << 20);
    let node = file(&files, "file", 0);
    let (_process, mut writer, mut map) = lease(&files, &node);
    let other = file(&files, "other", 0);
    while files.append(&other, &[9; BLOCK_BYTES]).is_ok() {}
    let mut written = 0_u64;
    loop {
        match writer.write(&mut map, written * BLOCK, &[written as u8; BLOCK_BYTES], 5) {
            Ok(()) => written += 1,
            Err(Refusal::NoSpareBlocks { .. }) => {
                let folded = files.fold_lease(&node).expect("folding needs no room");
                let (next, refilled) = folded.expect("it is leased");
                if refilled.is_empty() {
                    break;
                }
                writer.folded(next, refilled);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(written >= u64::from(SIZE.spare_blocks));
    files.end_lease(&node).expect("ending needs no room");
    let wanted: Vec<u8> = (0..written)
        .flat_map(|byte| [byte as u8; BLOCK_BYTES])
        .collect();
    assert_eq!(content(&files, &node), wanted);
    let after = mount(image(&files), Mode::ReadWrite);
    let node = after.lookup(&after.root(), b"file").expect("there");
    assert_eq!(content(&after, &node), wanted);
}

#[test]
fn a_crash_loses_nothing_and_a_read_only_mount_sees_it_too() {
    let files = new_pool(8 << 20);
    let node = file(&files, "file", 100);
    let (_process, mut writer, mut map) = lease(&files, &node);
    for number in 0..200_u64 {
        if number % 50 == 49 {
            let (next, refilled) = files.fold_lease(&node).expect("fold").expect("leased");
            writer.folded(next, refilled);
        }
        let at = writer.size_bytes();
        writer
            .write(&mut map, at, &[number as u8; 100], 5)
            .expect("an append");
    }
    // Half of an append that never happened.
    let end = writer.size_bytes();
    let Some(Place::At(block)) = map.get(end / BLOCK) else {
        panic!("the last block has a place");
    };
    let region = files.store().region();
    let _ = region.store(block.offset() + end % BLOCK, b"torn");
    let crashed = image(&files);
    let report = check(&crashed, &CheckOptions::default());
    assert!(
        !report
            .faults
            .iter()
            .any(|fault| fault.to_string().contains("beyond the end")),
        "{report:?}"
    );
    let mut wanted = vec![1; 100];
    wanted.extend((0..200).flat_map(|byte| [byte as u8; 100]));
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let after = mount(image(&files), mode);
        let node = after.lookup(&after.root(), b"file").expect("there");
        assert_eq!(content(&after, &node), wanted, "{mode:?}");
        after.checkpoint();
        if mode == Mode::ReadWrite {
            let report = check(after.store().region(), &CheckOptions::default());
            assert!(report.is_clean(), "{report:?}");
            assert_eq!(report.counts.orphans, 0);
        }
    }
}

#[test]
fn a_lease_of_a_removed_file_goes_with_it() {
    let files = new_pool(8 << 20);
    // The root directory has a block from here on.
    drop(file(&files, "file", 100));
    files.unlink(&files.root(), b"file").expect("unlink");
    files.checkpoint();
    let before = files.statistics().free_blocks;
    let node = file(&files, "file", 100);
    let (process, mut writer, mut map) = lease(&files, &node);
    files.unlink(&files.root(), b"file").expect("unlink");
    writer
        .write(&mut map, 0, b"still mine", 5)
        .expect("a write");
    let after = mount(image(&files), Mode::ReadWrite);
    assert!(matches!(
        after.lookup(&after.root(), b"file"),
        Err(FsError::NotFound)
    ));
    assert_eq!(after.statistics().free_blocks, before);
    files.end_lease(&node).expect("end");
    drop(process);
    drop(node);
    files.checkpoint();
    assert_eq!(files.statistics().free_blocks, before);
}

/// Blocks that were written, by the allocator's count.
fn written_blocks(files: &FileSystem) -> u64 {
    files.store().allocator().wear().iter().sum()
}

/// Writes three blocks by a lease of a new file, removes its name and lets go of it. Blocks that are free afterwards, and how many were written since.
fn write_and_drop(files: &FileSystem, has_name: bool, other: &mut Option<Node>) -> (u64, u64) {
    let node = file(files, "journal", 0);
    let (process, mut writer, mut map) = lease(files, &node);
    for index in 0..3 {
        writer
            .write(&mut map, index * BLOCK, &[7; BLOCK_BYTES], 5)
            .expect("a write");
    }
    if !has_name {
        files.unlink(&files.root(), b"journal").expect("unlink");
    }
    *other = other.is_some().then(|| node.clone());
    let before = written_blocks(files);
    files.drop_lease(node).expect("drop");
    let written = written_blocks(files) - before;
    drop(process);
    files.checkpoint();
    (files.statistics().free_blocks, written)
}

#[test]
fn what_was_written_to_a_removed_file_goes_unless_somebody_else_uses_it() {
    let files = new_pool(8 << 20);
    let root = files.root();
    drop(file(&files, "journal", 100));
    files.unlink(&root, b"journal").expect("unlink");
    files.checkpoint();
    let free = files.statistics().free_blocks;
    assert_eq!(write_and_drop(&files, false, &mut None), (free, 3));
    let mut other = Some(root.clone());
    let (free_then, _) = write_and_drop(&files, false, &mut other);
    assert!(free_then < free, "it is in use");
    let other = other.expect("a reference");
    assert_eq!(content(&files, &other), [7; 3 * BLOCK_BYTES]);
    drop(other);
    files.checkpoint();
    assert_eq!(files.statistics().free_blocks, free);
    write_and_drop(&files, true, &mut None);
    let node = files.lookup(&root, b"journal").expect("there");
    assert_eq!(content(&files, &node), [7; 3 * BLOCK_BYTES]);
    let after = mount(image(&files), Mode::ReadWrite);
    let node = after.lookup(&after.root(), b"journal").expect("there");
    assert_eq!(content(&after, &node), [7; 3 * BLOCK_BYTES]);
    after.checkpoint();
    let report = check(after.store().region(), &CheckOptions::default());
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn what_was_acknowledged_shows_in_the_attributes() {
    let files = new_pool(4 << 20);
    let node = file(&files, "a", 5000);
    let (process, mut writer, mut map) = lease(&files, &node);
    let size = |files: &FileSystem| files.attributes(&node).expect("attributes").size_bytes;
    writer.write(&mut map, 5000, &[2; 100], 1).expect("write");
    assert_eq!(size(&files), 5100, "idle: what he wrote is durable");
    assert_eq!(process.folded.load(Ordering::Relaxed), writer.next());
    process.is_busy.store(true, Ordering::Relaxed);
    writer.write(&mut map, 5100, &[3; 100], 1).expect("write");
    assert_eq!(size(&files), 5100, "nobody knows whether it is durable");
    writer.write(&mut map, 5200, &[4; 100], 1).expect("write");
    assert_eq!(size(&files), 5200, "there is a newer one");
    assert!(
        process.ended.lock().expect("no panic").is_none(),
        "and the lease goes on"
    );
}

#[test]
fn a_holder_who_writes_nonsense_loses_the_lease() {
    let files = new_pool(4 << 20);
    let node = file(&files, "a", 5000);
    let (process, mut writer, mut map) = lease(&files, &node);
    writer.write(&mut map, 0, &[2; 100], 1).expect("write");
    // The same holder, who says that the file is much larger.
    let (ring, salt, spare) = process
        .grant
        .lock()
        .expect("no panic")
        .clone()
        .expect("a grant");
    let region = files.store().shared_region();
    let mut liar = Writer::new(region, ring, salt, writer.next(), [spare], 1 << 30);
    liar.write(&mut map, 1 << 30, &[9; 100], 1).expect("write");
    assert_eq!(files.fold_lease(&node).expect("fold"), None);
    assert!(process.ended.lock().expect("no panic").is_some());
    assert_eq!(
        content(&files, &node)[..100],
        [2; 100],
        "what came before counts"
    );
}

/// Remembers that it was told.
#[derive(Default)]
struct Reader(AtomicBool, AtomicU64);

impl Watcher for Reader {
    fn ended(&self) {
        assert!(!self.0.swap(true, Ordering::Relaxed), "told once");
    }

    fn attributes_changed(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls `told` after each change of the attributes of file `f` that takes it back from nobody, and after some that change nothing.
fn change_attributes(files: &FileSystem, node: &Node, told: &dyn Fn(&str, u64)) {
    let root = files.root();
    files.link(node, &root, b"g").expect("link");
    told("link", 1);
    files.unlink(&root, b"g").expect("unlink");
    told("unlink", 2);
    let options = perdure_fs::RenameOptions::default();
    // Nothing to be told if the time of change is the same tick of the clock.
    await_tick();
    files
        .rename(&root, b"f", &root, b"h", options)
        .expect("rename");
    told("rename", 3);
    files
        .set_xattr(node, b"user.x", b"y", perdure_fs::XattrMode::Any)
        .expect("set");
    told("attribute", 4);
    files.remove_xattr(node, b"user.x").expect("remove");
    told("no attribute", 5);
    file(files, "i", 10);
    files
        .rename(&root, b"i", &root, b"h", options)
        .expect("rename");
    told("replaced", 6);
    assert_eq!(files.attributes(node).expect("attributes").links, 0);
    told("nothing", 6);
}

#[test]
fn who_reads_or_writes_a_file_is_told_when_its_attributes_change() {
    let files = new_pool(4 << 20);
    let node = file(&files, "f", 5000);
    let reader = Arc::new(Reader::default());
    assert_eq!(files.watch(&node, Arc::clone(&reader) as _), Ok(5000));
    change_attributes(&files, &node, &|what, times| {
        assert_eq!(reader.1.load(Ordering::Relaxed), times, "{what}");
    });
    let node = file(&files, "f", 5000);
    let (process, writer, map) = lease(&files, &node);
    let (writer, map) = (RefCell::new(writer), RefCell::new(map));
    change_attributes(&files, &node, &|what, times| {
        // What the holder does himself is no news to him.
        writer
            .borrow_mut()
            .write(&mut *map.borrow_mut(), 0, b"x", 5)
            .expect("a write");
        files.fold_lease(&node).expect("fold");
        assert_eq!(process.attributes.load(Ordering::Relaxed), times, "{what}");
    });
}

#[test]
fn folding_what_came_before_does_not_turn_the_time_of_change_back() {
    let files = new_pool(4 << 20);
    let node = file(&files, "f", 5000);
    let (_process, mut writer, mut map) = lease(&files, &node);
    writer.write(&mut map, 0, b"x", 5).expect("a write");
    files.link(&node, &files.root(), b"g").expect("link");
    let attributes = files.attributes(&node).expect("attributes");
    assert_eq!(attributes.modified.nanoseconds(), 5);
    assert!(attributes.changed.nanoseconds() > 5);
}

/// Somebody who reads the blocks of a file of 5,000 bytes.
fn watch(files: &FileSystem, node: &Node) -> Arc<Reader> {
    let reader = Arc::new(Reader::default());
    assert_eq!(files.watch(node, Arc::clone(&reader) as _), Ok(5000));
    reader
}

#[test]
fn who_reads_blocks_is_told_before_they_change() {
    let files = new_pool(4 << 20);
    let node = file(&files, "a", 5000);
    let watch = || watch(&files, &node);
    let is_told = |reader: &Reader| reader.0.load(Ordering::Relaxed);
    let changes: [(&str, &dyn Fn()); 5] = [
        ("write", &|| assert!(files.write(&node, 10, b"x").is_ok())),
        ("attributes", &|| {
            let change = SetAttributes {
                size_bytes: Some(5000),
                ..SetAttributes::default()
            };
            assert!(files.set_attributes(&node, &change).is_ok());
        }),
        ("allocate", &|| {
            let options = AllocateOptions {
                keep_size: true,
                punch_hole: true,
                zero_range: false,
            };
            assert!(files.allocate(&node, 0, 4096, options).is_ok());
        }),
        ("lease", &|| {
            drop(lease(&files, &node));
            assert!(files.end_lease(&node).is_ok());
        }),
        ("another reader", &|| drop(watch())),
    ];
    for (name, change) in changes {
        let reader = watch();
        assert_eq!(content(&files, &node).len(), 5000);
        assert!(!is_told(&reader), "reading changes nothing");
        change();
        assert!(is_told(&reader), "{name}");
    }
    let (_process, _writer, _map) = lease(&files, &node);
    let refused = files.watch(&node, Arc::new(Reader::default()));
    assert!(matches!(refused, Err(FsError::NotPermitted(_))));
}

#[test]
fn who_stops_watching_takes_nobody_else_off() {
    let files = new_pool(4 << 20);
    let node = file(&files, "a", 5000);
    let watch = || watch(&files, &node);
    let (before, reader) = (watch(), watch());
    files.end_watch(&node, &*before);
    assert!(!reader.0.load(Ordering::Relaxed), "another one");
    files.end_watch(&node, &*reader);
    assert!(reader.0.load(Ordering::Relaxed));
    assert_eq!(Arc::strong_count(&reader), 1, "the file keeps it no longer");
}
