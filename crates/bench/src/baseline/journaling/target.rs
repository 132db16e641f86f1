//! The experiments' interface.

use super::error::FsError;
use super::{Handle, JournalingFs};
use crate::error::BenchError;
use crate::target::Target;

/// `map_err` of calls on `path`.
fn failed<'a>(
    fs: &'a JournalingFs,
    action: &'static str,
    path: &'a str,
) -> impl FnOnce(FsError) -> BenchError + 'a {
    let label = fs.cache().label();
    move |error| BenchError::Setup(format!("{label}: cannot {action} {path}: {error}"))
}

impl Target for JournalingFs {
    type File = Handle;

    fn label(&self) -> &str {
        self.cache().label()
    }

    fn create_dir(&self, path: &str) -> Result<(), BenchError> {
        JournalingFs::create_dir(self, path).map_err(failed(self, "make", path))
    }

    fn create(&self, path: &str) -> Result<Handle, BenchError> {
        JournalingFs::create(self, path).map_err(failed(self, "create", path))
    }

    fn open(&self, path: &str) -> Result<Handle, BenchError> {
        JournalingFs::open(self, path).map_err(failed(self, "open", path))
    }

    fn remove(&self, path: &str) -> Result<(), BenchError> {
        self.unlink(path).map_err(failed(self, "remove", path))
    }

    fn status(&self, path: &str) -> Result<u64, BenchError> {
        self.size_of(path).map_err(failed(self, "look at", path))
    }

    fn read_at(&self, file: &Handle, into: &mut [u8], offset: u64) -> Result<usize, BenchError> {
        let read = JournalingFs::read_at(self, file, offset, into);
        read.map_err(failed(self, "read", "a file"))
    }

    fn append(&self, file: &Handle, data: &[u8]) -> Result<(), BenchError> {
        let appended = JournalingFs::append(self, file, data);
        appended
            .map(drop)
            .map_err(failed(self, "append to", "a file"))
    }

    fn sync(&self, file: &Handle) -> Result<(), BenchError> {
        JournalingFs::sync(self, file).map_err(failed(self, "sync", "a file"))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, BenchError> {
        let entries = self.read_dir(directory);
        let entries = entries.map_err(failed(self, "list", directory))?;
        let name = |entry: super::DirEntry| String::from_utf8_lossy(&entry.name).into_owned();
        Ok(entries.into_iter().map(name).collect())
    }
}
