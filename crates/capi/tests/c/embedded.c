/* Pools inside a C program.
 *
 *   embedded DIRECTORY              everything
 *   embedded DIRECTORY crash FD     writes records into the pool, and their numbers, once acknowledged, to FD, until it is killed
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORD_BYTES 64
#define THREADS 4
#define APPENDS 500

static char pool_path[512];

static struct perdure_pool *open_pool(void)
{
    struct perdure_pool *pool;
    struct perdure_pool_options options = ZERO;
    options.read_cache = PERDURE_READ_CACHE_OFF;
    CHECK(perdure_pool_open(pool_path, &options, &pool) == 0);
    return pool;
}

static struct perdure_file *open_file(const struct perdure_dir *dir, const char *path,
                                      uint32_t flags)
{
    struct perdure_file *file;
    CHECK(perdure_file_open(dir, path, flags, 0666, &file) == 0);
    return file;
}

static void versions(void)
{
    char text[32];
    CHECK(perdure_version() == PERDURE_VERSION);
    snprintf(text, sizeof text, "%d.%d.%d", PERDURE_VERSION_MAJOR, PERDURE_VERSION_MINOR,
             PERDURE_VERSION_PATCH);
    CHECK(strcmp(perdure_version_text(), text) == 0);
    CHECK(perdure_last_error()[0] == 0 && perdure_last_errno() == 0);
}

static void making_pools(void)
{
    struct perdure_pool *pool = (struct perdure_pool *)pool_path;
    struct perdure_create_options options = ZERO;
    struct perdure_pool_info info;

    FAILS(perdure_pool_open(pool_path, NULL, &pool), ENOENT, pool_path);
    CHECK(pool == NULL);
    options.size_bytes = 128 << 20;
    FAILS(perdure_pool_create(pool_path, &options, &pool), EOPNOTSUPP, "volatile");
    options.flags = PERDURE_VOLATILE | 1u << 30;
    FAILS(perdure_pool_create(pool_path, &options, &pool), EINVAL, "0x40000000");
    options.flags = PERDURE_VOLATILE;
    options.reserved[2] = 1;
    FAILS(perdure_pool_format(pool_path, &options), EINVAL, "reserved");
    options.reserved[2] = 0;
    options.size_bytes = 1;
    FAILS(perdure_pool_format(pool_path, &options), EINVAL, "");
    options.size_bytes = 128 << 20;

    CHECK(perdure_pool_create(pool_path, &options, &pool) == 0);
    CHECK(perdure_last_errno() == EINVAL); /* the last failure's, still */
    CHECK(perdure_pool_info(pool, &info) == 0);
    CHECK(info.block_bytes == 4096 && info.durability == PERDURE_CLASS_VOLATILE);
    CHECK(info.free_blocks > 10000 && info.free_blocks <= info.blocks);
    FAILS(perdure_pool_format(pool_path, &options), EEXIST, "a pool is there already");
    CHECK(perdure_pool_close(pool) == 0);

    options.flags |= PERDURE_OVERWRITE;
    CHECK(perdure_pool_format(pool_path, &options) == 0);
    CHECK(perdure_pool_close(open_pool()) == 0);
    pool = open_pool();
    CHECK(perdure_pool_info(pool, &info) == 0 && info.was_clean == 1);
    CHECK(perdure_pool_close(pool) == 0);
}

/* NULL is refused by name; what is closed may be NULL. */
static void nulls(const struct perdure_dir *root)
{
    struct perdure_pool *none = NULL;
    struct perdure_dir *dir;
    struct perdure_list *list;
    struct perdure_stat stat;
    struct perdure_file *file = open_file(root, "nulls", PERDURE_WRITE | PERDURE_CREATE);

    FAILS(perdure_pool_format(NULL, NULL), EINVAL, "perdure_pool_format: the argument `path` is NULL");
    FAILS(perdure_pool_open(pool_path, NULL, NULL), EINVAL, "`pool`");
    FAILS(perdure_pool_open(NULL, NULL, &none), EINVAL, "`path`");
    FAILS(perdure_pool_close(NULL), EINVAL, "`pool`");
    FAILS(perdure_pool_info(NULL, NULL), EINVAL, "`pool`");
    CHECK(perdure_pool_root(NULL) == NULL);
    FAILS(perdure_dir_open(NULL, "a", &dir), EINVAL, "`dir`");
    FAILS(perdure_mkdir(NULL, "a", 0777), EINVAL, "`dir`");
    FAILS(perdure_mkdir(root, NULL, 0777), EINVAL, "`path`");
    FAILS(perdure_rename(root, "a", NULL, 0), EINVAL, "`to`");
    FAILS(perdure_stat(root, "nulls", 0, NULL), EINVAL, "`stat`");
    FAILS(perdure_stat(root, NULL, 0, &stat), EINVAL, "`path`");
    FAILS(perdure_exists(root, NULL), EINVAL, "`path`");
    FAILS(perdure_list_open(root, NULL, &list), EINVAL, "`path`");
    FAILS(perdure_list_next(NULL, NULL), EINVAL, "`list`");
    FAILS(perdure_setxattr(root, "nulls", "user.a", NULL, 1), EINVAL, "`value`");
    FAILS(perdure_file_pread(NULL, NULL, 0, 0), EINVAL, "`file`");
    FAILS(perdure_file_pwrite(file, NULL, 1, 0), EINVAL, "`data`");
    FAILS(perdure_file_pwrite(file, "a", (size_t)-1, 0), EINVAL, "negative");
    FAILS(perdure_file_stat(file, NULL), EINVAL, "`stat`");
    FAILS(perdure_client_new(NULL), EINVAL, "`client`");
    FAILS(perdure_direct_fsync(NULL), EINVAL, "`direct`");
    CHECK(perdure_file_pwrite(file, NULL, 0, 0) == 0);
    perdure_file_close(file);
    perdure_file_close(NULL);
    perdure_dir_close(NULL);
    perdure_list_close(NULL);
    perdure_client_free(NULL);
    perdure_direct_close(NULL);
}

static void files(const struct perdure_dir *root)
{
    struct perdure_file *file;
    struct perdure_file *other;
    struct perdure_stat stat;
    const int64_t modified = INT64_C(-1500000000);
    uint64_t where = 7;
    char buffer[64];

    FAILS(perdure_file_open(root, "mail/1", PERDURE_READ, 0, &file), ENOENT, "open mail/1: no such file");
    CHECK(file == NULL);
    FAILS(perdure_file_open(root, "a", PERDURE_CREATE, 0666, &file), EINVAL, "one of read, write");
    FAILS(perdure_file_open(root, "a", 64, 0, &file), EINVAL, "0x40");

    file = open_file(root, "a", PERDURE_READ | PERDURE_WRITE | PERDURE_CREATE_NEW);
    FAILS(perdure_file_open(root, "a", PERDURE_WRITE | PERDURE_CREATE_NEW, 0666, &other), EEXIST, "open a");
    CHECK(perdure_file_pwrite(file, "hello world", 11, 0) == 11);
    CHECK(perdure_file_append(file, "!", 1, &where) == 0 && where == 11);
    CHECK(perdure_file_append(file, "!", 1, NULL) == 0);
    CHECK(perdure_file_pread(file, buffer, sizeof buffer, 6) == 7);
    CHECK(memcmp(buffer, "world!!", 7) == 0);
    CHECK(perdure_file_pread(file, buffer, sizeof buffer, 100) == 0);

    CHECK(perdure_file_read(file, buffer, 5) == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(perdure_file_write(file, "_", 1) == 1);
    CHECK(perdure_file_seek(file, -2, SEEK_CUR, &where) == 0 && where == 4);
    CHECK(perdure_file_read(file, buffer, 2) == 2 && memcmp(buffer, "o_", 2) == 0);
    CHECK(perdure_file_seek(file, 0, SEEK_END, &where) == 0 && where == 13);
    FAILS(perdure_file_seek(file, -1, SEEK_SET, NULL), EINVAL, "before the start");
    FAILS(perdure_file_seek(file, 0, 77, NULL), EINVAL, "whence");

    CHECK(perdure_file_truncate(file, 1 << 20) == 0);
    CHECK(perdure_file_pwrite(file, "x", 1, 64 << 10) == 1);
    CHECK(perdure_file_next_data(file, 4096, &where) == 1 && where == 64 << 10);
    CHECK(perdure_file_next_hole(file, 0, &where) == 1 && where == 4096);
    CHECK(perdure_file_next_data(file, 1 << 19, &where) == 0);
    CHECK(perdure_file_allocate(file, 0, 4096, PERDURE_PUNCH_HOLE) == 0);
    CHECK(perdure_file_pread(file, buffer, 1, 0) == 1 && buffer[0] == 0);
    FAILS(perdure_file_allocate(file, 0, 4096, 8), EINVAL, "0x8");

    CHECK(perdure_file_chmod(file, 0640) == 0);
    CHECK(perdure_file_set_times(file, NULL, &modified) == 0);
    CHECK(perdure_file_stat(file, &stat) == 0);
    CHECK(stat.size_bytes == 1 << 20 && stat.links == 1 && stat.modified_ns == modified);
    CHECK(stat.mode == (S_IFREG | 0640) && stat.uid == geteuid() && stat.blocks >= 8);
    CHECK(perdure_file_sync(file) == 0);

    other = open_file(root, "a", PERDURE_READ);
    FAILS(perdure_file_pwrite(other, "a", 1, 0), EBADF, "not opened for writing");
    perdure_file_close(other);
    other = open_file(root, "a", PERDURE_APPEND);
    FAILS(perdure_file_read(other, buffer, 1), EBADF, "not opened for reading");
    CHECK(perdure_file_pwrite(other, "end", 3, 0) == 3);
    perdure_file_close(other);
    CHECK(perdure_file_pread(file, buffer, 64, 1 << 20) == 3 && memcmp(buffer, "end", 3) == 0);

    CHECK(perdure_unlink(root, "a") == 0);
    CHECK(perdure_file_pread(file, buffer, 64, 1 << 20) == 3);
    perdure_file_close(file);

    CHECK(perdure_file_unnamed(root, &file) == 0);
    CHECK(perdure_file_write(file, "unnamed", 7) == 7);
    CHECK(perdure_file_link(file, root, "named") == 0);
    perdure_file_close(file);
    CHECK(perdure_stat(root, "named", 0, &stat) == 0 && stat.size_bytes == 7);
}

static void directories(const struct perdure_dir *root)
{
    struct perdure_dir *mail;
    struct perdure_list *list;
    struct perdure_entry entry;
    char name[PERDURE_NAME_BYTES];
    char seen[300] = ZERO;
    uint64_t bytes = 0;
    int more, at;

    CHECK(perdure_mkdir(root, "var", 0700) == 0);
    FAILS(perdure_mkdir(root, "var", 0700), EEXIST, "create_dir var");
    CHECK(perdure_mkdir_all(root, "var/spool/mail") == 0);
    CHECK(perdure_mkdir_all(root, "var/spool/mail") == 0);
    FAILS(perdure_rmdir(root, "var"), ENOTEMPTY, "var");
    FAILS(perdure_dir_open(root, "named", &mail), ENOTDIR, "named");
    CHECK(mail == NULL);
    CHECK(perdure_dir_open(root, "/var/spool/mail", &mail) == 0);

    for (at = 0; at < 300; at++) {
        snprintf(name, sizeof name, "%d", at);
        perdure_file_close(open_file(mail, name, PERDURE_WRITE | PERDURE_CREATE));
    }
    memset(name, 'n', 255);
    name[255] = 0;
    CHECK(perdure_mkdir(mail, name, 0777) == 0);
    CHECK(perdure_list_open(root, "var/spool/mail", &list) == 0);
    while ((more = perdure_list_next(list, &entry)) == 1) {
        CHECK(strlen(entry.name) == entry.name_bytes);
        if (entry.type_bits == S_IFDIR) {
            CHECK(strcmp(entry.name, name) == 0);
        } else {
            CHECK(entry.type_bits == S_IFREG);
            seen[atoi(entry.name)]++;
        }
    }
    CHECK(more == 0);
    CHECK(perdure_list_next(list, &entry) == 0);
    perdure_list_close(list);
    for (at = 0; at < 300; at++)
        CHECK(seen[at] == 1);

    CHECK(perdure_rename(mail, "1", "/first", 0) == 0);
    CHECK(perdure_exists(mail, "1") == 0 && perdure_exists(root, "first") == 1);
    FAILS(perdure_rename(mail, "2", "3", PERDURE_RENAME_NO_REPLACE), EEXIST, "rename 2 -> 3");
    CHECK(perdure_rename(mail, "2", "3", PERDURE_RENAME_EXCHANGE) == 0);
    FAILS(perdure_rename(mail, "2", "3", 8), EINVAL, "0x8");
    CHECK(perdure_copy(root, "named", "copied", &bytes) == 0 && bytes == 7);
    CHECK(perdure_remove_all(root, "var/spool") == 0);
    FAILS(perdure_unlink(root, "var"), EISDIR, "var");
    CHECK(perdure_rmdir(root, "var") == 0);
    perdure_dir_close(mail);
}

static void links_and_attributes(const struct perdure_dir *root)
{
    struct perdure_stat stat;
    const int64_t time = INT64_C(1700000000123456789);
    char text[64];

    CHECK(perdure_symlink(root, "named", "soft") == 0);
    CHECK(perdure_link(root, "named", "hard") == 0);
    CHECK(perdure_stat(root, "soft", 0, &stat) == 0 && stat.links == 2 && S_ISREG(stat.mode));
    CHECK(perdure_stat(root, "soft", PERDURE_NO_FOLLOW, &stat) == 0 && S_ISLNK(stat.mode));
    CHECK(perdure_readlink(root, "soft", NULL, 0) == 6);
    FAILS(perdure_readlink(root, "soft", text, 5), ERANGE, "6 bytes are needed, `text` has 5");
    CHECK(perdure_readlink(root, "soft", text, 6) == 6 && strcmp(text, "named") == 0);
    FAILS(perdure_readlink(root, "hard", text, 64), EINVAL, "read_link hard");
    CHECK(perdure_realpath(root, "./soft", text, 64) == 7 && strcmp(text, "/named") == 0);
    CHECK(perdure_symlink(root, "loop", "loop") == 0);
    FAILS(perdure_stat(root, "loop", 0, &stat), ELOOP, "is there a loop?");

    CHECK(perdure_chmod(root, "soft", 0600) == 0);
    CHECK(perdure_chown(root, "named", PERDURE_UNCHANGED, 77, 0) == 0);
    CHECK(perdure_set_times(root, "named", &time, NULL, 0) == 0);
    CHECK(perdure_stat(root, "hard", 0, &stat) == 0);
    CHECK(stat.mode == (S_IFREG | 0600) && stat.gid == 77 && stat.uid == geteuid());
    CHECK(stat.accessed_ns == time);
    CHECK(perdure_mknod(root, "fifo", S_IFIFO | 0600, 0) == 0);
    CHECK(perdure_stat(root, "fifo", 0, &stat) == 0 && S_ISFIFO(stat.mode));

    CHECK(perdure_setxattr(root, "named", "user.colour", "blue", 4) == 0);
    CHECK(perdure_setxattr(root, "named", "user.empty", NULL, 0) == 0);
    CHECK(perdure_getxattr(root, "named", "user.colour", NULL, 0) == 4);
    CHECK(perdure_getxattr(root, "hard", "user.colour", text, 64) == 4);
    CHECK(memcmp(text, "blue", 4) == 0);
    FAILS(perdure_getxattr(root, "named", "user.colour", text, 3), ERANGE, "4 bytes");
    FAILS(perdure_getxattr(root, "named", "user.none", text, 3), ENODATA, "named has no attribute user.none");
    FAILS(perdure_setxattr(root, "named", "colour", "blue", 4), EOPNOTSUPP, "`user.`");
    {
        static const char large[70000] = {0};
        FAILS(perdure_setxattr(root, "named", "user.large", large, sizeof large), E2BIG, "70000 bytes");
    }
    CHECK(perdure_listxattr(root, "named", text, 64) == 23);
    CHECK(perdure_removexattr(root, "named", "user.empty") == 0);
    CHECK(perdure_listxattr(root, "named", text, 64) == 12 && strcmp(text, "user.colour") == 0);
}

struct appender {
    pthread_t thread;
    struct perdure_file *log;
    int number;
};

static void *append_records(void *argument)
{
    struct appender *self = (struct appender *)argument;
    unsigned char record[RECORD_BYTES];
    uint64_t where;
    int at;
    memset(record, self->number, sizeof record);
    for (at = 0; at < APPENDS; at++) {
        CHECK(perdure_file_append(self->log, record, sizeof record, &where) == 0);
        CHECK(where % RECORD_BYTES == 0);
    }
    /* The failures of another thread are not this one's. */
    CHECK(perdure_last_errno() == 0);
    return NULL;
}

static void threads(const struct perdure_dir *root)
{
    struct appender appenders[THREADS];
    unsigned char record[RECORD_BYTES];
    int counts[THREADS] = ZERO;
    int at;
    struct perdure_file *log = open_file(root, "log", PERDURE_READ | PERDURE_APPEND | PERDURE_CREATE);
    FAILS(perdure_exists(NULL, NULL), EINVAL, "dir");
    for (at = 0; at < THREADS; at++) {
        appenders[at].log = log;
        appenders[at].number = at;
        CHECK(pthread_create(&appenders[at].thread, NULL, append_records, &appenders[at]) == 0);
    }
    for (at = 0; at < THREADS; at++)
        CHECK(pthread_join(appenders[at].thread, NULL) == 0);
    for (at = 0; at < THREADS * APPENDS; at++) {
        CHECK(perdure_file_pread(log, record, sizeof record, (uint64_t)at * RECORD_BYTES) == RECORD_BYTES);
        CHECK(record[0] < THREADS && memcmp(record, record + 1, RECORD_BYTES - 1) == 0);
        counts[record[0]]++;
    }
    for (at = 0; at < THREADS; at++)
        CHECK(counts[at] == APPENDS);
    perdure_file_close(log);
}

static void closing(struct perdure_pool *pool)
{
    struct perdure_pool *second;
    struct perdure_file *file = open_file(perdure_pool_root(pool), "named", PERDURE_READ);
    char buffer[7];
    FAILS(perdure_pool_open(pool_path, NULL, &second), EBUSY, pool_path);
    FAILS(perdure_pool_close(pool), EBUSY, "1 files or directories");
    CHECK(perdure_file_pread(file, buffer, 7, 0) == 7);
    perdure_file_close(file);
    CHECK(perdure_pool_close(open_pool()) == 0);
}

static void read_only(void)
{
    struct perdure_pool_options options = ZERO;
    struct perdure_pool *pool;
    options.flags = PERDURE_READ_ONLY;
    CHECK(perdure_pool_open(pool_path, &options, &pool) == 0);
    FAILS(perdure_mkdir(perdure_pool_root(pool), "new", 0777), EROFS, "create_dir new");
    CHECK(perdure_pool_close(pool) == 0);
}

/* A child leaves its parent's pool alone, even when it closes it. */
static void forking(void)
{
    struct perdure_pool *pool = open_pool();
    struct perdure_file *file = open_file(perdure_pool_root(pool), "named", PERDURE_READ | PERDURE_WRITE);
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(perdure_file_pwrite(file, "child", 5, 0), EPERM, "the parent process opened this");
        FAILS(perdure_mkdir(perdure_pool_root(pool), "child", 0777), EPERM, "fork");
        perdure_file_close(file);
        FAILS(perdure_pool_close(pool), EPERM, "fork");
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(perdure_file_pwrite(file, "parents", 7, 0) == 7);
    CHECK(perdure_exists(perdure_pool_root(pool), "child") == 0);
    perdure_file_close(file);
    CHECK(perdure_pool_close(pool) == 0);
}

static size_t allocated_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory != NULL);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* What is closed, and what fails, leaves nothing behind. */
static void leaks(void)
{
    size_t before = 0;
    int descriptors = 0;
    int round, at;
    for (round = 0; round < 6; round++) {
        struct perdure_pool *pool = open_pool();
        const struct perdure_dir *root = perdure_pool_root(pool);
        for (at = 0; at < 3000; at++) {
            struct perdure_dir *dir;
            struct perdure_file *file;
            struct perdure_list *list;
            struct perdure_entry entry;
            CHECK(perdure_dir_open(root, ".", &dir) == 0);
            CHECK(perdure_list_open(dir, ".", &list) == 0);
            CHECK(perdure_list_next(list, &entry) == 1);
            CHECK(perdure_file_open(dir, "none", PERDURE_READ, 0, &file) == -1 && file == NULL);
            CHECK(perdure_file_open(dir, "named", PERDURE_READ, 0, &file) == 0);
            perdure_file_close(file);
            perdure_list_close(list);
            perdure_dir_close(dir);
        }
        CHECK(perdure_pool_close(pool) == 0);
        /* What is kept for ever is there after the first two rounds. */
        if (round == 1) {
            before = allocated_bytes();
            descriptors = open_descriptors();
        }
    }
    printf("allocated: %zu bytes, then %zu\n", before, allocated_bytes());
    CHECK(allocated_bytes() < before + 100 * 1000);
    CHECK(open_descriptors() == descriptors);
}

static void write_until_killed(int acknowledgements)
{
    struct perdure_pool *pool = open_pool();
    struct perdure_file *log =
        open_file(perdure_pool_root(pool), "crash", PERDURE_APPEND | PERDURE_CREATE);
    uint32_t number;
    for (number = 0;; number++) {
        uint32_t record[RECORD_BYTES / 4];
        size_t at;
        for (at = 0; at < RECORD_BYTES / 4; at++)
            record[at] = number;
        CHECK(perdure_file_append(log, record, sizeof record, NULL) == 0);
        CHECK(write(acknowledgements, &number, sizeof number) == sizeof number);
    }
}

/* Another process writes, and is killed: everything that it acknowledged is there. */
static void crash(const char *program, const char *directory)
{
    struct perdure_pool *pool;
    struct perdure_file *log;
    struct perdure_pool_info info;
    struct perdure_stat stat;
    uint32_t number, last = 0, record[RECORD_BYTES / 4];
    int pipe_ends[2], status;
    pid_t child;

    CHECK(pipe(pipe_ends) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char descriptor[16];
        snprintf(descriptor, sizeof descriptor, "%d", pipe_ends[1]);
        execl(program, program, directory, "crash", descriptor, (char *)NULL);
        _exit(127);
    }
    close(pipe_ends[1]);
    while (read(pipe_ends[0], &number, sizeof number) == sizeof number) {
        last = number;
        if (number == 5000)
            CHECK(kill(child, SIGKILL) == 0);
    }
    close(pipe_ends[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(last >= 5000);

    pool = open_pool();
    CHECK(perdure_pool_info(pool, &info) == 0 && info.was_clean == 0);
    log = open_file(perdure_pool_root(pool), "crash", PERDURE_READ);
    CHECK(perdure_file_stat(log, &stat) == 0);
    CHECK(stat.size_bytes >= (uint64_t)(last + 1) * RECORD_BYTES && stat.size_bytes % RECORD_BYTES == 0);
    for (number = 0; number < stat.size_bytes / RECORD_BYTES; number++) {
        CHECK(perdure_file_pread(log, record, sizeof record, (uint64_t)number * RECORD_BYTES) == RECORD_BYTES);
        CHECK(record[0] == number && record[RECORD_BYTES / 4 - 1] == number);
    }
    perdure_file_close(log);
    CHECK(perdure_pool_close(pool) == 0);
    printf("%u records acknowledged before the kill, all there\n", last + 1);
}

int main(int count, char **arguments)
{
    struct perdure_pool *pool;
    const struct perdure_dir *root;
    if (count < 2)
        return 2;
    snprintf(pool_path, sizeof pool_path, "%s/pool", arguments[1]);
    if (count == 4)
        write_until_killed(atoi(arguments[3]));
    versions();
    making_pools();
    pool = open_pool();
    root = perdure_pool_root(pool);
    nulls(root);
    files(root);
    directories(root);
    links_and_attributes(root);
    threads(root);
    closing(pool);
    read_only();
    forking();
    leaks();
    crash(arguments[0], arguments[1]);
    puts("PASS");
    return 0;
}
