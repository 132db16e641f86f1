//! Metadata: always in memory, loaded without fail.

use super::PmemStore;
use crate::homes::Homes;
use crate::layout::{Geometry, ROOT_AREA_AT, STATE_BLOCK};
use pmem::Offset;
use zerocopy::FromBytes;

/// Metadata, which is always in memory: loads never fail and see the state after the last committed
/// transaction. The caller's locks keep them apart from transactions on the same object (R3).
pub trait Metadata: Send + Sync + 'static {
    /// The 8 bytes of metadata at `at` (aligned).
    fn load_word(&self, at: Offset) -> u64;
    /// A structure of metadata at `at`.
    fn load<T: FromBytes>(&self, at: Offset) -> T;
    /// Copies metadata out.
    fn read(&self, at: Offset, into: &mut [u8]);
    /// Where the blocks are that transactions name by their index.
    fn homes(&self) -> &Homes;
    /// Hints that `at` will be loaded soon.
    fn prefetch(&self, at: Offset);
    /// Hints that the content read there is not needed again before another writer changes it, past
    /// the caches.
    fn release(&self, at: Offset, length: usize);
    /// Area of [`ROOT_AREA_BYTES`](crate::layout::ROOT_AREA_BYTES) that belongs to the layer above.
    fn root_area(&self) -> Offset;
    /// Where segments and blocks are.
    fn geometry(&self) -> Geometry;
}

impl Metadata for PmemStore {
    #[inline]
    fn load_word(&self, at: Offset) -> u64 {
        self.region.load_u64(at)
    }

    #[inline]
    fn load<T: FromBytes>(&self, at: Offset) -> T {
        self.region.load(at)
    }

    #[inline]
    fn read(&self, at: Offset, into: &mut [u8]) {
        self.region.read(at, into);
    }

    #[inline]
    fn homes(&self) -> &Homes {
        &self.homes
    }

    #[inline]
    fn prefetch(&self, at: Offset) {
        self.region.prefetch(at);
    }

    #[inline]
    fn release(&self, at: Offset, length: usize) {
        self.region.release(at, length);
    }

    fn root_area(&self) -> Offset {
        STATE_BLOCK.offset() + ROOT_AREA_AT
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }
}
