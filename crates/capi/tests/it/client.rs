//! A C program uses files of a mount directly: `c/client.c`. What it wrote is looked at from here, through the mount.

use crate::common::{Build, Installed, succeed};
use fs::{FileSystem, MountOptions};
use server::{Mounting, Running, spawn};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore};

struct Mounted {
    _running: Running<PmemStore>,
    _folder: TempDir,
    place: PathBuf,
}

fn mount() -> Mounted {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let (pool, place) = (folder.path().join("pool"), folder.path().join("mnt"));
    std::fs::create_dir(&place).expect("a mount point");
    let options = FormatOptions {
        size_bytes: 256 << 20,
        volatile: true,
        ..FormatOptions::default()
    };
    let owner = (rustix::process::geteuid(), rustix::process::getegid());
    fs::mkfs(&pool, &options, (owner.0.as_raw(), owner.1.as_raw())).expect("mkfs");
    let store = PmemStore::open(&pool, Mode::ReadWrite, true).expect("open");
    let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
    Mounted {
        _running: spawn(files, &Mounting::new(&pool, &place)).expect("serve"),
        _folder: folder,
        place,
    }
}

/// The number behind a word in what the program said.
fn number(said: &str, word: &str) -> u64 {
    let mut words = said.split_whitespace().skip_while(|at| *at != word);
    let number = words.nth(1).expect("a number");
    number.parse().expect("a number")
}

#[test]
fn a_program_reads_and_writes_files_of_a_mount_directly() {
    let installed = Installed::new();
    for build in [Build::C, Build::Cpp, Build::Static] {
        let mounted = mount();
        let program = installed.compile("client.c", build);
        let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let mut command = Command::new("timeout");
        command.arg("120").arg(program).arg(&mounted.place);
        let said = succeed(command.arg(elsewhere.path()));
        println!("{build:?}: {said}");
        assert!(said.ends_with("PASS\n"), "{said}");
        let (direct, kernel) = (number(&said, "direct"), number(&said, "kernel"));
        assert!(direct > 10_000 && kernel < 100, "{said}");

        // Block n of the first file is full of n, the log counts.
        let blocks = std::fs::read(mounted.place.join("blocks")).expect("read");
        assert_eq!(blocks.len(), 64 * 4096);
        for (index, block) in blocks.chunks(4096).enumerate() {
            assert!(block.iter().all(|byte| usize::from(*byte) == index));
        }
        let log = std::fs::read(mounted.place.join("log")).expect("read");
        assert_eq!(log.len(), 5000 * 8);
        for (index, record) in log.chunks(8).enumerate() {
            assert_eq!(record, (index as u64).to_le_bytes());
        }
    }
}
