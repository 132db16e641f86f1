//! Whole files and whole trees at once.

use crate::dir::Dir;
use crate::error::{Cause, Result};
use crate::file::File;
use crate::open_options::OpenOptions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes that [`Dir::copy`] moves at a time.
const COPY_CHUNK_BYTES: usize = 1 << 20;

impl Dir {
    /// The whole content of a file.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`] and of reading.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let mut content = Vec::new();
        read_into(&File::open(self, path)?, path, &mut content)?;
        Ok(content)
    }

    /// The whole content of a file as text.
    ///
    /// # Errors
    /// Those of [`read`](Dir::read); `InvalidData` if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| Cause::NotUtf8.at("read_to_string", path))
    }

    /// Writes a file as a whole, in the place of an old content.
    ///
    /// Emptying the old file and writing the new content are two transactions. To replace a file in one, write a new
    /// one and [`rename`](Dir::rename) it.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`] and of writing.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        File::create(self, path)?.write_whole_at(content.as_ref(), 0)
    }

    /// Copies the content and the permission bits of a file, holes as holes. Returns the size.
    ///
    /// # Errors
    /// Those of opening, reading and writing; `InvalidInput` for anything but a regular file, as `std`.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = File::open(self, from)?;
        let metadata = source.metadata()?;
        if !metadata.is_file() {
            let cause = Cause::InvalidOptions("only a regular file can be copied");
            return Err(cause.between("copy", from, to));
        }
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .mode(metadata.mode() & 0o7777);
        let target = options.open(self, to)?;
        if target.node().number() == source.node().number() {
            // Emptying the target would empty the source. std leaves the file empty; nobody wants that.
            return Ok(metadata.len());
        }
        target.set_len(0)?;
        copy_data(&source, &target)?;
        target.set_len(metadata.len())?;
        target.set_permissions(std::fs::Permissions::from_mode(metadata.mode()))?;
        Ok(metadata.len())
    }

    /// Removes a directory and all that is in it; a symbolic link is removed, not followed. Each removal is a
    /// transaction of its own.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory` for a file.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.symlink_metadata(path)?.is_symlink() {
            return self.remove_file(path);
        }
        // Handles instead of longer and longer paths: a tree can be deeper than the longest path.
        let mut pending: Vec<(Dir, PathBuf)> = vec![(self.clone(), path.to_owned())];
        while let Some((parent, name)) = pending.last().cloned() {
            let directory = parent.open_dir(&name)?;
            let before = pending.len();
            for entry in directory.read_dir(".")? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    pending.push((directory.clone(), PathBuf::from(entry.file_name())));
                } else {
                    directory.remove_file(entry.name())?;
                }
            }
            if pending.len() == before {
                parent.remove_dir(&name)?;
                pending.pop();
            }
        }
        Ok(())
    }
}

fn read_into(mut file: &File, path: &Path, content: &mut Vec<u8>) -> Result<()> {
    match file.read_to_end(content) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.downcast::<crate::Error>() {
            Ok(error) => error,
            Err(_) => Cause::OutOfMemory.at("read", path),
        }),
    }
}

/// Copies what is not a hole.
fn copy_data(source: &File, target: &File) -> Result<()> {
    let mut buffer = vec![0; COPY_CHUNK_BYTES];
    let mut offset = 0;
    while let Some(start) = source.next_data(offset)? {
        let end = source.next_hole(start)?.unwrap_or(start);
        offset = start;
        while offset < end {
            let wanted =
                usize::try_from(end - offset).map_or(buffer.len(), |left| left.min(buffer.len()));
            let count = source.read_at(&mut buffer[..wanted], offset)?;
            if count == 0 {
                return Ok(());
            }
            target.write_whole_at(&buffer[..count], offset)?;
            offset += count as u64;
        }
    }
    Ok(())
}
