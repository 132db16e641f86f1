//! Content of files: reads into a buffer that each thread keeps, writes, holes, copies.

use std::cell::RefCell;

use fs::{AllocateOptions, FsError, Held, Node};
use fuse::{Errno, INodeNo, WriteFlags};
use txn::Store;

use super::Handler;
use crate::edge::Refusal;

/// One step of `copy_file_range`, and one transaction of its target.
const COPY_STEP_BYTES: usize = 1 << 20;

/// A longer copy is answered as a short one, and the caller asks again: no request keeps a thread for long.
const COPY_BYTES_MAX: u64 = 16 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with this thread's buffer, `bytes` long. Its content is left over from the use before.
pub(super) fn with_buffer<T>(bytes: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        work(&mut buffer[..bytes])
    })
}

/// What answers a read.
pub(super) enum Answer {
    /// A copy in DRAM, which is sent from where it is.
    Held(Held),
    /// So many bytes of the buffer.
    Copied(usize),
}

impl<S: Store> Handler<S> {
    /// Reads as many bytes as the buffer has, into it or not.
    pub(super) fn read_answer(
        &self,
        number: INodeNo,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<Answer, Refusal> {
        let node = self.node(number)?;
        let is_partly_unsaved = self.shared.unsaved.has(number.0);
        let held = match is_partly_unsaved {
            true => None,
            false => self.fs().hold(&node, offset, buffer.len()),
        };
        let (answer, bytes) = match held {
            Some(held) => {
                let bytes = held.bytes().len();
                (Answer::Held(held), bytes)
            }
            None => {
                let bytes = self.read_into(&node, offset, buffer)?;
                (Answer::Copied(bytes), bytes)
            }
        };
        self.shared.statistics.add_read_bytes(bytes);
        Ok(answer)
    }

    /// Reads a file's content, with the pages that are kept for want of room.
    fn read_into(&self, node: &Node, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let (inode, unsaved) = (node.number().get(), &self.shared.unsaved);
        let read = |buffer: &mut [u8]| self.fs().read(node, offset, buffer);
        match unsaved.has(inode) {
            true => unsaved.read_over(inode, offset, buffer, read),
            false => read(buffer),
        }
    }

    pub(super) fn write_from(
        &self,
        number: INodeNo,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32, Refusal> {
        let node = self.node(number)?;
        if flags.contains(WriteFlags::KILL_SUIDGID) {
            self.drop_set_id(&node)?;
        }
        let written = self.fs().write(&node, offset, data)?;
        self.shared.statistics.add_written_bytes(written);
        Ok(written as u32)
    }

    /// Writes what the kernel sends to `offset` because it takes that for the end of the file: at the real end, unless it is a part of a longer write that has come before those that belong in front of
    /// it. Returns where, and how much.
    pub(super) fn append_from(
        &self,
        number: INodeNo,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<(u64, u32), Refusal> {
        let node = self.node(number)?;
        self.fs().end_lease(&node)?;
        if self.fs().attributes(&node)?.size_bytes < offset {
            let written = self.write_from(number, offset, data, flags)?;
            return Ok((offset, written));
        }
        if flags.contains(WriteFlags::KILL_SUIDGID) {
            self.drop_set_id(&node)?;
        }
        let appended = self.fs().append(&node, data)?;
        let bytes = &data[..appended.bytes];
        self.shared.unsaved.patch(number.0, appended.at, bytes);
        self.shared.statistics.add_written_bytes(appended.bytes);
        Ok((appended.at, appended.bytes as u32))
    }

    pub(super) fn allocate_range(
        &self,
        number: INodeNo,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<(), Refusal> {
        const OFFERED: i32 =
            libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & !OFFERED != 0 {
            return Err(Refusal::Request(
                Errno::EOPNOTSUPP,
                "this mode of fallocate is not offered",
            ));
        }
        let options = AllocateOptions {
            keep_size: mode & libc::FALLOC_FL_KEEP_SIZE != 0,
            punch_hole: mode & libc::FALLOC_FL_PUNCH_HOLE != 0,
            zero_range: mode & libc::FALLOC_FL_ZERO_RANGE != 0,
        };
        if options.punch_hole || options.zero_range {
            let range = offset..offset.saturating_add(length);
            self.shared.unsaved.zeroed(number.0, range);
        }
        Ok(self
            .fs()
            .allocate(&self.node(number)?, offset, length, options)?)
    }

    pub(super) fn seek(&self, number: INodeNo, offset: i64, whence: i32) -> Result<i64, Refusal> {
        let beyond = Refusal::Request(Errno::ENXIO, "offset outside of the file");
        let start = u64::try_from(offset).map_err(|_| beyond)?;
        let node = self.node(number)?;
        let found = match whence {
            libc::SEEK_DATA => self.seek_data(&node, start)?,
            libc::SEEK_HOLE => self.seek_hole(&node, start)?,
            _ => {
                return Err(Refusal::Request(
                    Errno::EINVAL,
                    "only SEEK_DATA and SEEK_HOLE come here",
                ));
            }
        };
        i64::try_from(found)
            .map_err(|_| Refusal::Request(Errno::EOVERFLOW, "offset beyond what lseek can say"))
    }

    fn seek_data(&self, node: &Node, start: u64) -> Result<u64, FsError> {
        let kept = self.shared.unsaved.next_data(node.number().get(), start);
        match (self.fs().seek_data(node, start), kept) {
            (Ok(found), Some(kept)) => Ok(found.min(kept.start)),
            (Err(FsError::NoData), Some(kept)) => Ok(kept.start),
            (found, _) => found,
        }
    }

    fn seek_hole(&self, node: &Node, start: u64) -> Result<u64, FsError> {
        let mut hole = self.fs().seek_hole(node, start)?;
        let inode = node.number().get();
        while let Some(kept) = self.shared.unsaved.next_data(inode, hole)
            && kept.start == hole
        {
            match self.fs().seek_hole(node, kept.end) {
                // The page is the file's last one.
                Err(FsError::NoData) => return Ok(self.fs().attributes(node)?.size_bytes),
                next => hole = next?,
            }
        }
        Ok(hole)
    }

    /// Copies inside the server. The kernel has written back the source's dirty pages, drops the target's, and refuses
    /// ranges of one file that overlap. Each step is a transaction.
    pub(super) fn copy_range(
        &self,
        (from, mut from_offset): (INodeNo, u64),
        (to, mut to_offset): (INodeNo, u64),
        length: u64,
    ) -> Result<u32, Refusal> {
        let (source, target) = (self.node(from)?, self.node(to)?);
        let wanted = length.min(COPY_BYTES_MAX);
        let mut copied = 0;
        with_buffer(COPY_STEP_BYTES, |buffer| {
            while copied < wanted {
                let step = (wanted - copied).min(COPY_STEP_BYTES as u64) as usize;
                let bytes = self.read_into(&source, from_offset, &mut buffer[..step])?;
                if bytes == 0 {
                    break;
                }
                let data = &buffer[..bytes];
                let written = self.write_over_kept(to, to_offset, data, || {
                    Ok(self.fs().write(&target, to_offset, data)? as u32)
                });
                match written {
                    Ok(_) => {}
                    // What was copied stays copied; the next request meets the error again.
                    Err(_) if copied > 0 => break,
                    Err(refusal) => return Err(refusal),
                }
                copied += bytes as u64;
                from_offset += bytes as u64;
                to_offset += bytes as u64;
            }
            self.shared.statistics.add_written_bytes(copied as usize);
            Ok(copied as u32)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use fs::{AccessTime, FileSystem, MountOptions, NewInode, ReadCacheMode, ReadCacheOptions};
    use pmem::Region;
    use txn::{FormatOptions, Mode, PmemStore};

    use super::*;
    use crate::handler::Shared;

    /// A handler whose read cache copies every block that is read, and a file.
    fn handler_with_file(content: &[u8]) -> (Handler<PmemStore>, INodeNo) {
        let region = fs::mkfs_region(Region::anonymous(1 << 20), &FormatOptions::tiny(), (0, 0))
            .expect("mkfs");
        let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
        let options = MountOptions {
            access_time: AccessTime::Never,
            read_cache: ReadCacheOptions {
                mode: ReadCacheMode::On,
                budget_bytes: 1 << 20,
                threshold: 1,
                window_ms: 0,
            },
            ..MountOptions::default()
        };
        let files = FileSystem::mount(store, options).expect("mount");
        let node = files
            .create(&files.root(), b"name", &NewInode::file(0o644))
            .expect("create");
        files.write(&node, 0, content).expect("write");
        let number = INodeNo(node.number().get());
        let shared = Shared::new(files, Box::new(|| panic!("no request panics")));
        shared.nodes.reference(node);
        (Handler::new(Arc::new(shared)), number)
    }

    fn read(handler: &Handler<PmemStore>, number: INodeNo, offset: u64, bytes: usize) -> Answer {
        let mut buffer = vec![0; bytes];
        let answer = handler.read_answer(number, offset, &mut buffer);
        answer.expect("a file is read")
    }

    /// Reads until the answer is sent from where it is.
    fn read_held(handler: &Handler<PmemStore>, number: INodeNo, offset: u64, bytes: usize) -> Held {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            if let Answer::Held(held) = read(handler, number, offset, bytes) {
                return held;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no copy was held in 10 seconds");
    }

    #[test]
    fn a_copy_is_sent_from_where_it_is_until_the_block_is_written() {
        let content: Vec<u8> = (0..6000_u32).map(|index| (index % 251) as u8).collect();
        let (handler, number) = handler_with_file(&content);
        assert!(matches!(
            read(&handler, number, 0, 4096),
            Answer::Copied(4096)
        ));
        let held = read_held(&handler, number, 0, 4096);
        assert_eq!(held.bytes(), &content[..4096]);
        let part = read_held(&handler, number, 4096 + 100, 4096 - 100);
        assert_eq!(part.bytes(), &content[4196..], "up to the end of the file");
        let across = read(&handler, number, 0, 6000);
        assert!(
            matches!(across, Answer::Copied(6000)),
            "two blocks have no page in common"
        );

        let written = handler.write_from(number, 10, &[9; 20], WriteFlags::empty());
        assert_eq!(written.ok(), Some(20));
        let mut buffer = [0; 64];
        let answer = handler.read_answer(number, 0, &mut buffer);
        assert!(matches!(answer, Ok(Answer::Copied(64))), "seen at once");
        assert_eq!(buffer[10..30], [9; 20]);
        assert_eq!(
            held.bytes(),
            &content[..4096],
            "what is being sent stays as it was"
        );
        drop((held, part));
        assert_eq!(read_held(&handler, number, 10, 20).bytes(), [9; 20]);
    }

    #[test]
    fn held_and_copied_bytes_are_counted_alike() {
        let (handler, number) = handler_with_file(&[1; 5000]);
        let counted = || handler.shared.statistics.summary().read_bytes;
        drop(read_held(&handler, number, 4096, 4096));
        let before = counted();
        assert!(matches!(
            read(&handler, number, 4096, 4096),
            Answer::Held(_)
        ));
        assert_eq!(counted(), before + 904);
        assert!(matches!(
            read(&handler, number, 0, 8192),
            Answer::Copied(5000)
        ));
        assert_eq!(counted(), before + 904 + 5000);
    }
}
