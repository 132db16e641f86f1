//! Open directories.

use crate::born::Born;
use crate::boundary::{call, status};
use crate::pointers::{Handle, Text, droppable, make, usable};
use perdure::Dir;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// An open directory: relative paths start here, absolute ones at the root of the pool. Any number
/// of threads may use it at once, but for closing it.
#[derive(Debug)]
pub struct perdure_dir {
    born: Born,
    pub(crate) dir: Dir,
}

impl perdure_dir {
    pub(crate) fn new(born: Born, dir: Dir) -> perdure_dir {
        perdure_dir { born, dir }
    }
}

impl Handle for perdure_dir {
    fn born(&self) -> Born {
        self.born
    }
}

/// Opens a directory; close it with perdure_dir_close(). A short path from a directory that is kept
/// open is the quickest way to a file.
///
/// Errors: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_dir_open(
    dir: Option<&perdure_dir>,
    path: Text,
    opened: Option<&mut MaybeUninit<*mut perdure_dir>>,
) -> c_int {
    status("perdure_dir_open", || {
        make(opened, "opened", |born| {
            let dir = &usable(dir, "dir")?.dir;
            let opened = dir.open_dir(path.path("path")?)?;
            Ok(perdure_dir::new(born, opened))
        })
    })
}

/// Closes a directory. NULL is nothing to close.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_dir_close(dir: Option<Box<perdure_dir>>) {
    call("perdure_dir_close", (), || {
        drop(dir.and_then(droppable));
        Ok(())
    });
}
