//! Files that lie in one piece, and what overwriting makes of that.

use super::files::{Bed, bytes};
use super::server::{BLOCK, Server};
use crate::runs::RUN_BLOCKS;
use pmem::BLOCK_BYTES;

/// By the short way, which looks at runs. It is open to a thread that has come often alone, and closed at times.
fn read_block(bed: &Bed, index: u64) -> Vec<u8> {
    let mut into = [0xee; BLOCK_BYTES];
    for _ in 0..1000 {
        if bed.file.read_block(&mut into, index * BLOCK) {
            return into.to_vec();
        }
        assert!(bed.read(0, 1).is_some(), "attached");
    }
    panic!("the short way is closed");
}

#[test]
fn blocks_of_a_file_in_a_row_are_read_where_they_are_however_it_is_written() {
    // The last run is not whole.
    let blocks = 3 * RUN_BLOCKS + 5;
    let mut content = bytes((blocks * BLOCK) as usize, 1);
    let bed = Bed::of(Server::start_in_a_row(&content)).with_lease();
    assert_eq!(bed.read(0, content.len()), Some(content.clone()));
    verify(&bed, &content);
    for round in 1..40_u64 {
        overwrite(&bed, &mut content, round);
        verify(&bed, &content);
    }
    for number in 0..3 * RUN_BLOCKS {
        let data = bytes(BLOCK_BYTES, number as u8);
        content.extend(&data);
        let end = content.len() as u64;
        assert_eq!(bed.append(&data), Some((BLOCK_BYTES, end)));
    }
    verify(&bed, &content);
    for round in 40..80_u64 {
        overwrite(&bed, &mut content, round);
        verify(&bed, &content);
    }
    assert_eq!(bed.server.content(), content);
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
