//! What was stored is what was checksummed, although another thread goes on changing the source.

use perdure_pmem::{BLOCK_BYTES, Offset, Region, crc32c};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

const WORDS: usize = BLOCK_BYTES / size_of::<u64>();

/// Ends the thread that changes the data, also if a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Calls `with` with a block that another thread changes all the time.
fn with_restless_block(with: impl FnOnce(&[u8])) {
    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
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
        while words[WORDS - 1].load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        // SAFETY: the words are there and initialised. That they change is what is tested: the library gets such memory from programs.
        with(unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), BLOCK_BYTES) });
        drop(over);
    });
}

fn check(region: &Region, at: Offset, length: usize) {
    with_restless_block(|block| {
        let mut stored = vec![0; length];
        for round in 0..4000 {
            let (streamed, checksum) = region.write_streaming_checksummed(at, &block[..length]);
            let _ = region.fence(streamed);
            region.read(at, &mut stored);
            assert_eq!(crc32c(&stored), checksum, "{length} bytes, round {round}");
        }
    });
}

#[test]
fn the_checksum_is_that_of_what_was_stored() {
    let region = Region::anonymous(2 * BLOCK_BYTES as u64);
    check(&region, Offset::new(0), BLOCK_BYTES);
    check(&region, Offset::new(8), BLOCK_BYTES);
    check(&region, Offset::new(24), 1000);
    check(&region, Offset::new(3), 200);
}

#[test]
fn so_it_is_on_a_medium_that_is_watched() {
    let region = Region::anonymous(2 * BLOCK_BYTES as u64);
    region.record_wear();
    check(&region, Offset::new(0), BLOCK_BYTES);
}
