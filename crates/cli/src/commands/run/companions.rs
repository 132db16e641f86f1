//! Other `perdure run` on the same pool: they mount and unmount one after the other, and the last one takes the mount away.
//!
//! Told by locks on the pool's first file, of the kind that belongs to an open file. Nobody else uses that kind there, they go with the
//! process, and only a user who may mount the pool can have them.

use crate::mounts;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// The byte that is locked by whoever mounts or unmounts.
const TURN: i64 = 0;
/// The byte that everybody locks, together with others, whose program uses the mount.
const USE: i64 = 1;

/// `None` for a user who may not open the pool, and so neither mounts nor unmounts it.
pub(super) struct Companions(Option<File>);

impl Companions {
    pub(super) fn of(pool: &Path) -> Companions {
        // The mount that follows says why the pool cannot be opened.
        Companions(mounts::open_head(pool, txn::Mode::ReadWrite).ok())
    }

    /// Waits until no other one mounts or unmounts.
    pub(super) fn turn(&self) -> io::Result<Turn<'_>> {
        let turn = Turn(self.0.as_ref().map(AsFd::as_fd));
        if let Some(head) = turn.0 {
            lock(head, libc::F_OFD_SETLKW, libc::F_WRLCK, TURN)?;
        }
        Ok(turn)
    }
}

/// While this lives, nobody else mounts or unmounts.
pub(super) struct Turn<'a>(Option<BorrowedFd<'a>>);

impl Turn<'_> {
    /// Counts this process among those whose program uses the mount.
    pub(super) fn enter(&self) -> io::Result<()> {
        match self.0 {
            Some(head) => lock(head, libc::F_OFD_SETLKW, libc::F_RDLCK, USE).map(drop),
            None => Ok(()),
        }
    }

    /// Undoes this. Whether no other one is left, and this user may unmount.
    pub(super) fn leave(&self) -> io::Result<bool> {
        let Some(head) = self.0 else { return Ok(false) };
        lock(head, libc::F_OFD_SETLK, libc::F_UNLCK, USE)?;
        let other = lock(head, libc::F_OFD_GETLK, libc::F_WRLCK, USE)?;
        Ok(other == libc::F_UNLCK)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(head) = self.0 {
            // Goes with the process at the latest.
            let _ = lock(head, libc::F_OFD_SETLK, libc::F_UNLCK, TURN);
        }
    }
}

/// Sets or asks for a lock on one byte. Returns its kind: when asked, that of the lock which is in the way.
fn lock(file: BorrowedFd<'_>, command: i32, kind: i32, byte: i64) -> io::Result<i32> {
    // SAFETY: integers only, for which zero is a value.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = kind as i16;
    wanted.l_whence = libc::SEEK_SET as i16;
    wanted.l_start = byte;
    wanted.l_len = 1;
    loop {
        // SAFETY: the structure lives as long as the call, which changes nothing else.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut wanted) } == 0 {
            return Ok(i32::from(wanted.l_type));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_told() {
        let pool = tempfile::tempdir().expect("a directory");
        let join = || Companions::of(pool.path());
        let enter = |one: &Companions| one.turn().and_then(|turn| turn.enter()).expect("in");
        let leave = |one: &Companions| one.turn().and_then(|turn| turn.leave()).expect("out");
        let stranger = join();
        enter(&stranger);
        assert!(!leave(&stranger), "what cannot be opened is left to others");
        std::fs::write(pool.path().join(txn::pool::SUPER_FILE), "").expect("written");
        let (first, second) = (join(), join());
        enter(&first);
        enter(&second);
        assert!(!leave(&first));
        enter(&first);
        assert!(!leave(&second));
        assert!(leave(&first));
    }
}
