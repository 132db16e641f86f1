//! Regions whose parts are mapped one after the other.

use perdure_pmem::{DurabilityClass, MapError, Offset, Part, Permission, Region};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PART: u64 = 2 << 20;

fn file() -> File {
    let file = tempfile::tempfile_in("/dev/shm").expect("tmpfs");
    file.set_len(PART).expect("length");
    file
}

fn part(file: &File) -> Part<'_> {
    Part {
        file,
        path: Path::new("segment 7"),
        file_offset: 0,
        length: PART,
    }
}

fn reserved() -> Region {
    Region::reserve(3 * PART, DurabilityClass::Volatile).expect("addresses")
}

/// The flags that the kernel shows for the mapping that holds an address.
fn flags_of(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
    let mut inside = false;
    for line in maps.lines() {
        let range = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        if let Some((start, end)) = range {
            let number = |text| usize::from_str_radix(text, 16);
            if let (Ok(start), Ok(end)) = (number(start), number(end)) {
                inside = (start..end).contains(&address);
            }
        }
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return format!("{flags} ");
        }
    }
    panic!("{address:#x} is not mapped");
}

#[test]
fn a_part_is_mapped_for_reading_then_for_writing_and_stores_arrive() {
    let (region, file) = (reserved(), file());
    file.write_all_at(b"before", 4096).expect("write");
    let at = Offset::new(PART);
    region
        .map_later(at, &part(&file), Permission::Read)
        .expect("mapped");
    region.populate(at, PART as usize, false);
    let mut found = [0; 6];
    region.read(at + 4096, &mut found);
    assert_eq!(&found, b"before");

    region
        .map_later(at, &part(&file), Permission::ReadWrite)
        .expect("mapped for more");
    region.populate(at, PART as usize, true);
    region.fence(region.write_streaming(at + 4096, b"behind"));
    file.read_exact_at(&mut found, 4096).expect("read");
    assert_eq!(&found, b"behind");
}

#[test]
fn children_get_neither_addresses_nor_parts() {
    let (region, file) = (reserved(), file());
    let at = Offset::new(PART);
    let address = |at: Offset| region.as_ptr(at, 1) as usize;
    assert!(flags_of(address(at)).contains(" dc "));
    for permission in [Permission::Read, Permission::ReadWrite] {
        region
            .map_later(at, &part(&file), permission)
            .expect("mapped");
        let flags = flags_of(address(at));
        assert!(
            flags.contains(" dc ") && flags.contains(" dd "),
            "{permission:?}: {flags}"
        );
    }
    assert!(
        flags_of(address(at + PART)).contains(" dc "),
        "the rest of the reservation"
    );
}

#[test]
fn what_is_refused_disturbs_nothing() {
    let (region, file) = (reserved(), file());
    let at = Offset::new(0);
    region
        .map_later(at, &part(&file), Permission::Read)
        .expect("mapped");
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let readable = File::open(path).expect("opened again");
    let refused = region.map_later(at, &part(&readable), Permission::ReadWrite);
    assert!(
        matches!(refused, Err(MapError::System { .. })),
        "{refused:?}"
    );
    region.read(at, &mut [1; 64]);

    let outside = region.map_later(Offset::new(PART * 5 / 2), &part(&file), Permission::Read);
    assert!(
        matches!(&outside, Err(error @ MapError::Outside { .. }) if error.to_string().contains("segment 7"))
    );
    let anonymous = Region::anonymous(PART).map_later(at, &part(&file), Permission::Read);
    assert!(
        matches!(anonymous, Err(MapError::Outside { reserved: 0, .. })),
        "no reservation"
    );
}

#[test]
fn a_reservation_of_nothing_or_of_everything_is_refused() {
    let reserve = |length| Region::reserve(length, DurabilityClass::Volatile);
    assert!(matches!(reserve(0), Err(MapError::Empty)));
    for length in [u64::MAX, 1 << 60] {
        assert!(matches!(reserve(length), Err(MapError::NoAddresses { .. })));
    }
}
