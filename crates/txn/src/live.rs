//! What a crash left in the journals: which records are alive, and which of them happened.
//!
//! A record that one fence made durable together with its data may be whole while the data is torn: then the power went before that
//! fence, nobody was told of the operation, and nothing of it may be seen. Two facts tell such a record:
//!
//! * A record is fenced before the next one of its journal is written. So only the *newest* of each journal can lack its data.
//! * Data that does not fit its checksum may have been changed since, by a later record, perhaps in another journal. That one took its turn
//!   when the first had returned. So a record whose data a later one changes did happen. No live record changes the block
//!   *before*: it was free then, and a block becomes free only by a checkpoint that retires all who named it (R1).
//!
//! The judgement depends on nothing that applying records changes, so a recovery that is cut judges again as before: a torn record's data stays
//! torn, and changed data keeps the record that changed it until the checkpoint retires both.

use crate::checksum::crc32c;
use crate::layout::Superblock;
use crate::places::HalfPlace;
use crate::record::{DataCheck, Record, RecordForm};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, Region};

/// The live records: those that no checkpoint has retired, journal by journal, in ascending order.
#[derive(Debug)]
pub(crate) struct Live {
    journals: Vec<Vec<Record>>,
}

impl Live {
    /// Reads the journals whose halves lie at `places`, two for each; a half whose place is lost is empty.
    pub(crate) fn read(
        region: &Region,
        superblock: &Superblock,
        places: &[Option<HalfPlace>],
        checkpoint: u64,
    ) -> Live {
        let mut half = vec![0; superblock.half_bytes()];
        let mut read_journal = |places: &[Option<HalfPlace>]| {
            let mut records = Vec::new();
            for place in places.iter().flatten() {
                region.read(place.start.offset(), &mut half);
                let form = RecordForm::of(superblock, *place);
                collect(&half, &form, checkpoint, &mut records);
            }
            records.sort_by_key(|record| record.sequence);
            records
        };
        Live {
            journals: places.chunks(2).map(&mut read_journal).collect(),
        }
    }

    /// The newest number; `None` if nothing is alive.
    pub(crate) fn newest(&self) -> Option<u64> {
        let newest = self.journals.iter().filter_map(|records| records.last());
        newest.map(|record| record.sequence).max()
    }

    /// The records whose operations happened, in the order in which they did.
    pub(crate) fn happened(mut self, region: &Region) -> Vec<Record> {
        let is_torn: Vec<bool> = self
            .journals
            .iter()
            .map(|records| {
                records
                    .last()
                    .is_some_and(|last| self.is_torn(region, last))
            })
            .collect();
        for (records, is_torn) in self.journals.iter_mut().zip(is_torn) {
            if is_torn {
                records.pop();
            }
        }
        let mut records: Vec<Record> = self.journals.into_iter().flatten().collect();
        records.sort_by_key(|record| record.sequence);
        records
    }

    /// Whether the power went before the newest record of a journal had its data.
    fn is_torn(&self, region: &Region, newest: &Record) -> bool {
        let Some(data) = newest.data_check() else {
            return false;
        };
        if deliberate::is(Bug::SkipDataCheck) {
            return false;
        }
        let mut content = [0; BLOCK_BYTES];
        let content = &mut content[..data.length];
        region.read(data.at, content);
        crc32c(content) != data.checksum && !self.is_changed_later(newest.sequence, &data)
    }

    fn is_changed_later(&self, sequence: u64, data: &DataCheck) -> bool {
        if deliberate::is(Bug::DistrustChangedData) {
            return false;
        }
        let mut later = self
            .journals
            .iter()
            .flatten()
            .filter(|record| record.sequence > sequence)
            .flat_map(Record::entries);
        later.any(|(_, entry)| entry.overlaps(data.at, data.length))
    }
}

/// Takes the live records of one half: whole, growing, newer than the checkpoint.
fn collect(half: &[u8], form: &RecordForm, checkpoint: u64, records: &mut Vec<Record>) {
    let (mut position, mut last) = (0, checkpoint);
    while let Some(record) = half
        .get(position..)
        .and_then(|rest| Record::parse(rest, form))
    {
        // A half is all older or all newer than the checkpoint; a number that does not grow is a
        // leftover from before the half was last reused.
        if record.sequence <= last {
            break;
        }
        last = record.sequence;
        position += record.padded_bytes();
        records.push(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FormatOptions;
    use crate::record::RecordBuilder;
    use pmem::Offset;
    use proptest::prelude::*;

    const JOURNALS: usize = 3;
    const JOURNAL_BYTES: u64 = 16 << 10;

    /// A medium after a power cut, made step by step. Numbers are given out in the order of the calls.
    struct Scene {
        region: Region,
        superblock: Superblock,
        /// Of both halves of each journal; only the first is used.
        places: Vec<Option<HalfPlace>>,
        ends: Vec<Offset>,
        records: u64,
    }

    impl Scene {
        fn new() -> Scene {
            let options = FormatOptions {
                journals: JOURNALS as u32,
                journal_bytes: JOURNAL_BYTES,
                ..FormatOptions::tiny()
            };
            let superblock = options.superblock().expect("sound options");
            let first = superblock.geometry().first_block();
            let places: Vec<Option<HalfPlace>> = (0..2 * JOURNALS as u64)
                .map(|index| {
                    Some(HalfPlace {
                        start: first + index * superblock.half_blocks(),
                        generation: 7,
                    })
                })
                .collect();
            let ends = places.iter().flatten().step_by(2);
            Scene {
                region: Region::anonymous(options.size_bytes),
                superblock,
                ends: ends.map(|place| place.start.offset()).collect(),
                places,
                records: 0,
            }
        }

        /// Block `index` of those that hold data.
        fn block(&self, index: u64) -> Offset {
            self.superblock.geometry().first_block().offset()
                + JOURNALS as u64 * JOURNAL_BYTES
                + index * BLOCK_BYTES as u64
        }

        /// Where metadata changes that concern nobody here.
        fn elsewhere(&self) -> Offset {
            self.block(100)
        }

        fn store(&self, at: Offset, bytes: &[u8]) {
            self.region.store(at, bytes).leave_to_checkpoint();
        }

        fn append(&mut self, journal: usize, record: &mut RecordBuilder) -> u64 {
            self.records += 1;
            record.close(&crate::Homes::default());
            let end = self.ends[journal];
            let is_before = |place: &&HalfPlace| place.start.offset() <= end;
            let place = self
                .places
                .iter()
                .flatten()
                .rfind(is_before)
                .expect("in a half");
            let salt = place.salt(self.superblock.journal_key);
            let bytes = record.finish(self.records, salt);
            self.region
                .store(self.ends[journal], bytes)
                .leave_to_checkpoint();
            self.ends[journal] = self.ends[journal] + bytes.len() as u64;
            self.records
        }

        /// A block of data and the record that checks it, both whole.
        fn write(&mut self, journal: usize, block: Offset, byte: u8) -> u64 {
            let data = [byte; BLOCK_BYTES];
            self.store(block, &data);
            let mut record = RecordBuilder::new();
            record.store_word(self.elsewhere(), self.records);
            record.check_data(DataCheck {
                at: block,
                length: BLOCK_BYTES,
                checksum: crc32c(&data),
            });
            self.append(journal, &mut record)
        }

        /// A record that changes a few bytes; in place the change is or is not.
        fn change(&mut self, journal: usize, at: Offset, bytes: &[u8], is_in_place: bool) -> u64 {
            let mut record = RecordBuilder::new();
            record.store(at, bytes);
            if is_in_place {
                self.store(at, bytes);
            }
            self.append(journal, &mut record)
        }

        /// The second half of a block did not arrive.
        fn tear(&self, block: Offset) {
            let mut half = [0; BLOCK_BYTES / 2];
            self.region.read(block + 2048, &mut half);
            self.store(block + 2048, &half.map(|byte| !byte));
        }

        fn live(&self) -> Live {
            Live::read(&self.region, &self.superblock, &self.places, 0)
        }

        fn happened(&self) -> Vec<Record> {
            self.live().happened(&self.region)
        }

        fn numbers(&self) -> Vec<u64> {
            self.happened()
                .iter()
                .map(|record| record.sequence)
                .collect()
        }
    }

    #[test]
    fn whole_data_is_believed() {
        let mut scene = Scene::new();
        scene.write(0, scene.block(0), 1);
        scene.write(1, scene.block(1), 2);
        assert_eq!(scene.numbers(), [1, 2]);
    }

    #[test]
    fn the_newest_record_without_its_data_did_not_happen_and_its_number_is_used_up() {
        let mut scene = Scene::new();
        scene.write(0, scene.block(0), 1);
        scene.write(0, scene.block(1), 2);
        scene.tear(scene.block(1));
        assert_eq!(scene.numbers(), [1]);
        assert_eq!(scene.live().newest(), Some(2));
    }

    #[test]
    fn each_journal_can_lack_the_data_of_its_newest_record() {
        let mut scene = Scene::new();
        for journal in 0..JOURNALS {
            scene.write(journal, scene.block(journal as u64), 1);
            scene.tear(scene.block(journal as u64));
        }
        assert_eq!(scene.numbers(), []);
        assert_eq!(scene.live().newest(), Some(JOURNALS as u64));
    }

    #[test]
    fn an_older_record_of_the_journal_needs_no_data() {
        let mut scene = Scene::new();
        scene.write(0, scene.block(0), 1);
        scene.change(0, scene.elsewhere(), b"later", true);
        scene.tear(scene.block(0));
        assert_eq!(scene.numbers(), [1, 2]);
    }

    #[test]
    fn the_newest_record_is_that_of_both_halves() {
        let mut scene = Scene::new();
        scene.write(0, scene.block(0), 1);
        scene.ends[0] = scene.places[1].expect("known").start.offset();
        scene.change(0, scene.elsewhere(), b"later", true);
        scene.tear(scene.block(0));
        assert_eq!(scene.numbers(), [1, 2]);
    }

    #[test]
    fn data_that_a_later_record_changed_is_believed() {
        for is_in_place in [false, true] {
            let mut scene = Scene::new();
            scene.write(0, scene.block(0), 1);
            scene.change(1, scene.block(0) + 4090, b"change", is_in_place);
            assert_eq!(scene.numbers(), [1, 2]);
        }
    }

    #[test]
    fn a_later_change_of_another_block_excuses_nothing() {
        let mut scene = Scene::new();
        scene.write(0, scene.block(1), 1);
        scene.change(1, Offset::new(scene.block(1).get() - 8), b"8 before", true);
        scene.change(2, scene.block(2), b"behind", true);
        scene.tear(scene.block(1));
        assert_eq!(scene.numbers(), [2, 3]);
    }

    #[test]
    fn an_earlier_change_of_the_data_excuses_nothing() {
        let mut scene = Scene::new();
        scene.change(1, scene.block(0), b"before", true);
        scene.write(0, scene.block(0), 1);
        scene.tear(scene.block(0));
        assert_eq!(scene.numbers(), [1]);
    }

    #[test]
    fn a_torn_record_that_changes_the_data_of_another_excuses_it() {
        let mut scene = Scene::new();
        scene.write(0, scene.block(0), 1);
        let mut record = RecordBuilder::new();
        record.store(scene.block(0), b"change");
        record.check_data(DataCheck {
            at: scene.block(1),
            length: 100,
            checksum: 1,
        });
        scene.append(1, &mut record);
        scene.tear(scene.block(0));
        assert_eq!(scene.numbers(), [1]);
    }

    #[test]
    fn what_a_checkpoint_retired_is_not_judged() {
        let mut scene = Scene::new();
        scene.write(0, scene.block(0), 1);
        scene.tear(scene.block(0));
        let live = Live::read(&scene.region, &scene.superblock, &scene.places, 1);
        assert_eq!(live.newest(), None);
        assert_eq!(live.happened(&scene.region).len(), 0);
    }

    #[derive(Clone, Debug)]
    struct Step {
        journal: usize,
        /// Of which earlier write the data is changed; `None` writes a new block.
        change: Option<prop::sample::Index>,
        byte: u8,
        at: u64,
        is_in_place: bool,
    }

    fn step() -> impl Strategy<Value = Step> {
        let change = prop::option::of(any::<prop::sample::Index>());
        (0..JOURNALS, change, any::<u8>(), 0..4080_u64, any::<bool>()).prop_map(
            |(journal, change, byte, at, is_in_place)| Step {
                journal,
                change,
                byte,
                at,
                is_in_place,
            },
        )
    }

    proptest! {
        /// Whatever returned before the power went did happen; what had not its data did not; and a recovery that was cut while it applied
        /// judges as the first did.
        #[test]
        fn exactly_what_lacks_its_data_did_not_happen(
            steps in prop::collection::vec(step(), 1..30),
            is_cut: [bool; JOURNALS],
            applied in any::<prop::sample::Index>(),
        ) {
            let mut scene = Scene::new();
            // Of each block: the number of the record that wrote it, and whether one changed it since.
            let mut blocks: Vec<(u64, bool)> = Vec::new();
            let mut newest = [0; JOURNALS];
            for Step { journal, change, byte, at, is_in_place } in steps {
                newest[journal] = match change.filter(|_| !blocks.is_empty()) {
                    Some(change) => {
                        let index = change.index(blocks.len());
                        blocks[index].1 = true;
                        let at = scene.block(index as u64) + at;
                        scene.change(journal, at, &[byte; 16], is_in_place)
                    }
                    None => {
                        let number = scene.write(journal, scene.block(blocks.len() as u64), byte);
                        blocks.push((number, false));
                        number
                    }
                };
            }
            let mut wanted: Vec<u64> = (1..=scene.records).collect();
            for (journal, is_cut) in is_cut.into_iter().enumerate() {
                // A change by another waits for the write to return, and so does the next record of the journal.
                let lacks_data = |&(number, is_changed): &(u64, bool)| number == newest[journal] && !is_changed;
                if let Some(index) = blocks.iter().position(lacks_data).filter(|_| is_cut) {
                    scene.tear(scene.block(index as u64));
                    wanted.retain(|&number| number != newest[journal]);
                }
            }
            prop_assert_eq!(scene.numbers(), wanted.clone());
            let records = scene.happened();
            let entries: Vec<_> = records.iter().flat_map(Record::entries).collect();
            for (_, entry) in &entries[..applied.index(entries.len() + 1)] {
                scene.store(entry.at, entry.payload.expect("no zeros here"));
            }
            prop_assert_eq!(scene.numbers(), wanted);
        }
    }
}
