//! What a file system contains, and random operations on it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use perdure_bench::baseline::{Handle, Pmfs, PmfsError};
use proptest::prelude::*;

/// Directories (`None`) and the contents of files, by path.
pub(crate) type Contents = BTreeMap<String, Option<Vec<u8>>>;

/// Reads a whole file system.
pub(crate) fn contents(pmfs: &Pmfs) -> Contents {
    let mut all = Contents::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in pmfs.read_dir(&directory).expect("a directory") {
            let name = String::from_utf8(entry.name).expect("our names are text");
            let path = format!("{directory}/{name}");
            if entry.is_directory {
                directories.push(path.clone());
                all.insert(path, None);
            } else {
                let handle = pmfs.open(&path).expect("a file");
                all.insert(path, Some(read_all(pmfs, &handle)));
            }
        }
    }
    all
}

/// A file's content, read in pieces that end anywhere.
pub(crate) fn read_all(pmfs: &Pmfs, handle: &Handle) -> Vec<u8> {
    let mut content = Vec::new();
    let mut piece = [0xaa; 5003];
    loop {
        let offset = content.len() as u64;
        match pmfs.read_at(handle, offset, &mut piece).expect("readable") {
            0 => break,
            length => content.extend_from_slice(&piece[..length]),
        }
    }
    assert_eq!(content.len() as u64, pmfs.size(handle));
    content
}

/// One operation. Places are picked among what there is.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    CreateDir(prop::sample::Index, Name),
    Create(prop::sample::Index, Name),
    Open(prop::sample::Index),
    Close(prop::sample::Index),
    Unlink(prop::sample::Index),
    UnlinkAbsent(prop::sample::Index, Name),
    Write(prop::sample::Index, u64, usize),
    Append(prop::sample::Index, usize),
    Truncate(prop::sample::Index, u64),
    Reopen,
}

/// A name: few of them, so that they come again, and of very different lengths.
#[derive(Clone, Debug)]
pub(crate) struct Name(u8);

impl Name {
    fn text(&self) -> String {
        let length = [1, 2, 8, 8, 8, 30, 120, 255][usize::from(self.0 % 8)];
        let digits = format!("{:03}", self.0);
        digits.chars().cycle().take(length).collect()
    }
}

/// Random operations; writes reach up to so many bytes.
pub(crate) fn operations(
    length: Range<usize>,
    bytes_max: u64,
) -> impl Strategy<Value = Vec<Operation>> {
    let any_index = any::<prop::sample::Index>;
    let name = || (0..40_u8).prop_map(Name);
    let size = move || prop_oneof![0..600_u64, 0..bytes_max];
    proptest::collection::vec(
        prop_oneof![
            1 => (any_index(), name()).prop_map(|(at, name)| Operation::CreateDir(at, name)),
            6 => (any_index(), name()).prop_map(|(at, name)| Operation::Create(at, name)),
            2 => any_index().prop_map(Operation::Open),
            3 => any_index().prop_map(Operation::Close),
            4 => any_index().prop_map(Operation::Unlink),
            1 => (any_index(), name()).prop_map(|(at, name)| Operation::UnlinkAbsent(at, name)),
            4 => (any_index(), size(), size()).prop_map(|(at, offset, length)| Operation::Write(at, offset, length as usize)),
            4 => (any_index(), size()).prop_map(|(at, length)| Operation::Append(at, length as usize)),
            3 => (any_index(), prop_oneof![Just(0), size()]).prop_map(|(at, size)| Operation::Truncate(at, size)),
            1 => Just(Operation::Reopen),
        ],
        length,
    )
}

type Content = Rc<RefCell<Vec<u8>>>;

/// A file system as it should be.
#[derive(Default)]
pub(crate) struct Model {
    nodes: BTreeMap<String, Option<Content>>,
    /// Open files, with their names or without.
    open: Vec<(Handle, Content)>,
    stamp: u8,
}

/// A change of the content of one file, done by one write.
pub(crate) struct Written {
    pub(crate) path: Option<String>,
}

impl Model {
    pub(crate) fn contents(&self) -> Contents {
        let copy = |content: &Content| content.borrow().clone();
        self.nodes
            .iter()
            .map(|(path, node)| (path.clone(), node.as_ref().map(copy)))
            .collect()
    }

    fn directory(&self, at: &prop::sample::Index) -> String {
        let is_directory = |(path, node): (&String, &Option<Content>)| {
            (node.is_none() && path.len() < 600).then(|| path.clone())
        };
        let mut all: Vec<String> = self.nodes.iter().filter_map(is_directory).collect();
        all.push(String::new());
        at.get(&all).clone()
    }

    fn file(&self, at: &prop::sample::Index) -> Option<(String, Content)> {
        let all: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|(path, node)| Some((path.clone(), Rc::clone(node.as_ref()?))))
            .collect();
        (!all.is_empty()).then(|| at.get(&all).clone())
    }

    fn open_file(&self, at: &prop::sample::Index) -> Option<(&Handle, &Content)> {
        let (handle, content) = (!self.open.is_empty()).then(|| at.get(&self.open))?;
        Some((handle, content))
    }

    fn path_of(&self, content: &Content) -> Option<String> {
        let is_it =
            |node: &&Option<Content>| matches!(node, Some(node) if Rc::ptr_eq(node, content));
        let mut found = self.nodes.iter();
        found
            .find(|(_, node)| is_it(node))
            .map(|(path, _)| path.clone())
    }

    /// Bytes that no write before has written.
    fn new_bytes(&mut self, length: usize) -> Vec<u8> {
        self.stamp = self.stamp.wrapping_add(1);
        (0..length)
            .map(|index| (index as u8).wrapping_mul(3) ^ self.stamp)
            .collect()
    }

    /// The change that an operation is going to make to one file's content, if any.
    pub(crate) fn target(&self, operation: &Operation) -> Written {
        let path = match operation {
            Operation::Write(at, ..) | Operation::Append(at, _) => self
                .open_file(at)
                .and_then(|(_, content)| self.path_of(content)),
            _ => None,
        };
        Written { path }
    }

    /// Does an operation here and there, and compares the answers. No answer is wrong but a missing one.
    pub(crate) fn apply(&mut self, pmfs: &Pmfs, operation: &Operation) -> Result<(), PmfsError> {
        match operation {
            Operation::CreateDir(at, name) => {
                let path = format!("{}/{}", self.directory(at), name.text());
                match self.nodes.contains_key(&path) {
                    true => assert_eq!(pmfs.create_dir(&path), Err(PmfsError::AlreadyExists)),
                    false => {
                        pmfs.create_dir(&path)?;
                        self.nodes.insert(path, None);
                    }
                }
            }
            Operation::Create(at, name) => {
                let path = format!("{}/{}", self.directory(at), name.text());
                if self.nodes.contains_key(&path) {
                    let refused = pmfs.create(&path).map(drop);
                    assert_eq!(refused, Err(PmfsError::AlreadyExists));
                    return Ok(());
                }
                let handle = pmfs.create(&path)?;
                let content = Content::default();
                self.open.push((handle, Rc::clone(&content)));
                self.nodes.insert(path, Some(content));
            }
            Operation::Open(at) => {
                if let Some((path, content)) = self.file(at) {
                    self.open.push((pmfs.open(&path)?, content));
                }
            }
            Operation::Close(at) => {
                if !self.open.is_empty() {
                    self.open.swap_remove(at.index(self.open.len()));
                }
            }
            Operation::Unlink(at) => {
                if let Some((path, _)) = self.file(at) {
                    pmfs.unlink(&path)?;
                    self.nodes.remove(&path);
                    assert_eq!(pmfs.open(&path).map(drop), Err(PmfsError::NotFound));
                }
            }
            Operation::UnlinkAbsent(at, name) => {
                let path = format!("{}/{}", self.directory(at), name.text());
                match self.nodes.get(&path) {
                    None => assert_eq!(pmfs.unlink(&path), Err(PmfsError::NotFound)),
                    Some(None) => assert_eq!(pmfs.unlink(&path), Err(PmfsError::IsADirectory)),
                    Some(Some(_)) => {}
                }
            }
            Operation::Reopen => {}
            Operation::Write(..) | Operation::Append(..) | Operation::Truncate(..) => {
                return self.change(pmfs, operation);
            }
        }
        Ok(())
    }

    fn change(&mut self, pmfs: &Pmfs, operation: &Operation) -> Result<(), PmfsError> {
        let length = match operation {
            Operation::Write(_, _, length) | Operation::Append(_, length) => *length,
            _ => 0,
        };
        let data = self.new_bytes(length);
        match operation {
            Operation::Write(at, offset, _) => {
                let Some((handle, content)) = self.open_file(at) else {
                    return Ok(());
                };
                pmfs.write_at(handle, *offset, &data)?;
                let mut content = content.borrow_mut();
                let end = *offset as usize + data.len();
                if !data.is_empty() && content.len() < end {
                    content.resize(end, 0);
                }
                if !data.is_empty() {
                    content[*offset as usize..end].copy_from_slice(&data);
                }
                pmfs.sync(handle);
            }
            Operation::Append(at, _) => {
                let Some((handle, content)) = self.open_file(at) else {
                    return Ok(());
                };
                let landed = pmfs.append(handle, &data)?;
                assert_eq!(landed, content.borrow().len() as u64);
                content.borrow_mut().extend_from_slice(&data);
                pmfs.sync(handle);
            }
            Operation::Truncate(at, size) => {
                let Some((handle, content)) = self.open_file(at) else {
                    return Ok(());
                };
                pmfs.truncate(handle, *size)?;
                content.borrow_mut().resize(*size as usize, 0);
            }
            _ => {}
        }
        Ok(())
    }

    /// All handles are gone, as after a power cut.
    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Everything, open files without names too.
    pub(crate) fn compare(&self, pmfs: &Pmfs) {
        assert_eq!(contents(pmfs), self.contents());
        for (handle, content) in &self.open {
            assert_eq!(read_all(pmfs, handle), *content.borrow());
        }
    }
}
