//! A file system as it should be, and random operations.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::Chance;
use crate::baseline::journaling::{FileKind, FsError, Handle, JournalingFs};

/// Directories (`None`) and the contents of files, by path.
pub(super) type Contents = BTreeMap<String, Option<Vec<u8>>>;

/// Reads a whole file system.
pub(super) fn contents(fs: &JournalingFs) -> Result<Contents, FsError> {
    let mut all = Contents::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs.read_dir(&directory)? {
            let name = String::from_utf8(entry.name).expect("our names are text");
            let path = format!("{directory}/{name}");
            if entry.kind == FileKind::Directory {
                directories.push(path.clone());
                all.insert(path, None);
            } else {
                let handle = fs.open(&path)?;
                all.insert(path, Some(read_all(fs, &handle)?));
            }
        }
    }
    Ok(all)
}

/// A file's content, read in pieces that end anywhere.
pub(super) fn read_all(fs: &JournalingFs, handle: &Handle) -> Result<Vec<u8>, FsError> {
    let mut content = Vec::new();
    let mut piece = vec![0xaa; 50_003];
    loop {
        match fs.read_at(handle, content.len() as u64, &mut piece)? {
            0 => break,
            length => content.extend_from_slice(&piece[..length]),
        }
    }
    assert_eq!(content.len() as u64, fs.size(handle));
    Ok(content)
}

/// One operation. Numbers choose among what there is.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    CreateDir(u64),
    Create { directory: u64, name: u64 },
    Open(u64),
    Close(u64),
    Unlink(u64),
    Write { file: u64, offset: u64, length: u64 },
    Append { file: u64, length: u64 },
    Read { file: u64, offset: u64, length: u64 },
    Sync,
}

/// The limits of random operations.
#[derive(Copy, Clone, Debug)]
pub(super) struct Load {
    /// Bytes of the longest write.
    pub(super) bytes_max: u64,
    /// Bytes of the longest file.
    pub(super) file_bytes_max: u64,
    pub(super) names: u64,
}

impl Load {
    pub(super) fn operation(&self, chance: &mut Chance) -> Operation {
        let mut any = || chance.below(1 << 20);
        let (first, second, kind) = (any(), any(), any() % 32);
        let length = match any() % 4 {
            0 => any() % 300,
            1 => (1 + any() % 3) * 4096,
            _ => any() % self.bytes_max,
        };
        let offset = match any() % 3 {
            0 => any() % self.file_bytes_max / 4096 * 4096,
            _ => any() % self.file_bytes_max,
        };
        match kind {
            0 => Operation::CreateDir(first),
            1..=6 => Operation::Create {
                directory: first,
                name: second,
            },
            7..=8 => Operation::Open(first),
            9..=10 => Operation::Close(first),
            11..=14 => Operation::Unlink(first),
            15..=20 => Operation::Write {
                file: first,
                offset,
                length,
            },
            21..=26 => Operation::Append {
                file: first,
                length,
            },
            27..=30 => Operation::Read {
                file: first,
                offset,
                length,
            },
            _ => Operation::Sync,
        }
    }
}

/// The content of a file, shared by its name and its handles.
type Content = Rc<RefCell<Vec<u8>>>;

/// The model.
#[derive(Debug)]
pub(super) struct Model {
    nodes: BTreeMap<String, Option<Content>>,
    /// Open files, with names or without.
    open: Vec<(Handle, Content)>,
    stamp: u64,
    load: Load,
}

impl Model {
    pub(super) fn new(load: Load) -> Model {
        Model {
            nodes: BTreeMap::new(),
            open: Vec::new(),
            stamp: 0,
            load,
        }
    }

    /// The content that a file system should have.
    pub(super) fn contents(&self) -> Contents {
        let copy = |content: &Content| content.borrow().clone();
        self.nodes
            .iter()
            .map(|(path, node)| (path.clone(), node.as_ref().map(copy)))
            .collect()
    }

    fn pick(&self, number: u64, is_directory: bool) -> Option<String> {
        let mut all: Vec<&str> = Vec::new();
        if is_directory {
            all.push("");
        }
        let fits = self.nodes.iter();
        all.extend(
            fits.filter(|(_, node)| node.is_none() == is_directory)
                .map(|(path, _)| &**path),
        );
        let index = number as usize % all.len().max(1);
        all.get(index).map(|path| (*path).to_owned())
    }

    /// Does an operation here and there, and compares the answers.
    pub(super) fn apply(
        &mut self,
        fs: &JournalingFs,
        operation: &Operation,
    ) -> Result<(), FsError> {
        match *operation {
            Operation::CreateDir(number) => {
                let path = format!("/d{}", number % 3);
                match self.nodes.contains_key(&path) {
                    true => assert_eq!(fs.create_dir(&path), Err(FsError::AlreadyExists)),
                    false => {
                        fs.create_dir(&path)?;
                        self.nodes.insert(path, None);
                    }
                }
            }
            Operation::Create { directory, name } => {
                let directory = self.pick(directory, true).expect("the root");
                let path = format!("{directory}/file{}", name % self.load.names);
                if self.nodes.contains_key(&path) {
                    let refused = fs.create(&path).map(drop);
                    assert_eq!(refused, Err(FsError::AlreadyExists));
                    return Ok(());
                }
                let handle = fs.create(&path)?;
                let content = Content::default();
                self.nodes.insert(path, Some(Rc::clone(&content)));
                self.open.push((handle, content));
            }
            Operation::Open(number) => {
                if let Some(path) = self.pick(number, false) {
                    let content = self.nodes[&path].as_ref().expect("a file");
                    self.open.push((fs.open(&path)?, Rc::clone(content)));
                }
            }
            Operation::Close(number) if !self.open.is_empty() => {
                let index = number as usize % self.open.len();
                self.open.swap_remove(index);
            }
            Operation::Unlink(number) => {
                if let Some(path) = self.pick(number, false) {
                    fs.unlink(&path)?;
                    self.nodes.remove(&path);
                    assert_eq!(fs.open(&path).map(drop), Err(FsError::NotFound));
                }
            }
            Operation::Close(_) => {}
            Operation::Sync => fs.sync_all()?,
            Operation::Write { .. } | Operation::Append { .. } | Operation::Read { .. } => {
                return self.access(fs, operation);
            }
        }
        Ok(())
    }

    /// The content of an open file.
    fn content(&self, index: usize) -> RefMut<'_, Vec<u8>> {
        self.open[index].1.borrow_mut()
    }

    fn access(&mut self, fs: &JournalingFs, operation: &Operation) -> Result<(), FsError> {
        let (Operation::Write { file, length, .. }
        | Operation::Append { file, length }
        | Operation::Read { file, length, .. }) = *operation
        else {
            return Ok(());
        };
        if self.open.is_empty() {
            return Ok(());
        }
        let index = file as usize % self.open.len();
        match *operation {
            Operation::Read { offset, .. } => {
                let mut found = vec![0x55; length as usize];
                let count = fs.read_at(&self.open[index].0, offset, &mut found)?;
                let content = self.content(index);
                let start = content.len().min(offset as usize);
                let end = content.len().min((offset + length) as usize).max(start);
                assert_eq!(found[..count], content[start..end]);
            }
            _ => {
                self.stamp += 1;
                let mut content = self.content(index).clone();
                let size = content.len() as u64;
                let (offset, data) = self.change(operation, &mut content, self.stamp);
                let handle = &self.open[index].0;
                let outcome = match *operation {
                    Operation::Append { .. } => {
                        let landed = fs.append(handle, &data);
                        landed.map(|landed| assert_eq!(landed, size))
                    }
                    _ => fs.write_at(handle, offset, &data),
                };
                if let Err(error) = outcome {
                    return self.adopt(fs, index, error);
                }
                *self.content(index) = content;
            }
        }
        Ok(())
    }

    /// Changes a content as a write does; returns offset and bytes of the write.
    fn change(&self, operation: &Operation, content: &mut Vec<u8>, stamp: u64) -> (u64, Vec<u8>) {
        let (offset, length) = match *operation {
            Operation::Write { offset, length, .. } => (offset, length),
            Operation::Append { length, .. } => (content.len() as u64, length),
            _ => (0, 0),
        };
        let length = length.min(self.load.file_bytes_max.saturating_sub(offset));
        let data: Vec<u8> = (0..length)
            .map(|index| (index / 8 * 11 + stamp * 37) as u8 | 1)
            .collect();
        let end = offset as usize + data.len();
        if !data.is_empty() {
            content.resize(content.len().max(end), 0);
            content[offset as usize..end].copy_from_slice(&data);
        }
        (offset, data)
    }

    /// Takes the content of a file as it is: the first pieces of a large write may be there.
    fn adopt(&mut self, fs: &JournalingFs, index: usize, error: FsError) -> Result<(), FsError> {
        if error == FsError::NoSpace {
            *self.content(index) = read_all(fs, &self.open[index].0)?;
        }
        Err(error)
    }

    /// The content that a file system should have after an operation that does not fail.
    pub(super) fn predict(&self, operation: &Operation) -> Contents {
        let mut after = self.contents();
        match *operation {
            Operation::CreateDir(number) => {
                after.entry(format!("/d{}", number % 3)).or_insert(None);
            }
            Operation::Create { directory, name } => {
                let directory = self.pick(directory, true).expect("the root");
                let path = format!("{directory}/file{}", name % self.load.names);
                after.entry(path).or_insert(Some(Vec::new()));
            }
            Operation::Unlink(number) => {
                if let Some(path) = self.pick(number, false) {
                    after.remove(&path);
                }
            }
            Operation::Write { file, .. } | Operation::Append { file, .. }
                if !self.open.is_empty() =>
            {
                let index = file as usize % self.open.len();
                let mut changed = self.content(index).clone();
                self.change(operation, &mut changed, self.stamp + 1);
                let is_it = |node: &Option<Content>| {
                    let node = node.as_ref();
                    node.is_some_and(|node| Rc::ptr_eq(node, &self.open[index].1))
                };
                if let Some((path, _)) = self.nodes.iter().find(|(_, node)| is_it(node)) {
                    after.insert(path.clone(), Some(changed));
                }
            }
            _ => {}
        }
        after
    }

    /// All handles are gone, as after a power failure.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Everything, open files without names too.
    pub(super) fn compare(&self, fs: &JournalingFs) {
        let (found, nodes) = (contents(fs).expect("readable"), self.contents());
        assert!(found.keys().eq(nodes.keys()), "{:?}", found.keys());
        for (path, content) in &found {
            assert!(*content == nodes[path], "the content of {path}");
        }
        for (handle, content) in &self.open {
            let found = read_all(fs, handle).expect("readable");
            assert!(found == *content.borrow(), "an open file");
        }
    }
}
