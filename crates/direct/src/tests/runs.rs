//! Files that lie in one piece, and what overwriting makes of that.

use super::files::{Bed, bytes};
use super::server::{BLOCK, Server};
use crate::protocol::Kind;
use crate::runs::RUN_BLOCKS;
use pmem::BLOCK_BYTES;

/// By the short way, which looks at runs. It is open to a thread that has come often alone and knows the segment, and closed at times.
fn read_block(bed: &Bed, index: u64) -> Vec<u8> {
    let mut into = [0xee; BLOCK_BYTES];
    for _ in 0..1000 {
        if bed.file.read_block(&mut into, index * BLOCK) {
            return into.to_vec();
        }
        assert!(bed.read(index * BLOCK, 1).is_some(), "attached");
    }
    panic!("the short way is closed");
}

/// More than a chunk of the map; the last run is not whole.
const BLOCKS: u64 = 9 * RUN_BLOCKS + 5;

#[test]
fn blocks_of_a_file_in_a_row_are_read_where_they_are_however_it_is_written() {
    let mut content = bytes((BLOCKS * BLOCK) as usize, 1);
    let bed = Bed::of(Server::start_in_a_row(&content)).with_lease();
    assert_eq!(bed.read(0, content.len()), Some(content.clone()));
    verify(&bed, &content);
    assert_eq!(bed.file.known_runs(), 9);
    for round in 1..40_u64 {
        overwrite(&bed, &mut content, round);
        verify(&bed, &content);
    }
    // Some of the runs were overwritten, and those cannot be known that begin after a block of the lease.
    let before = bed.file.known_runs();
    assert!(before < 9, "{before}");
    for number in 0..4 * RUN_BLOCKS {
        let data = bytes(BLOCK_BYTES, number as u8);
        content.extend(&data);
        let end = content.len() as u64;
        assert_eq!(bed.append(&data), Some((BLOCK_BYTES, end)));
    }
    verify(&bed, &content);
    let appended = bed.file.known_runs();
    assert!(appended > before, "{appended} after {before}");
    for round in 40..80_u64 {
        overwrite(&bed, &mut content, round);
        verify(&bed, &content);
    }
    assert_eq!(bed.server.content(), content);
}

/// Processes that read share the map, and each looks at it for itself.
#[test]
fn who_reads_what_another_has_asked_for_finds_its_runs() {
    let content = bytes((BLOCKS * BLOCK) as usize, 1);
    let bed = Bed::of(Server::start_in_a_row(&content));
    bed.server.pool.lock().chunks_known = 2;
    while bed.read(0, 1).is_none() {}
    verify(&bed, &content);
    assert_eq!(bed.file.known_runs(), 9);
    assert_eq!(bed.server.asked(Kind::Map), 0, "all is known");
}

/// A block here and there, some of them twice.
fn overwrite(bed: &Bed, content: &mut [u8], round: u64) {
    let blocks = content.len() as u64 / BLOCK;
    let at = round % 31 * 37 % blocks * BLOCK;
    let data = bytes(BLOCK_BYTES, round as u8);
    assert_eq!(bed.write(at, &data), Some(BLOCK_BYTES));
    content[at as usize..][..BLOCK_BYTES].copy_from_slice(&data);
}

fn verify(bed: &Bed, content: &[u8]) {
    for (index, expected) in (0..).zip(content.chunks(BLOCK_BYTES)) {
        assert!(read_block(bed, index) == expected, "block {index}");
    }
}
