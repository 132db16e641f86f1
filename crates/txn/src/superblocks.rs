//! Which of a pool's two superblocks counts.

use crate::error::OpenError;
use crate::layout::{Superblock, SuperblockFault};
use std::path::Path;

/// The first valid copy, or the error that tells most.
pub(crate) fn choose(
    pool: &Path,
    first: Superblock,
    second: Superblock,
) -> Result<Superblock, OpenError> {
    let (fault, other) = match (first.validate(), second.validate()) {
        (Ok(()), _) => return Ok(first),
        (Err(fault), Ok(())) => {
            tracing::warn!(%fault, "first superblock is damaged, using the second; run `perdure fsck --repair`");
            return Ok(second);
        }
        (Err(first), Err(second)) => (first, second),
    };
    let path = pool.to_path_buf();
    if let Some(found) = other_version(&fault, &other) {
        return Err(OpenError::OtherVersion {
            path,
            found,
            supported: crate::layout::FORMAT_VERSION_WITH_DEVICE,
        });
    }
    match (fault, other) {
        (SuperblockFault::NotAPool, SuperblockFault::NotAPool) => Err(OpenError::NotAPool {
            path,
            reason: SuperblockFault::NotAPool.to_string(),
        }),
        (first, second) => Err(OpenError::Superblocks {
            path,
            first,
            second,
        }),
    }
}

/// The other version that a pool is of, as two unusable copies say: one whose checksum fits, or
/// both alike.
fn other_version(first: &SuperblockFault, second: &SuperblockFault) -> Option<u32> {
    match (first, second) {
        (SuperblockFault::OtherVersion { found }, _)
        | (_, SuperblockFault::OtherVersion { found }) => Some(*found),
        (
            SuperblockFault::DoubtfulVersion { found },
            SuperblockFault::DoubtfulVersion { found: same },
        ) if found == same => Some(*found),
        _ => None,
    }
}
