/* What is told of a file, in all the ways to ask, is what a process without the library is told: behind writes of this process, and behind what the other one does to the file. */
#include "check.h"
#include <sys/xattr.h>

struct order {
    char what;
    char name[31];
};

static int to, from;

static void beside(char *other, const char *name) { snprintf(other, 40, "%s.beside", name); }

/* The other process: does what it is told, and says what the kernel tells it of the file then. */
static void obey(const struct order *order) {
    const char *name = order->name;
    char other[40];
    beside(other, name);
    struct timespec times[2] = {{1000, 1}, {2000, 2}};
    int file;
    switch (order->what) {
    case 'l': CHECK(link(name, other) == 0); break;
    case 'u': CHECK(unlink(other) == 0); break;
    case 'm': CHECK(chmod(name, 0640) == 0 && chmod(name, 0600) == 0); break;
    case 'o': CHECK(chown(name, geteuid(), getegid()) == 0); break;
    case 't': CHECK(utimensat(AT_FDCWD, name, times, 0) == 0); break;
    case 'x': CHECK(setxattr(name, "user.x", "y", 1, 0) == 0 || errno == ENOTSUP); break;
    case 'c': CHECK(truncate(name, 5000) == 0); break;
    case 'r': CHECK(rename(name, other) == 0 && rename(other, name) == 0); break;
    case 'w':
        CHECK((file = open(name, O_WRONLY | O_APPEND)) >= 0);
        CHECK(write(file, "somebody else", 13) == 13 && close(file) == 0);
        break;
    }
}

static void serve(void) {
    struct order order;
    while (read(0, &order, sizeof order) == sizeof order) {
        struct stat status;
        obey(&order);
        CHECK(stat(order.name, &status) == 0);
        CHECK(write(1, &status, sizeof status) == sizeof status);
    }
}

static struct stat told(char what, const char *name) {
    struct order order = {what, ""};
    struct stat status;
    snprintf(order.name, sizeof order.name, "%s", name);
    CHECK(write(to, &order, sizeof order) == sizeof order);
    CHECK(read(from, &status, sizeof status) == sizeof status);
    return status;
}

static void start_other(const char *program, const char *directory) {
    int there[2], back[2];
    CHECK(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dup2(there[0], 0) == 0 && dup2(back[1], 1) == 1 && unsetenv("LD_PRELOAD") == 0);
        execl(program, program, directory, "other", NULL);
        _exit(9);
    }
    close(there[0]), close(back[1]);
    to = there[1], from = back[0];
}

static int is_time(struct timespec one, struct timespec two) { return one.tv_sec == two.tv_sec && one.tv_nsec == two.tv_nsec; }

static void same(const struct stat *a, const struct stat *b, char what) {
    int is_same = a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_nlink == b->st_nlink && a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid && a->st_rdev == b->st_rdev &&
                  a->st_size == b->st_size && a->st_blksize == b->st_blksize && a->st_blocks == b->st_blocks && is_time(a->st_atim, b->st_atim) && is_time(a->st_mtim, b->st_mtim) && is_time(a->st_ctim, b->st_ctim);
    if (!is_same)
        printf("'%c': links %ld %ld, mode %o %o, size %ld %ld, blocks %ld %ld, changed %ld.%09ld %ld.%09ld\n", what, (long)a->st_nlink, (long)b->st_nlink, a->st_mode, b->st_mode, (long)a->st_size, (long)b->st_size,
               (long)a->st_blocks, (long)b->st_blocks, a->st_ctim.tv_sec, a->st_ctim.tv_nsec, b->st_ctim.tv_sec, b->st_ctim.tv_nsec);
    CHECK(is_same);
}

/* One of the ways to ask. */
static struct stat ask(int way, int file, const char *name) {
    struct stat status;
    struct statx more;
    memset(&status, 0xee, sizeof status);
    switch (way) {
    case 0: CHECK(stat(name, &status) == 0); break;
    case 1: CHECK(fstatat(file, "", &status, AT_EMPTY_PATH) == 0); break;
    case 2: CHECK(syscall(SYS_fstat, file, &status) == 0); break;
    case 3: CHECK(syscall(SYS_newfstatat, AT_FDCWD, name, &status, AT_SYMLINK_NOFOLLOW) == 0); break;
    case 4: CHECK(lstat(name, &status) == 0); break;
    case 5:
        CHECK(statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more) == 0);
        CHECK(fstat(file, &status) == 0);
        CHECK(more.stx_size == (uint64_t)status.st_size && more.stx_blocks == (uint64_t)status.st_blocks && more.stx_mtime.tv_nsec == status.st_mtim.tv_nsec && more.stx_nlink == status.st_nlink);
        break;
    default: CHECK(fstat(file, &status) == 0);
    }
    return status;
}

int main(int count, char **arguments) {
    char program[PATH_MAX];
    CHECK(realpath(arguments[0], program));
    begin(count, arguments);
    if (count == 3)
        return serve(), 0;
    start_other(program, ".");
    static char block[4096];
    for (int round = 0; round < 12; round++) {
        char name[31], other[40];
        snprintf(name, sizeof name, "status%d", round);
        beside(other, name);
        int file = warm_file(name, 0);
        /* Some take the file back each time, after which it is the kernel's for longer and longer; most do not. */
        const char *orders = round % 3 == 2 ? "slumotxcrw" : "sluxsrslur";
        for (int i = 0; i < 60; i++) {
            struct stat own, kernels;
            char what = orders[(i * 7 + round) % 10];
            /* An overwrite, a short append, an append of a block, which may leave three bytes out. */
            CHECK(pwrite(file, block, sizeof block, 0) == sizeof block);
            own = ask(i % 8, file, name), kernels = told('s', name), same(&own, &kernels, 'a');
            if (i % 3 == 0)
                CHECK(lseek(file, 0, SEEK_END) > 0 && write(file, "xyz", 3) == 3);
            if (i % 5 == 0)
                CHECK(pwrite(file, block, sizeof block, own.st_size + 3) == sizeof block);
            own = ask(i % 7, file, name), kernels = told('s', name), same(&own, &kernels, 'b');
            if ((what == 'u') != (access(other, F_OK) == 0) && (what == 'u' || what == 'l' || what == 'r'))
                continue;
            kernels = told(what, name);
            own = ask(i % 7, file, name), same(&own, &kernels, what);
        }
        CHECK(close(file) == 0);
    }
    struct stat status;
    CHECK(fstat(-1, &status) == -1 && errno == EBADF);
    CHECK(stat("absent", &status) == -1 && errno == ENOENT);
    CHECK(stat("", &status) == -1 && errno == ENOENT);
    return done("status");
}
