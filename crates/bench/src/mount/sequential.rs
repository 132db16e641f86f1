//! Rows of 1 MiB after 1 MiB, through the page cache.

use super::MountOptions;
use super::bed::{Bed, compare, rate_for};
use crate::collector::{Collector, Found};
use crate::direct::{fill, with_spread};
use crate::error::BenchError;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PIECE_BYTES: u64 = 1 << 20;
const FILE: &str = "file";

pub(super) fn measure(collector: &mut Collector, options: &MountOptions, bed: &Bed) {
    collector.row("seq_1m_read", || {
        // Dropped pages are read again from the server.
        row(options, bed, |file, buffer, offset| {
            if offset == 0 {
                fadvise(file, 0, None, Advice::DontNeed)?;
            }
            file.read_exact_at(buffer, offset)
        })
    });
    collector.row("seq_1m_write", || {
        row(options, bed, |file, buffer, offset| {
            file.write_all_at(buffer, offset)
        })
    });
}

/// MiB/s of passes over a file.
fn row(
    options: &MountOptions,
    bed: &Bed,
    move_piece: impl Fn(&File, &mut [u8], u64) -> std::io::Result<()>,
) -> Result<Found, BenchError> {
    let directories = bed.directories()?;
    let mut files = Vec::new();
    for directory in &directories {
        files.push(filled(&directory.path().join(FILE), options.file_bytes)?);
    }
    let mut buffer = vec![0x5a; PIECE_BYTES as usize];
    let rounds = compare(options.rounds, |side| {
        let (file, directory) = (&files[side as usize], directories[side as usize].path());
        let pieces = options.file_bytes / PIECE_BYTES;
        let mut next = 0;
        rate_for(options.slice_seconds(), || {
            let moved = move_piece(file, &mut buffer, next * PIECE_BYTES);
            next = (next + 1) % pieces;
            moved.map_err(BenchError::io("move 1 MiB in", directory))
        })
    })?;
    Ok(with_spread(&rounds, ""))
}

/// A file without holes, opened for both.
fn filled(path: &Path, bytes: u64) -> Result<File, BenchError> {
    fill(path, bytes)?;
    let opened = File::options().read(true).write(true).open(path);
    opened.map_err(BenchError::io("open", path))
}
