//! A mount of a pool with a device: errors reach programs as `EIO` and go away, and direct access
//! leaves to the server what lies there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use device::Device;
use device::faulty::{Fault, Faulty};
use fs::{FileSystem, MountOptions};

use crate::storm::{Mounted, place_with, storm_with};

const BLOCK: u64 = 4096;
const DEVICE_BLOCKS: u32 = 4096;

/// The mount, its device, and the file system behind the mount.
fn mount() -> (Mounted, Arc<Faulty>, FileSystem) {
    let mut mounted = place_with(DEVICE_BLOCKS);
    let device = Arc::new(Faulty::new(DEVICE_BLOCKS.into()));
    let store = mounted.store();
    let store = store.with_device(Arc::clone(&device) as Arc<dyn Device>, "faulty");
    let files = FileSystem::mount(store.expect("its device"), MountOptions::default());
    let files = files.expect("mount");
    mounted.serve(files.clone());
    (mounted, device, files)
}

fn sink(files: &FileSystem, name: &str) -> u64 {
    let node = files.lookup(&files.root(), name.as_bytes()).expect("there");
    files.move_to_device(&node, 0..u64::MAX).expect("good")
}

/// Past the page cache, so that each read is a request.
fn open_past_the_cache(mounted: &Mounted, name: &str) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    let mut how = File::options();
    how.read(true).write(true).custom_flags(libc::O_DIRECT);
    how.open(mounted.place.join(name)).expect("open")
}

#[test]
fn a_failing_device_is_eio_for_its_blocks_and_nothing_else() {
    let (mounted, device, files) = mount();
    for name in ["cold", "hot"] {
        std::fs::write(mounted.place.join(name), [7; 3 * BLOCK as usize]).expect("write");
    }
    assert_eq!(sink(&files, "cold"), 3);
    let (cold, hot) = (
        open_past_the_cache(&mounted, "cold"),
        open_past_the_cache(&mounted, "hot"),
    );
    let mut block = Box::new(Aligned([0; BLOCK as usize]));
    let mut read = |file: &File| file.read_exact_at(&mut block.0, BLOCK);
    read(&cold).expect("good");
    // A block is asked for twice before it is given up.
    device.arm(Fault::Read, 0);
    device.arm(Fault::Read, 1);
    let error = read(&cold).expect_err("armed");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    read(&cold).expect("good again");
    device.set_gone(true);
    assert_eq!(
        read(&cold).expect_err("gone").raw_os_error(),
        Some(libc::EIO)
    );
    read(&hot).expect("memory");
    let path = mounted.place.join("cold");
    assert_eq!(path.metadata().expect("metadata").len(), 3 * BLOCK);
    std::fs::rename(&path, mounted.place.join("moved")).expect("metadata");
    std::fs::write(mounted.place.join("new"), b"small").expect("memory");
    device.set_gone(false);
    read(&cold).expect("it is back");
    let content = std::fs::read(mounted.place.join("moved")).expect("good");
    assert!(content.iter().all(|byte| *byte == 7));
    drop(files);
}

#[repr(align(4096))]
struct Aligned([u8; BLOCK as usize]);

#[test]
fn a_process_reads_and_writes_what_moves_below_it() {
    let (mounted, _device, files) = mount();
    let mut moved = 0;
    let (direct, kernel) = storm_with(&mounted, "moving", (50, 10_000), |round| {
        let node = files.lookup(&files.root(), b"moving").expect("there");
        match round % 100 {
            // An attached file does not move. A change through the kernel ends that.
            40..60 => moved += files.move_to_device(&node, 0..u64::MAX).expect("good"),
            99 => files.bring_in(&node, 0..u64::MAX).expect("room"),
            _ => {}
        }
    });
    assert!(moved > 100, "{moved} blocks moved");
    assert!(
        direct > 0 && kernel > 0,
        "{direct} directly, {kernel} by the kernel"
    );
    drop(files);
}
