//! Damaged pools: a real one, changed by arbitrary bytes in ways that get past the first check, and what must hold then.
//!
//! Shared by the fuzz targets and by the test that runs on the stable toolchain.

pub mod on_device;

use crate::catalogue;
use crate::clock;
use crate::lab;
use crate::model::Model;
use crate::operation::Live;
use crate::recovery;
use crate::snapshot::Summary;
use device::DeviceBlock;
use fs::block_map::BlockMap;
use fs::check::CheckOptions;
use fs::format::inode::{INODE_BYTES, INODES_PER_BLOCK};
use fs::format::{Pointer, Position, RawInode};
use fs::{Clock, FileSystem, FileType, InodeNumber, MountOptions, NewInode, RenameOptions};
use pmem::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Offset, Region};
use std::sync::Arc;
use txn::checksum::{Seal, crc32c, seal};
use txn::layout::{CHECKPOINT_AT, JOURNALS_AT, ROOT_AREA_AT, STATE_BLOCK};
use txn::places::{HalfPlace, read_places};
use txn::record::{DataCheck, RecordBuilder};
use txn::{FormatOptions, Geometry, Homes, Metadata, Mode, PmemStore, Superblock};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the pool that is damaged.
pub const POOL_BYTES: u64 = 1 << 20;
/// Bytes of one mutation in the input of [`Sample::mutate`].
pub const MUTATION_BYTES: usize = 12;
/// Most mutations of one input.
const MUTATIONS_MAX: usize = 64;

/// Kinds of damage to the region.
const KINDS: u8 = 11;

/// One piece of an input.
#[derive(Clone, Copy, Debug)]
struct Mutation {
    kind: u8,
    flags: u8,
    place: usize,
    value: u64,
}

/// The mutations of an input.
fn mutations(input: &[u8]) -> impl Iterator<Item = Mutation> {
    let pieces = input.as_chunks::<MUTATION_BYTES>().0;
    pieces.iter().take(MUTATIONS_MAX).map(|piece| Mutation {
        kind: piece[0],
        flags: piece[1],
        place: usize::from(u16::from_le_bytes([piece[2], piece[3]])),
        value: u64::from_le_bytes([4, 5, 6, 7, 8, 9, 10, 11].map(|index| piece[index])),
    })
}

/// A sound pool, and where its parts are.
#[derive(Debug)]
pub struct Sample {
    image: Vec<u8>,
    geometry: Geometry,
    /// Lines that hold anything: where damage hurts.
    lines: Vec<usize>,
    /// Blocks of the inode table.
    table: Vec<BlockNumber>,
    /// The half of the first journal that records go to.
    journal: HalfPlace,
    journal_key: u64,
    sequence: u64,
}

impl Sample {
    /// The start tree of all workloads, left mounted, so that there is a journal to replay.
    ///
    /// # Panics
    ///
    /// If the sound pool cannot be made: nothing can be tried then.
    pub fn new() -> Sample {
        let region = new_region(&FormatOptions {
            size_bytes: POOL_BYTES,
            ..FormatOptions::tiny()
        });
        let (mut live, mut model) = (
            Live::mount(&region).expect("a new pool mounts"),
            Model::default(),
        );
        for operation in catalogue::start() {
            lab::agree(&mut live, &mut model, &operation).expect("the start tree can be made");
        }
        Sample::of(live.files(), &region)
    }

    /// The pool in a region, as it is now.
    fn of(files: &FileSystem, region: &Region) -> Sample {
        let store = files.store();
        let own: RawInode = store.load(store.root_area());
        let mut table = Vec::new();
        let blocks = own.size / BLOCK_BYTES as u64;
        let mut note =
            |_, pointer: Option<Pointer>| table.extend(pointer.and_then(Pointer::memory));
        BlockMap::of(InodeNumber::TABLE, &own)
            .lookup_range(store, 0, blocks, &mut note)
            .expect("a sound table");
        let places = read_places(region, store.superblock()).expect("sound places");
        let journal_key = store.superblock().journal_key;
        let (geometry, sequence) = (store.geometry(), store.sequences().0);
        let image = region.image();
        let lines = image.chunks(LINE_BYTES).enumerate();
        let lines = lines
            .filter(|(_, line)| line.iter().any(|&byte| byte != 0))
            .map(|(index, _)| index)
            .collect();
        Sample {
            image,
            geometry,
            lines,
            table,
            journal: places[0][0],
            journal_key,
            sequence,
        }
    }

    /// The sound image.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Where its segments are.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The damaged image that `input` describes: twelve bytes for each mutation (kind, flags, place, value).
    pub fn mutate(&self, input: &[u8]) -> Vec<u8> {
        let mut image = self.image.clone();
        for mutation in mutations(input) {
            self.apply(&mut image, mutation);
        }
        image
    }

    fn apply(&self, image: &mut [u8], mutation: Mutation) {
        let Mutation {
            kind,
            flags,
            place,
            value,
        } = mutation;
        let line = self.lines[place % self.lines.len()] * LINE_BYTES;
        let word = line + usize::from(flags % 8) * 8;
        match kind % KINDS {
            0 => image[line + usize::from(flags) % LINE_BYTES] ^= 1 << (value % 8),
            1 => image[word..word + 8].copy_from_slice(&value.to_le_bytes()),
            2 => {
                let other = self.lines[value as usize % self.lines.len()] * LINE_BYTES;
                image.copy_within(other..other + LINE_BYTES, line);
            }
            3 => image[line..line + LINE_BYTES].fill(0),
            4 => self.change_inode(image, place, flags, value),
            5 => self.point_root(image, place, flags, value),
            6 => self.add_record(image, place, flags, value),
            7 => self.change_superblock(image, flags, value),
            8 => self.seal_state(image, flags, value),
            9 => image[self.inode_at(place)..][..INODE_BYTES].fill(0),
            _ => self.change_table(image, flags, value),
        }
    }

    fn inode_at(&self, number: usize) -> usize {
        let number = number % (self.table.len() * INODES_PER_BLOCK as usize);
        let block = self.table[number / INODES_PER_BLOCK as usize];
        block.offset().get() as usize + number % INODES_PER_BLOCK as usize * INODE_BYTES
    }

    /// Any field of an inode, with a checksum that fits.
    fn change_inode(&self, image: &mut [u8], number: usize, flags: u8, value: u64) {
        let at = self.inode_at(number);
        let number = number % (self.table.len() * INODES_PER_BLOCK as usize);
        change_raw(
            &mut image[at..at + INODE_BYTES],
            InodeNumber::new(number as u64),
            flags,
            value,
        );
    }

    fn change_table(&self, image: &mut [u8], flags: u8, value: u64) {
        let at = (STATE_BLOCK.offset() + ROOT_AREA_AT).get() as usize;
        change_raw(
            &mut image[at..at + INODE_BYTES],
            InodeNumber::TABLE,
            flags,
            value,
        );
    }

    /// A root pointer of an inode to any block of the pool, or beyond, with checks that fit.
    fn point_root(&self, image: &mut [u8], number: usize, flags: u8, value: u64) {
        let at = self.inode_at(number);
        let number =
            InodeNumber::new((number % (self.table.len() * INODES_PER_BLOCK as usize)) as u64);
        let Ok(mut raw) = RawInode::read_from_bytes(&image[at..at + INODE_BYTES]) else {
            return;
        };
        let block = BlockNumber::new(value % (self.geometry.total_blocks() + 2));
        let pointer = match (flags & 1 != 0, flags & 4 != 0) {
            (_, true) => Pointer::Device(DeviceBlock::new(block.get())),
            (true, false) => Pointer::Unwritten(block),
            (false, false) => Pointer::Written(block),
        };
        if flags & 2 != 0 {
            raw.attributes = pointer.word(Position {
                inode: number,
                level: Position::ATTRIBUTES,
                index: 0,
            });
        } else {
            raw.height = flags >> 5;
            raw.root = pointer.word(Position {
                inode: number,
                level: raw.height,
                index: 0,
            });
        }
        raw.checksum = raw.expected_checksum(number);
        image[at..at + INODE_BYTES].copy_from_slice(raw.as_bytes());
    }

    /// A whole record in the journal, with a checksum that fits, that changes any place; some check data that fits or does not.
    fn add_record(&self, image: &mut [u8], place: usize, flags: u8, value: u64) {
        let mut record = RecordBuilder::new();
        let at = Offset::new((self.lines[place % self.lines.len()] * LINE_BYTES) as u64);
        match flags % 3 {
            0 => record.store_word(at, value),
            1 => record.zero(at, 1 + value as usize % 8192),
            _ => record.store(at, &image[..1 + value as usize % 512]),
        }
        if flags & 8 != 0 {
            let block = (value >> 32) % (self.geometry.total_blocks() + 2);
            record.check_data(data_check(image, BlockNumber::new(block), value));
        }
        record.close(&Homes::default());
        let bytes = record
            .finish(
                self.sequence + 1 + u64::from(flags >> 4),
                self.journal.salt(self.journal_key),
            )
            .to_vec();
        let at = self.journal.start.offset().get() as usize;
        image[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    fn change_superblock(&self, image: &mut [u8], flags: u8, value: u64) {
        let size = size_of::<Superblock>();
        let Ok(mut superblock) = Superblock::read_from_bytes(&image[..size]) else {
            return;
        };
        match flags % 9 {
            0 => superblock.segments = value as u32 % 32,
            1 => superblock.journals = value as u32 % 70,
            2 => superblock.segment_blocks = 1 << (value % 40),
            3 => superblock.header_blocks = value % 300,
            4 => superblock.journal_blocks = value % 40,
            5 => superblock.flags = value as u32,
            6 => superblock.version = value as u32 % 3,
            7 => superblock.journal_key = value,
            _ => superblock.magic[value as usize % 8] ^= 1,
        }
        superblock.checksum = superblock.expected_checksum();
        let second = self.geometry.second_superblock().get() as usize;
        image[..size].copy_from_slice(superblock.as_bytes());
        image[second..second + size].copy_from_slice(superblock.as_bytes());
    }

    fn seal_state(&self, image: &mut [u8], flags: u8, value: u64) {
        let state = STATE_BLOCK.offset().get() as usize;
        let (at, word) = match flags % 2 {
            0 => (
                CHECKPOINT_AT,
                seal(value % (self.sequence + 3), Seal::Checkpoint, 0),
            ),
            _ => (
                JOURNALS_AT,
                seal(value % (self.geometry.total_blocks() + 2), Seal::Journal, 0),
            ),
        };
        let at = state + at as usize;
        image[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

impl Default for Sample {
    fn default() -> Self {
        Sample::new()
    }
}

/// A new pool in memory; the clock of this thread begins anew.
fn new_region(options: &FormatOptions) -> Arc<Region> {
    clock::restart(1);
    let region = Region::anonymous(options.size_bytes);
    let made = fs::mkfs_region(region, options, (0, 0));
    Arc::new(made.expect("a pool in memory can be made"))
}

/// A check of the start of a block, which may lie outside the image; half of them fit.
fn data_check(image: &[u8], block: BlockNumber, value: u64) -> DataCheck {
    let (at, length) = (block.offset(), 1 + (value >> 16) as usize % BLOCK_BYTES);
    let start = at.get() as usize;
    let found = image.get(start..start + length).map_or(0, crc32c);
    DataCheck {
        at,
        length,
        checksum: found ^ (value as u32 & 1),
    }
}

/// Changes a field of an inode and gives it the checksum that fits.
pub(crate) fn change_raw(bytes: &mut [u8], number: InodeNumber, flags: u8, value: u64) {
    let Ok(mut raw) = RawInode::read_from_bytes(bytes) else {
        return;
    };
    match flags % 12 {
        0 => raw.mode = value as u32,
        1 => raw.links = value as u32,
        2 => raw.size = value,
        3 => raw.size = value % (1 << 24),
        4 => raw.blocks = value,
        5 => raw.height = value as u8,
        6 => raw.root = value,
        7 => raw.attributes = value,
        8 => raw.parent = value % 40,
        9 => raw.mode = (raw.mode & 0o7777) | (value as u32 & 0o170_000),
        10 => raw.generation = value as u32,
        _ => raw.modified = value as i64,
    }
    raw.checksum = raw.expected_checksum(number);
    bytes.copy_from_slice(raw.as_bytes());
}

const ONE_THREAD: CheckOptions<'_> = CheckOptions {
    threads: 1,
    progress: None,
};

/// What may be asked of any image: nothing here may panic or fail to end.
///
/// Returns whether the pool could be mounted.
pub fn examine(image: &[u8]) -> bool {
    clock::aside(|| {
        let region = Arc::new(Region::from_image(image));
        let read_only = PmemStore::open_region(Arc::clone(&region), Mode::ReadOnly);
        let options = MountOptions {
            threads: 1,
            clock: Clock::Custom(clock::tick),
            ..MountOptions::default()
        };
        if let Ok(files) = read_only.and_then(|store| FileSystem::mount(store, options)) {
            let _ = Summary::of(&files);
        }
        let _ = fs::check::check(&region, &ONE_THREAD);
        let _ = fs::check::repair(&region, &ONE_THREAD);
        if let Ok(files) = recovery::mount(&region) {
            let _ = Summary::of(&files);
        }
        drop(region);
        let region = Arc::new(Region::from_image(image));
        let Ok(files) = recovery::mount(&region) else {
            return false;
        };
        let _ = Summary::of(&files);
        use_damaged(&files);
        files.unmount();
        // After a clean unmount the saved state is believed: it must be no worse.
        if let Ok(files) = recovery::mount(&region) {
            let _ = Summary::of(&files);
        }
        true
    })
}

/// Operations on whatever is there. Every answer is right, as long as there is one.
fn use_damaged(files: &FileSystem) {
    let root = files.root();
    let node = files.create(&root, b"fresh", &NewInode::file(0o644));
    if let Ok(node) = &node {
        let _ = files.write(node, 5000, &[1; 9000]);
        let _ = files.set_xattr(node, b"user.x", &[2; 100], fs::XattrMode::Any);
    }
    let mut names = Vec::new();
    let _ = files.read_directory(&root, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.file_type));
        names.len() < 100
    });
    for (index, (name, file_type)) in names.iter().enumerate() {
        let Ok(node) = files.lookup(&root, name) else {
            continue;
        };
        let _ = files.write(&node, index as u64 * 1000, &[3; 700]);
        let _ = files.append(&node, &[4; 5000]);
        let _ = files.link(&node, &root, format!("link {index}").as_bytes());
        let _ = files.create(&node, b"inside", &NewInode::file(0o600));
        let change = fs::SetAttributes {
            size_bytes: Some(100),
            mode: Some(0o600),
            ..Default::default()
        };
        let _ = files.set_attributes(&node, &change);
        drop(node);
        let target = format!("moved {}", index / 2);
        let _ = files.rename(
            &root,
            name,
            &root,
            target.as_bytes(),
            RenameOptions::default(),
        );
        if *file_type == FileType::Directory {
            let _ = files.remove_directory(&root, target.as_bytes());
        } else if index % 2 == 0 {
            let _ = files.unlink(&root, target.as_bytes());
        }
    }
    files.checkpoint();
}
