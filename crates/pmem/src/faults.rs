//! Pages that are not there yet: their first access waits until the owner of the region has put
//! them there (`userfaultfd`). The only file that does so.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use zerocopy::IntoBytes;

use crate::deliberate::{self, Bug};
use crate::{BLOCK_BYTES, Offset, Region, copy};

/// Number of the interface's version.
const API: u64 = 0xaa;
/// Accesses by system calls are not caught: such a call fails.
const USER_MODE_ONLY: u32 = 1;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_POISON: u64 = 1 << 14;
const REGISTER_MISSING: u64 = 1;
const EVENT_PAGE_FAULT: u8 = 0x12;

const UFFDIO_API: libc::Ioctl = both(0x3f, 24);
const UFFDIO_REGISTER: libc::Ioctl = both(0, 32);
const UFFDIO_UNREGISTER: libc::Ioctl = told(1, 16);
const UFFDIO_WAKE: libc::Ioctl = told(2, 16);
const UFFDIO_COPY: libc::Ioctl = both(3, 40);
const UFFDIO_ZEROPAGE: libc::Ioctl = both(4, 32);
const UFFDIO_POISON: libc::Ioctl = both(8, 32);

/// `_IOWR(0xaa, number, bytes)`
const fn both(number: libc::Ioctl, bytes: libc::Ioctl) -> libc::Ioctl {
    3 << 30 | bytes << 16 | 0xaa << 8 | number
}

/// `_IOR(0xaa, number, bytes)`
const fn told(number: libc::Ioctl, bytes: libc::Ioctl) -> libc::Ioctl {
    2 << 30 | bytes << 16 | 0xaa << 8 | number
}

/// Whose accesses are caught.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// Accesses of the program, and of system calls that it makes, are caught.
    All,
    /// Accesses of the program are; a system call that finds an absent page fails with `EFAULT`.
    Program,
}

/// The outcome of putting pages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Put {
    /// Bytes of pages that were absent.
    pub new_bytes: u64,
}

/// Pages of a region that are not there yet.
///
/// A thread that accesses one waits. Its owner learns where from [`next`](Faults::next) and puts
/// the page there, which happens at once and only if it is absent: no thread sees a part of it, and
/// no change of it is lost. When this is dropped absent pages read as zeros, so it lives longer
/// than all accesses.
#[derive(Debug)]
pub struct Faults {
    descriptor: OwnedFd,
    reach: Reach,
    can_poison: bool,
    base: usize,
    length: u64,
}

impl Faults {
    /// For the region, in which no page is watched yet.
    ///
    /// # Errors
    ///
    /// The kernel does not offer it to this process.
    pub fn of(region: &Region) -> io::Result<Faults> {
        Faults::reaching(region, Reach::All).or_else(|_| Faults::reaching(region, Reach::Program))
    }

    /// The same with this reach; `All` needs a privilege.
    ///
    /// # Errors
    ///
    /// As [`of`](Faults::of).
    pub fn reaching(region: &Region, reach: Reach) -> io::Result<Faults> {
        let length = region.length();
        let base = region.as_ptr(Offset::new(0), length as usize).addr();
        let is_made = |features| {
            let flags = match reach {
                Reach::All => UserfaultfdFlags::empty(),
                Reach::Program => UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY),
            };
            let flags = flags | UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
            // SAFETY: the descriptor stays in this struct, which changes absent pages of a region
            // only, and a region is memory that anybody may change at any time.
            let descriptor = unsafe { userfaultfd(flags)? };
            let mut words = [API, features, 0];
            command(&descriptor, UFFDIO_API, &mut words).map(|()| descriptor)
        };
        let (descriptor, can_poison) = match is_made(FEATURE_MISSING_SHMEM | FEATURE_POISON) {
            Ok(descriptor) => (descriptor, true),
            Err(_) => (is_made(FEATURE_MISSING_SHMEM)?, false),
        };
        Ok(Faults {
            descriptor,
            reach,
            can_poison,
            base,
            length,
        })
    }

    /// Whose accesses are caught.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// From here on accesses to absent pages of a range wait.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn watch(&self, at: Offset, bytes: u64) -> io::Result<()> {
        let mut words = [self.address(at, bytes), bytes, REGISTER_MISSING, 0];
        command(&self.descriptor, UFFDIO_REGISTER, &mut words)
    }

    /// Accesses to a range wait no more, and those that do go on.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn leave(&self, at: Offset, bytes: u64) -> io::Result<()> {
        let mut words = [self.address(at, bytes), bytes];
        command(&self.descriptor, UFFDIO_UNREGISTER, &mut words)
    }

    /// An access that waits, if there is one; the descriptor is readable then. Several threads may
    /// ask, and each access is told to one.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn next(&self) -> io::Result<Option<Offset>> {
        let mut message = [0_u64; 4];
        match rustix::io::read(&self.descriptor, message.as_mut_bytes()) {
            Ok(read) if read == size_of_val(&message) => {}
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let [event, _, address, _] = message;
        let at = address.wrapping_sub(self.base as u64);
        let is_ours = event.as_bytes()[0] == EVENT_PAGE_FAULT && at < self.length;
        Ok(is_ours.then(|| Offset::new(at / BLOCK_BYTES as u64 * BLOCK_BYTES as u64)))
    }

    /// Puts whole pages where they are absent, and wakes who waits for any of them.
    ///
    /// # Errors
    ///
    /// There is no memory: of kind `OutOfMemory`; those before are there.
    pub fn put(&self, at: Offset, bytes: &[u8]) -> io::Result<Put> {
        let length = bytes.len() as u64;
        let to = self.address(at, length);
        self.for_absent(at, length, |done| {
            let from = bytes[done as usize..].as_ptr().addr() as u64;
            let mut words = [to + done, from, length - done, 0, 0];
            let outcome = command(&self.descriptor, UFFDIO_COPY, &mut words);
            if is_present(&outcome) && deliberate::is(Bug::LoadOverChanges) {
                let address = ptr::with_exposed_provenance_mut((to + done) as usize);
                let page = &bytes[done as usize..][..BLOCK_BYTES];
                // SAFETY: a page of the region, which is there.
                unsafe { copy::copy_in(page.as_ptr(), address, BLOCK_BYTES) };
            }
            (outcome, words[4])
        })
    }

    /// The same with zeros.
    ///
    /// # Errors
    ///
    /// As [`put`](Faults::put).
    pub fn put_zeros(&self, at: Offset, length: u64) -> io::Result<Put> {
        let to = self.address(at, length);
        self.for_absent(at, length, |done| {
            let mut words = [to + done, length - done, 0, 0];
            let outcome = command(&self.descriptor, UFFDIO_ZEROPAGE, &mut words);
            (outcome, words[3])
        })
    }

    /// An access to the page ends this process by SIGBUS, because its content cannot be had.
    ///
    /// # Errors
    ///
    /// The kernel cannot do it (before Linux 6.6).
    pub fn poison(&self, at: Offset) -> io::Result<()> {
        let page = BLOCK_BYTES as u64;
        if !self.can_poison {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut words = [self.address(at, page), page, 0, 0];
        match command(&self.descriptor, UFFDIO_POISON, &mut words) {
            outcome if is_present(&outcome) => self.wake(at),
            outcome => outcome,
        }
    }

    fn wake(&self, at: Offset) -> io::Result<()> {
        let page = BLOCK_BYTES as u64;
        let mut words = [self.address(at, page), page];
        command(&self.descriptor, UFFDIO_WAKE, &mut words)
    }

    /// Calls `act` with the bytes that are done, until all are. It returns how many it has put.
    fn for_absent(
        &self,
        at: Offset,
        length: u64,
        mut act: impl FnMut(u64) -> (io::Result<()>, u64),
    ) -> io::Result<Put> {
        let (mut done, mut new_bytes) = (0, 0);
        while done < length {
            let (outcome, put) = act(done);
            let code = match &outcome {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            match code {
                0 => (done, new_bytes) = (length, new_bytes + length - done),
                // A part, or none, because addresses change.
                libc::EAGAIN => {
                    let put = u64::try_from(put.cast_signed()).unwrap_or(0);
                    (done, new_bytes) = (done + put, new_bytes + put);
                }
                libc::EEXIST => {
                    // Another thread has put it; a thread that waited before may not know.
                    self.wake(at + done)?;
                    done += BLOCK_BYTES as u64;
                }
                // The range was left, so nobody waits.
                libc::ENOENT => return Ok(Put { new_bytes }),
                libc::ENOMEM | libc::ENOSPC => return Err(io::ErrorKind::OutOfMemory.into()),
                _ => outcome?,
            }
        }
        Ok(Put { new_bytes })
    }

    fn address(&self, at: Offset, bytes: u64) -> u64 {
        let end = at.get().checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "a range outside of the region"
        );
        self.base as u64 + at.get()
    }
}

impl AsFd for Faults {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn is_present(outcome: &io::Result<()>) -> bool {
    let code = outcome.as_ref().err().and_then(io::Error::raw_os_error);
    code == Some(libc::EEXIST)
}

/// The words are the command's structure, in and out.
fn command<const N: usize>(
    descriptor: &OwnedFd,
    number: libc::Ioctl,
    words: &mut [u64; N],
) -> io::Result<()> {
    assert_eq!(
        (number >> 16 & 0x3fff) as usize,
        size_of::<[u64; N]>(),
        "the structure's length is in the command"
    );
    // SAFETY: the structure has the length that the command says. Its addresses are of a region, or
    // of bytes that live as long as the call.
    match unsafe { libc::ioctl(descriptor.as_raw_fd(), number, words.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, DurabilityClass, Part};
    use std::fs::File;
    use std::path::Path;
    use std::time::Duration;

    const PAGE: u64 = BLOCK_BYTES as u64;
    const PAGES: u64 = 16;

    fn mapped(file: &File) -> Region {
        let part = Part {
            file,
            path: Path::new("memory"),
            file_offset: 0,
            length: PAGES * PAGE,
        };
        Region::map(&[part], DurabilityClass::Log, Access::ReadWrite).expect("map")
    }

    fn memory() -> (File, Region) {
        let file = tempfile::tempfile_in("/dev/shm").expect("a file");
        file.set_len(PAGES * PAGE).expect("a length");
        let region = mapped(&file);
        (file, region)
    }

    fn page(value: u8) -> [u8; BLOCK_BYTES] {
        [value; BLOCK_BYTES]
    }

    /// Serves accesses until `work` is done: page n gets bytes of value n.
    fn serve(faults: &Faults, work: impl FnOnce() + Send) -> Vec<u64> {
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            let worker = scope.spawn(work);
            while !worker.is_finished() {
                match faults.next().expect("a sound descriptor") {
                    Some(at) => {
                        seen.push(at.get() / PAGE);
                        let content = page((at.get() / PAGE) as u8);
                        faults.put(at, &content).expect("memory");
                    }
                    None => std::thread::sleep(Duration::from_micros(50)),
                }
            }
        });
        seen
    }

    #[test]
    fn an_access_waits_for_its_page_whoever_may_catch_it() {
        for reach in [Reach::All, Reach::Program] {
            for is_file in [true, false] {
                let (_file, region) = match is_file {
                    true => memory(),
                    false => (
                        tempfile::tempfile().expect("a file"),
                        Region::anonymous(PAGES * PAGE),
                    ),
                };
                let Ok(faults) = Faults::reaching(&region, reach) else {
                    eprintln!("skipped: {reach:?} needs a privilege");
                    continue;
                };
                faults.watch(Offset::new(0), PAGES * PAGE).expect("watched");
                let seen = serve(&faults, || {
                    for number in [3, 9, 1] {
                        let at = Offset::new(number * PAGE);
                        assert!(region.equals(at, &page(number as u8)), "page {number}");
                        region.store(at, b"changed").leave_to_checkpoint();
                    }
                    region
                        .store(Offset::new(5 * PAGE), b"x")
                        .leave_to_checkpoint();
                });
                assert_eq!(seen, [3, 9, 1, 5]);
                assert!(region.equals(Offset::new(5 * PAGE + 1), &page(5)[1..]));
                // Those that are there stay, in the middle of others too.
                let mut image = Vec::new();
                (0..PAGES).for_each(|_| image.extend_from_slice(&page(77)));
                let put = faults.put(Offset::new(0), &image).expect("memory");
                assert_eq!(put.new_bytes, (PAGES - 4) * PAGE);
                assert!(region.equals(Offset::new(3 * PAGE), b"changed"));
                assert!(region.equals(Offset::new(4 * PAGE), &page(77)));
                assert_eq!(
                    faults.put_zeros(Offset::new(0), PAGES * PAGE).expect("put"),
                    Put { new_bytes: 0 }
                );
                faults.leave(Offset::new(0), PAGES * PAGE).expect("left");
                let again = faults.put(Offset::new(0), &image).expect("left");
                assert_eq!(again.new_bytes, 0);
            }
        }
    }

    #[test]
    fn absent_pages_are_holes_of_the_file() {
        let (file, region) = memory();
        let faults = Faults::of(&region).expect("a kernel that has it");
        faults.watch(Offset::new(0), PAGES * PAGE).expect("watched");
        faults.put(Offset::new(PAGE), &page(1)).expect("memory");
        faults
            .put_zeros(Offset::new(2 * PAGE), 2 * PAGE)
            .expect("memory");
        let hole = |from| rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(from));
        let data = |from| rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(from));
        assert_eq!(data(0), Ok(PAGE));
        assert_eq!(hole(PAGE), Ok(4 * PAGE));
        assert_eq!(data(4 * PAGE), Err(Errno::NXIO));
        let found = file.metadata().expect("metadata");
        assert_eq!(
            std::os::unix::fs::MetadataExt::blocks(&found) * 512,
            3 * PAGE
        );
    }

    #[test]
    fn a_system_call_waits_or_fails_as_the_reach_says() {
        use std::os::unix::fs::FileExt;
        let out = tempfile::tempfile().expect("a file");
        for reach in [Reach::All, Reach::Program] {
            let (_file, region) = memory();
            let Ok(faults) = Faults::reaching(&region, reach) else {
                continue;
            };
            faults.watch(Offset::new(0), PAGES * PAGE).expect("watched");
            let bytes = region.as_ptr(Offset::new(7 * PAGE), BLOCK_BYTES).addr();
            let mut written = None;
            let seen = serve(&faults, || {
                let from = ptr::with_exposed_provenance::<u8>(bytes);
                // SAFETY: inside the region; nobody stores there.
                let slice = unsafe { std::slice::from_raw_parts(from, BLOCK_BYTES) };
                written = Some(out.write_at(slice, 0));
            });
            let written = written.expect("it returned");
            match reach {
                Reach::All => assert_eq!((written.expect("written"), seen), (BLOCK_BYTES, vec![7])),
                Reach::Program => {
                    let error = written.expect_err("not caught");
                    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
                }
            }
        }
    }
}
