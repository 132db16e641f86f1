//! The index alone, against a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::directory::name_index::{IndexEntry, NameIndex};

fn entry(tag: u32, offset: u32, inode: u32) -> IndexEntry {
    IndexEntry { tag, offset, inode }
}

/// All entries of a tag, sorted.
fn all(index: &NameIndex, tag: u32) -> Vec<IndexEntry> {
    let mut found = Vec::new();
    index.find(tag, |entry| -> Option<()> {
        found.push(entry);
        None
    });
    found.sort_by_key(|entry| entry.offset);
    found
}

/// Spreads small numbers over all tags.
fn spread(number: u32) -> u32 {
    number
        .wrapping_mul(0x9E37_79B9)
        .rotate_left(11)
        .wrapping_mul(0x85EB_CA6B)
}

proptest! {
    #[test]
    fn agrees_with_a_map(
        steps in prop::collection::vec((0..3u8, 0..400u32, any::<u32>()), 1..600),
        distinct_tags in prop_oneof![Just(1u32), Just(7), Just(400)],
    ) {
        let mut index = NameIndex::default();
        let mut model = BTreeMap::new();
        for (action, offset, inode) in steps {
            let tag = spread(offset % distinct_tags);
            match action {
                0 => prop_assert_eq!(index.remove(tag, offset), model.remove(&offset).is_some()),
                1 if model.contains_key(&offset) => {
                    prop_assert!(index.set_inode(tag, offset, inode));
                    model.insert(offset, inode);
                }
                _ if !model.contains_key(&offset) => {
                    prop_assert!(!index.set_inode(tag, offset, inode));
                    index.insert(&entry(tag, offset, inode));
                    model.insert(offset, inode);
                }
                _ => {}
            }
            index.assert_consistent();
            prop_assert_eq!(index.len(), model.len());
        }
        for class in 0..distinct_tags {
            let expected: Vec<_> = model
                .iter()
                .filter(|(offset, _)| **offset % distinct_tags == class)
                .map(|(offset, inode)| entry(spread(class), *offset, *inode))
                .collect();
            prop_assert_eq!(all(&index, spread(class)), expected);
        }
    }
}

#[test]
fn grows_splits_and_shrinks_without_losing_anything() {
    let mut index = NameIndex::default();
    let count = 60_000;
    let inode_of = |offset: u32| !offset;
    for offset in 0..count {
        index.insert(&entry(spread(offset), offset, inode_of(offset)));
    }
    index.assert_consistent();
    assert!(
        index.heap_bytes() as u32 <= count * 17,
        "{} bytes per name",
        index.heap_bytes() as u32 / count
    );
    for offset in 0..count {
        assert!(all(&index, spread(offset)).contains(&entry(
            spread(offset),
            offset,
            inode_of(offset)
        )));
    }
    for offset in (0..count).filter(|offset| !offset.is_multiple_of(16)) {
        assert!(index.remove(spread(offset), offset));
    }
    index.assert_consistent();
    assert!(index.heap_bytes() as u32 <= count / 16 * 40);
    for offset in (0..count).step_by(16) {
        assert!(index.remove(spread(offset), offset));
        assert!(!index.remove(spread(offset), offset));
    }
    assert_eq!((index.len(), index.heap_bytes()), (0, 0));
}

#[test]
fn a_thousand_names_with_one_tag_are_still_found() {
    let mut index = NameIndex::default();
    for offset in 0..1000 {
        index.insert(&entry(42, offset, 1));
    }
    index.assert_consistent();
    assert_eq!(all(&index, 42).len(), 1000);
    assert!(index.set_inode(42, 999, 2));
    for offset in (0..1000).rev() {
        assert!(index.remove(42, offset));
    }
    assert_eq!(index.len(), 0);
}
