//! Listing directories.

use crate::born::Born;
use crate::boundary::{call, status, truth};
use crate::directory::perdure_dir;
use crate::failure::Failure;
use crate::pointers::{Handle, Text, droppable, make, required, usable};
use perdure::{FileType, ReadDir};
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

/// Room for the longest name and the zero behind it.
pub const PERDURE_NAME_BYTES: usize = 256;

/// A directory that is being listed, by one thread at a time.
#[derive(Debug)]
pub struct perdure_list {
    born: Born,
    entries: ReadDir,
}

impl Handle for perdure_list {
    fn born(&self) -> Born {
        self.born
    }
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct perdure_entry {
    /// Number of the inode.
    pub inode: u64,
    /// Type, as the bits S_IFMT of st_mode.
    pub type_bits: u32,
    /// Bytes of the name, without the zero behind it.
    pub name_bytes: u32,
    /// The name, with a byte of value zero behind it.
    pub name: [c_char; PERDURE_NAME_BYTES],
}

/// Begins to list a directory, in no particular order and without `.` and `..`. Entries that are
/// created or removed meanwhile may or may not appear; all others appear exactly once. Close it
/// with perdure_list_close().
///
/// Errors: ENOENT, ENOTDIR.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_list_open(
    dir: Option<&perdure_dir>,
    path: Text,
    list: Option<&mut MaybeUninit<*mut perdure_list>>,
) -> c_int {
    status("perdure_list_open", || {
        make(list, "list", |born| {
            let dir = &usable(dir, "dir")?.dir;
            let entries = dir.read_dir(path.path("path")?)?;
            Ok(perdure_list { born, entries })
        })
    })
}

/// The next entry: 1 if there is one, 0 at the end, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_list_next(
    list: Option<&mut perdure_list>,
    entry: Option<&mut MaybeUninit<perdure_entry>>,
) -> c_int {
    truth("perdure_list_next", || {
        let list = required(list, "list")?;
        list.born.check()?;
        let place = required(entry, "entry")?;
        let Some(entry) = list.entries.next().transpose()? else {
            return Ok(false);
        };
        let name = entry.name().as_bytes();
        let mut found = perdure_entry {
            inode: entry.ino(),
            type_bits: type_bits(entry.file_type()?),
            name_bytes: name.len() as u32,
            name: [0; PERDURE_NAME_BYTES],
        };
        let room = found.name.get_mut(..name.len());
        let room = room.filter(|_| name.len() < PERDURE_NAME_BYTES);
        let room = room.ok_or_else(|| Failure::new(libc::EIO, "a name of 256 bytes or more"))?;
        for (to, from) in room.iter_mut().zip(name) {
            *to = *from as c_char;
        }
        place.write(found);
        Ok(true)
    })
}

/// Ends a listing. NULL is nothing to end.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_list_close(list: Option<Box<perdure_list>>) {
    call("perdure_list_close", (), || {
        drop(list.and_then(droppable));
        Ok(())
    });
}

fn type_bits(kind: FileType) -> u32 {
    let bits = [
        (kind.is_file(), libc::S_IFREG),
        (kind.is_dir(), libc::S_IFDIR),
        (kind.is_symlink(), libc::S_IFLNK),
        (kind.is_fifo(), libc::S_IFIFO),
        (kind.is_socket(), libc::S_IFSOCK),
        (kind.is_block_device(), libc::S_IFBLK),
        (kind.is_char_device(), libc::S_IFCHR),
    ];
    bits.into_iter()
        .find_map(|(is_it, bits)| is_it.then_some(bits))
        .unwrap_or(0)
}
