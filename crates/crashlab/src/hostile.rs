//! A leased file whose holder writes whatever he likes, or whose lease is damaged: a small pool, changed by arbitrary bytes, and what must hold then.
//!
//! Shared by the fuzz target and by the test that runs on the stable toolchain.

mod hand;

use crate::catalogue;
use crate::clock;
use crate::lab;
use crate::lessee::Map;
use crate::mapped::Mapped;
use crate::model::Model;
use crate::mutation::{POOL_BYTES, change_raw, examine};
use crate::operation::Live;
use crate::recovery;
use crate::snapshot::{Snapshot, Summary};
use fs::format::RawInode;
use fs::format::inode::{INODE_BYTES, INODES_PER_BLOCK};
use fs::format::lease::FLAG_LEASE;
use fs::lease::{Holder, LeaseRemains, LeaseSize, TakenBack};
use fs::{FileSystem, InodeNumber, NewInode, Node};
use hand::Hand;
pub use hand::{MUTATION_BYTES, Mutation};
use lease::{Spare, Trust, Writer};
use pmem::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Region};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{FormatOptions, Metadata};
use zerocopy::{FromBytes, IntoBytes};

/// A ring that holds almost as many records as can belong together, and so few spare blocks that they go round.
const SIZE: LeaseSize = LeaseSize {
    ring_blocks: 4,
    spare_blocks: 8,
};
const LEASED: &[u8] = b"leased";
const LEASED_PATH: &str = "/leased";
/// Blocks of the file that are looked at, holes behind its end included.
const BLOCKS_LOOKED_AT: u64 = 64;
/// Most mutations of one input.
const MUTATIONS_MAX: usize = 400;

/// A pool with a leased file, and what its holder can reach.
#[derive(Debug)]
pub struct Sample {
    /// Before the lease, unmounted.
    plain: Vec<u8>,
    /// While the holder writes.
    leased: Vec<u8>,
    hand: Hand,
    /// Everything but the leased file.
    others: Snapshot,
    /// Lines that the lease changed and that its holder cannot reach.
    lines: Vec<usize>,
    /// Where the inodes of the lease and of its file lie.
    inodes: [(InodeNumber, usize); 2],
}

/// The other end of the lease: says what it likes, but as the server hears it.
struct Liar {
    is_idle: bool,
    busy_block: Option<u64>,
}

impl Holder for Liar {
    fn attributes_changed(&self) {}

    fn is_idle(&self) -> bool {
        self.is_idle
    }

    fn take_back(&self) -> TakenBack {
        match self.is_idle {
            true => TakenBack {
                trust: Trust::All,
                busy_block: None,
            },
            false => TakenBack {
                trust: Trust::IfDataFits,
                busy_block: self.busy_block,
            },
        }
    }

    fn folded(&self, _next: u64, _refilled: &[Spare]) {}

    fn ended(&self, remains: LeaseRemains, _next: u64) {
        drop(remains);
    }
}

impl Sample {
    /// The start tree of all workloads and a leased file, some of whose records are folded and some not.
    ///
    /// # Panics
    ///
    /// If the sound pool cannot be made: nothing can be tried then.
    pub fn new() -> Sample {
        let region = pool_with_file();
        let plain = region.image();
        let files = recovery::mount(&region).expect("the pool mounts");
        let node = files
            .lookup(&files.root(), LEASED)
            .expect("the file is there");
        files.checkpoint();
        let before = region.image();
        let hand = write_honestly(&files, &node, &region);
        let leased = region.image();
        let lines = (0..leased.len() / LINE_BYTES)
            .filter(|line| {
                let at = line * LINE_BYTES..(line + 1) * LINE_BYTES;
                leased[at.clone()] != before[at] && !hand.reaches(line * LINE_BYTES)
            })
            .collect();
        let inodes = [
            leased_inode(&files, &node),
            (node.number(), inode_at(&files, node.number())),
        ];
        let mut sample = Sample {
            plain,
            leased,
            hand,
            others: Snapshot::default(),
            lines,
            inodes,
        };
        let recovered = Arc::new(Region::from_image(&sample.leased));
        let files = recovery::mount(&recovered).expect("the sound pool mounts");
        sample.others = others(&files).expect("the sound pool can be read");
        sample
    }

    /// What `input` describes: its first byte says who reads what the others change, [`MUTATION_BYTES`] each.
    ///
    /// # Errors
    ///
    /// What did not hold, in words.
    pub fn examine(&self, input: &[u8]) -> Result<(), String> {
        let Some((&mode, input)) = input.split_first() else {
            return Ok(());
        };
        let mutations: Vec<Mutation> = Mutation::all_in(input).take(MUTATIONS_MAX).collect();
        clock::aside(|| match mode % 4 {
            0 | 1 => self.recover(&mutations),
            2 => self.fold_and_end(mode, &mutations),
            _ => {
                self.damage(&mutations);
                Ok(())
            }
        })
    }

    /// The holder wrote this, then the power went.
    fn recover(&self, mutations: &[Mutation]) -> Result<(), String> {
        let region = Arc::new(Region::from_image(&self.leased));
        let mut hand = self.hand.clone();
        for mutation in mutations {
            hand.apply(&region, mutation);
        }
        let mut files = recovery::mount(&region)?;
        if !files.losses().is_empty() {
            // Made-up damage closes the holder's file until the records are dropped.
            let node = files.lookup(&files.root(), LEASED).map_err(text)?;
            if files.read(&node, 0, &mut [0]).is_ok() {
                return Err("a file with damaged records is open".to_owned());
            }
            drop(node);
            files.unmount();
            files = recovery::mount_forced(&region)?;
        }
        self.inspect(&files)?;
        let node = files.lookup(&files.root(), LEASED).map_err(text)?;
        for block in blocks(&files, &node)?.values() {
            if !self.hand.may_hold_data(*block) {
                return Err(format!("the file has got {block:?}"));
            }
        }
        files.unmount();
        self.is_sound(&region)
    }

    /// The holder writes this while the server folds, and takes the lease back.
    fn fold_and_end(&self, mode: u8, mutations: &[Mutation]) -> Result<(), String> {
        let region = Arc::new(Region::from_image(&self.plain));
        let files = recovery::mount(&region)?;
        let node = files.lookup(&files.root(), LEASED).map_err(text)?;
        let liar = Arc::new(Liar {
            is_idle: mode & 4 != 0,
            busy_block: match mode >> 3 {
                0 => None,
                31 => Some(u64::MAX - 2),
                block => Some(u64::from(block) - 1),
            },
        });
        let grant = files
            .lease(&node, SIZE, liar)
            .map_err(|error| format!("lease: {error}"))?;
        let mut hand = Hand::new(&grant, &blocks(&files, &node)?);
        for (number, mutation) in mutations.iter().enumerate() {
            hand.apply(&region, mutation);
            if number % 32 == 31 {
                match files.fold_lease(&node).map_err(text)? {
                    None => break,
                    Some((_, refilled)) => hand.refill(&refilled),
                }
            }
        }
        files
            .end_lease(&node)
            .map_err(|error| format!("the end of the lease: {error}"))?;
        drop(node);
        self.inspect(&files)?;
        files.unmount();
        self.is_sound(&region)
    }

    /// The medium, or whoever can write to metadata, did this: any answer is right.
    fn damage(&self, mutations: &[Mutation]) {
        let region = Region::from_image(&self.leased);
        let mut hand = self.hand.clone();
        for mutation in mutations.iter().filter(|mutation| mutation.kind < 128) {
            hand.apply(&region, mutation);
        }
        let mut image = region.into_image();
        for mutation in mutations.iter().filter(|mutation| mutation.kind >= 128) {
            self.damage_metadata(&mut image, mutation);
        }
        examine(&image);
    }

    fn damage_metadata(&self, image: &mut [u8], mutation: &Mutation) {
        let Mutation {
            kind,
            flags,
            place,
            value,
        } = *mutation;
        let line = self.lines[usize::from(place) % self.lines.len()] * LINE_BYTES;
        let word = line + usize::from(flags % 8) * 8;
        let (number, at) = self.inodes[usize::from(flags >> 7)];
        let inode = &mut image[at..at + INODE_BYTES];
        match kind % 6 {
            0 => change_raw(inode, number, flags, value),
            1 | 2 => change_inline(inode, number, place, value),
            3 => image[word..word + 8].copy_from_slice(&value.to_le_bytes()),
            4 => image[line + usize::from(flags) % LINE_BYTES] ^= 1 << (value % 8),
            _ => image[line..line + LINE_BYTES].fill(0),
        }
    }

    /// Demands that everything but the leased file is as it was, and that every block has one owner.
    fn inspect(&self, files: &FileSystem) -> Result<(), String> {
        let differences = self.others.differences(&others(files)?);
        if let Some(first) = differences.first() {
            return Err(format!("another file has changed: {first}"));
        }
        let found = Summary::of(files).map_err(text)?;
        recovery::add_up(files, &found)
    }

    /// Demands that `fsck` finds nothing, and that the pool can be used.
    fn is_sound(&self, region: &Arc<Region>) -> Result<(), String> {
        recovery::check(region)?;
        recovery::recover(region, &Mapped::none(), true).map(drop)
    }
}

impl Default for Sample {
    fn default() -> Self {
        Sample::new()
    }
}

fn text(error: fs::FsError) -> String {
    error.to_string()
}

fn pool_with_file() -> Arc<Region> {
    let options = FormatOptions {
        size_bytes: POOL_BYTES,
        ..FormatOptions::tiny()
    };
    clock::restart(1);
    let made = fs::mkfs_region(Region::anonymous(POOL_BYTES), &options, (0, 0));
    let region = Arc::new(made.expect("a pool in memory can be made"));
    let (mut live, mut model) = (
        Live::mount(&region).expect("a new pool mounts"),
        Model::default(),
    );
    for operation in catalogue::start() {
        lab::agree(&mut live, &mut model, &operation).expect("the start tree can be made");
    }
    let files = live.files();
    let node = files
        .create(&files.root(), LEASED, &NewInode::file(0o640))
        .expect("a file can be made");
    for (offset, bytes) in [(0, 3 * BLOCK_BYTES), (5 * BLOCK_BYTES, 2000)] {
        files
            .write(&node, offset as u64, &vec![0x77; bytes])
            .expect("a file can be written");
    }
    drop(node);
    live.unmount();
    region
}

/// Leases the file and writes to it, as an honest holder does: what he can reach, and what the server would make of it.
fn write_honestly(files: &FileSystem, node: &Node, region: &Arc<Region>) -> Hand {
    let honest = Arc::new(Liar {
        is_idle: true,
        busy_block: None,
    });
    let grant = files.lease(node, SIZE, honest).expect("it can be leased");
    let mut map = Map::default();
    files
        .places(node, 0, BLOCKS_LOOKED_AT, |index, place| {
            map.0.insert(index, place);
        })
        .expect("a sound file");
    let mut hand = Hand::new(&grant, &blocks(files, node).expect("a sound file"));
    let mut writer = Writer::new(
        Arc::clone(region),
        grant.ring.clone(),
        grant.salt,
        grant.next,
        grant.spares.iter().copied(),
        grant.size_bytes,
    );
    let mut write = |offset: usize, bytes: usize| {
        let now = clock::tick().nanoseconds();
        writer
            .write(&mut map, offset as u64, &vec![0x55; bytes], now)
            .expect("room for a write");
    };
    write(0, BLOCK_BYTES);
    write(5 * BLOCK_BYTES + 2000, 100);
    files
        .fold_lease(node)
        .expect("it can be folded")
        .expect("it is leased");
    write(1000, 2 * BLOCK_BYTES);
    write(5 * BLOCK_BYTES + 2100, 3000);
    write(2 * BLOCK_BYTES, 10);
    hand.catch_up(region);
    hand
}

/// Where the data of a file lies.
fn blocks(files: &FileSystem, node: &Node) -> Result<BTreeMap<u64, BlockNumber>, String> {
    let mut blocks = BTreeMap::new();
    files
        .places(node, 0, BLOCKS_LOOKED_AT, |index, place| match place {
            Some(lease::Place::At(block) | lease::Place::Unwritten(block)) => {
                blocks.insert(index, block);
            }
            Some(lease::Place::Hole) | None => {}
        })
        .map_err(text)?;
    Ok(blocks)
}

fn others(files: &FileSystem) -> Result<Snapshot, String> {
    let mut snapshot = Snapshot::of(files).map_err(|error| format!("reading: {error}"))?;
    snapshot
        .0
        .remove(LEASED_PATH)
        .ok_or("the leased file is gone")?;
    Ok(snapshot)
}

fn inode_blocks(files: &FileSystem) -> Vec<BlockNumber> {
    let store = files.store();
    let own: RawInode = store.load(store.root_area());
    let mut table = Vec::new();
    fs::block_map::BlockMap::of(InodeNumber::TABLE, &own)
        .lookup_range(
            store,
            0,
            own.size / BLOCK_BYTES as u64,
            &mut |_, pointer: Option<fs::format::Pointer>| {
                table.extend(pointer.and_then(fs::format::Pointer::memory));
            },
        )
        .expect("a sound table");
    table
}

fn inode_at(files: &FileSystem, number: InodeNumber) -> usize {
    let block = inode_blocks(files)[(number.get() / INODES_PER_BLOCK) as usize];
    block.offset().get() as usize + (number.get() % INODES_PER_BLOCK) as usize * INODE_BYTES
}

/// The lease's inode: the only one of its kind.
fn leased_inode(files: &FileSystem, node: &Node) -> (InodeNumber, usize) {
    let inodes = inode_blocks(files).len() as u64 * INODES_PER_BLOCK;
    (1..inodes)
        .map(InodeNumber::new)
        .filter(|number| *number != node.number())
        .map(|number| (number, inode_at(files, number)))
        .find(|(_, at)| {
            let raw: RawInode = files.store().load(pmem::Offset::new(*at as u64));
            raw.flags == FLAG_LEASE
        })
        .expect("the lease has an inode")
}

/// Changes a word of an inode's inline area, and gives it the checksum that fits.
fn change_inline(bytes: &mut [u8], number: InodeNumber, place: u16, value: u64) {
    let Ok(mut raw) = RawInode::read_from_bytes(bytes) else {
        return;
    };
    // Four words say something; halves of two of them are counts.
    let (at, length) = match place % 6 {
        0 => (0, 8),
        1 => (8, 8),
        half => (8 + usize::from(half) * 4, 4),
    };
    let value = if place & 0x100 != 0 {
        value % 70
    } else {
        value
    };
    raw.inline.as_mut_bytes()[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    raw.checksum = raw.expected_checksum(number);
    bytes.copy_from_slice(raw.as_bytes());
}
