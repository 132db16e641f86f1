//! Damaged regions and disks: an error, or nothing that is noticed, but no panic.

use std::sync::Arc;

use device::{Device, DeviceBlock};
use pmem::{Offset, Region};

use super::model::contents;
use super::{Design, disk, plain};
use crate::baseline::journaling::JournalingFs;

/// Uses a file system in all ways that read; errors are fine.
fn look(fs: &JournalingFs) {
    let _error_or_not = fs.verify();
    let _error_or_not = contents(fs);
    let _error_or_not = fs.create("/new").map(drop);
}

fn fill(fs: &JournalingFs) {
    fs.create_dir("/d").expect("room");
    for name in ["/a", "/d/b"] {
        let file = fs.create(name).expect("room");
        fs.append(&file, &[7; 30_000]).expect("room");
    }
    let large = fs.create("/large").expect("room");
    fs.write_at(&large, 170_000, &[8; 30_000]).expect("room");
}

#[test]
fn regions_that_are_damaged_or_foreign_are_refused() {
    for design in Design::ALL {
        let (region, disk) = (Arc::new(Region::anonymous(design.least_bytes())), disk());
        let empty = Arc::new(Region::anonymous(design.least_bytes()));
        assert!(design.recover(&empty, &disk, plain()).is_err());
        fill(&design.format(&region, &disk, plain()));
        let other = match design {
            Design::Tinca => Design::SpindleMended,
            _ => Design::Tinca,
        };
        assert!(other.recover(&region, &disk, plain()).is_err());
        let image = region.image();
        let bytes = 14 * 4096;
        let mut is_refused = 0;
        for at in (0..bytes).step_by(8) {
            // Some of each part after the first words.
            if at >= 256 && at % 256 > 8 {
                continue;
            }
            let region = Arc::new(Region::from_image(&image));
            let damage = region.store(Offset::new(at), &[0xff; 8]);
            damage.leave_to_checkpoint();
            match design.recover(&region, &disk, plain()) {
                Ok(fs) => look(&fs),
                Err(_) => is_refused += 1,
            }
        }
        assert!(is_refused > 4, "{design:?}: {is_refused}");
    }
}

#[test]
fn disks_that_are_damaged_are_refused() {
    let design = Design::Tinca;
    let (region, disk) = (Arc::new(Region::anonymous(design.least_bytes())), disk());
    let fs = design.format(&region, &disk, plain());
    fill(&fs);
    drop(fs);
    let image = region.image();
    let mut is_noticed = 0;
    for block in 0..20 {
        for bit in (0..4096 * 8).step_by(2741) {
            // Damage of the cached blocks as well: the region's copies come first.
            let region = Arc::new(Region::from_image(&image));
            let at = (3 + block) * 4096 + bit / 8;
            let byte = image[at] ^ 1 << (bit % 8);
            region
                .store(Offset::new(at as u64), &[byte])
                .leave_to_checkpoint();
            let disk = Arc::new(disk.snapshot());
            disk.flip(DeviceBlock::new(block as u64), bit);
            assert_eq!(disk.blocks(), super::DISK_BLOCKS);
            match design.recover(&region, &disk, plain()) {
                Ok(fs) => {
                    is_noticed += u64::from(fs.verify().is_err());
                    look(&fs);
                }
                Err(_) => is_noticed += 1,
            }
        }
    }
    assert!(is_noticed > 10, "{is_noticed}");
}
