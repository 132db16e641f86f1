//! Writing at the end of a file.

use super::write::{atomic_bytes_max, write_all};
use crate::inode::node::{Body, Node};
use crate::lease::change::Ends;
use crate::mounted::file_system::FileSystem;
use crate::values::error::FsError;
use txn::Store;

/// The outcome of an append.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Appended {
    /// Where the data begins in the file.
    pub at: u64,
    /// How much of it is there: all, or the beginning of more than
    /// [`ATOMIC_WRITE_BYTES_MAX`](crate::ATOMIC_WRITE_BYTES_MAX).
    pub bytes: usize,
    /// Why the rest is not.
    pub broken_off_by: Option<FsError>,
}

impl<S: Store> FileSystem<S> {
    /// Writes all of `data` at the end of the file, wherever that is at this moment.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), of which nothing was written.
    #[inline]
    pub fn append(&self, node: &Node, data: &[u8]) -> Result<Appended, FsError> {
        if self.core.tier.is_some() {
            return self.append_with_room(node, data);
        }
        self.append_at_once(node, data)
    }

    /// As [`write_with_room`](Self::write_with_room). Appends of others lie between the pieces of
    /// one that is more than a transaction.
    fn append_with_room(&self, node: &Node, data: &[u8]) -> Result<Appended, FsError> {
        let core = &*self.core;
        let mut appended: Option<Appended> = None;
        for piece in data.chunks(atomic_bytes_max(core)) {
            core.wait_for_room(piece.len());
            let outcome = loop {
                match self.append_at_once(node, piece) {
                    Err(FsError::NoSpace) if core.make_room(piece.len()) => (),
                    outcome => break outcome,
                }
            };
            match (&mut appended, outcome) {
                (None, outcome) => appended = Some(outcome?),
                (Some(all), Ok(next)) => {
                    all.bytes += next.bytes;
                    all.broken_off_by = next.broken_off_by;
                }
                (Some(all), Err(error)) => all.broken_off_by = Some(error),
            }
            if appended
                .as_ref()
                .is_some_and(|all| all.broken_off_by.is_some())
            {
                break;
            }
        }
        match appended {
            Some(appended) => Ok(appended),
            // An empty call still finds out whether this is a file.
            None => self.append_at_once(node, data),
        }
    }

    #[inline]
    fn append_at_once(&self, node: &Node, data: &[u8]) -> Result<Appended, FsError> {
        let core = &*self.core;
        core.durably(|| {
            let end = |offset: u64| offset.saturating_add(data.len() as u64);
            let ends = |body: &Body| Ends::of(body.raw.size, end(body.raw.size));
            let mut body = node.write();
            core.prepare_change(node, &mut body, ends)?;
            let offset = body.raw.size;
            body.changes_content(&core.copies, offset..end(offset));
            let written = write_all(core, node.number(), &mut body, offset, data)?;
            Ok(Appended {
                at: offset,
                bytes: written.bytes,
                broken_off_by: written.broken_off_by,
            })
        })
    }
}
