//! Damaged pools with content on a device, which is damaged as well, and fails.
//!
//! Two rules are checked, whatever the input is:
//!
//! * bytes that a block of the device is to hold are read as they were sealed, or not at all (D5);
//! * as long as the input leaves the region alone, but for seals, each file has the content that
//!   its model has, or a read of a block on the device fails.

use super::{KINDS, Mutation, POOL_BYTES, Sample, examine, mutations, new_region, use_damaged};
use crate::catalogue;
use crate::clock;
use crate::content::Content;
use crate::lab;
use crate::model::Model;
use crate::operation::{Live, Operation, Refusal};
use crate::random::Random;
use crate::recovery;
use crate::snapshot::{Summary, walk};
use crate::workload::{DEVICE_BLOCKS, Pool};
use device::faulty::{Fault, Faulty};
use device::{Device, DeviceBlock, DeviceError, ReadRequest, WriteRequest};
use fs::block_map::{BlockMap, Slot};
use fs::format::inode::{INODE_BYTES, INODES_PER_BLOCK};
use fs::format::{Pointer, Position, RawInode};
use fs::{FileSystem, FileType, FsError, InodeNumber, Node};
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use txn::checksum::crc32c;
use txn::transaction::use_slot;
use txn::{FormatOptions, Metadata, Superblock};
use zerocopy::{FromBytes, IntoBytes};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks of each file that are looked at one by one: damage may make a file of any size.
const BLOCKS_SEEN: Range<u64> = 0..32;
/// Kinds of pieces that leave the region alone, but for seals.
const SOUND_KINDS: u8 = 8;
/// Kinds of damage to the region: those of any pool, and those of one with a device.
const REGION_KINDS: u8 = KINDS + 3;

/// Bits of an input's first byte.
mod flag {
    /// Reads fill copies in DRAM.
    pub(super) const HAS_COPIES: u8 = 1;
    /// The region stays sound, but for seals.
    pub(super) const IS_SOUND: u8 = 2;
    /// The server is killed; else it unmounts.
    pub(super) const IS_KILLED: u8 = 4;
    /// The device is not there at the mount.
    pub(super) const IS_GONE: u8 = 8;
    /// The damaged region is examined like a pool of any kind, first.
    pub(super) const IS_EXAMINED: u8 = 16;
}

/// A sound pool with content on a device, the places of its parts, and the model of its content.
#[derive(Debug)]
pub struct DeviceSample {
    sample: Sample,
    device: Faulty,
    model: Model,
    pointers: Vec<Place>,
    seals: Offset,
    operations: Vec<Operation>,
}

/// Where the pointer to a block of a file is.
#[derive(Clone, Copy, Debug)]
struct Place {
    inode: InodeNumber,
    index: u64,
    slot: Slot,
}

/// An event while the pool is mounted.
#[derive(Debug)]
enum Step {
    Arm(Fault, u64),
    /// The device goes, or comes back.
    Go(bool),
    Do(Operation),
}

/// A pool that an input has damaged, and the steps that the input demands.
struct Trial {
    flags: u8,
    image: Vec<u8>,
    device: Arc<Faulty>,
    steps: Vec<Step>,
    /// The model says what the pool holds.
    is_sound: bool,
    /// The device has what was written, and is there.
    is_whole: bool,
}

impl DeviceSample {
    /// The start tree with all content on a device, and records in the journal that moved some.
    ///
    /// # Panics
    ///
    /// If the sound pool cannot be made: nothing can be tried then.
    pub fn new() -> DeviceSample {
        let device = Arc::new(Faulty::new(DEVICE_BLOCKS.into()));
        recovery::with_device(Some(Arc::clone(&device)), || DeviceSample::on(&device))
    }

    fn on(device: &Faulty) -> DeviceSample {
        let region = new_region(&FormatOptions {
            size_bytes: POOL_BYTES,
            ..Pool::OnDevice.options()
        });
        let (mut live, mut model) = (
            Live::mount(&region).expect("a new pool mounts"),
            Model::default(),
        );
        let mut operations = catalogue::start();
        operations.extend(catalogue::sinks());
        operations.push(Operation::Checkpoint);
        // These stay in the journal.
        operations.push(Operation::Raise {
            path: "a".into(),
            first: 0,
            blocks: 2,
        });
        operations.extend(catalogue::sinks());
        for operation in operations {
            lab::agree(&mut live, &mut model, &operation).expect("the start tree can be made");
        }
        let files = live.files();
        let seals = files.store().superblock().seals().expect("it has a device");
        DeviceSample {
            sample: Sample::of(files, &region),
            device: device.snapshot(),
            pointers: pointers(files, &live, &mut model),
            model,
            seals: seals.start.offset(),
            operations: catalogue::on_device(),
        }
    }

    /// Damages the pool as `input` says (a byte of flags, then pieces as those of
    /// [`Sample::mutate`]), mounts and uses it. Returns whether it could be mounted.
    ///
    /// # Errors
    ///
    /// The rule that does not hold.
    pub fn examine(&self, input: &[u8]) -> Result<bool, String> {
        let Some((&flags, pieces)) = input.split_first() else {
            return Ok(false);
        };
        let trial = self.trial(flags, pieces);
        clock::restart(1);
        use_slot(0);
        recovery::has_read_cache(flags & flag::HAS_COPIES != 0);
        let device = Some(Arc::clone(&trial.device));
        let outcome = recovery::with_device(device, || trial.run(&self.model));
        recovery::has_read_cache(false);
        outcome
    }

    fn trial(&self, flags: u8, pieces: &[u8]) -> Trial {
        let mut trial = Trial {
            flags,
            image: self.sample.image.clone(),
            device: Arc::new(self.device.snapshot()),
            steps: Vec::new(),
            is_sound: true,
            is_whole: true,
        };
        for piece in mutations(pieces) {
            self.apply(&mut trial, piece);
        }
        if flags & flag::IS_GONE != 0 {
            trial.device.set_gone(true);
            trial.is_whole = false;
        }
        trial
    }

    fn apply(&self, trial: &mut Trial, piece: Mutation) {
        let Mutation {
            kind, flags, value, ..
        } = piece;
        let kind = match trial.flags & flag::IS_SOUND {
            0 => kind % (REGION_KINDS + SOUND_KINDS),
            _ => REGION_KINDS + kind % SOUND_KINDS,
        };
        if kind >= REGION_KINDS {
            return self.apply_sound(trial, kind - REGION_KINDS, piece);
        }
        trial.is_sound = false;
        match kind.checked_sub(KINDS) {
            None => self
                .sample
                .apply(&mut trial.image, Mutation { kind, ..piece }),
            Some(0) => self.point(&mut trial.image, piece),
            Some(1) => {
                let block = device_block(piece.place);
                trial.device.flip(block, value as usize);
                let content = read(&trial.device, block).unwrap_or([0; BLOCK_BYTES]);
                self.seal(&mut trial.image, block, crc32c(&content));
            }
            Some(_) => self.resize(&mut trial.image, flags, value),
        }
    }

    /// A piece that leaves the region alone, but for seals.
    fn apply_sound(&self, trial: &mut Trial, kind: u8, piece: Mutation) {
        let Mutation { place, value, .. } = piece;
        let block = device_block(place);
        trial.is_whole &= kind > 3;
        match kind {
            0 => trial.device.flip(block, value as usize),
            1 => copy(&trial.device, device_block(value as usize), block),
            2 => self.seal(&mut trial.image, block, value as u32),
            3 => trial.steps.push(Step::Go(value & 1 != 0)),
            4 => {
                let fault = Fault::ALL[place % Fault::ALL.len()];
                let loses = [Fault::Torn, Fault::Lost, Fault::Misdirected];
                trial.is_whole &= !loses.contains(&fault);
                trial.steps.push(Step::Arm(fault, value % 4));
            }
            5 | 6 => {
                let operation = &self.operations[place % self.operations.len()];
                trial.steps.push(Step::Do(operation.clone()));
            }
            _ => {
                let operation = catalogue::random_operation(&mut Random::new(value));
                trial.steps.push(Step::Do(operation));
            }
        }
    }

    fn seal(&self, image: &mut [u8], block: DeviceBlock, seal: u32) {
        let at = (self.seals.get() + block.get() * 4) as usize;
        image[at..at + 4].copy_from_slice(&seal.to_le_bytes());
    }

    /// Points a block of a file to a block of the device, or beside it; two may point to the same.
    /// All checks fit.
    fn point(&self, image: &mut [u8], piece: Mutation) {
        let Place { inode, index, slot } = self.pointers[piece.place % self.pointers.len()];
        let block = piece.value % (u64::from(DEVICE_BLOCKS) + 3);
        let pointer = match piece.flags % 4 {
            0 => Pointer::Written(BlockNumber::new(block)),
            1 => Pointer::Device(DeviceBlock::new(piece.value >> 32)),
            _ => Pointer::Device(DeviceBlock::new(block)),
        };
        let position = Position {
            inode,
            level: 0,
            index,
        };
        let word = pointer.word(position);
        if let Slot::Word(at) = slot {
            let at = at.get() as usize;
            image[at..at + 8].copy_from_slice(&word.to_le_bytes());
            return;
        }
        let at = self.sample.inode_at(inode.get() as usize);
        let bytes = &mut image[at..at + INODE_BYTES];
        let mut raw = RawInode::read_from_bytes(bytes).expect("its length");
        raw.root = word;
        raw.checksum = raw.expected_checksum(inode);
        bytes.copy_from_slice(raw.as_bytes());
    }

    /// Makes the pool use another number of blocks of its device.
    fn resize(&self, image: &mut [u8], flags: u8, value: u64) {
        let second = self.sample.geometry.second_superblock().get() as usize;
        for at in [0, second] {
            let bytes = &mut image[at..at + size_of::<Superblock>()];
            let mut superblock = Superblock::read_from_bytes(bytes).expect("its length");
            superblock.device_blocks = match flags % 2 {
                0 => value as u32 % (DEVICE_BLOCKS + 2),
                _ => value as u32,
            };
            superblock.checksum = superblock.expected_checksum();
            bytes.copy_from_slice(superblock.as_bytes());
        }
    }
}

impl Default for DeviceSample {
    fn default() -> Self {
        DeviceSample::new()
    }
}

/// Where the pointers of all files are.
fn pointers(files: &FileSystem, live: &Live, model: &mut Model) -> Vec<Place> {
    let mut places = Vec::new();
    for (path, id) in model.paths() {
        let (Ok(content), Ok(node)) = (model.content(id), live.resolve(&path)) else {
            continue;
        };
        let raw = raw_inode(files, node.number()).expect("a sound table");
        let map = BlockMap::of(node.number(), &raw);
        places.extend((0..content.size.div_ceil(BLOCK)).map(|index| Place {
            inode: node.number(),
            index,
            slot: map.slot(files.store(), index).expect("a sound map"),
        }));
    }
    places.retain(|place| place.slot != Slot::Absent);
    places
}

/// The inode as it lies in the region.
fn raw_inode(files: &FileSystem, number: InodeNumber) -> Option<RawInode> {
    let store = files.store();
    let own: RawInode = store.load(store.root_area());
    let table = BlockMap::of(InodeNumber::TABLE, &own);
    let pointer = table.lookup(store, number.get() / INODES_PER_BLOCK);
    let block = pointer.ok().flatten().and_then(Pointer::memory)?;
    let within = number.get() % INODES_PER_BLOCK * INODE_BYTES as u64;
    Some(store.load(block.offset() + within))
}

fn device_block(place: usize) -> DeviceBlock {
    DeviceBlock::new(place as u64 % u64::from(DEVICE_BLOCKS))
}

fn read(device: &Faulty, block: DeviceBlock) -> Result<[u8; BLOCK_BYTES], DeviceError> {
    let mut content = [0; BLOCK_BYTES];
    let into = &mut content;
    device.read(&mut [ReadRequest { block, into }])?;
    Ok(content)
}

/// Overwrites a block of the device by another one.
fn copy(device: &Faulty, from: DeviceBlock, to: DeviceBlock) {
    let copied = read(device, from).and_then(|content| {
        let bytes = &content[..];
        let token = device.write(&[WriteRequest { start: to, bytes }])?;
        device.wait(token)?;
        device.flush()
    });
    copied.expect("no fault is armed yet");
}

impl Trial {
    fn run(self, sound: &Model) -> Result<bool, String> {
        let mut model = sound.clone();
        if !self.is_sound && self.flags & flag::IS_EXAMINED != 0 {
            examine(&self.image);
        }
        let region = Arc::new(Region::from_image(&self.image));
        let mut live = match Live::mount(&region) {
            Ok(live) => live,
            Err(reason) if self.is_sound => return Err(reason),
            Err(_) => return Ok(false),
        };
        self.verify(&live, &mut model)?;
        for step in &self.steps {
            match step {
                Step::Arm(fault, after) => self.device.arm(*fault, *after),
                Step::Go(is_gone) => self.device.set_gone(*is_gone),
                Step::Do(operation) => {
                    if !self.perform(&mut live, &mut model, operation)? {
                        return Ok(true);
                    }
                    self.verify(&live, &mut model)?;
                }
            }
        }
        if !self.is_sound {
            move_all(live.files(), &self.device)?;
            use_damaged(live.files());
            self.verify(&live, &mut model)?;
        }
        self.end(live, &region, &mut model)?;
        Ok(true)
    }

    /// Does an operation. Returns whether the pool is still mounted.
    fn perform(
        &self,
        live: &mut Live,
        model: &mut Model,
        operation: &Operation,
    ) -> Result<bool, String> {
        if self.is_sound {
            let before = self.faults();
            lab::agree_unless(live, model, operation, || self.may_fail(before))
                .map_err(|difference| format!("{operation}: {difference}"))?;
            return Ok(true);
        }
        let outcome = live.apply(operation);
        Ok(!matches!(outcome, Err(Refusal::Mount(_))))
    }

    /// Armed faults that were met.
    fn faults(&self) -> u64 {
        self.device.counts().faults
    }

    /// Whether a request to the device may have failed since it had met `before` faults.
    fn may_fail(&self, before: u64) -> bool {
        !self.is_whole || self.faults() > before
    }

    /// Ends the use of the pool, mounts it again and reads everything.
    fn end(&self, mut live: Live, region: &Arc<Region>, model: &mut Model) -> Result<(), String> {
        self.device.disarm();
        let _ = live.apply(&Operation::Release);
        model.release();
        if self.flags & flag::IS_KILLED == 0 {
            live.unmount();
        } else {
            drop(live);
        }
        match Live::mount(region) {
            Ok(live) => {
                let _ = Summary::of(live.files());
                self.verify(&live, model)?;
                live.unmount();
            }
            Err(reason) if self.is_sound => return Err(reason),
            Err(_) => return Ok(()),
        }
        match recovery::check(region) {
            Err(fault) if self.is_sound => Err(fault),
            _ => Ok(()),
        }
    }

    fn verify(&self, live: &Live, model: &mut Model) -> Result<(), String> {
        let files = live.files();
        each_file(files, |node| sealed_or_refused(files, node, &self.device))?;
        if !self.is_sound {
            return Ok(());
        }
        for (path, id) in model.paths() {
            let Ok(wanted) = model.content(id) else {
                continue;
            };
            let node = live
                .resolve(&path)
                .map_err(|error| format!("{path}: {error}"))?;
            let before = self.faults();
            compare(files, &node, wanted, || self.may_fail(before))
                .map_err(|difference| format!("{path}: {difference}"))?;
        }
        Ok(())
    }
}

/// Looks at each regular file once, as far as directories can be read.
fn each_file(
    files: &FileSystem,
    mut look: impl FnMut(&Node) -> Result<(), String>,
) -> Result<(), String> {
    let (mut seen, mut outcome) = (HashSet::new(), Ok(()));
    // An error of a damaged directory ends the walk.
    let _ = walk(files, &mut |path, node, attributes| {
        let is_file = attributes.file_type() == FileType::Regular;
        if outcome.is_ok() && is_file && seen.insert(node.number()) {
            outcome = look(node).map_err(|fault| format!("{path}: {fault}"));
        }
        Ok(())
    });
    outcome
}

/// Moves each file to the device and back.
fn move_all(files: &FileSystem, device: &Faulty) -> Result<(), String> {
    each_file(files, |node| {
        let _ = files.move_to_device(node, BLOCKS_SEEN);
        sealed_or_refused(files, node, device)?;
        let _ = files.bring_in(node, BLOCKS_SEEN);
        sealed_or_refused(files, node, device)?;
        let _ = files.move_to_device(node, BLOCKS_SEEN);
        Ok(())
    })
}

/// Reads a file block by block. Demands that bytes of a block on the device fit its seal (D5).
fn sealed_or_refused(files: &FileSystem, node: &Node, device: &Faulty) -> Result<(), String> {
    let store = files.store();
    let Some(seals) = store.superblock().seals() else {
        return Ok(());
    };
    for index in BLOCKS_SEEN {
        let mut content = [0; BLOCK_BYTES];
        let Ok(length) = files.read(node, index * BLOCK, &mut content) else {
            continue;
        };
        let Some(raw) = raw_inode(files, node.number()) else {
            return Ok(());
        };
        let pointer = BlockMap::of(node.number(), &raw).lookup(store, index);
        let Ok(Some(Pointer::Device(block))) = pointer else {
            continue;
        };
        let seal: u32 = store.load(seals.start.offset() + block.get() * 4);
        let fits = |content: &[u8; BLOCK_BYTES]| crc32c(content) == seal;
        // Bytes behind the end of the file may be other ones on the device than zeros.
        let is_part = |whole: &[u8; BLOCK_BYTES]| whole[..length] == content[..length];
        let mut versions = versions(device, block).into_iter();
        if length > 0 && !fits(&content) && !versions.any(|one| fits(&one) && is_part(&one)) {
            return Err(format!(
                "block {index} has other bytes than block {block} of the device was sealed with"
            ));
        }
    }
    Ok(())
}

/// The versions that a read of the block may return: the present one, and that before it.
fn versions(device: &Faulty, block: DeviceBlock) -> Vec<[u8; BLOCK_BYTES]> {
    let copy = device.snapshot();
    copy.set_gone(false);
    let now = read(&copy, block);
    copy.arm(Fault::Stale, 0);
    now.into_iter().chain(read(&copy, block)).collect()
}

/// Demands that each block of a file has the bytes that are wanted, or lies on a device that may
/// fail.
fn compare(
    files: &FileSystem,
    node: &Node,
    wanted: &Content,
    may_fail: impl Fn() -> bool,
) -> Result<(), String> {
    let attributes = files.attributes(node).map_err(|error| error.to_string())?;
    if attributes.size_bytes != wanted.size {
        return Err(format!(
            "size is {}, should be {}",
            attributes.size_bytes, wanted.size
        ));
    }
    let blocks: BTreeMap<u64, &[u8]> = wanted.blocks().collect();
    let seen = BLOCKS_SEEN.start..BLOCKS_SEEN.end.min(wanted.size.div_ceil(BLOCK));
    for index in seen.chain(blocks.range(BLOCKS_SEEN.end..).map(|(index, _)| *index)) {
        let mut content = [0; BLOCK_BYTES];
        match files.read(node, index * BLOCK, &mut content) {
            Ok(length) if length as u64 != BLOCK.min(wanted.size - index * BLOCK) => {
                return Err(format!("block {index}: {length} bytes were read"));
            }
            Ok(_) if blocks.get(&index).unwrap_or(&&[0; BLOCK_BYTES][..]) == &content => {}
            Err(FsError::Device(_))
                if may_fail() && files.blocks_on_device(node, index..index + 1) == Ok(1) => {}
            outcome => {
                return Err(format!(
                    "block {index}: other bytes than were written, {outcome:?}"
                ));
            }
        }
    }
    Ok(())
}
