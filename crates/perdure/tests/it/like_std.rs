//! The same operations on `std::fs` and on a pool: results and kinds of errors have to agree.

use crate::common::Place;
use crate::executors::{Files, Operation, PoolFiles, StdFiles};
use proptest::prelude::*;

/// Runs operations on both sides and compares after each of them.
fn compare(operations: &[Operation]) -> Result<(), TestCaseError> {
    let place = Place::new();
    let pool = place.create();
    let std_files = StdFiles::new(&place.directory.path().join("std"));
    let pool_files = PoolFiles::new(&pool);
    for (step, operation) in operations.iter().enumerate() {
        let (expected, found) = (std_files.run(operation), pool_files.run(operation));
        prop_assert_eq!(
            &found,
            &expected,
            "step {} of {:#?}",
            step,
            &operations[..=step]
        );
    }
    prop_assert_eq!(
        pool_files.tree(),
        std_files.tree(),
        "the trees after {:#?}",
        operations
    );
    Ok(())
}

fn check(operations: &[Operation]) {
    compare(operations).unwrap_or_else(|error| panic!("{error}"));
}

fn text(text: &str) -> String {
    text.to_owned()
}

use Operation::*;

#[test]
fn files_come_and_go() {
    check(&[
        Write(text("a"), 5),
        Read(text("a")),
        Write(text("a"), 10_000),
        Read(text("a")),
        Append(text("a"), 3),
        Metadata(text("a")),
        SetLen(text("a"), 4097),
        Read(text("a")),
        SetLen(text("a"), 20_000),
        Read(text("a")),
        RemoveFile(text("a")),
        Read(text("a")),
        RemoveFile(text("a")),
        Metadata(text("a")),
        Exists(text("a")),
    ]);
}

#[test]
fn directories_come_and_go() {
    check(&[
        CreateDir(text("a")),
        CreateDir(text("a")),
        CreateDir(text("x/y")),
        CreateDirAll(text("a/b/c")),
        CreateDirAll(text("a/b/c/")),
        CreateDirAll(text("")),
        CreateDirAll(text("./a/./b")),
        Metadata(text("a")),
        List(text("a")),
        RemoveDir(text("a")),
        RemoveFile(text("a")),
        RemoveDir(text("a/b/c")),
        RemoveDir(text("a/b/.")),
        RemoveDir(text("a/b/..")),
        RemoveDir(text("a/b/")),
        Write(text("a/file"), 1),
        RemoveDir(text("a/file")),
        CreateDirAll(text("a/file")),
        CreateDirAll(text("a/file/b")),
        List(text("a/file")),
        RemoveDirAll(text("a/file")),
        RemoveDirAll(text("a")),
        RemoveDirAll(text("a")),
    ]);
}

#[test]
fn links_are_followed_where_they_should() {
    check(&[
        CreateDir(text("d")),
        Write(text("d/f"), 7),
        Symlink(text("d/f"), text("to_file")),
        Symlink(text("d"), text("to_dir")),
        Symlink(text("nowhere"), text("dangling")),
        Symlink(text("loop_b"), text("loop_a")),
        Symlink(text("loop_a"), text("loop_b")),
        Symlink(text(""), text("empty")),
        Read(text("to_file")),
        Read(text("to_dir/f")),
        Read(text("to_dir/../d/f")),
        Read(text("dangling")),
        Read(text("loop_a")),
        Read(text("loop_a/x")),
        Exists(text("dangling")),
        Exists(text("loop_a")),
        Metadata(text("to_dir")),
        SymlinkMetadata(text("to_dir")),
        SymlinkMetadata(text("to_dir/")),
        SymlinkMetadata(text("to_file/")),
        Canonicalize(text("to_dir/f")),
        Canonicalize(text("to_dir/../d/./f")),
        Canonicalize(text("dangling")),
        ReadLink(text("to_file")),
        ReadLink(text("d")),
        CreateNew(text("dangling")),
        Write(text("dangling"), 3),
        Read(text("nowhere")),
        CreateDir(text("to_dir")),
        RemoveDir(text("to_dir")),
        RemoveFile(text("to_dir/")),
        RemoveDirAll(text("to_dir")),
        Read(text("d/f")),
    ]);
}

#[test]
fn hard_links_share_the_file() {
    check(&[
        Write(text("a"), 100),
        HardLink(text("a"), text("b")),
        HardLink(text("a"), text("b")),
        HardLink(text("missing"), text("c")),
        Append(text("b"), 5),
        Metadata(text("a")),
        RemoveFile(text("a")),
        Metadata(text("b")),
        CreateDir(text("d")),
        HardLink(text("d"), text("e")),
        HardLink(text("b"), text("c/")),
        Symlink(text("b"), text("s")),
        HardLink(text("s"), text("t")),
        SymlinkMetadata(text("t")),
    ]);
}

#[test]
fn renames_replace_what_they_may() {
    check(&[
        Write(text("f"), 1),
        Write(text("g"), 2),
        CreateDirAll(text("d/e")),
        CreateDir(text("empty")),
        Rename(text("f"), text("g")),
        Read(text("g")),
        Rename(text("g"), text("d")),
        Rename(text("d"), text("g")),
        Rename(text("d"), text("d/e/inside")),
        Rename(text("empty"), text("d")),
        Rename(text("d"), text("empty")),
        Rename(text("missing"), text("x")),
        Rename(text("g"), text("x/y")),
        Rename(text("g"), text("new/")),
        Rename(text("empty/"), text("new/")),
        Rename(text("new/."), text("other")),
        Rename(text("new"), text("new/..")),
        Rename(text("g"), text("g")),
    ]);
}

#[test]
fn trailing_slashes_want_directories() {
    check(&[
        Write(text("f"), 1),
        Read(text("f/")),
        Write(text("f/"), 1),
        Write(text("new/"), 1),
        CreateNew(text("f/")),
        CreateNew(text("new/")),
        CreateDir(text("d/")),
        Read(text("d/")),
        Write(text("d"), 1),
        RemoveFile(text("f/")),
        RemoveFile(text("d/")),
        RemoveFile(text("missing/")),
        Symlink(text("f"), text("s/")),
        List(text("d//")),
        Metadata(text(".//d///.")),
        Read(text("f/x")),
        Read(text("f/.")),
        Read(text("f/..")),
    ]);
}

#[test]
fn long_names_and_paths_are_refused() {
    let name = "n".repeat(255);
    let long_path = "./".repeat(2048);
    check(&[
        Write(name.clone(), 1),
        Read(name.clone()),
        Write(format!("{name}n"), 1),
        CreateDir(format!("{name}n")),
        Metadata(format!("{name}n/x")),
        Metadata(long_path),
        Metadata(text("nul\0byte")),
        Metadata(text("")),
    ]);
}

#[test]
fn permissions_are_kept() {
    check(&[
        Write(text("a"), 1),
        SetMode(text("a"), 0o640),
        Metadata(text("a")),
        Copy(text("a"), text("b")),
        Metadata(text("b")),
        CreateDir(text("d")),
        SetMode(text("d"), 0o1777),
        Metadata(text("d")),
        Copy(text("d"), text("e")),
        Copy(text("missing"), text("e")),
        SetMode(text("missing"), 0o600),
    ]);
}

#[test]
fn options_combine_as_in_std() {
    let mut operations = vec![Write(text("there"), 9), CreateDir(text("dir"))];
    for flags in 0..64 {
        for path in ["there", "dir", "missing", "dir/"] {
            operations.push(Open(text(path), flags));
            operations.push(Metadata(text(path)));
            operations.push(if path == "missing" {
                RemoveFile(text(path))
            } else {
                Write(text("there"), 9)
            });
        }
    }
    check(&operations);
}

fn any_path() -> impl Strategy<Value = String> {
    let name = prop_oneof![8 => Just("a"), 8 => Just("b"), 4 => Just("c"), 1 => Just("."), 2 => Just("..")];
    (
        proptest::collection::vec(name, 1..=3),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(names, slash)| names.join("/") + if slash { "/" } else { "" })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (any_path(), 0..9000usize).prop_map(|(path, length)| Write(path, length)),
        2 => (any_path(), 0..300usize).prop_map(|(path, length)| Append(path, length)),
        1 => any_path().prop_map(CreateNew),
        2 => any_path().prop_map(Read),
        1 => (any_path(), 0..64u32).prop_map(|(path, flags)| Open(path, flags)),
        1 => (any_path(), 0..20_000u64).prop_map(|(path, length)| SetLen(path, length)),
        4 => any_path().prop_map(CreateDir),
        1 => any_path().prop_map(CreateDirAll),
        2 => any_path().prop_map(RemoveFile),
        2 => any_path().prop_map(RemoveDir),
        4 => (any_path(), any_path()).prop_map(|(from, to)| Rename(from, to)),
        2 => (any_path(), any_path()).prop_map(|(from, to)| HardLink(from, to)),
        3 => (any_path(), any_path()).prop_map(|(from, to)| Symlink(from, to)),
        1 => any_path().prop_map(ReadLink),
        1 => any_path().prop_map(Metadata),
        1 => any_path().prop_map(SymlinkMetadata),
        1 => any_path().prop_map(Exists),
        1 => any_path().prop_map(Canonicalize),
        1 => any_path().prop_map(List),
        1 => (any_path(), 0..0o1000u32).prop_map(|(path, mode)| SetMode(path, mode | 0o700)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_agree(operations in proptest::collection::vec(any_operation(), 1..40)) {
        compare(&operations)?;
    }
}
