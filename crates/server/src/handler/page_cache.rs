//! Answers that depend on what the kernel's page cache holds ([`crate::pages`]).

use fs::{FsError, SetAttributes, TimeChange};
use fuse::{Errno, INodeNo, ReplyAttr, ReplyLseek, ReplyWrite, WriteFlags};
use txn::Store;

use super::Handler;
use super::replies::{reply_attributes, reply_offset, reply_written};
use crate::connection::CACHE_LIFETIME;
use crate::direct::End;
use crate::edge::{Refusal, Subject};
use crate::pages::{KeptOpen, Kernel, Otherwise, PAGE_BYTES, PageUse};
use crate::statistics::Operation;

/// A request to write.
pub(super) struct Written<'d> {
    pub(super) number: INodeNo,
    pub(super) user: u32,
    pub(super) offset: u64,
    pub(super) data: &'d [u8],
    pub(super) write_flags: WriteFlags,
    /// `O_…` of the open file.
    pub(super) open_flags: i32,
    /// Past the page cache.
    pub(super) is_direct: bool,
}

impl<S: Store> Handler<S> {
    /// How long the kernel may keep an inode's attributes that are looked up now.
    pub(super) fn lifetime(&self, number: u64) -> std::time::Duration {
        let shared = &self.shared;
        let pages = shared
            .nodes
            .pages(number, |pages| pages.lifetime(shared.now()));
        let of_pages = pages.flatten().unwrap_or(CACHE_LIFETIME);
        shared.direct.lifetime(number).min(of_pages)
    }

    /// How long the kernel may keep a name of an inode.
    pub(super) fn name_lifetime(&self, number: u64) -> std::time::Duration {
        self.shared.direct.lifetime(number)
    }

    /// The kernel reads pages of a file, or writes some and has a whole one then or not.
    pub(super) fn note_pages(&self, number: INodeNo, flags: i32, has_whole: bool) {
        let is_writable = flags & libc::O_ACCMODE == libc::O_RDWR;
        let now = self.shared.now();
        self.shared.nodes.pages(number.0, |pages| {
            pages.note_pages(is_writable, has_whole, now)
        });
    }

    fn is_cached(&self, number: INodeNo) -> bool {
        let is_cached = self.shared.nodes.pages(number.0, PageUse::is_cached);
        is_cached == Some(true) && !self.shared.direct.is_attached(number.0)
    }

    fn may_be_stale(&self, number: INodeNo) -> bool {
        let now = self.shared.now();
        let may_be_stale = |pages: &PageUse| pages.may_be_stale(now);
        self.shared.nodes.pages(number.0, may_be_stale) == Some(true)
    }

    /// Makes the kernel write an inode's dirty pages back. The caller drops the value after it has
    /// answered.
    /// `drop_from`: where pages may be dropped if the server has no other way to wait.
    fn write_back(
        &self,
        kernel: Option<&Kernel>,
        number: INodeNo,
        drop_from: Option<u64>,
    ) -> Option<KeptOpen> {
        let node = self.node(number).ok()?;
        let generation = self.fs().attributes(&node).ok()?.generation;
        let shared = &self.shared;
        let is_mapped = || {
            let is_mapped = |pages: &PageUse| pages.is_mapped(shared.now());
            shared.nodes.pages(number.0, is_mapped) == Some(true)
        };
        let otherwise = match drop_from.or_else(|| is_mapped().then_some(0)) {
            Some(offset) => Otherwise::DropFrom(offset),
            None => Otherwise::Await(&is_mapped),
        };
        let now = shared.now();
        shared
            .nodes
            .pages(number.0, |pages| pages.note_question(now));
        kernel.map(|kernel| kernel.write_back(number.0, generation, otherwise))
    }

    /// Runs `answer` on a thread that may wait, after the kernel has written dirty pages back.
    fn after_write_back(
        &self,
        number: INodeNo,
        drop_from: Option<u64>,
        answer: impl FnOnce(&Handler<S>) + Send + 'static,
    ) {
        let handler = self.clone();
        self.shared.questions.defer(move |kernel| {
            let kept = handler.write_back(kernel, number, drop_from);
            match kernel {
                Some(kernel) => kernel.speak(move || answer(&handler)),
                None => answer(&handler),
            }
            drop(kept);
        });
    }

    /// Answers GETATTR, after the kernel wrote back what may be dirty.
    pub(super) fn answer_attributes(&self, thread: u32, number: INodeNo, reply: ReplyAttr) {
        let now = self.shared.now();
        let may_be_dirty = self
            .shared
            .nodes
            .pages(number.0, |pages| pages.should_ask(now));
        let answer = move |handler: &Handler<S>| {
            let found = handler.perform(Operation::GetAttributes, Subject::inode(number), || {
                handler.describe(&handler.node(number)?)
            });
            reply_attributes(found, reply);
        };
        let is_known = may_be_dirty != Some(true)
            || self.shared.direct.is_attached(number.0)
            || self.shared.questions.is_asked_by(thread);
        if is_known {
            return answer(self);
        }
        self.after_write_back(number, None, answer);
    }

    /// Answers SETATTR. A time that a caller sets is not changed by stores that were made before.
    pub(super) fn answer_change(
        &self,
        number: INodeNo,
        user: u32,
        change: SetAttributes,
        reply: ReplyAttr,
    ) {
        let sets_time = matches!(change.modified, Some(TimeChange::At(_)));
        if let Some(size) = change.size_bytes {
            self.shared.unsaved.cut(number.0, size);
        }
        let answer = move |handler: &Handler<S>| {
            let changed = handler.perform(Operation::SetAttributes, Subject::inode(number), || {
                handler.change_attributes(number, user, change)
            });
            if change.size_bytes.is_some() {
                handler.shared.direct.kernel_resizes(number.0);
            }
            reply_attributes(changed, reply);
        };
        if !sets_time || !self.is_cached(number) {
            return answer(self);
        }
        self.after_write_back(number, None, answer);
    }

    /// Answers LSEEK. Where the file system has a hole, the kernel may have a dirty page.
    pub(super) fn answer_seek(&self, number: INodeNo, offset: i64, whence: i32, reply: ReplyLseek) {
        let answer = move |handler: &Handler<S>| {
            let found = handler.perform(Operation::Seek, Subject::inode(number), || {
                handler.seek(number, offset, whence)
            });
            reply_offset(found, reply);
        };
        if !self.is_cached(number) || !self.meets_hole(number, offset, whence) {
            return answer(self);
        }
        self.after_write_back(number, u64::try_from(offset).ok(), answer);
    }

    /// Whether the answer of [`seek`](Handler::seek) depends on a hole being one.
    fn meets_hole(&self, number: INodeNo, offset: i64, whence: i32) -> bool {
        let found = self.seek(number, offset, whence);
        match whence {
            libc::SEEK_DATA => found.ok() != Some(offset),
            _ => found.is_ok_and(|hole| {
                let size = self
                    .node(number)
                    .and_then(|node| Ok(self.fs().attributes(&node)?.size_bytes));
                size.is_ok_and(|size| (hole as u64) < size)
            }),
        }
    }

    /// Answers WRITE: a program's, or pages that the kernel writes back.
    pub(super) fn answer_write(&self, request: &Written<'_>, reply: ReplyWrite) {
        let &Written {
            number,
            offset,
            data,
            ..
        } = request;
        let is_writeback = request.write_flags.contains(WriteFlags::CACHE);
        self.note_write(request, is_writeback);
        // Pages that the kernel writes back have their place, whatever the file was opened for.
        let appends = request.open_flags & libc::O_APPEND != 0
            && !is_writeback
            && self.shared.direct.may_have_grown(number.0);
        let mut went_to = offset;
        let written = self.perform(Operation::Write, Subject::inode(number), || {
            if is_writeback {
                return self.write_pages(request);
            }
            if appends {
                let (at, written) = self.append_from(number, offset, data, request.write_flags)?;
                went_to = at;
                return Ok(written);
            }
            self.write_over_kept(number, offset, data, || {
                self.write_from(number, offset, data, request.write_flags)
            })
        });
        // Pages that it writes back stay with it meanwhile.
        if !is_writeback {
            let direct = &self.shared.direct;
            direct.kernel_has_written(number.0, request.user);
        }
        if request.is_direct && self.may_be_stale(number) {
            // A READ that came between the kernel's own drop and this write brought old content.
            let range = offset..offset + data.len() as u64;
            let answer = move || reply_written(written, reply);
            self.shared.questions.drop_range(number.0, range, answer);
        } else {
            reply_written(written, reply);
        }
        if went_to != offset
            && let Some(&last_byte) = data.last()
        {
            // The kernel believes that the file ended earlier, and may have kept the data there. It
            // is told of the end by a byte, which makes a page whole if it is its only one.
            self.note_pages(number, request.open_flags, true);
            let end = End {
                size_bytes: went_to + data.len() as u64,
                last_byte,
            };
            self.shared.direct.drop_from_kernel_soon(number.0, end);
        }
    }

    fn note_write(&self, request: &Written<'_>, is_writeback: bool) {
        if is_writeback {
            let now = self.shared.now();
            self.shared
                .nodes
                .pages(request.number.0, |pages| pages.note_dirty_page(now));
        } else if !request.is_direct {
            let end = request.offset.saturating_add(request.data.len() as u64);
            let first_page = request.offset.div_ceil(PAGE_BYTES);
            let has_whole = first_page < end / PAGE_BYTES;
            self.note_pages(request.number, request.open_flags, has_whole);
        }
    }

    /// Changes a range of a file to `data` by `write`, also in pages that are kept for want of
    /// room. `write` returns how many bytes it wrote.
    pub(super) fn write_over_kept(
        &self,
        number: INodeNo,
        offset: u64,
        data: &[u8],
        write: impl FnOnce() -> Result<u32, Refusal>,
    ) -> Result<u32, Refusal> {
        let unsaved = &self.shared.unsaved;
        // Before the write, so that a thread that saves the page meanwhile saves the new bytes.
        unsaved.patch(number.0, offset, data);
        let written = write()?;
        unsaved.saved(number.0, offset, u64::from(written));
        Ok(written)
    }

    /// Writes pages that were dirtied through a mapping. Keeps those for which there is no room.
    fn write_pages(&self, request: &Written<'_>) -> Result<u32, Refusal> {
        let &Written {
            number,
            offset,
            data,
            write_flags,
            ..
        } = request;
        let unsaved = &self.shared.unsaved;
        unsaved.patch(number.0, offset, data);
        let (written, refusal) = match self.write_from(number, offset, data, write_flags) {
            Ok(written) => (written, Refusal::FileSystem(FsError::NoSpace)),
            Err(refusal) => (0, refusal),
        };
        let whole_bytes = match written as usize == data.len() {
            true => data.len() as u64,
            false => u64::from(written) / PAGE_BYTES * PAGE_BYTES,
        };
        unsaved.saved(number.0, offset, whole_bytes);
        if whole_bytes == data.len() as u64 {
            return Ok(written);
        }
        let errno = refusal.errno();
        if errno == Errno::ENOSPC || errno == Errno::EDQUOT {
            let rest = &data[whole_bytes as usize..];
            unsaved.keep(number.0, offset + whole_bytes, rest, errno);
        }
        Err(refusal)
    }

    /// Tries to save pages that found no room before.
    pub(crate) fn save_pages(&self, number: INodeNo) -> Result<(), Refusal> {
        let saved = self.shared.unsaved.save(number.0, |offset, page| {
            let written = self.write_from(number, offset, page, WriteFlags::empty());
            match written {
                Ok(bytes) if bytes as usize == page.len() => Ok(()),
                Ok(_) => Err(Errno::ENOSPC),
                Err(refusal) => Err(refusal.errno()),
            }
        });
        saved.map_err(|errno| {
            Refusal::Request(
                errno,
                "pages that a program stored in a mapping find no room",
            )
        })
    }

    /// The kernel gives references back. Pages that are still kept get a last chance to be saved.
    pub(super) fn forget_pages(&self, number: INodeNo, forget: impl FnOnce() -> bool) {
        if !self.shared.unsaved.has(number.0) {
            forget();
            return;
        }
        let node = self.node(number);
        let _ = self.save_pages(number);
        if !forget() {
            return;
        }
        let lost = self.shared.unsaved.forget(number.0);
        let links = node.and_then(|node| Ok(self.fs().attributes(&node)?.links));
        if lost > 0 && !matches!(links, Ok(0)) {
            tracing::error!(
                inode = number.0,
                pages = lost,
                "stores into a mapping are lost: there was no room for them until the file was closed; reserve room before mapping (fallocate)"
            );
        }
    }
}
