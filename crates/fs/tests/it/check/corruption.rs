//! Random flips anywhere in a pool: no change goes unsaid, and no pool is lost for them.
//!
//! Only flips of both superblocks may lose one.
//!
//! Each seed damages a pool in one of three states: unmounted, crashed with journal records,
//! crashed with direct writes. Then `fsck`, a mount, `fsck --repair` and another mount look at it.
//! If a file differs from the one that was written, `fsck` names it, or the mount or its reads
//! fail.
//!
//! Two kinds of bytes have no check, and are left out: plain data of files, where only the flips
//! themselves may show, and the newest record of a journal or a ring with its data, whose damage
//! cannot be told from a write that the power has torn.
//!
//! `CORRUPT_POOLS` and `CORRUPT_SEED` make it longer and repeat a seed.

use super::tree;
use crate::lessee::process::{Lessee, Process, USER, lease};
use lease::{FileMap, Place};
use perdure_fs::check::{FaultKind, Report, check};
use perdure_fs::lease::LeaseSize;
use perdure_fs::{Attributes, FileSystem, FileType, FsError, NewInode, Node};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, Region};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use txn::layout::Superblock;
use txn::places::{HalfName, HalfPlace};
use txn::record::{Record, RecordForm};

const BLOCK: u64 = BLOCK_BYTES as u64;
const FLIPS_MAX: u64 = 64;
const DIRECT_WRITES: u64 = 150;

/// A generator of numbers that look random; the seed is the whole state.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        txn::checksum::mix64(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// All that a program sees of one name.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    attributes: Attributes,
    /// Target of a link.
    target: Vec<u8>,
    /// Data by offset, a block at a time.
    data: BTreeMap<u64, Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Each name, or the error that a program gets.
type Tree = BTreeMap<String, Result<Seen, FsError>>;

fn see(files: &FileSystem, node: &Node) -> Result<Seen, FsError> {
    let attributes = files.attributes(node)?;
    let mut seen = Seen {
        attributes,
        target: Vec::new(),
        data: BTreeMap::new(),
        xattrs: BTreeMap::new(),
    };
    match attributes.file_type() {
        FileType::Symlink => seen.target = files.read_link(node)?,
        FileType::Regular => seen.data = data(files, node, attributes.size_bytes)?,
        _ => {}
    }
    for name in files.list_xattrs(node)? {
        let value = files.get_xattr(node, &name)?;
        seen.xattrs.insert(name, value);
    }
    Ok(seen)
}

fn data(files: &FileSystem, node: &Node, size: u64) -> Result<BTreeMap<u64, Vec<u8>>, FsError> {
    let mut data = BTreeMap::new();
    let mut at = 0;
    while at < size && data.len() < 1024 {
        at = match files.seek_data(node, at) {
            Ok(start) => start / BLOCK * BLOCK,
            Err(FsError::NoData) => break,
            Err(error) => return Err(error),
        };
        let mut block = vec![0; BLOCK_BYTES];
        let read = files.read(node, at, &mut block)?;
        block.truncate(read);
        data.insert(at, block);
        at += BLOCK;
    }
    Ok(data)
}

fn walk(files: &FileSystem, directory: &Node, path: &str, tree: &mut Tree) -> Result<(), FsError> {
    let mut names = Vec::new();
    files.read_directory(directory, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })?;
    for name in names.iter().filter(|name| *name != b"." && *name != b"..") {
        let path = format!("{path}/{}", name.escape_ascii());
        let node = files.lookup(directory, name);
        let seen = node.and_then(|node| {
            let seen = see(files, &node)?;
            // A damaged tree may contain circles.
            if seen.attributes.file_type() == FileType::Directory && path.len() < 2000 {
                walk(files, &node, &path, tree)?;
            }
            Ok(seen)
        });
        tree.insert(path, seen);
    }
    Ok(())
}

/// The tree of a mounted pool. An unreadable directory is one error, of itself.
fn tree_of(files: &FileSystem) -> Result<Tree, FsError> {
    let mut tree = Tree::new();
    walk(files, &files.root(), "", &mut tree)?;
    Ok(tree)
}

/// A sound pool, and the tree in it.
struct Base {
    name: &'static str,
    image: Vec<u8>,
    expected: Tree,
    /// Which data lies in each block: path and offset.
    data_blocks: BTreeMap<u64, (String, u64)>,
    /// Bytes whose damage looks like a torn write.
    newest: Vec<Range<u64>>,
    /// Bytes of each kind of structure, each kind as likely as the next.
    kinds: Vec<Vec<Range<u64>>>,
}

impl Base {
    fn new(name: &'static str, image: Vec<u8>, newest: Vec<Range<u64>>) -> Base {
        let region = Arc::new(Region::from_image(&image));
        let files = tree::mount(Arc::clone(&region)).expect("mount");
        let expected = tree_of(&files).expect("a sound tree");
        let mut data_blocks = BTreeMap::new();
        for (path, seen) in &expected {
            let seen = seen.as_ref().expect("sound");
            let node = files.node(seen.attributes.inode).expect("sound");
            if seen.attributes.file_type() == FileType::Regular {
                let visit = |index, place| {
                    if let Some(Place::At(block)) = place {
                        data_blocks.insert(block.get(), (path.clone(), index * BLOCK));
                    }
                };
                files.places(&node, 0, 1024, visit).expect("places");
            }
        }
        let superblock: Superblock = txn::pool::read_superblock(&region).expect("sound");
        let kinds = kinds(&image, &superblock, &data_blocks);
        Base {
            name,
            image,
            expected,
            data_blocks,
            newest,
            kinds,
        }
    }

    /// The damaged image, and which bits of which bytes are flipped.
    fn damage(&self, random: &mut Random) -> (Vec<u8>, BTreeMap<u64, u8>) {
        let mut flips: BTreeMap<u64, u8> = BTreeMap::new();
        let count = 1 + random.below(FLIPS_MAX);
        let whole_bytes = random.below(2) == 0;
        // Anywhere, or in two kinds of structures.
        let everywhere = random.below(2) == 0;
        let kinds = [random.next(), random.next()].map(|number| random_kind(&self.kinds, number));
        while (flips.len() as u64) < count {
            let kind = match everywhere {
                true => &self.kinds[0],
                false => kinds[random.below(2) as usize],
            };
            let at = random.one_of(kind).clone();
            let at = at.start + random.below(at.end - at.start);
            if self.newest.iter().any(|newest| newest.contains(&at)) {
                continue;
            }
            let mask = match whole_bytes {
                true => 1 + random.below(255) as u8,
                false => 1 << random.below(8),
            };
            flips.insert(at, mask);
        }
        let mut image = self.image.clone();
        for (at, mask) in &flips {
            image[*at as usize] ^= mask;
        }
        (image, flips)
    }

    /// The content of a file with the flips that are in its data.
    fn with_flips(&self, path: &str, seen: &Seen, flips: &BTreeMap<u64, u8>) -> Seen {
        let mut seen = seen.clone();
        for (at, mask) in flips {
            let Some((hit, offset)) = self.data_blocks.get(&(at / BLOCK)) else {
                continue;
            };
            let is_same = self.expected[hit]
                .as_ref()
                .is_ok_and(|other| hit == path || other.attributes.inode == seen.attributes.inode);
            let byte = seen.data.get_mut(offset).filter(|_| is_same);
            if let Some(byte) = byte.and_then(|data| data.get_mut((at % BLOCK) as usize)) {
                *byte ^= mask;
            }
        }
        seen
    }
}

fn random_kind(kinds: &[Vec<Range<u64>>], number: u64) -> &[Range<u64>] {
    // Blocks of metadata are as likely as all of the header.
    let kind = (number % (2 * kinds.len() as u64 - 4)) as usize;
    kinds.get(2 + kind).unwrap_or(&kinds[1])
}

/// First all blocks in use, then those that are metadata, and parts of the header.
fn kinds(
    image: &[u8],
    superblock: &Superblock,
    data_blocks: &BTreeMap<u64, (String, u64)>,
) -> Vec<Vec<Range<u64>>> {
    let geometry = superblock.geometry();
    let block = |number: u64| number * BLOCK..(number + 1) * BLOCK;
    let used: Vec<u64> = (0..image.len() as u64 / BLOCK)
        .filter(|&number| {
            let bytes = &image[(number * BLOCK) as usize..][..BLOCK_BYTES];
            bytes.iter().any(|&byte| byte != 0)
        })
        .collect();
    let is_metadata =
        |number: &&u64| **number >= geometry.header_blocks && !data_blocks.contains_key(number);
    let metadata = used.iter().filter(is_metadata).map(|&number| block(number));
    let table = txn::layout::SEGMENT_TABLE_BLOCK.offset().get();
    let state = txn::layout::STATE_BLOCK.offset().get();
    vec![
        used.iter().map(|&number| block(number)).collect(),
        metadata.collect(),
        vec![0..88],
        vec![geometry.second_superblock().get()..geometry.second_superblock().get() + 88],
        vec![
            state..state + 72,
            state + 1024..state + 1056,
            state + 2048..state + 2304,
        ],
        vec![table..table + 32 * u64::from(superblock.segments)],
    ]
}

/// The last record of each half of a journal.
fn newest_records(image: &[u8]) -> Vec<Range<u64>> {
    let region = Region::from_image(image);
    let superblock = txn::pool::read_superblock(&region).expect("sound");
    let mut newest = Vec::new();
    for name in HalfName::all(superblock.journals) {
        let word = region.load_u64(name.word_at());
        let place = HalfPlace::read(word, name, &superblock).expect("sound");
        let form = RecordForm::of(&superblock, place);
        let mut half = vec![0; superblock.half_bytes()];
        region.read(place.start.offset(), &mut half);
        let (mut at, mut last) = (0, None);
        while let Some(record) = half.get(at..).and_then(|rest| Record::parse(rest, &form)) {
            let start = place.start.offset().get() + at as u64;
            at += record.padded_bytes();
            last = Some((
                start..start + record.padded_bytes() as u64,
                record.data_check(),
            ));
        }
        if let Some((range, data)) = last {
            newest.push(range);
            newest.extend(data.map(|data| data.at.get()..data.at.get() + data.length as u64));
        }
    }
    newest
}

fn unmounted() -> Base {
    Base::new("unmounted", tree::unmounted(tree::populated()), Vec::new())
}

/// After a power cut: the metadata of the last operations is in the journals alone.
fn crashed() -> Base {
    let files = tree::populated();
    files.checkpoint();
    let before = files.store().region().image();
    let data_blocks = Base::new("before", before.clone(), Vec::new()).data_blocks;
    let root = files.root();
    let folder = files
        .make_directory(&root, b"late", &NewInode::file(0o755))
        .expect("mkdir");
    for number in 0..8 {
        let name = format!("late {number}").into_bytes();
        let node = files
            .create(&folder, &name, &NewInode::file(0o644))
            .expect("create");
        files.write(&node, 0, &[number; 100]).expect("write");
    }
    drop(folder);
    // The newest records have no data that could be taken for torn.
    files
        .make_directory(&root, b"latest", &NewInode::file(0o755))
        .expect("mkdir");
    let expected = tree_of(&files).expect("a sound tree");
    let mut image = files.store().region().image();
    let newest = newest_records(&image);
    let journals = halves(&image);
    for (number, block) in (0..).zip(before.chunks(BLOCK_BYTES)) {
        let at = number * BLOCK;
        let was_used = block.iter().any(|&byte| byte != 0) && !data_blocks.contains_key(&number);
        if was_used && !journals.iter().any(|half| half.contains(&at)) {
            image[at as usize..][..BLOCK_BYTES].copy_from_slice(block);
        }
    }
    let base = Base::new("crashed", image, newest);
    assert!(
        base.expected == expected,
        "the journals have all that was acknowledged"
    );
    base
}

/// Where the halves of the journals lie.
fn halves(image: &[u8]) -> Vec<Range<u64>> {
    let region = Region::from_image(image);
    let superblock = txn::pool::read_superblock(&region).expect("sound");
    let range = |name: HalfName| {
        let word = region.load_u64(name.word_at());
        let start = HalfPlace::read(word, name, &superblock)
            .expect("sound")
            .start
            .offset()
            .get();
        start..start + superblock.half_bytes() as u64
    };
    HalfName::all(superblock.journals).map(range).collect()
}

/// Crashed while a program wrote directly.
fn leased() -> Base {
    let files = tree::populated();
    let new = NewInode {
        uid: USER,
        gid: USER,
        ..NewInode::file(0o600)
    };
    let node = files
        .create(&files.root(), b"direct", &new)
        .expect("create");
    files.write(&node, 0, &[1; 3 * BLOCK_BYTES]).expect("write");
    let size = LeaseSize {
        ring_blocks: 4,
        spare_blocks: 8,
    };
    let mut lessee: Lessee = lease(&files, &node, size, Process::idle());
    for number in 0..DIRECT_WRITES {
        lessee.write(number % 3 * BLOCK, number as u8, 1);
    }
    let image = files.store().region().image();
    let mut newest = newest_records(&image);
    let record = lessee.place(lessee.writer.next() - 1).get();
    newest.push(record..record + 64);
    if let Some(Place::At(block)) = lessee.map.get((DIRECT_WRITES - 1) % 3) {
        newest.push(block.offset().get()..block.offset().get() + BLOCK);
    }
    Base::new("leased", image, newest)
}

/// Whether fsck says something that explains a difference at this path.
fn is_named(report: &Report, path: &str, expected: Option<&Seen>) -> bool {
    report.faults.iter().any(|fault| {
        let is_above = |named: &String| {
            path == named || named == "/" || path.starts_with(&format!("{named}/"))
        };
        let is_same_inode = expected.is_some_and(|seen| {
            fault.place == perdure_fs::check::Place::Inode(seen.attributes.inode)
        });
        // Operations of the last moments before the crash, whatever they changed.
        let is_general = matches!(
            fault.kind,
            FaultKind::RecordsLost
                | FaultKind::JournalPointerDamaged
                | FaultKind::JournalOverlap
                | FaultKind::CheckpointDamaged
                | FaultKind::RootLost
        );
        is_general
            || is_same_inode
            || fault.path.as_ref().is_some_and(is_above)
            || fault.detail.contains(&format!("`{path}`"))
    })
}

/// Paths that differ from the written ones although nothing said so.
fn silent(base: &Base, flips: &BTreeMap<u64, u8>, found: &Tree, report: &Report) -> Vec<String> {
    let mut silent = Vec::new();
    for (path, expected) in &base.expected {
        let expected = expected.as_ref().expect("sound");
        let wanted = base.with_flips(path, expected, flips);
        let difference = match found.get(path) {
            Some(Ok(seen)) if *seen == wanted => continue,
            Some(Err(_)) => continue,
            Some(Ok(seen)) => format!("{path}: {}", difference(&wanted, seen)),
            None => format!("{path}: it is gone"),
        };
        let parents_error = found
            .iter()
            .any(|(above, seen)| seen.is_err() && path.starts_with(&format!("{above}/")));
        if !parents_error && !is_named(report, path, Some(expected)) {
            silent.push(difference);
        }
    }
    silent
}

fn difference(wanted: &Seen, seen: &Seen) -> String {
    if wanted.attributes != seen.attributes {
        return format!("{:?} instead of {:?}", seen.attributes, wanted.attributes);
    }
    let blocks = |seen: &Seen| seen.data.keys().copied().collect::<BTreeSet<u64>>();
    if blocks(wanted) != blocks(seen) {
        return format!("data at {:?} instead of {:?}", blocks(seen), blocks(wanted));
    }
    let differing = wanted
        .data
        .iter()
        .filter(|(at, data)| seen.data[at] != **data);
    format!(
        "other data at {:?}, target or attributes",
        differing.map(|(at, _)| at).collect::<Vec<_>>()
    )
}

/// The fate of a damaged pool.
#[derive(Debug, Default)]
struct Outcome {
    /// Faults that `fsck` named.
    faults: Vec<String>,
    /// Why the pool is lost; both superblocks are hit then.
    lost: Option<String>,
    silent: Vec<String>,
    wrong: Option<String>,
}

fn survive(base: &Base, seed: u64) -> Outcome {
    let (image, flips) = base.damage(&mut Random(seed));
    let mut outcome = Outcome::default();
    let (region, repaired) = tree::repaired(&image);
    let report = &repaired.found;
    outcome.faults = report.faults.iter().map(ToString::to_string).collect();
    if let Ok(files) = tree::mount(Region::from_image(&image))
        && let Ok(found) = tree_of(&files)
        && files.losses().is_empty()
    {
        outcome.silent = silent(base, &flips, &found, report);
    }
    let left: Vec<_> = repaired
        .left
        .faults
        .iter()
        .map(|fault| fault.kind)
        .collect();
    if left.contains(&FaultKind::SuperblocksLost) || left.contains(&FaultKind::TableLost) {
        outcome.lost = Some(format!("{left:?}"));
        return outcome;
    }
    if !repaired.left.is_clean() {
        outcome.wrong = Some(format!("the repair left {:#?}", repaired.left));
        return outcome;
    }
    let checked = check(&Region::from_image(region.image()), &super::OPTIONS);
    let is_ok = |kind| matches!(kind, FaultKind::RecordsNotReplayed);
    if let Some(fault) = checked.faults.iter().find(|fault| !is_ok(fault.kind)) {
        outcome.wrong = Some(format!("after the repair: {fault}"));
    }
    match tree::mount(region) {
        Err(error) => outcome.wrong = Some(format!("cannot be mounted after the repair: {error}")),
        Ok(files) => match tree_of(&files) {
            Err(error) => outcome.wrong = Some(format!("unreadable after the repair: {error}")),
            Ok(found) => {
                if !files.losses().is_empty() {
                    outcome.wrong = Some(format!("the repair left {:?}", files.losses()));
                }
                let silent = silent(base, &flips, &found, report);
                outcome
                    .silent
                    .extend(silent.into_iter().map(|what| format!("repaired: {what}")));
            }
        },
    }
    outcome
}

fn both_superblocks_are_hit(base: &Base, seed: u64) -> bool {
    let (_, flips) = base.damage(&mut Random(seed));
    let hit = |kind: usize| {
        let range = &base.kinds[kind][0];
        flips.keys().any(|at| range.contains(at))
    };
    hit(2) && hit(3)
}

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Failures of the seeds from `first` on, and pools lost with both superblocks.
fn run(seeds: impl Iterator<Item = u64>) -> (Vec<String>, u64) {
    let bases = [unmounted(), crashed(), leased()];
    let (mut failures, mut lost) = (Vec::new(), 0);
    for seed in seeds {
        let base = &bases[(seed % 3) as usize];
        let outcome = survive(base, seed);
        let faults = outcome.faults;
        let mut fail = |what: String| {
            let replay = format!("CORRUPT_SEED={seed} CORRUPT_POOLS=1 ({})", base.name);
            failures.push(format!("{replay}: {what:.300}; fsck said {faults:.60?}"));
        };
        match outcome.lost {
            Some(_) if both_superblocks_are_hit(base, seed) => lost += 1,
            Some(why) => fail(format!("the pool is lost: {why}")),
            None => {}
        }
        outcome.wrong.into_iter().for_each(&mut fail);
        let count = outcome.silent.len();
        if let Some(first) = outcome.silent.into_iter().next() {
            fail(format!("{count} silent changes, first {first}"));
        }
    }
    (failures, lost)
}

#[test]
fn no_damage_is_silent_and_no_pool_is_lost() {
    let pools = number("CORRUPT_POOLS", 300);
    let first = number("CORRUPT_SEED", 1);
    let (failures, lost) = run(first..first + pools);
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{pools} damaged pools, {lost} lost with both superblocks");
    assert!(lost * 5 < pools || pools < 10);
}

#[test]
fn records_that_are_dropped_silently_are_noticed() {
    deliberate::set(Some(Bug::DropDamagedRecords));
    let (failures, _) = run(0..1_500);
    deliberate::set(None);
    // Of pools in either of the crashed states.
    for state in ["crashed", "leased"] {
        let noticed = failures
            .iter()
            .filter(|failure| failure.contains(state))
            .count();
        assert!(noticed > 3, "{state}: {failures:#?}");
    }
}
