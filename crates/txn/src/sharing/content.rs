//! Whose content a segment holds, in blocks that are in use and in those that are free
//! (`docs/DIRECT.md`, *What others have left*).

use crate::checksum::{SEALED_MAX, Seal, seal, unseal};
use crate::domain::Domain;
use pmem::{BLOCK_BYTES, BlockNumber, Flushed, LINE_BYTES, Region};
use scatter::Extent;

/// The user that has written in a segment since it was all zeros.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Content {
    /// It may be any user's, the file system's as well.
    Anybodys,
    /// No user has written: the segment holds zeros.
    Nobodys,
    /// One user has written, in segments of that user.
    Users(u32),
}

const NOBODYS: u64 = 1;
const FIRST_USER: u64 = 2;
const _: () = assert!(FIRST_USER + u32::MAX as u64 <= SEALED_MAX);

impl Content {
    /// Returns the word `content` of a segment's entry.
    pub fn word(self, segment: u32) -> u64 {
        let value = match self {
            Content::Anybodys => return 0,
            Content::Nobodys => NOBODYS,
            Content::Users(user) => FIRST_USER + u64::from(user),
        };
        seal(value, Seal::Content, u64::from(segment))
    }

    /// Returns the meaning of such a word. A damaged word says nothing, so the content may be any
    /// user's.
    pub fn of_word(word: u64, segment: u32) -> Content {
        match unseal(word, Seal::Content, u64::from(segment)) {
            Some(NOBODYS) => Content::Nobodys,
            Some(value) if value >= FIRST_USER => {
                u32::try_from(value - FIRST_USER).map_or(Content::Anybodys, Content::Users)
            }
            _ => Content::Anybodys,
        }
    }

    /// Returns the content as soon as the segment belongs to `domain`.
    pub fn joined_by(self, domain: Domain) -> Content {
        match (self, domain) {
            (Content::Nobodys, Domain::Owner { uid, .. }) => Content::Users(uid),
            (Content::Users(user), Domain::Owner { uid, .. }) if user == uid => self,
            _ => Content::Anybodys,
        }
    }

    /// Returns whether the segment may hold something that a process that maps segments of `domain`
    /// must not see. Root maps its own segments, and may see everything.
    pub fn is_kept_from(self, domain: Domain) -> bool {
        match domain {
            Domain::Owner { uid, .. } => uid != 0 && self != Content::Users(uid),
            Domain::Metadata | Domain::Mixed => false,
        }
    }
}

/// Overwrites unused blocks with zeros, durably; returns how many were written. Blocks that hold
/// zeros already are left out: the medium does not wear for them.
pub(crate) fn clear_blocks(region: &Region, extent: Extent) -> u32 {
    let mut batch = Flushed::nothing(region);
    let mut written = 0;
    let mut at = 0;
    while at < extent.blocks {
        let from = extent.start + u64::from(at);
        let left = extent.blocks - at;
        let run = (0..left).take_while(|&block| !is_zero(region, from + u64::from(block)));
        let run = run.count() as u32;
        let bytes = u64::from(run) * BLOCK_BYTES as u64;
        batch.join(region.zero_streaming(from.offset(), bytes));
        written += run;
        // The one behind the run is zero, or behind the extent.
        at += run + 1;
    }
    if written > 0 {
        region.fence(batch);
    }
    written
}

/// Most blocks that hold something say so in their first line.
fn is_zero(region: &Region, block: BlockNumber) -> bool {
    let mut line = [0; LINE_BYTES];
    region.read(block.offset(), &mut line);
    line == [0; LINE_BYTES] && {
        let mut content = [0; BLOCK_BYTES];
        region.read(block.offset(), &mut content);
        content == [0; BLOCK_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Content; 5] = [
        Content::Anybodys,
        Content::Nobodys,
        Content::Users(0),
        Content::Users(1000),
        Content::Users(u32::MAX),
    ];

    #[test]
    fn a_word_says_what_it_was_made_of_and_nothing_when_it_is_damaged() {
        for content in ALL {
            let word = content.word(7);
            assert_eq!(Content::of_word(word, 7), content);
            assert_eq!(Content::of_word(word, 8), Content::Anybodys);
            for bit in 0..64 {
                assert_eq!(Content::of_word(word ^ 1 << bit, 7), Content::Anybodys);
            }
        }
    }

    #[test]
    fn a_user_sees_what_only_he_has_written() {
        let own = |uid, class| Domain::Owner { uid, gid: 5, class };
        let mut content = Content::Nobodys;
        for domain in [own(7, 0o60), own(7, 0o77)] {
            content = content.joined_by(domain);
            assert_eq!(content, Content::Users(7));
            assert!(!content.is_kept_from(domain));
        }
        for other in [own(8, 0o60), own(0, 0o60), Domain::Mixed, Domain::Metadata] {
            let joined = content.joined_by(other);
            assert_eq!(joined, Content::Anybodys);
            assert!(joined.is_kept_from(own(7, 0o60)), "{other:?}");
            assert!(!joined.is_kept_from(other) || other == own(8, 0o60));
            assert_eq!(joined.joined_by(own(7, 0o60)), Content::Anybodys);
        }
    }

    #[test]
    fn what_is_zero_is_not_written_again() {
        let region = Region::anonymous(16 * BLOCK_BYTES as u64);
        let block = |number| BlockNumber::new(number).offset();
        // In the last byte of a block, in the first of its neighbour, and behind the extent.
        for at in [
            block(4).get() - 1,
            block(4).get(),
            block(9).get() + 100,
            block(12).get(),
        ] {
            region.fence(region.write_streaming(pmem::Offset::new(at), &[7]));
        }
        let extent = Extent {
            start: BlockNumber::new(2),
            blocks: 10,
        };
        assert_eq!(clear_blocks(&region, extent), 3);
        assert_eq!(clear_blocks(&region, extent), 0);
        assert!((2..12).all(|number| is_zero(&region, BlockNumber::new(number))));
        assert!(!is_zero(&region, BlockNumber::new(12)));
    }
}
