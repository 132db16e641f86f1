//! Regions of byte-addressable memory that keeps its content, and the order in which stores become durable.
//!
//! A [`Region`] is mapped files side by side ([`Region::map`], or one after the other: [`Region::reserve`]), private memory, or an emulated medium. Loads copy; stores
//! return evidence of how far they have come, and each step consumes the evidence of the one before:
//!
//! | type | meaning | made by |
//! | --- | --- | --- |
//! | [`Dirty`] | stored in the processor's cache; may or may not survive | [`Region::store`], [`Region::dirty`] |
//! | [`Flushed`] | on its way to the medium | [`Dirty::flush`], [`Region::write_streaming`] |
//! | [`Durable`] | survives a power cut | [`Region::fence`] |
//!
//! ```
//! use perdure_pmem::{Durable, Offset, Region};
//! fn commit(_data_is: &Durable) {}
//!
//! let region = Region::anonymous(4096);
//! let mut batch = region.write_streaming(Offset::new(0), b"some data");
//! batch.join(region.store_u64(Offset::new(64), 7).flush());
//! commit(&region.fence(batch));
//! ```
//!
//! A commit that asks for [`Durable`] cannot be called with less:
//!
//! ```compile_fail,E0308
//! use perdure_pmem::{Durable, Offset, Region};
//! fn commit(_data_is: &Durable) {}
//!
//! let region = Region::anonymous(4096);
//! commit(&region.write_streaming(Offset::new(0), b"some data"));
//! ```
//!
//! A fence orders only its own processor, so a batch stays in the thread that flushed it:
//!
//! ```compile_fail,E0277
//! use perdure_pmem::{Offset, Region};
//! let region = Region::anonymous(4096);
//! let batch = region.store_u64(Offset::new(0), 1).flush();
//! std::thread::scope(|scope| scope.spawn(|| region.fence(batch)));
//! ```
//!
//! A mapped region costs no more than the instructions and one predictable branch. Behind that branch are what experiments and tests
//! need: an emulated medium with crash images ([`emulator`]), media models ([`MediaModel`]), a wear record
//! ([`Region::record_wear`]). [`Counters`] are always on, per thread.
//!
//! What the medium may do at a power cut is stated in `docs/DESIGN.md` (failure model).

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "Perdure runs on 64-bit x86 Linux: it needs clflush, non-temporal stores and MAP_SYNC"
);

mod address;
mod backoff;
mod checksummed;
mod class;
mod copy;
mod counters;
mod crc32c;
pub mod deliberate;
mod dram;
pub mod emulator;
mod faults;
mod instructions;
mod mapping;
mod media;
mod order;
mod region;
mod watch;

pub use address::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Offset, WORD_BYTES};
pub use backoff::Backoff;
pub use class::{Access, DurabilityClass, Permission};
pub use copy::Held;
pub use counters::Counters;
pub use crc32c::{crc32c, crc32c_of_line};
pub use dram::{Dram, prefetch, prefetch_for_write};
pub use emulator::Emulator;
pub use faults::{Faults, Put, Reach};
pub use instructions::{FlushInstruction, StreamInstruction, full_fence};
pub use mapping::{
    HUGE_PAGE_BYTES, MapError, Part, is_tmpfs, join_pages, medium_length, use_huge_pages,
};
pub use media::{MediaModel, MediaModelError, ticks, ticks_per_nanosecond};
pub use order::{Dirty, Durable, Flushed};
pub use region::Region;
