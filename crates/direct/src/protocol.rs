//! What a process and the server say to each other.
//!
//! A process learns from an `ioctl` on a file of the mount ([`DISCOVER`]) that it is one of ours, and the name of the socket. Over the socket, whose messages have boundaries (`SOCK_SEQPACKET`), it
//! sends [`Request`]s, one at a time, and gets one [`Reply`] to each, but to [`Kind::Ring`] and [`Kind::LetGo`]. Both are of fixed size; descriptors travel beside them.
//!
//! Whoever gets something that is no message of this version hangs up; then the process uses the kernel for everything.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the messages and of the memory that both sides see. Another one is refused.
pub const VERSION: u32 = 9;

/// The command of the `ioctl`: `_IOR('p', 0xd1, Discovery)`.
pub const DISCOVER: u32 = 0x8000_0000 | (size_of::<Discovery>() as u32) << 16 | 0x70_d1;

/// First word of a [`Discovery`].
pub const MAGIC: u32 = 0x7065_7264;

/// What the `ioctl` answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Discovery {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`] of the server.
    pub version: u32,
    /// 1 if processes only read directly (class `log`): whatever changes a file goes through the
    /// kernel, so that always knows where files end.
    pub reads_only: u64,
    /// Name of the socket in the abstract namespace, filled up with zeros. Empty: this mount does not offer direct access.
    pub socket: [u8; 48],
}

/// What a process asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Kind {
    /// First of all: `first` is the process's [`VERSION`]. The reply has the pool's geometry in `words`, and beside it a file of [`crate::layout::PROCESS_BYTES`] that the process writes, and the file with the
    /// pool's epoch, its first word. The process looks at that before and after each write: when it is no longer what it was at first, somebody else has opened the pool, and the process stores nothing any more.
    Hello = 1,
    /// With a descriptor of a file: attach it; `first` is 1 if the process wants to write, `second` a [`Prospect`]. `file` is an attachment that it has let go, which this
    /// question tells the server if nothing did before, and whose memory it still has mapped; or 0. Reply: [`Attached`] in `words`, and beside it the memory that both see, if it is not that one's;
    /// then the segments that the reply names.
    Attach = 2,
    /// The segments of a [`Row`], which `first` and `second` make; for writing if `file` is 1. Reply: `words[0]` has the bits of those that the process gets, and beside it are their descriptors in this
    /// order; `words[1]` those of others that it can get if it asks again. Refused if there are neither.
    Segments = 3,
    /// Fill in the map's entries from `first` on, `second` of them, both multiples of [`crate::layout::MAP_CHUNK`]; [`CHUNKS_AT_ONCE`] chunks at most.
    Map = 4,
    /// Fold all records that there are, and give new spare blocks.
    Fold = 5,
    /// The process has let go of the file, and stores into none of its blocks any more.
    Detach = 6,
    /// The lease was forced from the process: does record `first` count? Reply: `words[0]` is 1 if so. Lets go as `Detach` does.
    Outcome = 7,
    /// Fold soon; no reply.
    Ring = 8,
    /// As `Detach`; no reply. Requests are answered in their order, so whatever comes later finds the file let go.
    LetGo = 10,
    /// The process is going to map blocks of an attachment for reading into its program's memory. Reply: `words[0]` is the slot in which it says so, 0 as long as none is mapped; beside the first such
    /// reply a socket on which the server tells that the process has to look at the states of what it has mapped. The process says there that it was late, by any message.
    Mapping = 11,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: u32) -> Option<Kind> {
        use Kind::{Attach, Detach, Fold, Hello, LetGo, Map, Mapping, Outcome, Ring, Segments};
        [
            Hello, Attach, Segments, Map, Fold, Detach, Outcome, Ring, LetGo, Mapping,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == number)
    }
}

/// A question to the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// A [`Kind`].
    pub kind: u32,
    /// The attachment that it is about: what the reply to `Attach` said. Something else only where [`Kind`] says so.
    pub file: u32,
    /// By kind.
    pub first: u64,
    /// By kind.
    pub second: u64,
}

/// What a process is going to do with a file that it attaches.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Prospect {
    /// It expects to write little.
    pub writes_little: bool,
    /// The block that it uses first: its chunk of the map is filled in before the reply.
    pub first_block: Option<u64>,
    /// The processor that it runs on. Who waits awake for its next question does so on another one.
    pub processor: Option<u16>,
}

impl Prospect {
    /// Of [`Request::second`], from the first on: whether it writes little; the block and 1; the processor and 1, in the rest.
    const BLOCK_AT: u32 = 1;
    const PROCESSOR_AT: u32 = 48;
    const BLOCK_MASK: u64 = (1 << (Prospect::PROCESSOR_AT - Prospect::BLOCK_AT)) - 1;

    /// What a request says.
    pub fn of(request: &Request) -> Prospect {
        let word = request.second;
        let block = word >> Prospect::BLOCK_AT & Prospect::BLOCK_MASK;
        let processor = (word >> Prospect::PROCESSOR_AT) as u16;
        Prospect {
            writes_little: word & 1 == 1,
            first_block: block.checked_sub(1),
            processor: processor.checked_sub(1),
        }
    }

    /// The prospect as [`Request::second`]. What does not fit in there is left out.
    pub fn word(&self) -> u64 {
        let block = self.first_block.filter(|it| *it < Prospect::BLOCK_MASK);
        let processor = self.processor.and_then(|it| it.checked_add(1)).unwrap_or(0);
        u64::from(self.writes_little)
            | block.map_or(0, |it| it + 1) << Prospect::BLOCK_AT
            | u64::from(processor) << Prospect::PROCESSOR_AT
    }
}

/// Segments that one request can ask for, and so descriptors beside a message. Not more: for a moment they are among those that the program may have.
pub const SEGMENTS_AT_ONCE: usize = 32;

/// Segments that one request asks for: [`SEGMENTS_AT_ONCE`] places in a row, at equal distances, each with a bit that says whether it is wanted.
///
/// The segments of a file are either neighbours or, in a pool whose allocator has levelled its wear, all over it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// Number of the first one.
    pub first: u64,
    /// From one to the next.
    pub distance: u64,
    /// Which are wanted.
    pub bits: u64,
}

impl Row {
    /// All places.
    pub const ALL: u64 = (1 << SEGMENTS_AT_ONCE) - 1;

    /// What a request says.
    pub fn of(request: &Request) -> Row {
        Row {
            first: request.first,
            distance: 1 + (request.second >> SEGMENTS_AT_ONCE),
            bits: request.second & Row::ALL,
        }
    }

    /// The row as [`Request::second`].
    pub fn word(&self) -> u64 {
        self.bits | (self.distance - 1) << SEGMENTS_AT_ONCE
    }

    /// The segment at a place; `None` if there is no such number.
    pub fn segment(&self, place: u64) -> Option<u64> {
        self.distance
            .checked_mul(place)
            .and_then(|far| self.first.checked_add(far))
    }

    /// The place of a segment, if it has one.
    pub fn place(&self, segment: u64) -> Option<u64> {
        let far = segment.checked_sub(self.first)?;
        let is_there =
            far.is_multiple_of(self.distance) && far / self.distance < SEGMENTS_AT_ONCE as u64;
        is_there.then(|| far / self.distance)
    }

    /// Places that are wanted, and what is there.
    pub fn wanted(self) -> impl Iterator<Item = (u64, u64)> {
        let is_wanted = move |place: &u64| self.bits & 1 << place != 0;
        let places = (0..SEGMENTS_AT_ONCE as u64).filter(is_wanted);
        places.filter_map(move |place| Some((place, self.segment(place)?)))
    }
}

/// Chunks of the map that one request can ask for.
pub const CHUNKS_AT_ONCE: u64 = 64;

/// Words of a reply.
pub const REPLY_WORDS: usize = 15;

/// An answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reply {
    /// 0, or a [`Refusal`].
    pub refusal: u32,
    /// Zero.
    pub reserved: u32,
    /// By kind of the request.
    pub words: [u64; REPLY_WORDS],
}

/// Why the server does not do what it was asked for. The process uses the kernel instead.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[repr(u32)]
pub enum Refusal {
    /// Another version, or a message that makes no sense.
    #[error("process and server speak different versions of the protocol")]
    Protocol = 1,
    /// The descriptor is no regular file of this mount that was opened for what is asked.
    #[error("not a file of this mount, or not opened for this")]
    NotOurs = 2,
    /// The process does not run as the owner of the file's protection domain.
    #[error("the file is somebody else's")]
    NotYours = 3,
    /// Somebody else uses the file; later it may be free.
    #[error("the file is in use by others")]
    Busy = 4,
    /// The file, its mode or its place do not allow it.
    #[error("the file cannot be accessed directly")]
    Unsuitable = 5,
    /// No room for what a lease needs, or too many of them.
    #[error("no room for another lease")]
    NoRoom = 6,
    /// The attachment has ended.
    #[error("the attachment has ended")]
    Ended = 7,
    /// Something is damaged, or the server failed; its log says more.
    #[error("the server failed; its log says more")]
    Failed = 8,
}

impl Refusal {
    /// The refusal with this number; one that is not known is a failure.
    pub fn of(number: u32) -> Option<Refusal> {
        use Refusal::{Busy, Ended, Failed, NoRoom, NotOurs, NotYours, Protocol, Unsuitable};
        match number {
            0 => None,
            number => Some(
                [Protocol, NotOurs, NotYours, Busy, Unsuitable, NoRoom, Ended]
                    .into_iter()
                    .find(|refusal| *refusal as u32 == number)
                    .unwrap_or(Failed),
            ),
        }
    }
}

impl Reply {
    /// An answer of these words, the rest zero.
    pub fn of(words: &[u64]) -> Reply {
        let mut reply = Reply {
            refusal: 0,
            reserved: 0,
            words: [0; REPLY_WORDS],
        };
        reply.words[..words.len()].copy_from_slice(words);
        reply
    }

    /// A refusal.
    pub fn refused(refusal: Refusal) -> Reply {
        Reply {
            refusal: refusal as u32,
            ..Reply::of(&[])
        }
    }
}

/// The pool, in the words of the reply to `Hello`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Welcome {
    /// [`VERSION`].
    pub version: u64,
    /// Bytes from the start of the pool to its first segment.
    pub first_segment_at: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// 1 if stores are durable when they are flushed and fenced (class `dax`), 0 if never (`volatile`).
    pub is_dax: u64,
    /// 1 if overwrites go in place, and so are not atomic.
    pub is_in_place: u64,
    /// The pool's epoch at this moment.
    pub epoch: u64,
}

/// An attachment, in the words of the reply to `Attach`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attached {
    /// Its number, for later requests.
    pub file: u64,
    /// 1 if it is a lease: the process may write.
    pub is_lease: u64,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Blocks of the file that the map has room for.
    pub capacity_blocks: u64,
    /// Of a lease: blocks of its ring.
    pub ring_blocks: u64,
    /// Of a lease: slots for spare blocks.
    pub spare_blocks: u64,
    /// Of a lease: what goes into its records.
    pub salt: u64,
    /// Of a lease: number of its first record.
    pub next: u64,
    /// Of a lease: where the process says what it is busy with.
    pub slot: u64,
    /// The inode, as `stat` shows it.
    pub inode: u64,
    /// 1 if the memory is that of the attachment that the request named.
    pub is_same_memory: u64,
    /// Of a lease: 1 if the file has no blocks.
    pub is_empty: u64,
    /// Of a lease: segments that its blocks are in and that the process has not got yet, whose descriptors, for writing, lie beside the reply; each number is one too large, so that 0 is none.
    pub segments: [u32; SEGMENTS_BESIDE],
}

/// Segments that go beside the reply to [`Kind::Attach`]: a lease's blocks, when it is made, lie in one or two, unless the pool is nearly full.
pub const SEGMENTS_BESIDE: usize = 4;

macro_rules! carried_in_words {
    ($type:ty) => {
        impl $type {
            /// As the words of a reply.
            pub fn reply(&self) -> Reply {
                let mut reply = Reply::of(&[]);
                reply.words.as_mut_bytes()[..size_of::<Self>()].copy_from_slice(self.as_bytes());
                reply
            }

            /// From the words of a reply.
            pub fn of(reply: &Reply) -> Self {
                let mut value = <Self as zerocopy::FromZeros>::new_zeroed();
                let bytes = value.as_mut_bytes();
                let length = bytes.len();
                bytes.copy_from_slice(&reply.words.as_bytes()[..length]);
                value
            }
        }

        const _: () = assert!(size_of::<$type>() <= size_of::<[u64; REPLY_WORDS]>());
    };
}

carried_in_words!(Welcome);
carried_in_words!(Attached);

const _: () = {
    assert!(size_of::<Discovery>() == 64);
    assert!(size_of::<Request>() == 24);
    assert!(size_of::<Reply>() == 128);
    assert!(std::mem::offset_of!(Request, first) == 8);
    assert!(std::mem::offset_of!(Reply, words) == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prospect_is_what_its_word_says() {
        let request = |second| Request {
            kind: Kind::Attach as u32,
            file: 0,
            first: 1,
            second,
        };
        for writes_little in [false, true] {
            for first_block in [None, Some(0), Some(1), Some((1 << 47) - 2)] {
                for processor in [None, Some(0), Some(1), Some(u16::MAX - 1)] {
                    let prospect = Prospect {
                        writes_little,
                        first_block,
                        processor,
                    };
                    assert_eq!(Prospect::of(&request(prospect.word())), prospect);
                }
            }
        }
        for far in [(1 << 47) - 1, u64::MAX] {
            let far = Prospect {
                writes_little: true,
                first_block: Some(far),
                processor: Some(u16::MAX),
            };
            let known = Prospect {
                writes_little: true,
                ..Prospect::default()
            };
            assert_eq!(Prospect::of(&request(far.word())), known);
        }
    }

    #[test]
    fn a_row_says_which_segments_it_means() {
        for (first, distance, bits) in [(64, 1, 1), (3, 32, 0x8000_0001), (0, 7, Row::ALL)] {
            let row = Row {
                first,
                distance,
                bits,
            };
            let request = Request {
                kind: Kind::Segments as u32,
                file: 0,
                first: row.first,
                second: row.word(),
            };
            assert_eq!(Row::of(&request), row);
            for (place, segment) in row.wanted() {
                assert_eq!(row.place(segment), Some(place));
                assert_eq!(segment, first + place * distance);
            }
            assert_eq!(row.wanted().count() as u32, bits.count_ones());
            assert_eq!(row.place(first + 32 * distance), None);
            assert_eq!(
                first.checked_sub(1).and_then(|before| row.place(before)),
                None
            );
        }
        let hostile = Request {
            kind: Kind::Segments as u32,
            file: 1,
            first: u64::MAX,
            second: u64::MAX,
        };
        assert_eq!(
            Row::of(&hostile).wanted().count(),
            1,
            "no number is beyond the largest"
        );
    }
}
