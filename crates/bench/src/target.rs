//! What personalities and aging run on: the library, a directory of any mounted file system, the published baseline.
//!
//! All sides do the same operations by the same paths. Paths are relative to the target's root and have no leading slash.

use crate::baseline::{Handle, Options, Pmfs};
use crate::error::BenchError;
use crate::memory::{prepare, raw_region};
use perdure::{Dir, DurabilityClass, OpenOptions, Pool};
use pmem::{MediaModel, Region};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file system, as far as the experiments use one. All methods may be called from any thread.
pub trait Target: Send + Sync {
    /// An open file; dropping it closes it.
    type File: Send + Sync;

    /// What it is called in reports.
    fn label(&self) -> &str;
    /// Makes a directory; its parent is there.
    ///
    /// # Errors
    /// Whatever the file system says; so with all methods.
    fn create_dir(&self, path: &str) -> Result<(), BenchError>;
    /// Makes a file that is not there, and opens it for reading and appending.
    ///
    /// # Errors
    /// As above.
    fn create(&self, path: &str) -> Result<Self::File, BenchError>;
    /// Opens a file that is there for reading and appending.
    ///
    /// # Errors
    /// As above.
    fn open(&self, path: &str) -> Result<Self::File, BenchError>;
    /// Removes a file's name.
    ///
    /// # Errors
    /// As above.
    fn remove(&self, path: &str) -> Result<(), BenchError>;
    /// Size of the file of that name in bytes.
    ///
    /// # Errors
    /// As above.
    fn status(&self, path: &str) -> Result<u64, BenchError>;
    /// Reads up to `into.len()` bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// As above.
    fn read_at(&self, file: &Self::File, into: &mut [u8], offset: u64)
    -> Result<usize, BenchError>;
    /// Writes all of `data` at the end.
    ///
    /// # Errors
    /// As above.
    fn append(&self, file: &Self::File, data: &[u8]) -> Result<(), BenchError>;
    /// Makes durable what is not.
    ///
    /// # Errors
    /// As above.
    fn sync(&self, file: &Self::File) -> Result<(), BenchError>;
    /// Names in a directory, in any order.
    ///
    /// # Errors
    /// As above.
    fn names(&self, directory: &str) -> Result<Vec<String>, BenchError>;
}

/// Handles of the root directory. Files count their users in the directory that they were opened through, so threads
/// that open files without end should each have one.
const ROOTS: usize = 16;

/// Our library.
pub struct Library {
    /// Before the pool, which is closed by whoever lets go of it last.
    roots: Vec<Dir>,
    pool: Pool,
}

impl Library {
    /// Over an open pool.
    ///
    /// # Errors
    /// The root directory cannot be opened.
    pub fn new(pool: Pool) -> Result<Library, BenchError> {
        let roots = (0..ROOTS).map(|_| pool.open_dir("/"));
        Ok(Library {
            roots: roots.collect::<Result<_, _>>()?,
            pool,
        })
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Closes the pool.
    ///
    /// # Errors
    /// Files are still open.
    pub fn close(self) -> Result<(), BenchError> {
        drop(self.roots);
        Ok(self.pool.close()?)
    }

    /// The root directory as this thread has it.
    fn root(&self) -> &Dir {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        &self.roots[NUMBER.with(|number| *number) % ROOTS]
    }
}

impl Target for Library {
    type File = perdure::File;

    fn label(&self) -> &str {
        "library"
    }

    fn create_dir(&self, path: &str) -> Result<(), BenchError> {
        Ok(self.root().create_dir(path)?)
    }

    fn create(&self, path: &str) -> Result<perdure::File, BenchError> {
        let mut options = OpenOptions::new();
        Ok(options
            .read(true)
            .append(true)
            .create_new(true)
            .open(self.root(), path)?)
    }

    fn open(&self, path: &str) -> Result<perdure::File, BenchError> {
        Ok(OpenOptions::new()
            .read(true)
            .append(true)
            .open(self.root(), path)?)
    }

    fn remove(&self, path: &str) -> Result<(), BenchError> {
        Ok(self.root().remove_file(path)?)
    }

    fn status(&self, path: &str) -> Result<u64, BenchError> {
        Ok(self.root().metadata(path)?.len())
    }

    fn read_at(
        &self,
        file: &perdure::File,
        into: &mut [u8],
        offset: u64,
    ) -> Result<usize, BenchError> {
        Ok(file.read_at(into, offset)?)
    }

    fn append(&self, file: &perdure::File, data: &[u8]) -> Result<(), BenchError> {
        file.append(data)?;
        Ok(())
    }

    fn sync(&self, file: &perdure::File) -> Result<(), BenchError> {
        Ok(file.sync_all()?)
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, BenchError> {
        let entries = self.root().read_dir(directory)?;
        let name = |entry: perdure::Result<perdure::DirEntry>| {
            Ok(entry?.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }
}

/// A directory of a mounted file system, through system calls.
pub struct Directory {
    path: PathBuf,
    label: String,
}

impl Directory {
    /// The directory at `path`, which exists and is empty or has names that the experiments do not use.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, label: impl Into<String>) -> Directory {
        Directory {
            path: path.into(),
            label: label.into(),
        }
    }

    fn with<T>(
        &self,
        action: &'static str,
        path: &str,
        call: impl FnOnce(&Path) -> std::io::Result<T>,
    ) -> Result<T, BenchError> {
        let path = self.path.join(path);
        call(&path).map_err(BenchError::io(action, &path))
    }

    fn options() -> std::fs::OpenOptions {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).append(true);
        options
    }

    fn on_file<T>(
        &self,
        action: &'static str,
        result: std::io::Result<T>,
    ) -> Result<T, BenchError> {
        result.map_err(BenchError::io(action, &self.path))
    }
}

impl Target for Directory {
    type File = std::fs::File;

    fn label(&self) -> &str {
        &self.label
    }

    fn create_dir(&self, path: &str) -> Result<(), BenchError> {
        self.with("make", path, |path| std::fs::create_dir(path))
    }

    fn create(&self, path: &str) -> Result<std::fs::File, BenchError> {
        self.with("create", path, |path| {
            Directory::options().create_new(true).open(path)
        })
    }

    fn open(&self, path: &str) -> Result<std::fs::File, BenchError> {
        self.with("open", path, |path| Directory::options().open(path))
    }

    fn remove(&self, path: &str) -> Result<(), BenchError> {
        self.with("remove", path, |path| std::fs::remove_file(path))
    }

    fn status(&self, path: &str) -> Result<u64, BenchError> {
        let metadata = self.with("look at", path, |path| std::fs::metadata(path))?;
        Ok(metadata.len())
    }

    fn read_at(
        &self,
        file: &std::fs::File,
        into: &mut [u8],
        offset: u64,
    ) -> Result<usize, BenchError> {
        self.on_file("read a file of", file.read_at(into, offset))
    }

    fn append(&self, mut file: &std::fs::File, data: &[u8]) -> Result<(), BenchError> {
        self.on_file("append to a file of", file.write_all(data))
    }

    fn sync(&self, file: &std::fs::File) -> Result<(), BenchError> {
        self.on_file("sync a file of", file.sync_all())
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, BenchError> {
        let entries = self.with("list", directory, |path| std::fs::read_dir(path))?;
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries
            .map(|entry| self.on_file("list a directory of", entry.map(name)))
            .collect()
    }
}

/// PMFS's policies, over memory of the same kind as the pool's.
pub(crate) struct Baseline(Pmfs);

impl Baseline {
    /// An empty file system over memory in `directory`, its pages touched and the media model laid over it.
    pub(crate) fn format(
        directory: &Path,
        bytes: u64,
        class: DurabilityClass,
        media: &MediaModel,
    ) -> Result<Baseline, BenchError> {
        let region = raw_region(directory, bytes, class)?;
        prepare(&region, media);
        let formatted = Pmfs::format(region, Options::default());
        formatted
            .map(Baseline)
            .map_err(|error| BenchError::Setup(error.to_string()))
    }

    pub(crate) fn region(&self) -> &Region {
        self.0.region()
    }
}

/// `map_err` of the baseline's calls on `path`.
fn baseline_failed(
    action: &'static str,
    path: &str,
) -> impl FnOnce(crate::baseline::PmfsError) -> BenchError {
    let path = path.to_owned();
    move |error| BenchError::Setup(format!("baseline: cannot {action} {path}: {error}"))
}

impl Target for Baseline {
    type File = Handle;

    fn label(&self) -> &str {
        "PMFS's policies"
    }

    fn create_dir(&self, path: &str) -> Result<(), BenchError> {
        self.0
            .create_dir(path)
            .map_err(baseline_failed("make", path))
    }

    fn create(&self, path: &str) -> Result<Handle, BenchError> {
        self.0.create(path).map_err(baseline_failed("create", path))
    }

    fn open(&self, path: &str) -> Result<Handle, BenchError> {
        self.0.open(path).map_err(baseline_failed("open", path))
    }

    fn remove(&self, path: &str) -> Result<(), BenchError> {
        self.0.unlink(path).map_err(baseline_failed("remove", path))
    }

    fn status(&self, path: &str) -> Result<u64, BenchError> {
        Ok(self.0.size(&self.open(path)?))
    }

    fn read_at(&self, file: &Handle, into: &mut [u8], offset: u64) -> Result<usize, BenchError> {
        let read = self.0.read_at(file, offset, into);
        read.map_err(baseline_failed("read", "a file"))
    }

    fn append(&self, file: &Handle, data: &[u8]) -> Result<(), BenchError> {
        let appended = self.0.append(file, data);
        appended
            .map(drop)
            .map_err(baseline_failed("append to", "a file"))
    }

    fn sync(&self, file: &Handle) -> Result<(), BenchError> {
        self.0.sync(file);
        Ok(())
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, BenchError> {
        let entries = self.0.read_dir(directory);
        let entries = entries.map_err(baseline_failed("list", directory))?;
        let name =
            |entry: crate::baseline::DirEntry| String::from_utf8_lossy(&entry.name).into_owned();
        Ok(entries.into_iter().map(name).collect())
    }
}
