//! What comes from C and goes there.
//!
//! References and boxes in an `Option` are pointers to a C caller, so the compiler makes us look for NULL. The types below are for what has no such type: text, and
//! memory with a length. Nothing in this crate makes a value of them; they come as arguments of exported functions, and so with a C caller's promise: NULL or as `perdure.h` says.

use crate::born::Born;
use crate::boundary::Answer;
use crate::failure::Failure;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A text that ends with a byte of value zero.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    pub(crate) fn bytes(&self, name: &str) -> Answer<&[u8]> {
        if self.0.is_null() {
            return Err(Failure::null(name));
        }
        // SAFETY: not NULL, so it ends with zero, and the caller leaves it alone as long as the call lasts (see above).
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    pub(crate) fn path(&self, name: &str) -> Answer<&Path> {
        self.bytes(name)
            .map(|bytes| Path::new(OsStr::from_bytes(bytes)))
    }
}

/// Memory to read from.
#[repr(transparent)]
pub struct Data(*const c_void);

impl Data {
    pub(crate) fn bytes(&self, length: usize, name: &str) -> Answer<&[u8]> {
        if !is_some(self.0, length, name)? {
            return Ok(&[]);
        }
        // SAFETY: not NULL, at most half of the address space, and as long as the caller says (see above).
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), length) })
    }
}

/// Memory to write to.
#[repr(transparent)]
pub struct Room(*mut c_void);

impl Room {
    pub(crate) fn bytes(&mut self, length: usize, name: &str) -> Answer<&mut [u8]> {
        if !is_some(self.0, length, name)? {
            return Ok(&mut []);
        }
        // SAFETY: as for `Data`, and nobody else uses it as long as the call lasts. C does not say whether bytes were written before; any will do.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), length) })
    }

    /// Puts `parts` here, one behind the other, and returns their length; with a length of 0 that
    /// is all. As `getxattr` of Linux.
    pub(crate) fn fill<'p>(
        &mut self,
        length: usize,
        name: &str,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Answer<usize> {
        let needed = parts.clone().map(<[u8]>::len).sum();
        let mut room = self.bytes(length, name)?;
        if room.is_empty() {
            return Ok(needed);
        }
        if room.len() < needed {
            let message = format!("{needed} bytes are needed, `{name}` has {length}");
            return Err(Failure::new(libc::ERANGE, message));
        }
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
        Ok(needed)
    }
}

/// Whether there is memory: none is nothing if none is wanted.
fn is_some<T>(pointer: *const T, length: usize, name: &str) -> Answer<bool> {
    if length > isize::MAX as usize {
        let message = format!("`{name}` cannot have {length} bytes; is the length negative?");
        return Err(Failure::argument(message));
    }
    match (pointer.is_null(), length) {
        (_, 0) => Ok(false),
        (true, _) => Err(Failure::null(name)),
        (false, _) => Ok(true),
    }
}

/// Where a result goes.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// An argument that must not be NULL.
#[inline]
pub(crate) fn required<T>(argument: Option<T>, name: &str) -> Answer<T> {
    argument.ok_or_else(|| Failure::null(name))
}

/// What a C program has a pointer to and knows nothing else of.
pub(crate) trait Handle: Sized {
    fn born(&self) -> Born;
}

/// A handle that works here and now.
#[inline]
pub(crate) fn usable<'h, T: Handle>(handle: Option<&'h T>, name: &str) -> Answer<&'h T> {
    let handle = required(handle, name)?;
    handle.born().check()?;
    Ok(handle)
}

/// Makes a handle. Its place is NULL if that fails.
pub(crate) fn make<T: Handle>(
    place: Option<&mut MaybeUninit<*mut T>>,
    name: &str,
    make: impl FnOnce(Born) -> Answer<T>,
) -> Answer<()> {
    let place = required(place, name)?.write(std::ptr::null_mut());
    *place = Box::into_raw(Box::new(make(Born::now()?)?));
    Ok(())
}

/// Whether a handle may be dropped. If not, it is left where it is for ever: dropping it could
/// change a pool that is not this process's, or not as we think (C1, C4).
pub(crate) fn droppable<T: Handle>(handle: Box<T>) -> Option<Box<T>> {
    if handle.born().check().is_ok() {
        return Some(handle);
    }
    std::mem::forget(handle);
    None
}
