/* perdure.h - the C library of Perdure, a file system for memory that keeps its content.
 *
 * Two halves:
 *   - pools inside the program (perdure_pool_..., perdure_file_... and the functions on paths):
 *     no mount, no server, no system call;
 *   - direct access to files of a mounted pool (perdure_client_..., perdure_direct_...): the
 *     program opens them through the mount as always.
 *
 * Rules for all functions:
 *   - Functions that return int return 0, those that ask something 1 or 0, and those that return
 *     ssize_t a number of bytes. All return -1 after a failure: then perdure_last_error() is a
 *     sentence for the user, and perdure_last_errno() and errno are the Linux error number.
 *     After success errno says nothing.
 *   - What is called durable survives a power cut from the moment the function returns, on memory
 *     that keeps its content (PERDURE_CLASS_DAX). What is called atomic, and every function that
 *     is durable and does not say otherwise, has happened afterwards as a whole or not at all.
 *     There is no sync to call, and none to forget.
 *   - Sizes are in bytes. Paths end with a byte of value zero, begin at the directory that comes
 *     with them (with a slash: at the root of the pool), and need not be UTF-8.
 *   - Any number of threads may use a handle at once, but for closing it, and but for a
 *     perdure_list. No function may be called in a signal handler.
 *   - NULL where it means nothing is refused with EINVAL. Result pointers are set to NULL when a
 *     handle cannot be made. A handle must not be used after it was closed.
 *   - A child of fork() cannot use its parent's pools (EPERM); what it does with its parent's
 *     perdure_direct handles goes through the kernel.
 *   - EIO besides damage: a fault of this library. From then on the process can do nothing with
 *     pools, and the next one that opens them recovers them.
 *
 * Built with: cc program.c $(pkg-config --cflags --libs perdure). More: docs/C.md.
 *
 * Generated from crates/capi/src by cbindgen; do not edit.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef PERDURE_H
#define PERDURE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * Work on a symbolic link itself, not on what it leads to.
 */
#define PERDURE_NO_FOLLOW 1

/**
 * As user or group: leave it as it is.
 */
#define PERDURE_UNCHANGED 4294967295

/**
 * Returned by the perdure_direct_try_… functions: nothing was done, make the system call.
 */
#define PERDURE_USE_KERNEL -2

/**
 * Open for reading.
 */
#define PERDURE_READ 1

/**
 * Open for writing.
 */
#define PERDURE_WRITE 2

/**
 * Open for writing at the end: every write lands, atomically, where the file ends at that moment.
 */
#define PERDURE_APPEND 4

/**
 * Create the file if it does not exist; needs PERDURE_WRITE or PERDURE_APPEND.
 */
#define PERDURE_CREATE 8

/**
 * Create the file, and fail with EEXIST if the name is taken, be it by a symbolic link to nowhere.
 */
#define PERDURE_CREATE_NEW 16

/**
 * Empty the file if it exists; needs PERDURE_WRITE.
 */
#define PERDURE_TRUNCATE 32

/**
 * Reserve space without changing the size.
 */
#define PERDURE_KEEP_SIZE 1

/**
 * Free the range; it reads as zeros. The size stays.
 */
#define PERDURE_PUNCH_HOLE 2

/**
 * Make the range read as zeros, with its space reserved.
 */
#define PERDURE_ZERO_RANGE 4

/**
 * Room for the longest name and the zero behind it.
 */
#define PERDURE_NAME_BYTES 256

/**
 * Fail with EEXIST if the new name exists.
 */
#define PERDURE_RENAME_NO_REPLACE 1

/**
 * Exchange the two names.
 */
#define PERDURE_RENAME_EXCHANGE 2

/**
 * Leave a whiteout (character device 0/0) at the old name.
 */
#define PERDURE_RENAME_WHITEOUT 4

/**
 * Persistent memory: what was acknowledged survives a power cut.
 */
#define PERDURE_CLASS_DAX 1

/**
 * DRAM with a log on a disk. Not used by this version.
 */
#define PERDURE_CLASS_LOG 2

/**
 * Shared memory or page cache: a power cut may destroy the pool.
 */
#define PERDURE_CLASS_VOLATILE 3

/**
 * Accept memory that does not survive a power cut (shared memory, page cache). Without it a place
 * that is not persistent memory is refused.
 */
#define PERDURE_VOLATILE 1

/**
 * Replace a pool that is there already. Everything in it is lost.
 */
#define PERDURE_OVERWRITE 2

/**
 * The members `uid` and `gid` count; else new files belong to the process' effective user and
 * group.
 */
#define PERDURE_OWNER 4

/**
 * Open through a private mapping: nothing is ever written to the pool, not even its recovery after
 * a crash.
 */
#define PERDURE_READ_ONLY 8

/**
 * The member `umask` counts; else it is 022. The umask of the process is never looked at, because
 * that cannot be done without changing it for all threads.
 */
#define PERDURE_UMASK 16

/**
 * Update the time of last access when it is older than the last change, or than a day.
 */
#define PERDURE_ATIME_RELATIVE 0

/**
 * Never update the time of last access.
 */
#define PERDURE_ATIME_NEVER 1

/**
 * Always update the time of last access.
 */
#define PERDURE_ATIME_STRICT 2

/**
 * Copy hot blocks to DRAM if the medium is slower to read, which opening measures.
 */
#define PERDURE_READ_CACHE_AUTO 0

/**
 * No copies: spares a pool that is opened for a moment the measuring and a thread.
 */
#define PERDURE_READ_CACHE_OFF 1

/**
 * Copies in any case.
 */
#define PERDURE_READ_CACHE_ON 2

/**
 * Major version of this header. While it is 0, a new minor version may change what programs were
 * compiled against.
 */
#define PERDURE_VERSION_MAJOR 0

/**
 * Minor version of this header.
 */
#define PERDURE_VERSION_MINOR 1

/**
 * Patch level of this header.
 */
#define PERDURE_VERSION_PATCH 0

/**
 * Version of this header as one number: major * 1000000 + minor * 1000 + patch.
 */
#define PERDURE_VERSION 1000

/**
 * Direct access to the files of mounted pools: the connections to their servers, which all clients
 * of a process share.
 */
struct perdure_client;

/**
 * An open directory: relative paths start here, absolute ones at the root of the pool. Any number
 * of threads may use it at once, but for closing it.
 */
struct perdure_dir;

/**
 * A descriptor of the program, with direct access to its file where there is some. Any number of
 * threads may use it at once, but for closing it.
 */
struct perdure_direct;

/**
 * An open file. Any number of threads may use it at once, but for closing it. An unlinked file
 * lives until its last handle is closed.
 */
struct perdure_file;

/**
 * A directory that is being listed, by one thread at a time.
 */
struct perdure_list;

/**
 * An open pool. Any number of threads may use it at once, but for closing it.
 */
struct perdure_pool;

/**
 * What is known about a file, a directory or a symbolic link; as `struct stat`. Times are
 * nanoseconds since 1970, UTC.
 */
struct perdure_stat {
    /**
     * Number of the inode, unique among the existing files of a pool.
     */
    uint64_t inode;
    /**
     * Size in bytes.
     */
    uint64_t size_bytes;
    /**
     * Space in use in units of 512 bytes; less than the size when there are holes.
     */
    uint64_t blocks;
    /**
     * Last access, as exact as the pool's policy (`access_time` of perdure_pool_options).
     */
    int64_t accessed_ns;
    /**
     * Last change of the content.
     */
    int64_t modified_ns;
    /**
     * Last change of content or attributes.
     */
    int64_t changed_ns;
    /**
     * Creation.
     */
    int64_t created_ns;
    /**
     * Type and permission bits, as st_mode.
     */
    uint32_t mode;
    /**
     * Number of names.
     */
    uint32_t links;
    /**
     * User that owns it.
     */
    uint32_t uid;
    /**
     * Group that owns it.
     */
    uint32_t gid;
    /**
     * Device number of a device node, else 0.
     */
    uint32_t device;
    /**
     * 0.
     */
    uint32_t reserved_word;
    /**
     * 0, for members to come.
     */
    uint64_t reserved[4];
};

/**
 * An entry of a directory.
 */
struct perdure_entry {
    /**
     * Number of the inode.
     */
    uint64_t inode;
    /**
     * Type, as the bits S_IFMT of st_mode.
     */
    uint32_t type_bits;
    /**
     * Bytes of the name, without the zero behind it.
     */
    uint32_t name_bytes;
    /**
     * The name, with a byte of value zero behind it.
     */
    char name[PERDURE_NAME_BYTES];
};

/**
 * How a pool is made. All zeros is the default: `struct perdure_create_options options = {0};`
 */
struct perdure_create_options {
    /**
     * Size of the pool in bytes, metadata included, rounded down to whole segments; 0 = 1 GiB.
     */
    uint64_t size_bytes;
    /**
     * Bytes of a segment, a power of two of at least 64 KiB; 0 = as the size of the pool asks for.
     */
    uint64_t segment_bytes;
    /**
     * Bytes of a journal; 0 = the default.
     */
    uint64_t journal_bytes;
    /**
     * Number of journals: as many operations can commit at the same moment. 0 = one for each core.
     */
    uint32_t journals;
    /**
     * PERDURE_VOLATILE, PERDURE_OVERWRITE, PERDURE_OWNER.
     */
    uint32_t flags;
    /**
     * User that owns the root directory, with PERDURE_OWNER.
     */
    uint32_t uid;
    /**
     * Group that owns the root directory, with PERDURE_OWNER.
     */
    uint32_t gid;
    /**
     * Must be 0, for members to come.
     */
    uint64_t reserved[4];
};

/**
 * How a pool is opened. All zeros is the default: `struct perdure_pool_options options = {0};`
 */
struct perdure_pool_options {
    /**
     * PERDURE_READ_ONLY, PERDURE_VOLATILE, PERDURE_OWNER, PERDURE_UMASK.
     */
    uint32_t flags;
    /**
     * User of files that are created, with PERDURE_OWNER.
     */
    uint32_t uid;
    /**
     * Group of files that are created, with PERDURE_OWNER.
     */
    uint32_t gid;
    /**
     * Permission bits that new files and directories never get, with PERDURE_UMASK.
     */
    uint32_t umask;
    /**
     * Threads that rebuild the free space after a crash; 0 = one for each core.
     */
    uint32_t threads;
    /**
     * PERDURE_ATIME_…
     */
    uint32_t access_time;
    /**
     * PERDURE_READ_CACHE_…
     */
    uint32_t read_cache;
    /**
     * Must be 0.
     */
    uint32_t reserved_word;
    /**
     * Most bytes of copies in DRAM; 0 = a quarter of the memory that is available when the pool is
     * opened.
     */
    uint64_t read_cache_bytes;
    /**
     * Must be 0, for members to come.
     */
    uint64_t reserved[4];
};

/**
 * What is known about an open pool.
 */
struct perdure_pool_info {
    /**
     * Blocks in all.
     */
    uint64_t blocks;
    /**
     * Free blocks.
     */
    uint64_t free_blocks;
    /**
     * Free blocks that files can take; the rest is kept so that overwriting works in a full pool.
     */
    uint64_t available_blocks;
    /**
     * Inodes that exist or could.
     */
    uint64_t inodes;
    /**
     * Inodes that are free or could be made.
     */
    uint64_t free_inodes;
    /**
     * Journal records that were applied when the pool was opened; 0 if it had been closed.
     */
    uint64_t recovered_records;
    /**
     * Bytes of a block.
     */
    uint32_t block_bytes;
    /**
     * Most bytes of a name.
     */
    uint32_t name_bytes_max;
    /**
     * PERDURE_CLASS_…: what a power cut does to this pool.
     */
    uint32_t durability;
    /**
     * Whether the pool had been closed before it was opened this time.
     */
    uint32_t was_clean;
    /**
     * 0, for members to come.
     */
    uint64_t reserved[4];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What is known about the object at `path`. `flags`: PERDURE_NO_FOLLOW, or 0.
 *
 * Errors: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
 */
int perdure_stat(const struct perdure_dir *dir,
                 const char *path,
                 uint32_t flags,
                 struct perdure_stat *stat);

/**
 * Changes the permission bits; a symbolic link is followed. They are kept for programs on a mount;
 * this library does not check them, because whoever may open a pool can read all of it anyway.
 * Durable when it returns.
 */
int perdure_chmod(const struct perdure_dir *dir, const char *path, uint32_t mode);

/**
 * Changes owner and group; PERDURE_UNCHANGED leaves one as it is. `flags`: PERDURE_NO_FOLLOW, or
 * 0. Durable when it returns.
 */
int perdure_chown(const struct perdure_dir *dir,
                  const char *path,
                  uint32_t uid,
                  uint32_t gid,
                  uint32_t flags);

/**
 * Changes the times of last access and last modification, in nanoseconds since 1970; NULL leaves
 * one as it is. `flags`: PERDURE_NO_FOLLOW, or 0. Durable when it returns.
 */
int perdure_set_times(const struct perdure_dir *dir,
                      const char *path,
                      const int64_t *accessed_ns,
                      const int64_t *modified_ns,
                      uint32_t flags);

/**
 * Begins direct access to files of mounted pools; end it with perdure_client_free(). It asks
 * nobody yet. Any number of threads may use it at once.
 */
int perdure_client_new(struct perdure_client **client);

/**
 * Frees a client. What was attached by it goes on working until it is closed. NULL is nothing to
 * free.
 */
void perdure_client_free(struct perdure_client *client);

/**
 * Looks at a descriptor that the program has opened through a mount. Close what comes of it with
 * perdure_direct_close(), before the descriptor.
 *
 * The descriptor stays the program's, which keeps it open meanwhile, and does not change how it
 * was opened (F_SETFL). It works for every descriptor: of a file that is not of a mount with
 * direct access the kernel does everything (perdure_direct_is_offered()). Files that are mapped
 * (mmap) are better left to the kernel.
 *
 * Errors: EBADF if `fd` is not open.
 */
int perdure_client_file(const struct perdure_client *client,
                        int fd,
                        struct perdure_direct **direct);

/**
 * Whether the file is one of a mount that offers direct access, and its server is not known to be
 * gone: 1, 0, or -1. If 0, every operation goes to the kernel; when the server is back, attach a
 * new descriptor. That a server was killed is noticed when something is asked of it, not here.
 */
int perdure_direct_is_offered(const struct perdure_direct *direct);

/**
 * Reads up to `bytes` bytes at `offset` without a system call. Returns how many, 0 at the end of
 * the file, or PERDURE_USE_KERNEL; then `into` may hold anything. The first few operations on a
 * file always go to the kernel: attaching it costs as much as they do.
 */
ssize_t perdure_direct_try_pread(const struct perdure_direct *direct,
                                 void *into,
                                 size_t bytes,
                                 uint64_t offset);

/**
 * Writes `data` at `offset` without a system call (at the end, if the descriptor was opened with
 * O_APPEND, as on Linux). Durable when it returns, and atomic up to 1 MiB; more may be cut short.
 * Returns the bytes written, or PERDURE_USE_KERNEL.
 */
ssize_t perdure_direct_try_pwrite(const struct perdure_direct *direct,
                                  const void *data,
                                  size_t bytes,
                                  uint64_t offset);

/**
 * Writes `data` at the end of the file without a system call; otherwise as
 * perdure_direct_try_pwrite().
 *
 * Errors: EINVAL for a descriptor that was not opened with O_APPEND.
 */
ssize_t perdure_direct_try_append(const struct perdure_direct *direct,
                                  const void *data,
                                  size_t bytes);

/**
 * As pread(2) on the descriptor, directly where that is possible. Returns the bytes read, 0 at the
 * end of the file.
 */
ssize_t perdure_direct_pread(const struct perdure_direct *direct,
                             void *into,
                             size_t bytes,
                             uint64_t offset);

/**
 * As pwrite(2) on the descriptor, directly where that is possible: durable when it returns, and
 * atomic up to 1 MiB; more may be cut short. Returns the bytes written.
 */
ssize_t perdure_direct_pwrite(const struct perdure_direct *direct,
                              const void *data,
                              size_t bytes,
                              uint64_t offset);

/**
 * As write(2) on the descriptor, which was opened with O_APPEND, directly where that is possible;
 * otherwise as perdure_direct_pwrite(). The descriptor's position does not move.
 *
 * Errors: EINVAL for a descriptor that was not opened with O_APPEND.
 */
ssize_t perdure_direct_append(const struct perdure_direct *direct, const void *data, size_t bytes);

/**
 * Size of the file in bytes, directly where that is possible.
 */
int perdure_direct_size(const struct perdure_direct *direct, uint64_t *size_bytes);

/**
 * As fsync(2). Direct writes were durable when they returned; if others may have written as well,
 * the kernel is asked.
 */
int perdure_direct_fsync(const struct perdure_direct *direct);

/**
 * Ends direct access by this handle, and lets the file go with the last handle of the process. The
 * descriptor stays open. NULL is nothing to close.
 */
void perdure_direct_close(struct perdure_direct *direct);

/**
 * Opens a directory; close it with perdure_dir_close(). A short path from a directory that is kept
 * open is the quickest way to a file.
 *
 * Errors: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
 */
int perdure_dir_open(const struct perdure_dir *dir, const char *path, struct perdure_dir **opened);

/**
 * Closes a directory. NULL is nothing to close.
 */
void perdure_dir_close(struct perdure_dir *dir);

/**
 * Why the last call that failed on this thread did: one line that names the function, the object
 * (the pool, the path, the inode) and, where there is one, the remedy. Empty if none has failed.
 * It stays valid until the next call of this library fails on the same thread; a call that
 * succeeds does not change it.
 */
const char *perdure_last_error(void);

/**
 * The Linux error number (ENOENT, ENOSPC …) of the last call that failed on this thread; 0 if none
 * has. `errno` has the same value right after the call.
 */
int perdure_last_errno(void);

/**
 * Opens a file; close it with perdure_file_close(). `flags`: PERDURE_READ, PERDURE_WRITE …;
 * `mode`: permission bits of a file that is created, before the pool's umask takes some away.
 * Permissions are not checked: the process owns the pool. A file that is created is durable when
 * this returns.
 *
 * Errors: those of open(2); EINVAL for flags that contradict each other, EOPNOTSUPP for fifos,
 * sockets and devices.
 */
int perdure_file_open(const struct perdure_dir *dir,
                      const char *path,
                      uint32_t flags,
                      uint32_t mode,
                      struct perdure_file **file);

/**
 * Creates a file without a name, for reading and writing. It is gone when it is closed, or after a
 * crash, unless perdure_file_link() gives it a name.
 */
int perdure_file_unnamed(const struct perdure_dir *dir, struct perdure_file **file);

/**
 * Gives an open file a (further) name. Durable when it returns.
 *
 * Errors: those of link(2).
 */
int perdure_file_link(const struct perdure_file *file,
                      const struct perdure_dir *dir,
                      const char *path);

/**
 * Closes a file. NULL is nothing to close. There is nothing left to be written, so nothing that
 * could fail.
 */
void perdure_file_close(struct perdure_file *file);

/**
 * Reads up to `bytes` bytes at `offset`. Returns how many; 0 means that the file ends there.
 *
 * Errors: EBADF (not open for reading), EISDIR, EUCLEAN (damage on the medium: `perdure fsck`).
 */
ssize_t perdure_file_pread(const struct perdure_file *file,
                           void *into,
                           size_t bytes,
                           uint64_t offset);

/**
 * Writes `data` at `offset`. Durable when it returns; atomic up to 4 MiB: after a power cut the
 * file holds all of it or nothing of it. A file that was opened with PERDURE_APPEND gets the data
 * at its end instead. Returns how many bytes were written: `bytes`, or fewer if the pool becomes
 * full in the middle of more than 4 MiB.
 *
 * Errors: ENOSPC (then nothing was written), EDQUOT, EBADF (not open for writing), EFBIG, EROFS.
 */
ssize_t perdure_file_pwrite(const struct perdure_file *file,
                            const void *data,
                            size_t bytes,
                            uint64_t offset);

/**
 * Writes all of `data` at the end of the file; `landed` gets the offset where that was, unless it
 * is NULL. Appends of several threads never overlap. Durable when it returns; atomic up to 4 MiB.
 *
 * Errors: those of perdure_file_pwrite(). Of more than 4 MiB the beginning may have been written
 * then.
 */
int perdure_file_append(const struct perdure_file *file,
                        const void *data,
                        size_t bytes,
                        uint64_t *landed);

/**
 * As perdure_file_pread(), at the handle's position, which moves behind what was read.
 */
ssize_t perdure_file_read(const struct perdure_file *file, void *into, size_t bytes);

/**
 * As perdure_file_pwrite(), at the handle's position, which moves behind what was written.
 */
ssize_t perdure_file_write(const struct perdure_file *file, const void *data, size_t bytes);

/**
 * Moves the handle's position: `whence` is SEEK_SET, SEEK_CUR or SEEK_END of <stdio.h>. `position`
 * gets where it is then, unless it is NULL.
 *
 * Errors: EINVAL before the start and beyond 8 EiB.
 */
int perdure_file_seek(const struct perdure_file *file,
                      int64_t distance,
                      int whence,
                      uint64_t *position);

/**
 * Cuts the file to `size_bytes`, or extends it by a hole that reads as zeros. Durable when it
 * returns.
 *
 * Errors: EINVAL (not open for writing), EFBIG beyond 256 TiB.
 */
int perdure_file_truncate(const struct perdure_file *file, uint64_t size_bytes);

/**
 * Reserves space for a range, so that later writes into it cannot run out of it, and extends the
 * file if the range ends beyond it; or what `flags` say: PERDURE_KEEP_SIZE, PERDURE_PUNCH_HOLE,
 * PERDURE_ZERO_RANGE. Durable when it returns.
 *
 * Errors: those of fallocate(2).
 */
int perdure_file_allocate(const struct perdure_file *file,
                          uint64_t offset,
                          uint64_t bytes,
                          uint32_t flags);

/**
 * Where the next data at or after `offset` begins: 1 if there is some before the end, 0 if not, or
 * -1.
 */
int perdure_file_next_data(const struct perdure_file *file, uint64_t offset, uint64_t *found);

/**
 * Where the next hole at or after `offset` begins, the end of the file included: 1 if there is
 * one, 0 beyond the end, or -1.
 */
int perdure_file_next_hole(const struct perdure_file *file, uint64_t offset, uint64_t *found);

/**
 * What is known about an open file.
 */
int perdure_file_stat(const struct perdure_file *file, struct perdure_stat *stat);

/**
 * Changes the permission bits of an open file. Durable when it returns.
 */
int perdure_file_chmod(const struct perdure_file *file, uint32_t mode);

/**
 * Changes the times of last access and last modification of an open file, in nanoseconds since
 * 1970; NULL leaves one as it is. Durable when it returns.
 */
int perdure_file_set_times(const struct perdure_file *file,
                           const int64_t *accessed_ns,
                           const int64_t *modified_ns);

/**
 * Returns when every call that returned before is durable: at once, because calls are durable when
 * they return, unless the disk of a pool with a log has failed.
 */
int perdure_file_sync(const struct perdure_file *file);

/**
 * Gives a file a further name. A symbolic link is not followed. Durable when it returns.
 *
 * Errors: ENOENT, EEXIST, EPERM for directories.
 */
int perdure_link(const struct perdure_dir *dir, const char *original, const char *link);

/**
 * Creates a symbolic link with this text. Durable when it returns.
 *
 * Errors: EEXIST, ENOENT (no parent, or an empty text).
 */
int perdure_symlink(const struct perdure_dir *dir, const char *text, const char *link);

/**
 * The text of a symbolic link, with a byte of value zero behind it. Returns the number of bytes,
 * that one included; with `bytes` = 0 that is all it does.
 *
 * Errors: EINVAL for anything but a symbolic link, ERANGE if `text` is too small.
 */
ssize_t perdure_readlink(const struct perdure_dir *dir,
                         const char *path,
                         void *text,
                         size_t bytes);

/**
 * The absolute path of an existing object, from the root of the pool, without `.`, `..` and
 * symbolic links, with a byte of value zero behind it. Returns the number of bytes, that one
 * included; with `bytes` = 0 that is all it does. 4096 bytes are always enough for a path that was
 * given as one.
 *
 * Errors: ENOENT, ERANGE if `absolute` is too small.
 */
ssize_t perdure_realpath(const struct perdure_dir *dir,
                         const char *path,
                         void *absolute,
                         size_t bytes);

/**
 * Begins to list a directory, in no particular order and without `.` and `..`. Entries that are
 * created or removed meanwhile may or may not appear; all others appear exactly once. Close it
 * with perdure_list_close().
 *
 * Errors: ENOENT, ENOTDIR.
 */
int perdure_list_open(const struct perdure_dir *dir, const char *path, struct perdure_list **list);

/**
 * The next entry: 1 if there is one, 0 at the end, or -1.
 */
int perdure_list_next(struct perdure_list *list, struct perdure_entry *entry);

/**
 * Ends a listing. NULL is nothing to end.
 */
void perdure_list_close(struct perdure_list *list);

/**
 * Creates an empty directory with these permission bits less the pool's umask. Durable when it
 * returns.
 *
 * Errors: EEXIST, ENOENT (no parent), ENOSPC, EROFS.
 */
int perdure_mkdir(const struct perdure_dir *dir, const char *path, uint32_t mode);

/**
 * Creates a directory and all parents that are missing, with permission bits 0777 less the pool's
 * umask; one that exists is no error. Each of them is durable, and atomic, by itself.
 */
int perdure_mkdir_all(const struct perdure_dir *dir, const char *path);

/**
 * Creates a fifo, a socket or a device node: `mode` as st_mode, `device` as st_rdev. The library
 * cannot open them; programs on a mount can. Durable when it returns.
 *
 * Errors: EEXIST, EINVAL for other types.
 */
int perdure_mknod(const struct perdure_dir *dir, const char *path, uint32_t mode, uint32_t device);

/**
 * Removes a name of a file. The file goes with its last name and its last open handle. Durable
 * when it returns.
 *
 * Errors: ENOENT, EISDIR.
 */
int perdure_unlink(const struct perdure_dir *dir, const char *path);

/**
 * Removes an empty directory. Durable when it returns.
 *
 * Errors: ENOENT, ENOTDIR, ENOTEMPTY.
 */
int perdure_rmdir(const struct perdure_dir *dir, const char *path);

/**
 * Removes a directory and all that is in it; a symbolic link is removed, not followed. Each
 * removal is durable, and atomic, by itself.
 */
int perdure_remove_all(const struct perdure_dir *dir, const char *path);

/**
 * Gives an object another name, replacing what had that name (unless a flag says otherwise), as
 * one transaction. `flags`: PERDURE_RENAME_…, or 0. Durable when it returns.
 *
 * Errors: those of renameat2(2).
 */
int perdure_rename(const struct perdure_dir *dir,
                   const char *from,
                   const char *to,
                   uint32_t flags);

/**
 * Copies the content (holes as holes) and the permission bits of a regular file. `bytes` gets the
 * size, unless it is NULL. A copy that a power cut interrupts may be there in part: copy to
 * another name and rename.
 */
int perdure_copy(const struct perdure_dir *dir,
                 const char *from,
                 const char *to,
                 uint64_t *bytes);

/**
 * Whether there is an object at `path`: 1 or 0, or -1. A symbolic link to nowhere is none.
 */
int perdure_exists(const struct perdure_dir *dir, const char *path);

/**
 * Writes an empty pool without opening it.
 *
 * `path`: directory of the pool (on a file system that is mounted with `-o dax`), which is made if
 * it is missing, or a device-DAX node. `options` may be NULL.
 * Errors: EEXIST (a pool is there, and no PERDURE_OVERWRITE), EINVAL (sizes), ENOSPC, EOPNOTSUPP
 * (not persistent memory, and no PERDURE_VOLATILE).
 */
int perdure_pool_format(const char *path, const struct perdure_create_options *options);

/**
 * Writes an empty pool and opens it; close it with perdure_pool_close().
 *
 * Errors: those of perdure_pool_format() and perdure_pool_open().
 */
int perdure_pool_create(const char *path,
                        const struct perdure_create_options *options,
                        struct perdure_pool **pool);

/**
 * Opens a pool, after recovering it if it was not closed (about a second for a million files);
 * close it with perdure_pool_close(). `options` may be NULL. One process at a time can have a pool
 * open for writing.
 *
 * Errors: ENOENT, EINVAL (not a pool, or one of another version), EBUSY (another process has it),
 * EIO (damage: `perdure fsck`), EOPNOTSUPP (not persistent memory).
 */
int perdure_pool_open(const char *path,
                      const struct perdure_pool_options *options,
                      struct perdure_pool **pool);

/**
 * Closes a pool: saves what is free and marks the pool clean, so that the next open is quick. A
 * process that ends without it loses nothing.
 *
 * The handle and its root directory are gone in any case.
 * Errors: EBUSY while files, directories or lists of the pool are open: the pool closes with the
 * last of them. EPERM in a child of fork(), which leaves the parent's pool alone.
 */
int perdure_pool_close(struct perdure_pool *pool);

/**
 * The root directory of a pool. It belongs to the pool: it is valid until the pool is closed, and
 * not to be closed itself. NULL if `pool` is.
 */
const struct perdure_dir *perdure_pool_root(const struct perdure_pool *pool);

/**
 * Space and inodes of a pool, and how durable it is.
 */
int perdure_pool_info(const struct perdure_pool *pool, struct perdure_pool_info *info);

/**
 * Version of the library that the program runs with, as PERDURE_VERSION. A program that compares
 * the two learns whether it was compiled for another one.
 */
uint32_t perdure_version(void);

/**
 * Version of the library as text, such as "0.1.0". It stays valid for ever.
 */
const char *perdure_version_text(void);

/**
 * The value of an extended attribute. Returns its bytes; with `bytes` = 0 that is all it does. A
 * symbolic link is not followed.
 *
 * Errors: ENODATA (no such attribute), ERANGE if `value` is too small.
 */
ssize_t perdure_getxattr(const struct perdure_dir *dir,
                         const char *path,
                         const char *name,
                         void *value,
                         size_t bytes);

/**
 * Creates or replaces an extended attribute of at most 64 KiB, whose name begins with "user.",
 * "trusted." or "security.". A symbolic link is not followed. Durable when it returns.
 *
 * Errors: ENOENT, ENOSPC, ERANGE (name too long), EOPNOTSUPP (other name), E2BIG (value).
 */
int perdure_setxattr(const struct perdure_dir *dir,
                     const char *path,
                     const char *name,
                     const void *value,
                     size_t bytes);

/**
 * The names of all extended attributes, each with a byte of value zero behind it. Returns their
 * bytes; with `bytes` = 0 that is all it does. A symbolic link is not followed.
 *
 * Errors: ENOENT, ERANGE if `names` is too small.
 */
ssize_t perdure_listxattr(const struct perdure_dir *dir,
                          const char *path,
                          void *names,
                          size_t bytes);

/**
 * Removes an extended attribute. A symbolic link is not followed. Durable when it returns.
 *
 * Errors: ENOENT, ENODATA.
 */
int perdure_removexattr(const struct perdure_dir *dir, const char *path, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PERDURE_H */
