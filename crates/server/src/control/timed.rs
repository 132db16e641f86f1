//! Streams with a time limit.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A stream whose other side may be slow: each step has to end in time, and all of them together.
pub(super) struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    pub(super) fn new(stream: &'a UnixStream, patience: Duration) -> Timed<'a> {
        Timed {
            stream,
            until: Instant::now() + patience,
        }
    }

    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        match rest.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Some(rest.min(PATIENCE))),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
