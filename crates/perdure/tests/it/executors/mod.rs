//! One script of operations, two machines that run it.
//!
//! Both work in a directory 24 levels below their root, so that no `..` of a script leads out of it.

use perdure::{OpenOptions, Pool};
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An operation on one or two paths.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Write(String, usize),
    Append(String, usize),
    CreateNew(String),
    Read(String),
    /// Six bits: read, write, append, truncate, create, create_new.
    Open(String, u32),
    SetLen(String, u64),
    CreateDir(String),
    CreateDirAll(String),
    RemoveFile(String),
    RemoveDir(String),
    RemoveDirAll(String),
    Rename(String, String),
    HardLink(String, String),
    Symlink(String, String),
    ReadLink(String),
    Metadata(String),
    SymlinkMetadata(String),
    Exists(String),
    Canonicalize(String),
    List(String),
    SetMode(String, u32),
    Copy(String, String),
}

/// What an operation gave: something comparable, or the kind of the error.
pub(crate) type Outcome = Result<String, ErrorKind>;

const DEPTH: usize = 24;

/// One of the two sides.
pub(crate) trait Files {
    fn base(&self) -> &Path;
    fn try_run(&self, operation: &Operation) -> io::Result<String>;

    fn run(&self, operation: &Operation) -> Outcome {
        self.try_run(operation).map_err(|error| error.kind())
    }

    fn at(&self, path: &str) -> PathBuf {
        match path {
            "" => PathBuf::new(),
            // Not `join`: it would drop what a trailing slash or dot means.
            _ => PathBuf::from(format!("{}/{path}", self.base().display())),
        }
    }

    /// All paths with type and content.
    fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut pending = vec![String::from(".")];
        while let Some(directory) = pending.pop() {
            let Ok(names) = self.run(&Operation::List(directory.clone())) else {
                continue;
            };
            for name in names.split('\n').filter(|name| !name.is_empty()) {
                let path = format!("{directory}/{name}");
                let about = self.run(&Operation::SymlinkMetadata(path.clone()));
                let content = match about.as_deref() {
                    Ok(about) if about.starts_with("symlink") => {
                        self.run(&Operation::ReadLink(path.clone()))
                    }
                    Ok(about) if about.starts_with("file") => {
                        self.run(&Operation::Read(path.clone()))
                    }
                    _ => Ok(String::new()),
                };
                if about.as_deref().is_ok_and(|about| about.starts_with("dir")) {
                    pending.push(path.clone());
                }
                found.push(format!("{path}: {about:?} {content:?}"));
            }
        }
        found.sort();
        found
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 7 + length) as u8)
        .collect()
}

fn summary(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    format!("{} bytes {sum:x}", bytes.len())
}

/// Directories have no size to compare, links no mode.
fn about(kind: &str, length: u64, mode: u32, links: u64) -> String {
    match kind {
        "file" => format!("file {length} {:o} {links}", mode & 0o7777),
        "symlink" => format!("symlink {length} {links}"),
        _ => format!("dir {:o} {links}", mode & 0o7777),
    }
}

pub(crate) struct StdFiles {
    base: PathBuf,
}

impl StdFiles {
    pub(crate) fn new(root: &Path) -> StdFiles {
        let base = root.join(["d"; DEPTH].join("/"));
        fs::create_dir_all(&base).expect("the working directory");
        StdFiles {
            base: base.canonicalize().expect("the working directory"),
        }
    }
}

impl Files for StdFiles {
    fn base(&self) -> &Path {
        &self.base
    }

    fn try_run(&self, operation: &Operation) -> io::Result<String> {
        use Operation::*;
        let describe = |metadata: fs::Metadata| {
            let kind = match metadata.file_type() {
                kind if kind.is_symlink() => "symlink",
                kind if kind.is_dir() => "dir",
                _ => "file",
            };
            about(kind, metadata.len(), metadata.mode(), metadata.nlink())
        };
        match operation {
            Write(path, length) => {
                fs::write(self.at(path), content(*length)).map(|()| String::new())
            }
            Append(path, length) => {
                let mut file = fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(self.at(path))?;
                file.write_all(&content(*length)).map(|()| String::new())
            }
            CreateNew(path) => fs::File::create_new(self.at(path)).map(|_| String::new()),
            Read(path) => fs::read(self.at(path)).map(|bytes| summary(&bytes)),
            Open(path, flags) => {
                let mut options = fs::OpenOptions::new();
                let bit = |index: u32| flags & (1 << index) != 0;
                options
                    .read(bit(0))
                    .write(bit(1))
                    .append(bit(2))
                    .truncate(bit(3))
                    .create(bit(4))
                    .create_new(bit(5));
                use_file(&mut options.open(self.at(path))?)
            }
            SetLen(path, length) => {
                let file = fs::OpenOptions::new().write(true).open(self.at(path))?;
                file.set_len(*length).map(|()| String::new())
            }
            CreateDir(path) => fs::create_dir(self.at(path)).map(|()| String::new()),
            CreateDirAll(path) => fs::create_dir_all(self.at(path)).map(|()| String::new()),
            RemoveFile(path) => fs::remove_file(self.at(path)).map(|()| String::new()),
            RemoveDir(path) => fs::remove_dir(self.at(path)).map(|()| String::new()),
            RemoveDirAll(path) => fs::remove_dir_all(self.at(path)).map(|()| String::new()),
            Rename(from, to) => fs::rename(self.at(from), self.at(to)).map(|()| String::new()),
            HardLink(from, to) => fs::hard_link(self.at(from), self.at(to)).map(|()| String::new()),
            Symlink(text, path) => {
                std::os::unix::fs::symlink(text, self.at(path)).map(|()| String::new())
            }
            ReadLink(path) => fs::read_link(self.at(path)).map(|path| path.display().to_string()),
            Metadata(path) => fs::metadata(self.at(path)).map(describe),
            SymlinkMetadata(path) => fs::symlink_metadata(self.at(path)).map(describe),
            Exists(path) => fs::exists(self.at(path)).map(|exists| exists.to_string()),
            Canonicalize(path) => {
                // Above the working directory both sides have the same levels, but other names.
                let absolute = fs::canonicalize(self.at(path))?;
                Ok(below(&self.base, &absolute))
            }
            List(path) => {
                let entries = fs::read_dir(self.at(path))?;
                names(entries.map(|entry| {
                    entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
                }))
            }
            SetMode(path, mode) => {
                let permissions = fs::Permissions::from_mode(*mode);
                fs::set_permissions(self.at(path), permissions).map(|()| String::new())
            }
            Copy(from, to) => fs::copy(self.at(from), self.at(to)).map(|bytes| bytes.to_string()),
        }
    }
}

pub(crate) struct PoolFiles<'a> {
    pool: &'a Pool,
    base: PathBuf,
}

impl PoolFiles<'_> {
    pub(crate) fn new(pool: &Pool) -> PoolFiles<'_> {
        let base = PathBuf::from(format!("/{}", ["d"; DEPTH].join("/")));
        pool.create_dir_all(&base).expect("the working directory");
        PoolFiles { pool, base }
    }
}

impl Files for PoolFiles<'_> {
    fn base(&self) -> &Path {
        &self.base
    }

    fn try_run(&self, operation: &Operation) -> io::Result<String> {
        use Operation::*;
        let pool = self.pool;
        let describe = |metadata: perdure::Metadata| {
            let kind = match metadata.file_type() {
                kind if kind.is_symlink() => "symlink",
                kind if kind.is_dir() => "dir",
                _ => "file",
            };
            about(
                kind,
                metadata.len(),
                metadata.mode(),
                metadata.nlink().into(),
            )
        };
        match operation {
            Write(path, length) => pool.write(self.at(path), content(*length))?,
            Append(path, length) => {
                let mut file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(pool, self.at(path))?;
                file.write_all(&content(*length))?;
            }
            CreateNew(path) => drop(perdure::File::create_new(pool, self.at(path))?),
            Read(path) => return Ok(summary(&pool.read(self.at(path))?)),
            Open(path, flags) => {
                let mut options = OpenOptions::new();
                let bit = |index: u32| flags & (1 << index) != 0;
                options
                    .read(bit(0))
                    .write(bit(1))
                    .append(bit(2))
                    .truncate(bit(3))
                    .create(bit(4))
                    .create_new(bit(5));
                return use_file(&mut options.open(pool, self.at(path))?);
            }
            SetLen(path, length) => {
                OpenOptions::new()
                    .write(true)
                    .open(pool, self.at(path))?
                    .set_len(*length)?;
            }
            CreateDir(path) => pool.create_dir(self.at(path))?,
            CreateDirAll(path) => pool.create_dir_all(self.at(path))?,
            RemoveFile(path) => pool.remove_file(self.at(path))?,
            RemoveDir(path) => pool.remove_dir(self.at(path))?,
            RemoveDirAll(path) => pool.remove_dir_all(self.at(path))?,
            Rename(from, to) => pool.rename(self.at(from), self.at(to))?,
            HardLink(from, to) => pool.hard_link(self.at(from), self.at(to))?,
            Symlink(text, path) => pool.symlink(text, self.at(path))?,
            ReadLink(path) => return Ok(pool.read_link(self.at(path))?.display().to_string()),
            Metadata(path) => return Ok(describe(pool.metadata(self.at(path))?)),
            SymlinkMetadata(path) => return Ok(describe(pool.symlink_metadata(self.at(path))?)),
            Exists(path) => return Ok(pool.exists(self.at(path))?.to_string()),
            Canonicalize(path) => {
                let absolute = pool.canonicalize(self.at(path))?;
                return Ok(below(&self.base, &absolute));
            }
            List(path) => {
                let entries = pool.read_dir(self.at(path))?;
                return names(
                    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())),
                );
            }
            SetMode(path, mode) => {
                pool.set_permissions(self.at(path), fs::Permissions::from_mode(*mode))?
            }
            Copy(from, to) => return Ok(pool.copy(self.at(from), self.at(to))?.to_string()),
        }
        Ok(String::new())
    }
}

/// Reads, then writes: whether a handle may do so is part of the comparison.
fn use_file<F: io::Read + io::Write>(file: &mut F) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes).map_err(|error| error.kind());
    let wrote = file.write(b"xyz").map_err(|error| error.kind());
    Ok(format!("{read:?} {} {wrote:?}", summary(&bytes)))
}

fn names(entries: impl Iterator<Item = io::Result<String>>) -> io::Result<String> {
    let mut names = entries.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names.join("\n"))
}

/// `path` seen from `base`: `..` for every level that has to be left.
fn below(base: &Path, path: &Path) -> String {
    let mut up = 0;
    let mut from = base;
    while !path.starts_with(from) {
        up += 1;
        from = from.parent().expect("the root is above everything");
    }
    let rest = path.strip_prefix(from).expect("just checked");
    format!("{}{}", "../".repeat(up), rest.display())
}
