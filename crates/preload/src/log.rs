//! Reasons, on standard error, if `PERDURE_DIRECT_LOG=1` asks for them. Nothing is printed otherwise.

use std::fmt::{Arguments, Write};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// 0: not asked yet, 1: silent, 2: talks.
static TALKS: AtomicU8 = AtomicU8::new(0);

struct Line {
    bytes: [u8; 256],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.len() - self.used;
        let taken = text.len().min(room);
        self.bytes[self.used..self.used + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}

/// Prints one line, without an allocation.
pub(crate) fn say(what: Arguments<'_>) {
    if TALKS.load(Relaxed) == 0 {
        let talks = std::env::var_os("PERDURE_DIRECT_LOG").is_some_and(|value| value == "1");
        TALKS.store(1 + u8::from(talks), Relaxed);
    }
    if TALKS.load(Relaxed) == 2 {
        let mut line = Line {
            bytes: [0; 256],
            used: 0,
        };
        let process = rustix::process::getpid();
        let _ = writeln!(line, "perdure-preload {}: {what}", process.as_raw_nonzero());
        let _ = rustix::io::write(crate::table::borrow(2), &line.bytes[..line.used]);
    }
}
