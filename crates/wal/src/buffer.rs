//! Memory for O_DIRECT.

use crate::UNIT_BYTES;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes that start on a boundary of [`UNIT_BYTES`]; they grow, and their capacity stays.
///
/// Invariant: `start` has `capacity` bytes (none if 0), of which the first `length` are
/// initialised.
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    capacity: usize,
    length: usize,
}

/// Its alignment is that of the buffers.
#[repr(align(4096))]
struct AlignedUnit;

const _: () = assert!(align_of::<AlignedUnit>() == UNIT_BYTES);

// SAFETY: the buffer owns its memory, as a Vec<u8> does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Makes a buffer without memory.
    pub const fn new() -> AlignedBuffer {
        AlignedBuffer {
            start: NonNull::<AlignedUnit>::dangling().cast(),
            capacity: 0,
            length: 0,
        }
    }

    /// Makes a buffer with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::new();
        buffer.reserve(bytes);
        buffer
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that fit without new memory.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets all bytes and keeps the memory.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(self.length + bytes.len());
        // SAFETY: the memory has room for them behind `length`, and nobody else has a reference to
        // it.
        unsafe {
            let end = self.start.as_ptr().add(self.length);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
        }
        self.length += bytes.len();
    }

    /// Sets the number of bytes; new ones are zeros.
    pub fn resize(&mut self, bytes: usize) {
        self.reserve(bytes);
        if let Some(more) = bytes.checked_sub(self.length) {
            // SAFETY: the memory has `bytes` bytes.
            unsafe { std::ptr::write_bytes(self.start.as_ptr().add(self.length), 0, more) };
        }
        self.length = bytes;
    }

    /// Makes room for `bytes` bytes in all: at least twice the old capacity if there was not
    /// enough.
    fn reserve(&mut self, bytes: usize) {
        if bytes <= self.capacity {
            return;
        }
        let capacity = bytes
            .max(self.capacity.saturating_mul(2))
            .next_multiple_of(UNIT_BYTES);
        let layout = layout(capacity);
        let start = if self.capacity == 0 {
            // SAFETY: the layout is not empty.
            unsafe { alloc(layout) }
        } else {
            // SAFETY: `start` was allocated with the layout of the old capacity; the new one is a
            // valid layout.
            unsafe { realloc(self.start.as_ptr(), self::layout(self.capacity), capacity) }
        };
        self.start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        self.capacity = capacity;
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, UNIT_BYTES)
        .expect("a buffer is smaller than half the address space")
}

impl Default for AlignedBuffer {
    fn default() -> AlignedBuffer {
        AlignedBuffer::new()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: `start` was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout(self.capacity)) };
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `length` bytes are initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `length` bytes are initialised, and this is the only reference to them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_while_the_buffer_grows_and_the_start_is_aligned() {
        let mut buffer = AlignedBuffer::new();
        let mut expected = Vec::new();
        for step in 0..2000_usize {
            let piece = vec![step as u8; step % 97];
            buffer.extend_from_slice(&piece);
            expected.extend_from_slice(&piece);
            assert_eq!(buffer.as_ptr() as usize % UNIT_BYTES, 0, "{step}");
        }
        assert_eq!(*buffer, *expected);
        let capacity = buffer.capacity();
        buffer.clear();
        assert!(buffer.is_empty());
        assert_eq!(buffer.capacity(), capacity);
    }

    #[test]
    fn new_bytes_are_zeros_where_others_were_before() {
        let mut buffer = AlignedBuffer::with_capacity(100);
        buffer.extend_from_slice(&[1; 100]);
        buffer.resize(10);
        buffer.resize(100);
        assert_eq!(buffer[..10], [1; 10]);
        assert_eq!(buffer[10..], [0; 90]);
    }
}
