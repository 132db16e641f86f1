//! The header of a pool: both superblocks, state block, segment table.
//!
//! The first byte decides whether the superblocks get checksums that fit; the rest overwrites the header.

#![no_main]

use crashlab::mutation::Sample;
use libfuzzer_sys::fuzz_target;
use pmem::Region;
use std::sync::LazyLock;
use txn::{Mode, PmemStore, Superblock};
use zerocopy::{FromBytes, IntoBytes};

static SAMPLE: LazyLock<Sample> = LazyLock::new(Sample::new);
const SUPERBLOCK_BYTES: usize = size_of::<Superblock>();

fuzz_target!(|input: &[u8]| {
    let Some((&flags, header)) = input.split_first() else {
        return;
    };
    let mut image = SAMPLE.image().to_vec();
    let header_bytes = SAMPLE.geometry().first_block().offset().get() as usize;
    let length = header.len().min(header_bytes);
    image[..length].copy_from_slice(&header[..length]);
    if flags & 1 != 0
        && let Ok(mut superblock) = Superblock::read_from_bytes(&image[..SUPERBLOCK_BYTES])
    {
        superblock.magic = txn::layout::MAGIC;
        superblock.version = txn::layout::FORMAT_VERSION;
        superblock.checksum = superblock.expected_checksum();
        if superblock.validate().is_ok() {
            // A superblock that is accepted describes a pool that can be reckoned with.
            assert!(superblock.geometry().total_bytes() >= superblock.geometry().segment_bytes());
        }
        image[..SUPERBLOCK_BYTES].copy_from_slice(superblock.as_bytes());
        if flags & 2 != 0 {
            image[header_bytes - 4096..][..SUPERBLOCK_BYTES].copy_from_slice(superblock.as_bytes());
        }
    }
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let _ = PmemStore::open_region(Region::from_image(&image), mode);
    }
});
