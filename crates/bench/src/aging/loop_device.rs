//! ext4 on a loop device whose image lies in a directory.

use crate::error::BenchError;
use rustix::fs::{FallocateFlags, fallocate};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted ext4; unmounted when dropped.
pub(crate) struct LoopExt4 {
    mountpoint: PathBuf,
}

impl LoopExt4 {
    /// Makes an image of `bytes` bytes in `place`, a file system in it, and mounts it. Only root can.
    pub(crate) fn mount(place: &Path, bytes: u64) -> Result<LoopExt4, BenchError> {
        let (image, mountpoint) = (place.join("ext4.image"), place.join("ext4"));
        let file = std::fs::File::create_new(&image).map_err(BenchError::io("make", &image))?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)
            .map_err(BenchError::io("reserve", &image))?;
        std::fs::create_dir(&mountpoint).map_err(BenchError::io("make", &mountpoint))?;
        let image = image.as_os_str();
        // Every inode that the file set may need, and nothing that is put off to the first mount.
        let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        command(Command::new("mkfs.ext4").args(options).arg(image))?;
        command(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(image)
                .arg(&mountpoint),
        )?;
        Ok(LoopExt4 { mountpoint })
    }

    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
}

impl Drop for LoopExt4 {
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
