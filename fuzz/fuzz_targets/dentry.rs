//! A block of a directory: any bytes, as they are and with a sound dentry in front.

#![no_main]

use fs::InodeNumber;
use fs::directory::{
    BLOCK_BYTES, Directory, FileType, Record, entries, records, write_fresh_block,
};
use libfuzzer_sys::fuzz_target;

const DIRECTORY: InodeNumber = InodeNumber::new(5);

fn judge(block: &[u8; BLOCK_BYTES]) {
    let mut covered = 0;
    let mut sound = true;
    for record in records(block, 0, DIRECTORY) {
        match record {
            Ok(Record::Entry(entry)) => covered += fs::directory::record_bytes(entry.name.len()),
            Ok(Record::Free { bytes, .. }) => covered += bytes,
            Err(_) => sound = false,
        }
    }
    assert!(covered <= BLOCK_BYTES);
    assert!(
        !sound || covered == BLOCK_BYTES,
        "sound records tile the block"
    );
    assert!(entries(block, 0, DIRECTORY).count() <= BLOCK_BYTES / 8);
    let mut directory = Directory::new(DIRECTORY);
    let loaded = directory.load_block(0, block);
    assert!(
        loaded.is_err() || sound,
        "a block with a faulty record is not taken in"
    );
}

fuzz_target!(|input: &[u8]| {
    let mut block = [0; BLOCK_BYTES];
    let length = input.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&input[..length]);
    judge(&block);
    // A sound block, with the input as a name and as damage at a place that it chooses.
    let name: Vec<u8> = input
        .iter()
        .take(40)
        .filter(|&&byte| byte != 0 && byte != b'/')
        .copied()
        .collect();
    if !fs::directory::name_is_valid(&name) {
        return;
    }
    write_fresh_block(
        DIRECTORY,
        0,
        &name,
        InodeNumber::new(9),
        FileType::Regular,
        &mut block,
    );
    judge(&block);
    if let [.., low, high, value] = input {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % BLOCK_BYTES;
        block[at] ^= value;
        judge(&block);
    }
});
