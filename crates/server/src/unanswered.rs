//! Methods for the requests that a file system of the server's refuses.
//!
//! `fuser` logs a line for each request without a method, so a process could fill the log.

/// Expands to methods that answer requests with an error: `refuse! { ENOSYS: access getlk; }`.
///
/// After `ENOSYS` the kernel sends most kinds of request never again, but `ioctl` again and again.
macro_rules! refuse {
    ($($errno:ident: $($name:ident)+;)+) => {
        $($(crate::unanswered::refuse_one! { $errno $name })+)+
    };
}

/// Expands to one method.
macro_rules! refuse_one {
    (@ $errno:ident fn $name:ident($($argument:ty),*) -> $reply:ident) => {
        fn $name(&self, _: &fuser::Request, $(_: $argument,)* reply: fuser::$reply) {
            reply.error(fuser::Errno::$errno);
        }
    };
    ($errno:ident setattr) => {
        fn setattr(
            &self,
            _: &fuser::Request,
            _: fuser::INodeNo,
            _: Option<u32>,
            _: Option<u32>,
            _: Option<u32>,
            _: Option<u64>,
            _: Option<fuser::TimeOrNow>,
            _: Option<fuser::TimeOrNow>,
            _: Option<std::time::SystemTime>,
            _: Option<fuser::FileHandle>,
            _: Option<std::time::SystemTime>,
            _: Option<std::time::SystemTime>,
            _: Option<std::time::SystemTime>,
            _: Option<fuser::BsdFileFlags>,
            reply: fuser::ReplyAttr,
        ) {
            reply.error(fuser::Errno::$errno);
        }
    };
    ($errno:ident readlink) => {
        crate::unanswered::refuse_one! { @ $errno fn readlink(fuser::INodeNo) -> ReplyData }
    };
    ($errno:ident mknod) => {
        crate::unanswered::refuse_one! {
            @ $errno fn mknod(fuser::INodeNo, &std::ffi::OsStr, u32, u32, u32) -> ReplyEntry
        }
    };
    ($errno:ident mkdir) => {
        crate::unanswered::refuse_one! {
            @ $errno fn mkdir(fuser::INodeNo, &std::ffi::OsStr, u32, u32) -> ReplyEntry
        }
    };
    ($errno:ident unlink) => {
        crate::unanswered::refuse_one! {
            @ $errno fn unlink(fuser::INodeNo, &std::ffi::OsStr) -> ReplyEmpty
        }
    };
    ($errno:ident rmdir) => {
        crate::unanswered::refuse_one! {
            @ $errno fn rmdir(fuser::INodeNo, &std::ffi::OsStr) -> ReplyEmpty
        }
    };
    ($errno:ident symlink) => {
        crate::unanswered::refuse_one! {
            @ $errno fn symlink(fuser::INodeNo, &std::ffi::OsStr, &std::path::Path) -> ReplyEntry
        }
    };
    ($errno:ident rename) => {
        crate::unanswered::refuse_one! {
            @ $errno fn rename(
                fuser::INodeNo,
                &std::ffi::OsStr,
                fuser::INodeNo,
                &std::ffi::OsStr,
                fuser::RenameFlags
            ) -> ReplyEmpty
        }
    };
    ($errno:ident link) => {
        crate::unanswered::refuse_one! {
            @ $errno fn link(fuser::INodeNo, fuser::INodeNo, &std::ffi::OsStr) -> ReplyEntry
        }
    };
    ($errno:ident read) => {
        crate::unanswered::refuse_one! {
            @ $errno fn read(
                fuser::INodeNo,
                fuser::FileHandle,
                u64,
                u32,
                fuser::OpenFlags,
                Option<fuser::LockOwner>
            ) -> ReplyData
        }
    };
    ($errno:ident write) => {
        crate::unanswered::refuse_one! {
            @ $errno fn write(
                fuser::INodeNo,
                fuser::FileHandle,
                u64,
                &[u8],
                fuser::WriteFlags,
                fuser::OpenFlags,
                Option<fuser::LockOwner>
            ) -> ReplyWrite
        }
    };
    ($errno:ident flush) => {
        crate::unanswered::refuse_one! {
            @ $errno fn flush(fuser::INodeNo, fuser::FileHandle, fuser::LockOwner) -> ReplyEmpty
        }
    };
    ($errno:ident fsync) => {
        crate::unanswered::refuse_one! {
            @ $errno fn fsync(fuser::INodeNo, fuser::FileHandle, bool) -> ReplyEmpty
        }
    };
    ($errno:ident readdir) => {
        crate::unanswered::refuse_one! {
            @ $errno fn readdir(fuser::INodeNo, fuser::FileHandle, u64) -> ReplyDirectory
        }
    };
    ($errno:ident readdirplus) => {
        crate::unanswered::refuse_one! {
            @ $errno fn readdirplus(fuser::INodeNo, fuser::FileHandle, u64) -> ReplyDirectoryPlus
        }
    };
    ($errno:ident fsyncdir) => {
        crate::unanswered::refuse_one! {
            @ $errno fn fsyncdir(fuser::INodeNo, fuser::FileHandle, bool) -> ReplyEmpty
        }
    };
    ($errno:ident setxattr) => {
        crate::unanswered::refuse_one! {
            @ $errno fn setxattr(
                fuser::INodeNo,
                &std::ffi::OsStr,
                &[u8],
                i32,
                u32
            ) -> ReplyEmpty
        }
    };
    ($errno:ident getxattr) => {
        crate::unanswered::refuse_one! {
            @ $errno fn getxattr(fuser::INodeNo, &std::ffi::OsStr, u32) -> ReplyXattr
        }
    };
    ($errno:ident listxattr) => {
        crate::unanswered::refuse_one! {
            @ $errno fn listxattr(fuser::INodeNo, u32) -> ReplyXattr
        }
    };
    ($errno:ident removexattr) => {
        crate::unanswered::refuse_one! {
            @ $errno fn removexattr(fuser::INodeNo, &std::ffi::OsStr) -> ReplyEmpty
        }
    };
    ($errno:ident access) => {
        crate::unanswered::refuse_one! {
            @ $errno fn access(fuser::INodeNo, fuser::AccessFlags) -> ReplyEmpty
        }
    };
    ($errno:ident create) => {
        crate::unanswered::refuse_one! {
            @ $errno fn create(
                fuser::INodeNo,
                &std::ffi::OsStr,
                u32,
                u32,
                i32
            ) -> ReplyCreate
        }
    };
    ($errno:ident getlk) => {
        crate::unanswered::refuse_one! {
            @ $errno fn getlk(
                fuser::INodeNo,
                fuser::FileHandle,
                fuser::LockOwner,
                u64,
                u64,
                i32,
                u32
            ) -> ReplyLock
        }
    };
    ($errno:ident setlk) => {
        crate::unanswered::refuse_one! {
            @ $errno fn setlk(
                fuser::INodeNo,
                fuser::FileHandle,
                fuser::LockOwner,
                u64,
                u64,
                i32,
                u32,
                bool
            ) -> ReplyEmpty
        }
    };
    ($errno:ident bmap) => {
        crate::unanswered::refuse_one! { @ $errno fn bmap(fuser::INodeNo, u32, u64) -> ReplyBmap }
    };
    ($errno:ident ioctl) => {
        crate::unanswered::refuse_one! {
            @ $errno fn ioctl(
                fuser::INodeNo,
                fuser::FileHandle,
                fuser::IoctlFlags,
                u32,
                &[u8],
                u32
            ) -> ReplyIoctl
        }
    };
    ($errno:ident poll) => {
        crate::unanswered::refuse_one! {
            @ $errno fn poll(
                fuser::INodeNo,
                fuser::FileHandle,
                fuser::PollNotifier,
                fuser::PollEvents,
                fuser::PollFlags
            ) -> ReplyPoll
        }
    };
    ($errno:ident fallocate) => {
        crate::unanswered::refuse_one! {
            @ $errno fn fallocate(
                fuser::INodeNo,
                fuser::FileHandle,
                u64,
                u64,
                i32
            ) -> ReplyEmpty
        }
    };
    ($errno:ident lseek) => {
        crate::unanswered::refuse_one! {
            @ $errno fn lseek(fuser::INodeNo, fuser::FileHandle, i64, i32) -> ReplyLseek
        }
    };
    ($errno:ident copy_file_range) => {
        crate::unanswered::refuse_one! {
            @ $errno fn copy_file_range(
                fuser::INodeNo,
                fuser::FileHandle,
                u64,
                fuser::INodeNo,
                fuser::FileHandle,
                u64,
                u64,
                fuser::CopyFileRangeFlags
            ) -> ReplyWrite
        }
    };
}

pub(crate) use {refuse, refuse_one};

#[cfg(test)]
mod tests;
