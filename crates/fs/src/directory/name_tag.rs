//! From a name to the 32 bits by which the index knows it.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

/// Seeded anew in every process, so that nobody can prepare names that collide.
static SEED: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// The tag of a name, evenly distributed over all 32-bit values.
#[inline]
pub(super) fn name_tag(name: &[u8]) -> u32 {
    let mut hasher = SEED.build_hasher();
    hasher.write(name);
    (hasher.finish() >> 32) as u32
}
