//! An inode and the pointers in it: a block of arbitrary inodes with checksums that fit, in a real pool.

#![no_main]

use crashlab::mutation::{MUTATION_BYTES, Sample, examine};
use fs::format::{Pointer, Position, RawInode};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use zerocopy::FromBytes;

static SAMPLE: LazyLock<Sample> = LazyLock::new(Sample::new);
/// Kinds of [`Sample::mutate`] that change inodes and pointers.
const KINDS: [u8; 4] = [4, 5, 9, 10];

fuzz_target!(|input: &[u8]| {
    if let Ok(raw) = RawInode::read_from_bytes(&input[..input.len().min(size_of::<RawInode>())]) {
        let number = fs::InodeNumber::new(u64::from(raw.flags));
        let _ = (raw.is_intact(number), raw.file_type());
        let position = Position {
            inode: number,
            level: raw.height % 16,
            index: raw.size >> 20,
        };
        if let Ok(Some(pointer)) = Pointer::read(raw.root, position) {
            assert_eq!(
                pointer.word(position),
                raw.root,
                "a pointer that is accepted is the one that was written"
            );
        }
    }
    let mut mutations = input.to_vec();
    for mutation in mutations.chunks_exact_mut(MUTATION_BYTES) {
        mutation[0] = KINDS[usize::from(mutation[0]) % KINDS.len()];
    }
    examine(&SAMPLE.mutate(&mutations));
});
