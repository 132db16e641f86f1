//! Where a station and the kernel exchange a request and its answer.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use zerocopy::IntoBytes;

use super::memory::Memory;

use crate::abi::OutHeader;
use crate::abi::ring::Header;

/// The header has a page of its own, before the payload.
const HEADER_ROOM_BYTES: usize = 4096;
/// The longest answer that is not data: an entry.
const SHORT_BYTES: usize = 128;

/// An answer that was given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) errno: i32,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Short {
        bytes: [u8; SHORT_BYTES],
        length: usize,
    },
    Long(Vec<u8>),
    /// It lies in the payload already.
    InPlace(usize),
}

impl Body {
    fn new(parts: &[&[u8]]) -> Body {
        let length = parts.iter().map(|part| part.len()).sum();
        if length > SHORT_BYTES {
            return Body::Long(parts.concat());
        }
        let (mut bytes, mut end) = ([0; SHORT_BYTES], 0);
        for part in parts {
            bytes[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        Body::Short { bytes, length }
    }
}

/// A request that a station has taken, and its answer, which any thread may give.
///
/// At each moment the desk belongs to one of these: the kernel, from when the station asks for a
/// request until it has one; the station and, through it, the request's method, until there is an
/// answer. The answer's owner may use the payload if the request has none.
#[derive(Debug)]
pub(crate) struct Desk {
    /// A header, then a payload. The kernel writes a request into it only while the station waits
    /// for one, on the station's own thread.
    memory: Memory,
    /// The request has no payload, so its answer may be put there at once.
    is_room_free: AtomicBool,
    given: Mutex<Option<Given>>,
    is_given: Condvar,
}

impl Desk {
    pub(super) fn new(payload_bytes: usize) -> io::Result<Desk> {
        Ok(Desk {
            memory: Memory::new(HEADER_ROOM_BYTES + payload_bytes)?,
            is_room_free: AtomicBool::new(false),
            given: Mutex::new(None),
            is_given: Condvar::new(),
        })
    }

    fn header_at(&self) -> NonNull<Header> {
        self.memory.start().cast()
    }

    fn payload_at(&self) -> NonNull<u8> {
        // SAFETY: the mapping is longer than that.
        unsafe { self.memory.start().add(HEADER_ROOM_BYTES) }
    }

    fn payload_bytes(&self) -> usize {
        self.memory.bytes() - HEADER_ROOM_BYTES
    }

    /// Header and payload as the kernel is told of them.
    pub(super) fn parts(&self) -> [libc::iovec; 2] {
        let part = |start: *mut u8, bytes| libc::iovec {
            iov_base: start.cast(),
            iov_len: bytes,
        };
        [
            part(self.memory.start().as_ptr(), size_of::<Header>()),
            part(self.payload_at().as_ptr(), self.payload_bytes()),
        ]
    }

    /// A copy of the header.
    ///
    /// # Safety
    ///
    /// The caller is the station, and the kernel does not have the desk.
    pub(super) unsafe fn header(&self) -> Header {
        // SAFETY: the mapping begins at a page; its bytes are a header, whatever they say.
        unsafe { self.header_at().read() }
    }

    /// The payload of a request.
    ///
    /// # Safety
    ///
    /// The caller is the station, the kernel does not have the desk and will not get it before the
    /// slice is gone, and if `bytes` is not 0, [`begin`](Desk::begin) says that the room is taken.
    pub(super) unsafe fn payload(&self, bytes: usize) -> &[u8] {
        let bytes = bytes.min(self.payload_bytes());
        // SAFETY: the range is inside of the mapping. Nobody writes to it: the caller promises
        // that the kernel does not, and `room` gives nothing out.
        unsafe { std::slice::from_raw_parts(self.payload_at().as_ptr(), bytes) }
    }

    /// A request begins, whose answer may be put into the payload at once or not.
    pub(super) fn begin(&self, is_room_free: bool) {
        self.is_room_free.store(is_room_free, Ordering::Relaxed);
        *self.given.lock() = None;
    }

    /// Room for an answer of `bytes`, unless the request's payload is there.
    ///
    /// # Safety
    ///
    /// The caller owns the only answer to the desk's request, and keeps it while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn room(&self, bytes: usize) -> Option<&mut [u8]> {
        let is_free = self.is_room_free.load(Ordering::Relaxed);
        (is_free && bytes <= self.payload_bytes()).then(|| {
            // SAFETY: the range is inside of the mapping. The request has no payload, so there is
            // no other slice of it; the kernel gets the desk when the answer is given.
            unsafe { std::slice::from_raw_parts_mut(self.payload_at().as_ptr(), bytes) }
        })
    }

    /// Gives the answer.
    pub(crate) fn answer(&self, errno: i32, parts: &[&[u8]]) {
        let body = Body::new(parts);
        self.give(Given { errno, body });
    }

    /// Gives the answer, which lies in the room.
    pub(crate) fn answer_in_place(&self, bytes: usize) {
        self.give(Given {
            errno: 0,
            body: Body::InPlace(bytes),
        });
    }

    fn give(&self, given: Given) {
        *self.given.lock() = Some(given);
        self.is_given.notify_one();
    }

    /// The answer, if it is there.
    pub(super) fn given(&self) -> Option<Given> {
        self.given.lock().take()
    }

    /// Waits for the answer.
    pub(super) fn wait(&self) -> Given {
        let mut given = self.given.lock();
        loop {
            match given.take() {
                Some(given) => return given,
                None => self.is_given.wait(&mut given),
            }
        }
    }

    /// Puts the answer where the kernel takes it from.
    ///
    /// # Safety
    ///
    /// The caller is the station, the kernel does not have the desk, and no slice of the payload
    /// is left.
    pub(super) unsafe fn put(&self, unique: u64, given: &Given) {
        let bytes = match &given.body {
            // SAFETY: as the caller promises.
            Body::Short { bytes, length } => unsafe { self.copy(&bytes[..*length]) },
            // SAFETY: as the caller promises.
            Body::Long(bytes) => unsafe { self.copy(bytes) },
            Body::InPlace(bytes) => Some(*bytes),
        };
        let (bytes, errno) = match bytes {
            Some(bytes) => (bytes, given.errno),
            // No method answers with more than the kernel has asked for.
            None => (0, libc::EIO),
        };
        let out = OutHeader {
            // A payload is shorter than 4 GiB.
            len: (size_of::<OutHeader>() + bytes) as u32,
            error: -errno,
            unique,
        };
        let at = self.header_at().as_ptr();
        // SAFETY: the header is inside of the mapping, and the caller promises that no other
        // thread and not the kernel touches it.
        unsafe {
            (&raw mut (*at).in_out)
                .cast::<[u8; size_of::<OutHeader>()]>()
                .copy_from_nonoverlapping(out.as_bytes().as_ptr().cast(), 1);
            (*at).entry.payload_bytes = bytes as u32;
        }
    }

    /// # Safety
    ///
    /// As for [`put`](Desk::put).
    unsafe fn copy(&self, bytes: &[u8]) -> Option<usize> {
        if bytes.len() > self.payload_bytes() {
            return None;
        }
        // SAFETY: the range is inside of the mapping; `bytes` is memory of this process's own.
        unsafe {
            self.payload_at()
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Some(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(desk: &Desk) -> (OutHeader, Vec<u8>) {
        use zerocopy::FromBytes;
        let given = desk.given().expect("an answer");
        // SAFETY: no kernel has this desk, and no slice of it lives.
        unsafe {
            desk.put(7, &given);
            let header = desk.header();
            let (out, _) = OutHeader::read_from_prefix(&header.in_out).expect("a header");
            (
                out,
                desk.payload(header.entry.payload_bytes as usize).to_vec(),
            )
        }
    }

    #[test]
    fn answers_of_all_lengths_reach_the_payload() {
        let desk = Desk::new(8192).expect("a desk");
        for length in [0, 1, SHORT_BYTES, SHORT_BYTES + 1, 8192] {
            desk.begin(false);
            let bytes = vec![5; length];
            desk.answer(0, &[&bytes[..length / 2], &bytes[length / 2..]]);
            let (header, payload) = answered(&desk);
            assert_eq!((header.error, header.unique, payload), (0, 7, bytes));
            assert_eq!(header.len as usize, 16 + length);
        }
        desk.begin(false);
        desk.answer(0, &[&[0; 8193]]);
        assert_eq!(answered(&desk).0.error, -libc::EIO, "longer than the room");
        desk.begin(false);
        desk.answer(libc::ENOENT, &[]);
        assert_eq!(answered(&desk).0.error, -libc::ENOENT);
    }

    #[test]
    fn room_is_given_only_where_no_request_lies() {
        let desk = Desk::new(8192).expect("a desk");
        desk.begin(false);
        // SAFETY: this is the only use of the desk.
        assert!(unsafe { desk.room(1) }.is_none());
        desk.begin(true);
        // SAFETY: as above.
        assert!(unsafe { desk.room(8193) }.is_none());
        // SAFETY: as above.
        let room = unsafe { desk.room(3) }.expect("room");
        room.copy_from_slice(b"abc");
        desk.answer_in_place(2);
        assert_eq!(answered(&desk).1, b"ab");
    }

    #[test]
    fn another_thread_may_answer() {
        let desk = std::sync::Arc::new(Desk::new(4096).expect("a desk"));
        desk.begin(false);
        let theirs = desk.clone();
        let thread = std::thread::spawn(move || theirs.answer(libc::EPERM, &[]));
        assert_eq!(desk.wait().errno, libc::EPERM);
        thread.join().expect("no panic");
    }
}
