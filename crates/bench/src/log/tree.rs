//! A tree like that of a program's source, as an archive: the same every time.

use crate::error::BenchError;
use crate::measure::Places;
use crate::programs::{find, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES_PER_DIRECTORY: usize = 15;
const DIRECTORIES_PER_DIRECTORY: usize = 12;

/// Makes `tree.tar` in `place`, with so many files: half of them below 6 KiB, the largest 64 KiB.
pub(crate) fn archive(place: &Path, files: usize) -> Result<PathBuf, BenchError> {
    let (tree, archive) = (place.join("tree"), place.join("tree.tar"));
    let mut places = Places::new(4);
    let content: Vec<u8> = (0..64 << 10)
        .map(|_| b' ' + places.below(64) as u8)
        .collect();
    for number in 0..files {
        let directory = number / FILES_PER_DIRECTORY;
        let path = tree
            .join(format!(
                "directory-{}",
                directory / DIRECTORIES_PER_DIRECTORY
            ))
            .join(format!("part-{directory}"));
        if number.is_multiple_of(FILES_PER_DIRECTORY) {
            std::fs::create_dir_all(&path).map_err(BenchError::io("make", &path))?;
        }
        let path = path.join(format!("source-{number}.c"));
        // Sizes whose logarithms are spread evenly, from 512 bytes on.
        let power = places.below(7000) as f64 / 1000.0;
        let bytes = (512.0 * power.exp2()) as usize;
        std::fs::write(&path, &content[..bytes]).map_err(BenchError::io("write", &path))?;
    }
    let tar = find("tar", "tar")?;
    let mut command = Command::new(tar);
    command
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(place)
        .arg("tree");
    run("tar", &mut command)?;
    std::fs::remove_dir_all(&tree).map_err(BenchError::io("remove", &tree))?;
    Ok(archive)
}
