//! A region and its loads.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromBytes;

use crate::BLOCK_BYTES;
use crate::address::lines_touched;
use crate::emulator::Emulator;
use crate::mapping::Mapping;
use crate::media::wait_until;
use crate::watch::{Flags, Watch};
use crate::{
    Access, DurabilityClass, LINE_BYTES, MapError, Offset, Part, Permission, copy, instructions,
};

/// A range of byte-addressable memory with a durability class.
///
/// All methods take `&self` and may be called by several threads. Loads copy, so no reference into the medium exists;
/// a load that races with a store gets old and new words mixed, never half an aligned word. Two threads must not store
/// into the same aligned 8-byte word at the same time: a store that covers a word in part reads it, merges, and stores it
/// whole, so the other's bytes could be lost.
///
/// An offset outside of the region is a bug of the caller and panics: who follows offsets from the medium checks
/// them first.
pub struct Region {
    base: NonNull<u8>,
    length: u64,
    class: DurabilityClass,
    identity: u32,
    pub(crate) flags: Flags,
    pub(crate) watch: Box<Watch>,
    /// This is dropped before the memory is unmapped.
    companion: OnceLock<Box<dyn Send + Sync>>,
    memory: Mapping,
}

// SAFETY: the memory behind `base` belongs to the mapping, lives as long as the region, and is only accessed through
// `copy` and `instructions`, whose accesses may race.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("length", &self.length)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// Maps files side by side at one range of addresses that begins on a 2 MiB boundary.
    ///
    /// Class `dax` demands `MAP_SYNC` of every part; the others take any file. A region of class
    /// `log` is memory: its owner sees to it that a log on a disk follows it. With
    /// [`Access::PrivateCopy`] stores stay in this process; on device-DAX, which cannot be mapped
    /// privately, the content is copied.
    ///
    /// The files keep their length while they are mapped, and have all their blocks: the kernel answers an access to a byte
    /// that is not there, or a store that finds the disk full, with SIGBUS. Whoever makes a pool reserves its blocks first.
    ///
    /// # Errors
    /// See [`MapError`]. Nothing was written.
    pub fn map(
        parts: &[Part<'_>],
        class: DurabilityClass,
        access: Access,
    ) -> Result<Region, MapError> {
        let memory = Mapping::of_parts(parts, class, access)?;
        let length = parts.iter().map(|part| part.length).sum();
        Ok(Region::over(memory, length, class, None))
    }

    /// Addresses only, from a 2 MiB boundary on: parts are mapped over them one after the other, by [`map_later`](Self::map_later). A child process inherits neither
    /// the addresses nor the parts.
    ///
    /// Whoever has such a region accesses only ranges that are mapped, and stores only into those mapped for it: else the processor ends the process.
    ///
    /// # Errors
    /// [`MapError::NoAddresses`], [`MapError::Empty`].
    pub fn reserve(length: u64, class: DurabilityClass) -> Result<Region, MapError> {
        if length == 0 {
            return Err(MapError::Empty);
        }
        let no_addresses = |source| MapError::NoAddresses {
            bytes: length,
            source,
        };
        let bytes = usize::try_from(length)
            .map_err(|_| no_addresses(std::io::ErrorKind::OutOfMemory.into()))?;
        let memory = Mapping::for_later(bytes).map_err(no_addresses)?;
        Ok(Region::over(memory, length, class, None))
    }

    /// Maps one part at `at` of a region that is a reservation: over addresses only, or over the same part that was mapped for less. Other threads may use the part
    /// meanwhile. Whatever the class, the part's blocks are there for good: whoever owns it has mapped it with `MAP_SYNC`, if that is needed, and touched each of them.
    ///
    /// # Errors
    /// See [`MapError`]. What was mapped at `at` before still is.
    pub fn map_later(
        &self,
        at: Offset,
        part: &Part<'_>,
        permission: Permission,
    ) -> Result<(), MapError> {
        self.memory.map_later(at.get(), part, permission)
    }

    /// A hint that a range is used soon, and stored into if it is `for_writing`: its pages are mapped now instead of one by one at first use.
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn populate(&self, at: Offset, length: usize, for_writing: bool) {
        let address = self.address(at, length);
        self.memory.populate(address, length, for_writing);
    }

    /// Has all pages of a range be there as if it had been stored into: of class `dax`, whose mapping is synchronous, the blocks of its file are durably there afterwards, whoever else maps them and how.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn make_present(&self, at: Offset, length: usize) -> std::io::Result<()> {
        let address = self.address(at, length);
        self.memory.make_present(address, length)
    }

    /// Zeroed memory of this process, of class `volatile`.
    ///
    /// # Panics
    /// If `length` is 0 or not a multiple of 64, or if there is not that much address space.
    pub fn anonymous(length: u64) -> Region {
        Region::private(length, None)
    }

    /// The same, of another class: memory that becomes, or is read from, a pool on a medium.
    ///
    /// # Panics
    /// As [`Region::anonymous`].
    #[must_use]
    pub fn anonymous_of(length: u64, class: DurabilityClass) -> Region {
        Region {
            class,
            ..Region::anonymous(length)
        }
    }

    fn private(length: u64, emulator: Option<Emulator>) -> Region {
        assert!(
            length > 0 && length.is_multiple_of(LINE_BYTES as u64),
            "a region is made of whole lines"
        );
        match Mapping::private(length as usize) {
            Ok(memory) => Region::over(memory, length, DurabilityClass::Volatile, emulator),
            Err(error) => panic!("no memory for a private region of {length} bytes: {error}"),
        }
    }

    /// Private memory with the given content.
    ///
    /// # Panics
    /// As [`Region::anonymous`].
    pub fn from_image(image: impl AsRef<[u8]>) -> Region {
        let mut region = Region::anonymous(image.as_ref().len() as u64);
        region.refill(image);
        region
    }

    /// A zeroed region over an emulated medium that is zeroed too.
    ///
    /// # Panics
    /// As [`Region::anonymous`].
    pub fn emulated(length: u64) -> Region {
        Region::private(length, Some(Emulator::zeroed(length)))
    }

    /// A region over an emulated medium; the image is durable.
    ///
    /// # Panics
    /// As [`Region::anonymous`].
    pub fn emulated_from(image: &[u8]) -> Region {
        let mut region = Region::private(image.len() as u64, Some(Emulator::new(&[])));
        region.refill(image);
        region
    }

    fn over(
        memory: Mapping,
        length: u64,
        class: DurabilityClass,
        emulator: Option<Emulator>,
    ) -> Region {
        static NEXT_IDENTITY: AtomicU32 = AtomicU32::new(1);
        Region {
            base: memory.base(),
            length,
            class,
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
            flags: Flags::new(if emulator.is_some() {
                Flags::EMULATED
            } else {
                Flags::NONE
            }),
            watch: Box::new(Watch::new(emulator)),
            companion: OnceLock::new(),
            memory,
        }
    }

    /// The region keeps a value that has its addresses, and drops it before the memory is unmapped.
    /// Once for each region; a second value is dropped at once.
    pub fn keep(&self, companion: Box<dyn Send + Sync>) {
        let is_first = self.companion.set(companion).is_ok();
        debug_assert!(is_first, "a region has one companion");
    }

    /// Replaces the whole content, as if the region were new: nothing is counted, and an emulated medium holds the image
    /// durably.
    ///
    /// # Panics
    /// If the image has another length.
    pub fn refill(&mut self, image: impl AsRef<[u8]>) {
        let image = image.as_ref();
        assert_eq!(
            image.len() as u64,
            self.length,
            "an image of another length"
        );
        // SAFETY: the length is checked, and nobody else has the region.
        unsafe { copy::copy_in(image.as_ptr(), self.base.as_ptr(), image.len()) };
        if let Some(emulator) = &mut self.watch.emulator {
            emulator.refill(image);
        }
    }

    /// The medium, if it is emulated.
    pub fn emulator(&self) -> Option<&Emulator> {
        self.watch.emulator.as_ref()
    }

    /// A copy of the whole content.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.length as usize];
        // SAFETY: of the region's length.
        unsafe { copy::copy_out(self.base.as_ptr(), image.as_mut_ptr(), image.len()) };
        image
    }

    /// The whole content, when the region itself is no longer needed.
    pub fn into_image(self) -> Vec<u8> {
        self.image()
    }

    /// Bytes.
    #[inline]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What a durable write to this region means.
    #[inline]
    pub fn class(&self) -> DurabilityClass {
        self.class
    }

    #[inline]
    pub(crate) fn identity(&self) -> u32 {
        self.identity
    }

    /// Checked address of `at .. at + length`.
    #[inline]
    pub(crate) fn address(&self, at: Offset, length: usize) -> *mut u8 {
        match at.get().checked_add(length as u64) {
            Some(end) if end <= self.length => self.base.as_ptr().wrapping_add(at.get() as usize),
            _ => outside(at, length, self.length),
        }
    }

    /// Where `at .. at + length` is mapped in this process, for system calls that take the bytes from there.
    ///
    /// The pointer is valid for reading as long as the region lives; the bytes change under it whenever anybody stores.
    ///
    /// # Panics
    /// If the range is not inside the region.
    #[inline]
    pub fn as_ptr(&self, at: Offset, length: usize) -> *const u8 {
        self.address(at, length)
    }

    /// Copies bytes out of the region.
    #[inline]
    pub fn read(&self, at: Offset, into: &mut [u8]) {
        let from = self.address(at, into.len());
        let end = self.begin_read(into.len());
        // SAFETY: the range is inside the region; `into` is exclusive, so private.
        unsafe { copy::copy_out(from, into.as_mut_ptr(), into.len()) };
        self.end_read(end);
    }

    /// Copies a whole block out of the region: as [`read`](Self::read), where each instruction counts.
    #[inline(always)]
    pub fn read_block(&self, at: Offset, into: &mut [u8; BLOCK_BYTES]) {
        if self.flags.any() {
            return self.read(at, into);
        }
        let from = self.address(at, BLOCK_BYTES);
        // SAFETY: the range is inside the region; `into` is exclusive, so private.
        unsafe { copy::copy_block_out(from, into.as_mut_ptr()) };
    }

    /// When a read that begins now is over by the media model, if there is one.
    #[inline]
    fn begin_read(&self, bytes: usize) -> u64 {
        if self.flags.any() {
            self.begin_modelled_read(bytes)
        } else {
            0
        }
    }

    /// Reads of a line and more wait for a media model; see [`crate::MediaModel`] for why smaller ones don't.
    #[cold]
    fn begin_modelled_read(&self, bytes: usize) -> u64 {
        if bytes >= LINE_BYTES {
            self.watch.timing.begin_read(bytes)
        } else {
            0
        }
    }

    #[inline]
    fn end_read(&self, end: u64) {
        if end != 0 {
            wait_until(end);
        }
    }

    /// Loads a word in one access, and what its writer stored before it is visible too (acquire).
    ///
    /// # Panics
    /// If `at` is not a multiple of 8 or outside of the region.
    #[inline]
    pub fn load_u64(&self, at: Offset) -> u64 {
        let from = self.word_address(at);
        // SAFETY: aligned and inside the region.
        unsafe { copy::load_word(from, Ordering::Acquire) }
    }

    #[inline]
    pub(crate) fn word_address(&self, at: Offset) -> *mut u8 {
        assert!(at.is_aligned(8), "an unaligned word is not atomic");
        self.address(at, 8)
    }

    /// The aligned word at a byte address of the region, for who keeps its own order among racing stores.
    pub(crate) fn peek_word(&self, address: u64) -> u64 {
        // SAFETY: aligned (checked) and inside the region (checked).
        unsafe { copy::load_word(self.word_address(Offset::new(address)), Ordering::Relaxed) }
    }

    /// Changes the aligned word at a byte address behind the back of all that watches.
    pub(crate) fn poke_word(&self, address: u64, word: u64) {
        // SAFETY: as in `peek_word`.
        unsafe { copy::store_word(self.word_address(Offset::new(address)), word) };
    }

    /// Changes bytes behind the back of all that watches.
    pub(crate) fn restore(&self, at: Offset, bytes: &[u8]) {
        let to = self.address(at, bytes.len());
        // SAFETY: the range is inside the region.
        unsafe { copy::copy_in(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Loads a value of any type that every pattern of bytes is a value of.
    #[inline]
    pub fn load<T: FromBytes>(&self, at: Offset) -> T {
        let from = self.address(at, size_of::<T>());
        let end = self.begin_read(size_of::<T>());
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the range is inside the region; all bytes of `value` are written.
        unsafe { copy::copy_out(from, value.as_mut_ptr().cast(), size_of::<T>()) };
        self.end_read(end);
        // SAFETY: written just now, and any bytes are a valid `T`.
        unsafe { value.assume_init() }
    }

    /// Does the region hold these bytes at `at`?
    #[inline]
    pub fn equals(&self, at: Offset, bytes: &[u8]) -> bool {
        let from = self.address(at, bytes.len());
        // SAFETY: the range is inside the region; `bytes` is shared, so unchanging.
        unsafe { copy::equals(from, bytes.as_ptr(), bytes.len()) }
    }

    /// Takes the lines of a range out of the processor's caches, so that what is measured next is the memory. Changes nothing.
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn evict(&self, at: Offset, length: usize) {
        let from = self.address(at, length);
        // SAFETY: the range is mapped.
        unsafe { instructions::evict_lines(from, length) };
    }

    /// Asks the processor to fetch the line of `at`. Any offset is allowed, also one outside.
    #[inline]
    pub fn prefetch(&self, at: Offset) {
        crate::prefetch(self.base.as_ptr().wrapping_add(at.get() as usize));
    }

    /// Lets the lines of a range that was read go out of the caches: another processor that writes them next, past the caches, need not have them taken from this one. A hint.
    ///
    /// # Panics
    /// If the range is not inside the region.
    #[inline]
    pub fn release(&self, at: Offset, length: usize) {
        let first = self.address(at, length);
        if !self.flags.any() {
            // SAFETY: inside the region.
            unsafe { instructions::release_lines(first, lines_touched(at, length)) };
        }
    }
}

#[cold]
#[inline(never)]
fn outside(at: Offset, length: usize, region: u64) -> ! {
    panic!("{length} bytes at offset {at} are outside of a region of {region:#x} bytes")
}
