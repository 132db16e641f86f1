//! Policies of a tier: a pool whose memory is smaller than its data, with a disk below.
//!
//! Nothing here does I/O or knows what a file is; files are numbers, and blocks are counted. The
//! engine that follows these policies is `fs::tier`; `docs/decisions/tier.md` has the design.
//!
//! * [`Files`]: which files may have dirty blocks, since when, and which are swept next.
//! * [`Touches`]: which cold blocks were read before, so that a scan brings nothing in.
//! * [`Levels`]: how full the memory may be, and how long a writer pauses.

mod files;
mod levels;
mod touches;

pub use files::{Dirty, Files};
pub use levels::{Levels, Room};
pub use touches::Touches;
