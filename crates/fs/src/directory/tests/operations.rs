//! Random operations against a model, and single operations whose bytes are known.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{DIRECTORY, Image, name};
use crate::directory::*;
use crate::format::InodeNumber;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Insert(usize),
    Remove(usize),
    Replace(usize),
    /// Remove the first, then give its inode to the second, whether it exists or not.
    Rename(usize, usize),
    /// The same, but the new name is planned before the old one goes.
    RenameInsertFirst(usize, usize),
    Exchange(usize, usize),
    Reload,
}

fn operation() -> impl Strategy<Value = Operation> {
    let which = 0..160usize;
    prop_oneof![
        8 => which.clone().prop_map(Operation::Insert),
        5 => which.clone().prop_map(Operation::Remove),
        1 => which.clone().prop_map(Operation::Replace),
        2 => (which.clone(), which.clone()).prop_map(|(from, to)| Operation::Rename(from, to)),
        2 => (which.clone(), which.clone()).prop_map(|(from, to)| Operation::RenameInsertFirst(from, to)),
        1 => (which.clone(), which).prop_map(|(from, to)| Operation::Exchange(from, to)),
        1 => Just(Operation::Reload),
    ]
}

/// Names of all lengths, many of them short.
fn nth_name(number: usize) -> Vec<u8> {
    let length = if number.is_multiple_of(3) {
        number * 251 % 256
    } else {
        number % 24
    };
    name(number, length)
}

type Model = BTreeMap<Vec<u8>, u64>;

/// Plans the operation on image and model; `None` if it makes no sense.
fn plan(
    image: &Image,
    model: &mut Model,
    operation: Operation,
    inode: u64,
    shrink: bool,
) -> Option<super::Step> {
    let mut step = image.step();
    let two = |from: usize, to: usize| {
        let (from, to) = (nth_name(from), nth_name(to));
        (from != to && image.find(&from).is_some()).then_some((from, to))
    };
    match operation {
        Operation::Insert(number) => {
            let name = nth_name(number);
            if model.insert(name.clone(), inode).is_some() {
                image.replace(&mut step, &name, inode);
            } else {
                image.insert(&mut step, &name, inode);
            }
        }
        Operation::Remove(number) => {
            let name = nth_name(number);
            model.remove(&name)?;
            image.remove(&mut step, &name);
        }
        Operation::Replace(number) => {
            let name = nth_name(number);
            *model.get_mut(&name)? = inode;
            image.replace(&mut step, &name, inode);
        }
        Operation::Rename(from, to) => {
            let (from, to) = two(from, to)?;
            let moved = model.remove(&from)?;
            image.remove(&mut step, &from);
            if shrink {
                image.shrink(&mut step);
            }
            match model.insert(to.clone(), moved) {
                Some(_) => image.replace(&mut step, &to, moved),
                None => image.insert(&mut step, &to, moved),
            }
        }
        Operation::RenameInsertFirst(from, to) => {
            let (from, to) = two(from, to)?;
            let moved = model.remove(&from)?;
            match model.insert(to.clone(), moved) {
                Some(_) => image.replace(&mut step, &to, moved),
                None => image.insert(&mut step, &to, moved),
            }
            image.remove(&mut step, &from);
        }
        Operation::Exchange(from, to) => {
            let (from, to) = two(from, to)?;
            let (first, second) = (*model.get(&from)?, *model.get(&to)?);
            image.replace(&mut step, &from, second);
            image.replace(&mut step, &to, first);
            model.insert(from, second);
            model.insert(to, first);
        }
        Operation::Reload => return None,
    }
    if shrink {
        image.shrink(&mut step);
    }
    Some(step)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_sorted_map(
        operations in prop::collection::vec((operation(), prop::bool::weighted(0.85), any::<bool>()), 1..220)
    ) {
        let mut image = Image::new();
        let mut model = Model::new();
        for (count, (operation, commits, shrink)) in operations.into_iter().enumerate() {
            if matches!(operation, Operation::Reload) {
                image.state = image.reloaded();
            }
            let mut after = model.clone();
            let step = plan(&image, &mut after, operation, count as u64 + 1, shrink);
            if let Some(step) = step && commits {
                image.commit(step);
                model = after;
            }
            image.assert_is(&model);
        }
        for number in 0..160 {
            let name = nth_name(number);
            prop_assert_eq!(image.find(&name).map(|(found, _)| found.inode.get()), model.get(&name).copied());
        }
    }
}

#[test]
fn fresh_block_is_one_dentry_and_one_free_range() {
    let mut block = [0xAA; BLOCK_BYTES];
    write_fresh_block(
        DIRECTORY,
        3,
        b"hello",
        InodeNumber::new(9),
        FileType::Socket,
        &mut block,
    );
    let found: Vec<_> = records(&block, 3, DIRECTORY).map(Result::unwrap).collect();
    let Record::Entry(entry) = found[0] else {
        panic!("no dentry")
    };
    assert_eq!(
        (entry.name, entry.inode.get(), entry.file_type),
        (&b"hello"[..], 9, FileType::Socket)
    );
    assert_eq!(entry.offset.bytes(), 3 * 4096);
    assert!(matches!(found[1], Record::Free { bytes: 4072, .. }));
    assert_eq!(found.len(), 2);
    assert!(
        block[32..].iter().all(|&byte| byte == 0),
        "nothing of the block's past remains"
    );
}

#[test]
fn an_edit_is_one_contiguous_range() {
    let mut image = Image::new();
    image.insert_now(b"first", 1);
    let plan_one = |image: &Image| {
        let mut plan = image.state.plan();
        plan.insert(
            &image.state,
            b"second",
            InodeNumber::new(2),
            FileType::Regular,
        )
        .unwrap()
    };
    let edit = plan_one(&image);
    assert_eq!(
        (edit.offset, edit.bytes.len()),
        (24, 24 + 8),
        "dentry, and header of what stays free"
    );
    assert_eq!(
        plan_one(&image).bytes,
        edit.bytes,
        "a plan that is dropped leaves no trace"
    );

    image.insert_now(b"second", 2);
    image.insert_now(b"third", 3);
    image.remove_now(b"second");
    let edit = plan_one(&image);
    assert_eq!(
        (edit.offset, edit.bytes.len()),
        (24, 24),
        "an exact fit has no rest"
    );

    let mut plan = image.state.plan();
    let (third, _) = image.find(b"third").unwrap();
    let edit = plan.remove(&image.state, b"third", third);
    assert_eq!(
        (edit.offset, edit.bytes.len()),
        (24, 8),
        "merged with the range before and the range behind"
    );
    assert_eq!(
        u16::from_le_bytes([edit.bytes[0], edit.bytes[1]]),
        4096 - 24
    );

    let (first, _) = image.find(b"first").unwrap();
    let edit = plan.replace(b"first", first, InodeNumber::new(5), FileType::Fifo);
    assert_eq!(
        (edit.offset, edit.bytes.len()),
        (0, 16),
        "header and inode number"
    );
}

#[test]
fn small_remainders_are_free_ranges() {
    let mut image = Image::new();
    let mut model = BTreeMap::new();
    let mut add = |image: &mut Image, number: usize, length: usize| {
        let name = name(number, length);
        image.insert_now(&name, 1 + number as u64);
        model.insert(name, 1 + number as u64);
        image.assert_is(&model);
    };
    // 15 dentries of 272 bytes leave 16 bytes, too few for any dentry.
    for number in 0..15 {
        add(&mut image, number, 255);
    }
    assert_eq!(image.state.free_ranges(0).collect::<Vec<_>>(), [(4080, 16)]);
    add(&mut image, 15, 3);
    assert_eq!(image.state.blocks(), 2);
}

#[test]
fn takes_the_first_hole_that_fits_and_shrinks_from_the_end() {
    let mut image = Image::new();
    for number in 0..1000 {
        image.insert_now(&name(number, 16), 1);
    }
    let blocks = image.state.blocks();
    assert_eq!(blocks, 1000 / 128 + 1);
    image.remove_now(&name(500, 16));
    image.remove_now(&name(300, 16));
    image.insert_now(b"fits", 7);
    assert_eq!(image.find(b"fits").unwrap().0.offset.bytes(), 300 * 32);
    // The hole at 300 has 8 bytes left, the one at 500 all of its 32.
    image.insert_now(b"fits too", 7);
    assert_eq!(image.find(b"fits too").unwrap().0.offset.bytes(), 500 * 32);

    for number in 128 * 6..1000 {
        image.remove_now(&name(number, 16));
    }
    let mut plan = image.state.plan();
    assert_eq!(plan.shrink(&image.state, 1), blocks - 1);
    assert_eq!(plan.shrink(&image.state, 100), 6);
    image.state.commit(plan);
    assert_eq!(image.state.blocks(), 6);
}

#[test]
fn a_rename_may_drop_the_last_block_and_need_it_again() {
    let mut image = Image::new();
    for number in 0..15 {
        image.insert_now(&name(number, 255), 1);
    }
    image.insert_now(b"in the second block", 9);
    assert_eq!(image.state.blocks(), 2);
    let mut step = image.step();
    image.remove(&mut step, b"in the second block");
    image.shrink(&mut step);
    image.insert(&mut step, b"and there again", 9);
    image.commit(step);
    let mut model: BTreeMap<_, _> = (0..15).map(|number| (name(number, 255), 1)).collect();
    model.insert(b"and there again".to_vec(), 9);
    image.assert_is(&model);
}

#[test]
#[should_panic(expected = "changed behind the plan's back")]
fn a_stale_plan_is_a_bug() {
    let mut image = Image::new();
    image.insert_now(b"a", 1);
    let stale = image.state.plan();
    image.insert_now(b"b", 1);
    image.state.commit(stale);
}

#[test]
fn only_real_names_are_valid() {
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        assert!(!name_is_valid(name), "{name:?}");
    }
    for name in [&b"..."[..], b" ", b"\xFF\x01\n", &[b'x'; 255]] {
        assert!(name_is_valid(name), "{name:?}");
    }
}
