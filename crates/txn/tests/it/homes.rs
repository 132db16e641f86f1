//! Blocks that move while others change them.

use crate::common::{change, is_nothing_lost, load, move_block, open, pointer, pool};
use perdure_txn::{HomeOffset, Metadata, Store, Transaction};
use pmem::{BLOCK_BYTES, BlockNumber, Region};
use std::sync::Arc;

#[test]
fn what_was_begun_before_a_move_lands_behind_it() {
    let (region, store) = pool();
    let byte = BLOCK_BYTES as u64 + 64;
    change(&store, byte, 1);
    let mut transaction = store.begin();
    transaction.store_at_home(HomeOffset::new(byte), &2_u64.to_le_bytes());
    transaction.store_at_home(HomeOffset::new(8), &3_u64.to_le_bytes());
    let before = store.homes().block(1);
    move_block(&store, 1);
    assert_ne!(store.homes().block(1), before);
    assert_eq!(load(&store, byte), 1, "the content moved along");
    transaction.commit().expect("a small record");
    drop(transaction);
    assert_eq!((load(&store, byte), load(&store, 8)), (2, 3));
    // The same after a crash, by the pointers alone.
    let recovered = open(&Arc::new(Region::from_image(region.image())));
    let block = |index| BlockNumber::new(recovered.load_word(pointer(&recovered, index)));
    assert_eq!(recovered.load_word(block(1).offset() + 64), 2);
    assert_eq!(recovered.load_word(block(0).offset() + 8), 3);
}

#[test]
fn changes_and_moves_at_the_same_time_lose_nothing() {
    assert!(is_nothing_lost(20_000));
}
