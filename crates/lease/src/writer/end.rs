//! The line of the medium in which the file ends, as the holder remembers it.
//!
//! An append that begins in the middle of a line completes that line. Read from the medium it would have to come back first: it was streamed past the caches a moment ago, and waiting for it takes longer than all the rest of a short append. The holder is
//! the only one who stores into it, so he knows what is there.
//!
//! Invariant: while the file ends within a block, a line of that block that is remembered is as it is on the medium up to the file's end, and zeros behind it. Whatever writes to the block in which the file ends sets it, or forgets it.

use super::{BLOCK, FileMap, Place, Refusal, Writer};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber, Flushed, Held, LINE_BYTES, Offset, WORD_BYTES, crc32c};

const LINE: u64 = LINE_BYTES as u64;

/// A line of the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndLine {
    at: Offset,
    bytes: [u8; LINE_BYTES],
}

impl EndLine {
    fn words(&self) -> [u64; LINE_BYTES / WORD_BYTES] {
        zerocopy::transmute!(self.bytes)
    }
}

impl Writer {
    /// Streams data behind the end of the file into the block where it ends, in whole lines; with the checksum of what was stored, of a copy, because the program may be changing the data. What is before the data in its first line is stored once more as it is, so that it stays, whichever words survive a power cut.
    ///
    /// By itself: the copy is a block on the stack, see [`Writer::fill_around`].
    #[inline(never)]
    pub(super) fn stream_behind_end(&mut self, to: Offset, data: &[u8]) -> (Flushed, u32) {
        let mut held = Held::new();
        let data = held.copy(data);
        let before = (to.get() % LINE) as usize;
        let head = data.len().min((LINE_BYTES - before) % LINE_BYTES);
        let body = (data.len() - head) / LINE_BYTES * LINE_BYTES;
        let (head, rest) = data.split_at(head);
        let (body, tail) = rest.split_at(body);
        let body_at = to + head.len() as u64;
        let tail_at = body_at + body.len() as u64;
        let mut batch = Flushed::nothing(&self.region);
        if !head.is_empty() {
            let at = Offset::new(to.get() - before as u64);
            let bytes = self.bytes_before(at, before);
            batch.join(self.stream_line(at, bytes, before, head));
        }
        if !body.is_empty() {
            batch.join(self.region.write_streaming(body_at, body));
        }
        if !tail.is_empty() {
            batch.join(self.stream_line(tail_at, [0; LINE_BYTES], 0, tail));
        }
        (batch, crc32c(data))
    }

    /// The first `before` bytes of a line, and zeros.
    fn bytes_before(&self, at: Offset, before: usize) -> [u8; LINE_BYTES] {
        match &self.end_line {
            Some(line) if line.at == at => line.bytes,
            _ => {
                let mut bytes = [0; LINE_BYTES];
                self.region.read(at, &mut bytes[..before]);
                bytes
            }
        }
    }

    /// Streams a line of which data from byte `from` on are new, and remembers it.
    fn stream_line(
        &mut self,
        at: Offset,
        mut bytes: [u8; LINE_BYTES],
        from: usize,
        data: &[u8],
    ) -> Flushed {
        bytes[from..from + data.len()].copy_from_slice(data);
        let line = EndLine { at, bytes };
        self.end_line = Some(line);
        self.region.write_line_streaming(at, line.words())
    }

    /// The file ends in a block that was written whole, `used` bytes of which are inside the file.
    pub(super) fn remember_end(
        &mut self,
        block: BlockNumber,
        whole: &[u8; BLOCK_BYTES],
        used: usize,
    ) {
        let within = used % LINE_BYTES;
        let start = used - within;
        let mut bytes = [0; LINE_BYTES];
        bytes[..within].copy_from_slice(&whole[start..used]);
        self.end_line = Some(EndLine {
            at: block.offset() + start as u64,
            bytes,
        });
    }

    /// Refuses a write behind a gap that holds other bytes than zeros: the server zeroes the gap.
    #[cold]
    pub(super) fn require_zeros_behind_end(&self, map: &impl FileMap) -> Result<(), Refusal> {
        let index = self.size_bytes / BLOCK;
        let used = (self.size_bytes % BLOCK) as usize;
        let Some(Place::At(block)) = map.get(index).filter(|_| used > 0) else {
            return Ok(());
        };
        let mut content = [0; BLOCK_BYTES];
        let at = block.offset() + used as u64;
        self.region.read(at, &mut content[used..]);
        match content[used..].iter().all(|&byte| byte == 0) || deliberate::is(Bug::TrustTail) {
            true => Ok(()),
            false => Err(Refusal::NoPlace { index }),
        }
    }

    /// Block `index` of the file is overwritten in place.
    pub(super) fn forget_end_in(&mut self, index: u64) {
        if index == self.size_bytes / BLOCK {
            self.end_line = None;
        }
    }
}
