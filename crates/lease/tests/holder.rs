//! A holder's writes beside a plain vector of bytes; and rings that no honest holder would write.

use lease::{
    Effects, FileMap, InPlace, NO_SLOT, Place, Record, Refusal, Ring, Salt, Spare, Terms, Trust,
    Writer, judge,
};
use perdure_lease as lease;
use pmem::{BLOCK_BYTES, BlockNumber, Region};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use zerocopy::FromZeros;

const BLOCK: u64 = BLOCK_BYTES as u64;
const RING: u64 = 1;
const SPARES: u64 = 6;
const FILE: u64 = 4;
const SALT: Salt = Salt(0x1234_5678_9abc);

/// Block 0 is the ring, then come the spare blocks, then the file's.
struct Bed {
    region: Arc<Region>,
    ring: Ring,
    file: BTreeMap<u64, BlockNumber>,
    spares: Vec<Option<BlockNumber>>,
    size_bytes: u64,
    next: u64,
}

struct Map(BTreeMap<u64, Place>);

impl FileMap for Map {
    fn get(&self, index: u64) -> Option<Place> {
        Some(self.0.get(&index).copied().unwrap_or(Place::Hole))
    }

    fn set(&mut self, index: u64, block: BlockNumber) {
        self.0.insert(index, Place::At(block));
    }
}

impl Bed {
    fn new(size_bytes: u64) -> Bed {
        let region = Region::anonymous((RING + SPARES + FILE) * BLOCK);
        let block = |index: u64| BlockNumber::new(index);
        let file =
            (0..size_bytes.div_ceil(BLOCK)).map(|index| (index, block(RING + SPARES + index)));
        Bed {
            region: Arc::new(region),
            ring: Ring::new(vec![block(0)]),
            file: file.collect(),
            spares: (RING..RING + SPARES)
                .map(|index| Some(block(index)))
                .collect(),
            size_bytes,
            next: 1,
        }
    }

    fn writer(&self) -> (Writer, Map) {
        let spares = (0..).zip(&self.spares);
        let spares = spares.filter_map(|(slot, block)| block.map(|block| Spare { slot, block }));
        let writer = Writer::new(
            Arc::clone(&self.region),
            self.ring.clone(),
            SALT,
            self.next,
            spares,
            self.size_bytes,
        );
        let places = self
            .file
            .iter()
            .map(|(index, block)| (*index, Place::At(*block)));
        (writer, Map(places.collect()))
    }

    fn judge(&self, trust: Trust) -> Effects {
        let terms = Terms {
            ring: &self.ring,
            salt: SALT,
            next: self.next,
            spares: &self.spares,
            size_bytes: self.size_bytes,
            size_bytes_max: 1 << 40,
            records_max: 1 << 20,
        };
        let found = judge(&*self.region, &terms, trust, |index| {
            Ok::<_, Infallible>(self.file.get(&index).copied())
        });
        let Ok(effects) = found;
        effects
    }

    fn fold(&mut self, effects: Effects) {
        self.file.extend(effects.placed);
        for (slot, block) in effects.slots {
            self.spares[slot as usize] = block;
        }
        self.size_bytes = effects.size_bytes;
        self.next = effects.next;
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; (self.size_bytes.div_ceil(BLOCK) * BLOCK) as usize];
        for (index, block) in &self.file {
            let at = (index * BLOCK) as usize;
            self.region
                .read(block.offset(), &mut bytes[at..at + BLOCK_BYTES]);
        }
        bytes.truncate(self.size_bytes as usize);
        bytes
    }

    /// Every block that the file or the lease has, each once.
    fn blocks(&self) -> Vec<u64> {
        let spares = self.spares.iter().flatten();
        let mut blocks: Vec<u64> = self
            .file
            .values()
            .chain(spares)
            .map(|block| block.get())
            .collect();
        blocks.sort_unstable();
        blocks
    }
}

/// Where a write begins.
#[derive(Clone, Copy, Debug)]
enum At {
    Offset(u64),
    /// So far behind the end of the file, or before it.
    End(i64),
}

impl At {
    fn in_file_of(self, size_bytes: usize) -> u64 {
        match self {
            At::Offset(offset) => offset,
            At::End(distance) => (size_bytes as u64).saturating_add_signed(distance),
        }
    }
}

fn at(behind: u64) -> impl Strategy<Value = At> {
    prop_oneof![
        2 => (0..behind).prop_map(At::Offset),
        1 => Just(At::End(0)),
        1 => (-100..100_i64).prop_map(At::End),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        at: At,
        bytes: usize,
        byte: u8,
    },
    /// In place, if it can be; the lease ends when so many blocks were announced.
    Overwrite {
        at: At,
        bytes: usize,
        byte: u8,
        ticks: i64,
        ends_after: usize,
    },
    Fold(Trust),
}

fn step() -> impl Strategy<Value = Step> {
    let trust = prop_oneof![
        Just(Trust::AllButNewest),
        Just(Trust::All),
        Just(Trust::IfDataFits)
    ];
    prop_oneof![
        6 => (at(5 * BLOCK), prop_oneof![1..200_usize, 1..9_000_usize], any::<u8>())
            .prop_map(|(at, bytes, byte)| Step::Write { at, bytes, byte }),
        2 => (0..5_u64, any::<u8>())
            .prop_map(|(index, byte)| Step::Write { at: At::Offset(index * BLOCK), bytes: BLOCK_BYTES, byte }),
        5 => (at(4 * BLOCK), prop_oneof![1..100_usize, 1..9_000_usize], any::<u8>(), 0..2_i64, prop_oneof![1 => 0..3_usize, 3 => Just(9)])
            .prop_map(|(at, bytes, byte, ticks, ends_after)| Step::Overwrite { at, bytes, byte, ticks, ends_after }),
        1 => trust.prop_map(Step::Fold),
    ]
}

/// What a record may say of a file's size: that it ends within a block, or at its end.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..6 * BLOCK,
        (0..7_u64).prop_map(|blocks| blocks * BLOCK),
        any::<u64>()
    ]
}

proptest! {
    /// What a holder was told is written is what the server finds, whenever it looks and however far it trusts.
    #[test]
    fn what_is_written_is_found(size_bytes in 0..FILE * BLOCK, steps in prop::collection::vec(step(), 1..60)) {
        let mut bed = Bed::new(size_bytes);
        let mut wanted = bed.content();
        let (mut writer, mut map) = bed.writer();
        let mut now = 5;
        for step in steps {
            match step {
                Step::Write { at, bytes, byte } => {
                    let offset = at.in_file_of(wanted.len());
                    let data: Vec<u8> = (0..bytes).map(|at| byte ^ at as u8).collect();
                    match writer.write(&mut map, offset, &data, now) {
                        Ok(()) => {
                            let end = offset as usize + bytes;
                            if wanted.len() < end {
                                wanted.resize(end, 0);
                            }
                            wanted[offset as usize..end].copy_from_slice(&data);
                        }
                        Err(Refusal::NoSpareBlocks { needed, available }) => prop_assert!(needed > available),
                        Err(Refusal::NoPlace { index }) => {
                            prop_assert!(index > wanted.len() as u64 / BLOCK);
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Refusal::RingFull);
                        }
                    }
                    prop_assert_eq!(writer.size_bytes(), wanted.len() as u64);
                }
                Step::Overwrite { at, bytes, byte, ticks, ends_after } => {
                    let offset = at.in_file_of(wanted.len());
                    let data: Vec<u8> = (0..bytes).map(|at| byte ^ at as u8).collect();
                    now += ticks;
                    let acknowledged = writer.next();
                    let mut announced = Vec::new();
                    let outcome = writer.overwrite_in_place(&map, offset, &data, now, |index| {
                        // A power cut now, whatever of the blocks before is there: nothing acknowledged is lost.
                        assert!(bed.judge(Trust::IfDataFits).next >= acknowledged);
                        announced.push(index);
                        announced.len() <= ends_after
                    });
                    let end = offset as usize + bytes;
                    match outcome {
                        Ok(InPlace::Done) => {
                            prop_assert!(writer.can_go_in_place(&map, offset, bytes));
                            wanted[offset as usize..end].copy_from_slice(&data);
                        }
                        Ok(InPlace::Elsewhere) => prop_assert!(end > wanted.len()),
                        Ok(InPlace::Ended) => {
                            let stopped_at = (announced[announced.len() - 1] * BLOCK).max(offset) as usize;
                            wanted[offset as usize..stopped_at].copy_from_slice(&data[..stopped_at - offset as usize]);
                            let effects = bed.judge(Trust::IfDataFits);
                            prop_assert_eq!(effects.next, writer.next());
                            bed.fold(effects);
                            (writer, map) = bed.writer();
                        }
                        Err(error) => prop_assert_eq!(error, Refusal::RingFull),
                    }
                    if matches!(outcome, Ok(InPlace::Done)) {
                        let modified = bed.judge(Trust::IfDataFits).modified;
                        prop_assert!(modified.is_none() || modified == Some(now));
                    }
                }
                Step::Fold(trust) => {
                    let blocks = bed.blocks();
                    let effects = bed.judge(trust);
                    prop_assert_eq!(effects.fault, None);
                    bed.fold(effects);
                    writer.folded(bed.next, []);
                    prop_assert_eq!(bed.blocks(), blocks);
                }
            }
        }
        let effects = bed.judge(Trust::IfDataFits);
        prop_assert_eq!(effects.next, writer.next());
        bed.fold(effects);
        prop_assert_eq!(bed.content(), wanted);
    }

    /// Whatever is in the ring: the file and the lease have the blocks that they had, each once, and nothing else.
    #[test]
    fn no_ring_gets_at_a_block_of_somebody_else(
        size_bytes in 0..FILE * BLOCK,
        records in prop::collection::vec(
            (0..7_u64, 0..8_u32, size(), 0..2_u32, any::<bool>()),
            1..64,
        ),
        trust in prop_oneof![Just(Trust::All), Just(Trust::IfDataFits)],
    ) {
        let mut bed = Bed::new(size_bytes);
        for (sequence, (index, slot, size, continues, in_place)) in (1..).zip(records) {
            let record = Record {
                sequence,
                index,
                size,
                slot: if in_place { NO_SLOT } else { slot },
                continues,
                ..Record::new_zeroed()
            };
            let bytes = record.sealed(SALT);
            let _ = bed.region.store(bed.ring.place(sequence), zerocopy::IntoBytes::as_bytes(&bytes));
        }
        let blocks = bed.blocks();
        let effects = bed.judge(trust);
        prop_assert!(effects.size_bytes >= size_bytes && effects.size_bytes <= 1 << 40);
        bed.fold(effects);
        prop_assert_eq!(bed.blocks(), blocks);
        // Nor does the file get holes, or blocks behind its end.
        let indexes: Vec<u64> = bed.file.keys().copied().collect();
        prop_assert_eq!(indexes, (0..bed.size_bytes.div_ceil(BLOCK)).collect::<Vec<_>>());
    }
}

/// The file ends where the block of the record begins, so that block is none of it.
#[test]
fn a_block_behind_the_end_is_not_believed() {
    let mut bed = Bed::new(2 * BLOCK + 100);
    let record = Record {
        sequence: 1,
        index: 3,
        size: 3 * BLOCK,
        ..Record::new_zeroed()
    };
    let bytes = record.sealed(SALT);
    let _ = bed
        .region
        .store(bed.ring.place(1), zerocopy::IntoBytes::as_bytes(&bytes));
    let effects = bed.judge(Trust::All);
    assert!(effects.fault.is_some());
    let blocks = bed.file.clone();
    bed.fold(effects);
    assert_eq!(
        (bed.size_bytes, &bed.file),
        (2 * BLOCK + 100, &blocks),
        "neither the block nor the size"
    );
}

/// A record whose data never came is not believed when the power went, and nothing behind it either.
#[test]
fn a_gap_behind_the_end_that_is_not_zero_is_for_the_server() {
    let mut bed = Bed::new(BLOCK + 100);
    let (mut writer, mut map) = bed.writer();
    let last = bed.file[&1].offset();
    let store = |at: u64, byte: u8| {
        let streamed = bed.region.write_streaming(last + at, &[byte; 8]);
        bed.region.fence(streamed);
    };
    store(4088, b'x');
    let refused = Err(Refusal::NoPlace { index: 1 });
    for at in [BLOCK + 200, 2 * BLOCK] {
        assert_eq!(writer.write(&mut map, at, b"data", 1), refused, "{at}");
    }
    writer
        .write(&mut map, BLOCK + 100, b"data", 1)
        .expect("an append leaves no gap");
    store(4088, 0);
    writer
        .write(&mut map, BLOCK + 200, b"data", 1)
        .expect("zeros");
    bed.fold(bed.judge(Trust::All));
    assert_eq!(bed.content()[BLOCK as usize + 104..][..96], [0; 96]);
}

#[test]
fn a_record_without_its_data_did_not_happen() {
    let mut bed = Bed::new(2 * BLOCK);
    let before = bed.content();
    let (mut writer, mut map) = bed.writer();
    writer
        .write(&mut map, 0, &[7; BLOCK_BYTES], 1)
        .expect("a write");
    let Some(Place::At(block)) = map.get(0) else {
        panic!("the block has a place");
    };
    let _ = bed.region.store(block.offset() + 100, b"torn");
    assert_eq!(bed.judge(Trust::IfDataFits).next, 1);
    assert_eq!(bed.judge(Trust::AllButNewest).next, 1);
    assert_eq!(bed.judge(Trust::All).next, 2);
    let effects = bed.judge(Trust::IfDataFits);
    bed.fold(effects);
    assert_eq!(bed.content(), before);
}

/// Once in each tick of the clock an overwrite in place leaves a record that tells the time.
#[test]
fn overwrites_in_place_are_stamped_once_in_a_tick() {
    let mut bed = Bed::new(2 * BLOCK);
    let (mut writer, map) = bed.writer();
    for now in [7, 7, 7, 9, 9, 8] {
        let outcome = writer.overwrite_in_place(&map, 100, b"some bytes", now, |_| true);
        assert_eq!(outcome, Ok(InPlace::Done));
        assert_eq!(bed.judge(Trust::All).modified, Some(now));
    }
    assert_eq!(writer.next(), 4, "three ticks");
    let effects = bed.judge(Trust::All);
    assert!(effects.placed.is_empty() && effects.slots.is_empty());
    bed.fold(effects);
    assert_eq!(bed.content()[100..110], *b"some bytes");
}

/// A record vouches for its data only until that is overwritten in place: then there is another one behind it, before.
#[test]
fn what_was_acknowledged_stays_when_it_is_overwritten_in_place() {
    let mut bed = Bed::new(BLOCK + 10);
    let (mut writer, mut map) = bed.writer();
    let overwrite = |writer: &mut Writer, map: &Map, bed: &Bed, offset: u64, records: u64| {
        let before = writer.next();
        let outcome = writer.overwrite_in_place(map, offset, b"new", 1, |_| true);
        assert_eq!(outcome, Ok(InPlace::Done));
        assert_eq!(writer.next() - before, records, "at {offset}");
        assert_eq!(bed.judge(Trust::IfDataFits).next, writer.next());
    };
    overwrite(&mut writer, &map, &bed, 0, 1);
    overwrite(&mut writer, &map, &bed, 0, 0);
    // An append in the last block.
    writer
        .write(&mut map, BLOCK + 10, b"tail", 1)
        .expect("a write");
    overwrite(&mut writer, &map, &bed, 0, 0);
    overwrite(&mut writer, &map, &bed, BLOCK + 11, 1);
    overwrite(&mut writer, &map, &bed, BLOCK + 11, 0);
    // An exchange.
    writer
        .write(&mut map, 0, &[7; BLOCK_BYTES], 1)
        .expect("a write");
    overwrite(&mut writer, &map, &bed, 5, 1);
    bed.fold(bed.judge(Trust::IfDataFits));
    let content = bed.content();
    assert_eq!(content[..10], [7, 7, 7, 7, 7, b'n', b'e', b'w', 7, 7]);
    assert_eq!(content[BLOCK_BYTES + 10..], *b"tnew");
}

/// A write of several blocks of which the last record is missing did not happen at all.
#[test]
fn half_a_write_did_not_happen() {
    let bed = Bed::new(2 * BLOCK);
    let (mut writer, mut map) = bed.writer();
    writer
        .write(&mut map, 100, &[7; BLOCK_BYTES], 1)
        .expect("a write");
    assert_eq!(bed.judge(Trust::IfDataFits).next, 3);
    let _ = bed.region.store(bed.ring.place(2), &[0; 64]);
    let effects = bed.judge(Trust::All);
    assert_eq!((effects.next, effects.placed.len()), (1, 0));
}

/// Ends the thread that changes the data, also if a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The program's buffer is the program's: another thread may change it in the middle of a write. The write was acknowledged, so it counts after a power cut, with some mixture of the bytes.
#[test]
fn a_write_counts_whose_data_was_changed_meanwhile() {
    const BYTES: usize = 4000;
    let words: Vec<AtomicU64> = (0..BLOCK_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                words.iter().for_each(|word| word.store(round, Relaxed));
                if is_over.load(Relaxed) {
                    break;
                }
            }
        });
        let over = Ends(&is_over);
        while words[0].load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        // SAFETY: the words are there and initialised. That they change is what is tested.
        let data: &[u8] = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), BLOCK_BYTES) };
        for _ in 0..2000 {
            let mut bed = Bed::new(BLOCK + 8);
            for (offset, bytes) in [(0, BLOCK_BYTES), (BLOCK + 8, BYTES)] {
                let (mut writer, mut map) = bed.writer();
                writer
                    .write(&mut map, offset, &data[..bytes], 1)
                    .expect("there is room");
                let effects = bed.judge(Trust::IfDataFits);
                assert_eq!(effects.next, bed.next + 1, "{bytes} bytes at {offset}");
                bed.fold(effects);
            }
        }
        drop(over);
    });
}
