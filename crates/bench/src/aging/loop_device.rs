//! File systems on a loop device whose image lies in a directory.

use crate::error::BenchError;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of Linux.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LoopKind {
    Ext4,
    Xfs,
}

impl LoopKind {
    fn name(self) -> &'static str {
        match self {
            LoopKind::Ext4 => "ext4",
            LoopKind::Xfs => "xfs",
        }
    }

    /// Program that makes one, with its options.
    fn maker(self) -> Command {
        let (program, options): (_, &[&str]) = match self {
            // Every inode that a file set may need, and nothing that is put off to the first mount.
            LoopKind::Ext4 => (
                "mkfs.ext4",
                &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            ),
            LoopKind::Xfs => ("mkfs.xfs", &["-q", "-f"]),
        };
        let mut command = Command::new(program);
        command.args(options);
        command
    }
}

/// A mounted file system; unmounted when dropped.
pub(crate) struct LoopDisk {
    mountpoint: PathBuf,
}

impl LoopDisk {
    /// Makes an image of `bytes` bytes in `place`, a file system in it, and mounts it. Only root can.
    /// `is_written`: the image is written once before, so that first writes cost as much as others.
    pub(crate) fn mount(
        place: &Path,
        kind: LoopKind,
        bytes: u64,
        is_written: bool,
    ) -> Result<LoopDisk, BenchError> {
        let name = kind.name();
        let image = place.join(format!("{name}.image"));
        let mountpoint = place.join(name);
        let file = File::create_new(&image).map_err(BenchError::io("make", &image))?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)
            .map_err(BenchError::io("reserve", &image))?;
        if is_written {
            write_once(&image, bytes)?;
        }
        std::fs::create_dir(&mountpoint).map_err(BenchError::io("make", &mountpoint))?;
        command(kind.maker().arg(&image))?;
        command(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(&image)
                .arg(&mountpoint),
        )?;
        Ok(LoopDisk { mountpoint })
    }

    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
}

/// Writes zeros past the page cache.
fn write_once(image: &Path, bytes: u64) -> Result<(), BenchError> {
    const PIECE: usize = 4 << 20;
    #[repr(align(4096))]
    #[derive(Clone, Copy)]
    struct Aligned([u8; 4096]);
    let pieces = vec![Aligned([0; 4096]); PIECE / 4096];
    let failed = || BenchError::io("fill", image);
    let mut file = File::options()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(image)
        .or_else(|_| File::options().write(true).open(image))
        .map_err(failed())?;
    for _ in 0..bytes / PIECE as u64 {
        // So many slices are what one call takes (IOV_MAX).
        let slices: Vec<_> = pieces
            .iter()
            .map(|piece| std::io::IoSlice::new(&piece.0))
            .collect();
        let written = file.write_vectored(&slices).map_err(failed())?;
        if written != PIECE {
            let reason = std::io::Error::other("the disk took only a part");
            return Err(BenchError::io("fill", image)(reason));
        }
    }
    file.sync_all().map_err(failed())
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if let Err(error) = command(Command::new("umount").arg(&self.mountpoint)) {
            eprintln!("perdure: {error}");
        }
    }
}

fn command(command: &mut Command) -> Result<(), BenchError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let failed = |reason: String| BenchError::Setup(format!("{name}: {reason}"));
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(failed(
                text.lines().next().unwrap_or("it failed").to_owned(),
            ))
        }
    }
}
