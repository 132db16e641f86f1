//! Reads of hot data beside a client that reads cold data from a slow device.
//!
//! The mount belongs to a process of its own, whose pool has a device in memory that takes 5 ms for
//! each request. One file lies in memory, the other one on the device.

use super::MountOptions;
use super::bed::rate_for;
use crate::aging::{in_turn, pair};
use crate::child::READY;
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::ops::bed::work_directory;
use device::Device;
use device::faulty::Faulty;
use fs::{FileSystem, NewInode};
use pmem::BLOCK_BYTES;
use server::Mounting;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use txn::{FormatOptions, Mode, PmemStore};

/// First argument of the process that mounts; nothing that a user would type.
pub(crate) const ARGUMENT: &str = "--perdure-bench-cold-mount";

const CLASSIC: &str = "classic";
const DELAY: Duration = Duration::from_millis(5);
/// Blocks of each file.
const BLOCKS: u64 = 4096;
const HOT: &str = "hot";
const COLD: &str = "cold";

pub(super) fn measure(collector: &mut Collector, options: &MountOptions) {
    for (name, is_classic) in [
        ("hot_beside_cold", false),
        ("hot_beside_cold_classic", true),
    ] {
        collector.row(name, || row(options, is_classic));
    }
}

/// Reads of 4 KiB past the page cache, at random, from the hot file: while another thread reads the
/// cold one, against alone.
fn row(options: &MountOptions, is_classic: bool) -> Result<Found, BenchError> {
    let bed = ColdMount::start(options, is_classic)?;
    let (hot, cold) = (bed.open(HOT)?, bed.open(COLD)?);
    let seconds = options.slice_seconds();
    let mut state = 1;
    let mut rate = |has_cold: bool| -> Result<f64, BenchError> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = has_cold.then(|| scope.spawn(|| read_until(&cold, &is_over)));
            let rate = rate_for(seconds, || {
                read_block(&hot, &mut state).map_err(BenchError::io("read", Path::new(HOT)))
            });
            is_over.store(true, Ordering::Relaxed);
            let cold = reader.map_or(Ok(()), |reader| reader.join().expect("no panic"));
            cold.map_err(BenchError::io("read", Path::new(COLD)))?;
            rate
        })
    };
    let rates = in_turn(options.rounds, 2, |side, _| rate(side == 0))?;
    drop((hot, cold));
    bed.stop()?;
    let rounds = pair(&rates[0], &rates[1]);
    Ok(with_spread(&rounds, "a device of 5 ms a request"))
}

fn read_until(file: &File, is_over: &AtomicBool) -> std::io::Result<()> {
    let mut state = 2;
    while !is_over.load(Ordering::Relaxed) {
        read_block(file, &mut state)?;
    }
    Ok(())
}

#[repr(align(4096))]
struct Aligned([u8; BLOCK_BYTES]);

fn read_block(file: &File, state: &mut u64) -> std::io::Result<()> {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    let mut block = Aligned([0; BLOCK_BYTES]);
    let index = (*state >> 33) % BLOCKS;
    file.read_exact_at(&mut block.0, index * BLOCK_BYTES as u64)
}

/// The process that mounts, seen from the experiment.
struct ColdMount {
    child: Child,
    place: TempDir,
}

impl ColdMount {
    fn start(options: &MountOptions, is_classic: bool) -> Result<ColdMount, BenchError> {
        let place = work_directory(&options.directory)?;
        let program = Path::new("/proc/self/exe");
        let mut child = Command::new(program)
            .arg(ARGUMENT)
            .arg(place.path())
            .args(is_classic.then_some(CLASSIC))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::io("start", program))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(BenchError::io("read the output of", program))?;
        }
        let mount = ColdMount { child, place };
        match line.trim_end() == READY {
            true => Ok(mount),
            false => {
                let reason = "it did not mount the pool; its own message, if it has one, is above";
                Err(BenchError::Child(reason.to_owned()))
            }
        }
    }

    fn open(&self, name: &str) -> Result<File, BenchError> {
        let path = self.place.path().join("mount").join(name);
        let mut how = File::options();
        how.read(true).custom_flags(libc::O_DIRECT);
        how.open(&path).map_err(BenchError::io("open", &path))
    }

    fn stop(mut self) -> Result<(), BenchError> {
        drop(self.child.stdin.take());
        let ended = self.child.wait();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(BenchError::Child(format!("the mount ended with {status}"))),
            Err(error) => Err(BenchError::Child(error.to_string())),
        }
    }
}

/// Makes the pool in a directory, mounts it and tells so, and unmounts when stdin ends.
pub(crate) fn serve(arguments: &[OsString]) -> Result<(), Box<dyn Error>> {
    let place = Path::new(arguments.first().ok_or("a directory is missing")?);
    let (pool, mountpoint) = (place.join("pool"), place.join("mount"));
    std::fs::create_dir(&mountpoint)?;
    let options = FormatOptions {
        size_bytes: 128 << 20,
        volatile: true,
        device_blocks: 2 * BLOCKS as u32,
        ..FormatOptions::default()
    };
    fs::mkfs(&pool, &options, (0, 0))?;
    let device = Arc::new(Faulty::new(2 * BLOCKS));
    let store = PmemStore::open(&pool, Mode::ReadWrite, true)?;
    let store = store.with_device(Arc::clone(&device) as Arc<dyn Device>, "slow")?;
    let files = FileSystem::mount(store, fs::MountOptions::default())?;
    for name in [HOT, COLD] {
        let node = files.create(&files.root(), name.as_bytes(), &NewInode::file(0o644))?;
        files.write(&node, 0, &vec![7; BLOCKS as usize * BLOCK_BYTES])?;
        if name == COLD {
            files.move_to_device(&node, 0..BLOCKS)?;
        }
    }
    device.set_delay(DELAY);
    let mounting = Mounting {
        uring: arguments.len() == 1,
        direct: false,
        ..Mounting::new(&pool, &mountpoint)
    };
    let running = server::spawn(files, &mounting)?;
    println!("{READY}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    running.unmount()?;
    Ok(())
}
