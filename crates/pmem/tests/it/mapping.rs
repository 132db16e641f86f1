//! Real mappings of real files: what is accepted, what is refused and with which words.

use std::fs::File;
use std::path::Path;

use perdure_pmem::{
    Access, DurabilityClass, MapError, Offset, Part, Region, medium_length, use_huge_pages,
};
use tempfile::NamedTempFile;

const MEBIBYTE: u64 = 1 << 20;

fn file_of(length: u64) -> NamedTempFile {
    let file = tempfile::Builder::new()
        .prefix("perdure-pmem-")
        .tempfile_in("/dev/shm")
        .expect("tmpfs");
    file.as_file().set_len(length).expect("length");
    file
}

fn part(file: &NamedTempFile, file_offset: u64, length: u64) -> Part<'_> {
    Part {
        file: file.as_file(),
        path: file.path(),
        file_offset,
        length,
    }
}

fn volatile(parts: &[Part<'_>]) -> Result<Region, MapError> {
    Region::map(parts, DurabilityClass::Volatile, Access::ReadWrite)
}

#[test]
fn parts_lie_side_by_side_and_stores_reach_the_files() {
    let (first, second) = (file_of(MEBIBYTE), file_of(3 * MEBIBYTE));
    let region = volatile(&[
        part(&first, 0, MEBIBYTE),
        part(&second, MEBIBYTE, 2 * MEBIBYTE),
    ])
    .expect("mapped");
    assert_eq!(region.length(), 3 * MEBIBYTE);
    assert_eq!(region.class(), DurabilityClass::Volatile);
    assert!(
        region
            .as_ptr(Offset::new(0), 1)
            .addr()
            .is_multiple_of(2 << 20)
    );

    let across = Offset::new(MEBIBYTE - 5);
    let batch = region.write_streaming(across, b"across the seam");
    region.fence(batch).assert_of(&region);
    assert!(region.equals(across, b"across the seam"));
    drop(region);

    let (head, tail) = (
        std::fs::read(first.path()).expect("read"),
        std::fs::read(second.path()).expect("read"),
    );
    assert_eq!(&head[MEBIBYTE as usize - 5..], b"acros");
    assert_eq!(
        &tail[MEBIBYTE as usize..MEBIBYTE as usize + 10],
        b"s the seam"
    );
}

#[test]
fn a_private_copy_sees_the_file_and_never_changes_it() {
    let file = file_of(MEBIBYTE);
    volatile(&[part(&file, 0, MEBIBYTE)])
        .expect("mapped")
        .store_u64(Offset::new(8), 1)
        .leave_to_checkpoint();

    let read_only = File::open(file.path()).expect("open");
    let parts = [Part {
        file: &read_only,
        path: file.path(),
        file_offset: 0,
        length: MEBIBYTE,
    }];
    let copy = Region::map(&parts, DurabilityClass::Volatile, Access::PrivateCopy).expect("mapped");
    assert_eq!(copy.load_u64(Offset::new(8)), 1);
    copy.fence(copy.store_u64(Offset::new(8), 2).flush());
    assert_eq!(copy.load_u64(Offset::new(8)), 2);
    assert_eq!(
        volatile(&[part(&file, 0, MEBIBYTE)])
            .expect("mapped")
            .load_u64(Offset::new(8)),
        1
    );
}

#[test]
fn tmpfs_is_not_persistent_memory() {
    let file = file_of(MEBIBYTE);
    for access in [Access::ReadWrite, Access::PrivateCopy] {
        let error = Region::map(&[part(&file, 0, MEBIBYTE)], DurabilityClass::Dax, access)
            .expect_err("refused");
        assert!(matches!(&error, MapError::NotPersistent { path } if path == file.path()));
        let text = error.to_string();
        assert!(text.starts_with(&*file.path().to_string_lossy()), "{text}");
        assert!(
            text.contains("MAP_SYNC") && text.contains("--volatile"),
            "{text}"
        );
    }
}

#[test]
fn a_truncated_file_is_named_with_both_lengths() {
    let file = file_of(MEBIBYTE - 4096);
    let error = volatile(&[part(&file, 4096, MEBIBYTE - 4096)]).expect_err("refused");
    assert!(matches!(
        error,
        MapError::Truncated {
            expected: 1_048_576,
            found: 1_044_480,
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains("truncated: 1048576 bytes needed, 1044480 bytes found"),
        "{text}"
    );
}

#[test]
fn ranges_are_whole_pages_and_there_is_at_least_one() {
    let file = file_of(MEBIBYTE);
    for (file_offset, length) in [(100, 4096), (4096, 100)] {
        let error = volatile(&[part(&file, file_offset, length)]).expect_err("refused");
        assert!(
            matches!(
                error,
                MapError::Misaligned {
                    alignment: 4096,
                    ..
                }
            ),
            "{error}"
        );
    }
    assert!(matches!(volatile(&[]), Err(MapError::Empty)));
    assert!(matches!(
        volatile(&[part(&file, 0, 0)]),
        Err(MapError::Empty)
    ));
    let error = volatile(&[part(&file, 4096, u64::MAX - 4095)]).expect_err("refused");
    assert!(matches!(error, MapError::Truncated { .. }), "{error}");
}

#[test]
fn what_cannot_be_mapped_is_named() {
    let path = Path::new("/dev/zero");
    let file = File::open(path).expect("open");
    let parts = [Part {
        file: &file,
        path,
        file_offset: 0,
        length: 4096,
    }];
    let error =
        Region::map(&parts, DurabilityClass::Volatile, Access::ReadWrite).expect_err("refused");
    assert!(
        error.to_string().starts_with("/dev/zero: cannot be mapped"),
        "{error}"
    );

    let writable = file_of(4096);
    let read_only = File::open(writable.path()).expect("open");
    let parts = [Part {
        file: &read_only,
        path: writable.path(),
        file_offset: 0,
        length: 4096,
    }];
    let error =
        Region::map(&parts, DurabilityClass::Volatile, Access::ReadWrite).expect_err("refused");
    assert!(matches!(error, MapError::System { .. }), "{error}");
}

#[test]
fn lengths_of_media() {
    assert_eq!(
        medium_length(file_of(12_345).as_file()).expect("length"),
        12_345
    );
    let device = File::open("/dev/null").expect("open");
    assert_eq!(
        medium_length(&device).expect_err("refused").kind(),
        std::io::ErrorKind::Unsupported
    );
}

#[test]
fn a_dropped_region_gives_its_addresses_back() {
    let file = file_of(64 * MEBIBYTE);
    let name = file
        .path()
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    let mapped = || {
        std::fs::read_to_string("/proc/self/maps")
            .expect("maps")
            .contains(&name)
    };
    for _ in 0..100 {
        drop(volatile(&[part(&file, 0, 64 * MEBIBYTE)]).expect("mapped"));
        assert!(!mapped());
    }
}

/// Bytes of this process's mapping at an address that are mapped by huge pages.
fn mapped_huge(address: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
    let begins = format!("{address:x}-");
    let lines = maps.lines().skip_while(|line| !line.starts_with(&begins));
    let mut counts = lines.filter_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    let count = counts.next().expect("a count").trim();
    count
        .strip_suffix(" kB")
        .and_then(|text| text.parse().ok())
        .expect("a number")
}

#[test]
fn a_file_on_tmpfs_gets_huge_pages_and_stays_what_it_was() {
    let length = 6 * MEBIBYTE;
    let file = file_of(0);
    use_huge_pages(file.as_file(), length).expect("a longer file");
    assert_eq!(medium_length(file.as_file()).expect("length"), length);
    let region = volatile(&[part(&file, 0, length)]).expect("mapped");
    let mut content = vec![0xee; length as usize];
    region.read(Offset::new(0), &mut content);
    assert!(content.iter().all(|byte| *byte == 0), "zeros");
    let address = region.as_ptr(Offset::new(0), 1) as usize;
    let huge = mapped_huge(address);
    assert_eq!(huge, length >> 10, "the kernel can do this since Linux 6.1");
}

#[test]
fn a_file_elsewhere_and_one_that_fits_no_huge_page_just_get_their_length() {
    let elsewhere = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    use_huge_pages(&elsewhere, 4 * MEBIBYTE).expect("a longer file");
    assert_eq!(elsewhere.metadata().expect("metadata").len(), 4 * MEBIBYTE);
    let odd = file_of(0);
    use_huge_pages(odd.as_file(), 3 * MEBIBYTE).expect("a longer file");
    assert_eq!(medium_length(odd.as_file()).expect("length"), 3 * MEBIBYTE);
    assert_eq!(
        std::os::unix::fs::MetadataExt::blocks(&odd.as_file().metadata().expect("metadata")),
        0,
        "nothing is in memory"
    );
}
