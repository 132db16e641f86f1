//! The defence of segments that are shared with processes.
//!
//! A process with direct access maps segments of the pool and stores into them without asking
//! (`docs/DIRECT.md`, *The way to a process*). The server does not trust it, nor any process that
//! inherits its mappings. This room keeps the following, also across the death of either side:
//!
//! * D1 A segment stays with its owner as long as any other process has it open or mapped.
//! * D2 A segment that a process had goes to another owner with other pages, so a page that is
//!   left in a pipe or in `io_uring` shows nothing that comes to lie there later. On fsdax, where
//!   pages cannot be replaced while a process has them, the segment stays with its owner instead.
//! * D3 The free blocks of an owner's segment hold zeros or what the owner has written, as soon as
//!   a process can see them. Root's segments may hold anything: root may see everything.
//! * D4 The pages under the server's own mapping do not vanish: nobody can make holes in the file
//!   of a segment that a process holds for writing, if the file system knows a mark against that.
//! * D5 A block goes to no other file while a process may still see it.
//! * D6 Nobody opens a pool before the processes of a killed server have stopped writing or are
//!   known to be late; the segments that they have stay with their owners (D1).
//!
//! The files, with the invariant that each keeps:
//!
//! * `held`: which segments are held and why; the kernel is asked who has a file (D1). The other
//!   files of a segment's defence, `pages` and `seals`, are used through [`HeldSegments`].
//! * `pages`: whose pages a segment has, and how they are replaced (D2).
//! * `content`: whose content a segment holds, and the clearing of blocks (D3).
//! * `seals`: the mark at a segment's file against holes (D4).
//! * `seen`: the blocks that wait until no process sees them (D5).
//! * `users`: the folder of processes and the epoch, by which former processes are stopped (D6).
//! * `holders`: the names of the processes that have a file, for messages.
//!
//! This is a folder and no crate below `txn`: it opens files through
//! [`PoolDirectory`](crate::PoolDirectory), fails with [`OpenError`](crate::OpenError), and knows
//! segments by their [`Domain`](crate::Domain). The pool and the segment table, which own these
//! three, use this room in turn.
//!
//! The allocator's part is [`SegmentLedger`](scatter::SegmentLedger), which
//! [`Domains`](crate::domain::Domains) answers with what is known here. The server's part, which
//! hands segments out, is `server::direct`.

mod content;
mod held;
mod holders;
mod pages;
mod seals;
mod seen;
mod users;

pub use content::Content;
pub use held::HeldSegments;
pub use seen::{SeenBlocks, SeenGuard};
pub use users::{SLOT_BYTES, SLOTS, USERS_FOLDER, User, Users, fence_everywhere};

pub(crate) use content::clear_blocks;
pub(crate) use held::{SegmentFiles, Usage, usage};
pub(crate) use holders::holders;
pub(crate) use pages::{empty_file, were_given};
pub(crate) use seals::lift_left_seal;
pub(crate) use users::{Given, forget_given, stop_former};
