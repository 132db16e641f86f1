//! A file system that others fill while a pool's memory in it is loaded.

use super::*;
use crate::disk::image::ImagePart;
use crate::format::FormatOptions;
use pmem::{Access, DurabilityClass, Part};
use std::path::Path;
use std::process::Command;
use wal::testing::SimulatedDisk;

/// A file system of its own in memory.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// `None` if nothing can be mounted here.
    fn mount() -> Option<Tmpfs> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4M", "none"]);
        let status = mount.arg(folder.path()).status().expect("mount");
        assert!(status.success());
        Some(Tmpfs(folder))
    }

    fn file(&self, bytes: u64) -> File {
        let file = tempfile::tempfile_in(self.0.path()).expect("a file");
        file.set_len(bytes).expect("a hole");
        file
    }

    /// Takes all the room that is left.
    fn fill(&self) -> File {
        let found = rustix::fs::statvfs(self.0.path()).expect("a file system");
        let filler = self.file(0);
        let all = found.f_bavail * found.f_frsize;
        fallocate(&filler, FallocateFlags::empty(), 0, all).expect("all the room");
        filler
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn content(block: u64) -> [u8; BLOCK_BYTES] {
    [block as u8 | 1; BLOCK_BYTES]
}

/// Memory in such a file system, none of which is loaded.
struct Scene {
    region: Region,
    loader: Arc<Loader>,
    blocks: Range<u64>,
    is_whole: Arc<AtomicBool>,
}

impl Scene {
    fn new(tmpfs: &Tmpfs) -> Scene {
        let superblock = FormatOptions::tiny().superblock().expect("sound options");
        let geometry = superblock.geometry();
        let blocks = geometry.header_blocks..geometry.total_bytes() / BLOCK;
        let disk = SimulatedDisk::new(geometry.total_bytes() as usize);
        for block in blocks.clone() {
            let change = |bytes: &mut [u8]| bytes[..BLOCK_BYTES].copy_from_slice(&content(block));
            disk.damage((block * BLOCK) as usize, change);
        }
        let data = std::iter::once(0..geometry.total_bytes()).collect();
        let parts = vec![ImagePart::new(0, Arc::new(disk), data)];
        let image = Arc::new(Image::new(parts, &superblock));
        let header = tmpfs.file(geometry.header_blocks * BLOCK);
        let segments = (0..geometry.segments).map(|_| tmpfs.file(geometry.segment_bytes()));
        let segments: Vec<File> = segments.collect();
        let region = map(std::iter::once(&header).chain(&segments));
        let is_whole = Arc::new(AtomicBool::new(false));
        let said = Arc::clone(&is_whole);
        let files = Files {
            segments,
            _room: DescriptorRoom::new(0),
            when_whole: Box::new(move || said.store(true, Ordering::SeqCst)),
        };
        let all: Vec<u32> = (0..geometry.segments).collect();
        let how = (geometry, &*all);
        let loader = Loader::start(&region, &image, how, Some(files), Loading::Demand);
        Scene {
            region,
            loader: loader.expect("a kernel that has it"),
            blocks,
            is_whole,
        }
    }

    fn is_right(&self, block: u64) -> bool {
        self.region
            .equals(Offset::new(block * BLOCK), &content(block))
    }

    fn wait_until_room_lacks(&self) {
        self.loader.lacks_room.store(false, Ordering::Relaxed);
        while !self.loader.lacks_room.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

fn map<'f>(files: impl Iterator<Item = &'f File>) -> Region {
    let part = |file: &'f File| Part {
        file,
        path: Path::new("memory"),
        file_offset: 0,
        length: file.metadata().expect("metadata").len(),
    };
    let parts: Vec<_> = files.map(part).collect();
    Region::map(&parts, DurabilityClass::Log, Access::ReadWrite).expect("map")
}

#[test]
fn without_room_accesses_and_the_rest_wait_until_there_is_some() {
    let Some(tmpfs) = Tmpfs::mount() else { return };
    let scene = Scene::new(&tmpfs);
    let filler = tmpfs.fill();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| scene.is_right(scene.blocks.start + 3));
        scene.wait_until_room_lacks();
        assert!(!reading.is_finished(), "there is no room");
        filler.set_len(0).expect("room");
        assert!(reading.join().expect("no signal"));
    });
    let filler = tmpfs.fill();
    scene.loader.begin();
    scene.wait_until_room_lacks();
    assert!(scene.loader.absent_bytes() > 0 && !scene.is_whole.load(Ordering::SeqCst));
    filler.set_len(0).expect("room");
    while !scene.is_whole.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    assert_eq!(scene.loader.absent_bytes(), 0);
    assert!(scene.blocks.clone().all(|block| scene.is_right(block)));
}
