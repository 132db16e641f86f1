/* Each call's small print: vectors, flags, nothing to do, errors, errno, truncation through the kernel. */
#include "check.h"
#include <sys/mman.h>

/* What is not ours the kernel judges, whatever is named. */
static void bad_pointers(void) {
    struct stat status;
    int ends[2], sockets[2];
    char control[64] = {0};
    const char *volatile name = (const char *)8;
    const struct iovec *volatile vector = (const struct iovec *)8;
    struct iovec one = {"x", 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = (void *)8, .msg_controllen = 64};
    struct msghdr *volatile nowhere = (struct msghdr *)8;
    CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
    CHECK(stat(name, &status) == -1 && errno == EFAULT && lstat(name, &status) == -1 && errno == EFAULT);
    CHECK(fstatat(AT_FDCWD, name, &status, 0) == -1 && errno == EFAULT);
    CHECK(fchownat(ends[0], name, 0, 0, AT_EMPTY_PATH) == -1 && errno == EFAULT);
    CHECK(writev(ends[1], vector, 1) == -1 && errno == EFAULT && vmsplice(ends[1], vector, 1, 0) == -1 && errno == EFAULT);
    CHECK(sendmsg(sockets[0], nowhere, 0) == -1 && errno == EFAULT);
    CHECK(sendmmsg(sockets[0], (struct mmsghdr *)nowhere, UINT_MAX, 0) == -1 && errno == EFAULT);
    CHECK(sendmsg(sockets[0], &message, 0) == -1 && errno == EFAULT);
    message.msg_control = control;
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){1UL << 30, SOL_SOCKET, SCM_RIGHTS};
    CHECK(sendmsg(sockets[0], &message, 0) == -1 && errno == EINVAL);
    close(ends[0]), close(ends[1]), close(sockets[0]), close(sockets[1]);
}

/* A thread with hardly any stack attaches a file. */
static void *with_little_stack(void *argument) {
    char data[1000] = {0};
    struct stat status;
    int file = open("little", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < WARM; i++)
        CHECK(pwrite(file, data, 100, i * 100) == 100 && pread(file, data, 100, 0) == 100);
    CHECK(fstat(file, &status) == 0 && close(file) == 0);
    return argument;
}

static void little_stack(void) {
    const char *preload = getenv("LD_PRELOAD");
    /* The smallest that POSIX knows; what was not compiled to be fast needs more. */
    size_t bytes = preload && strstr(preload, "/debug/") ? 32768 : 16384;
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, bytes) == 0);
    CHECK(pthread_create(&thread, &attributes, with_little_stack, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* Another process comes to the file in the middle of long writes: none is cut short. */
static void long_writes(void) {
    const size_t bytes = 4 << 20;
    char *data = calloc(1, bytes);
    int file = warm_file("long", 0), status;
    pid_t child = fork();
    if (child == 0) {
        int own = open("long", O_RDWR);
        for (int i = 0; i < 300; i++) {
            CHECK(pwrite(own, "a", 1, i * 1000L) == 1);
            usleep(1000);
        }
        _exit(0);
    }
    for (int round = 0; waitpid(child, &status, WNOHANG) == 0; round++) {
        for (int i = 0; i < 40; i++)
            CHECK(pwrite(file, data, 4096, i * 4096L) == 4096);
        memset(data, round, bytes);
        CHECK(pwrite(file, data, bytes, bytes) == (ssize_t)bytes);
        CHECK(pread(file, data, bytes, bytes) == (ssize_t)bytes);
        for (size_t i = 0; i < bytes; i += 1000)
            CHECK(data[i] == (char)round);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    free(data);
    close(file);
    CHECK(unlink("long") == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    little_stack();
    long_writes();
    bad_pointers();
    int file = warm_file("calls", 0);
    char a[10] = "aaaaaaaaaa", b[20] = "bbbbbbbbbbbbbbbbbbbb", c[1] = "c", all[64];
    struct iovec three[3] = {{a, 10}, {b, 20}, {c, 1}};
    CHECK(ftruncate(file, 0) == 0);

    /* Vectors. */
    for (int i = 0; i < WARM; i++) {
        memset(a, 'a', 10), memset(b, 'b', 20), c[0] = 'c';
        CHECK(lseek(file, 0, SEEK_SET) == 0);
        CHECK(writev(file, three, 3) == 31);
        CHECK(lseek(file, 0, SEEK_CUR) == 31);
        CHECK(pread(file, all, 31, 0) == 31 && memcmp(all, "aaaaaaaaaabbbbbbbbbbbbbbbbbbbbc", 31) == 0);
        CHECK(pwritev(file, three, 3, 31) == 31);
        memset(a, 0, 10), memset(b, 0, 20), c[0] = 0;
        CHECK(preadv(file, three, 3, 31) == 31 && a[9] == 'a' && b[0] == 'b' && b[19] == 'b' && c[0] == 'c');
        CHECK(readv(file, three, 3) == 31 && lseek(file, 0, SEEK_CUR) == 62);
        CHECK(readv(file, three, 3) == 0);
        CHECK(pwritev2(file, three, 3, 0, RWF_DSYNC) == 31);
        CHECK(preadv2(file, three, 3, 40, RWF_HIPRI) == 22 || errno == EOPNOTSUPP);
    }
    CHECK(three[0].iov_base == a && three[0].iov_len == 10);
    memset(a, 'a', 10), memset(b, 'b', 20), c[0] = 'c';

    /* An offset of -1 is the position; RWF_APPEND goes to the end. */
    CHECK(lseek(file, 5, SEEK_SET) == 5);
    CHECK(pwritev2(file, three, 3, -1, 0) == 31 && lseek(file, 0, SEEK_CUR) == 36);
    CHECK(preadv2(file, three, 1, -1, 0) == 10 && lseek(file, 0, SEEK_CUR) == 46);
    CHECK(pwritev2(file, three, 3, 0, RWF_APPEND) == 31 && size_of("calls") == 93);
    CHECK(lseek(file, 0, SEEK_CUR) == 46);
    CHECK(pwritev2(file, three, 3, -1, RWF_APPEND) == 31 && size_of("calls") == 124);
    CHECK(lseek(file, 0, SEEK_CUR) == 124);
    CHECK(pwritev2(file, three, 3, 0, 0x40000000) == -1 && (errno == EOPNOTSUPP || errno == EINVAL));

    /* Nothing to do. */
    CHECK(read(file, all, 0) == 0 && write(file, all, 0) == 0);
    CHECK(pread(file, all, 0, 0) == 0 && pwrite(file, all, 0, 1 << 20) == 0);
    CHECK(writev(file, three, 0) == 0 && readv(file, three, 0) == 0);
    struct iovec empty[2] = {{NULL, 0}, {all, 0}}, partly[2] = {{NULL, 0}, {a, 10}};
    CHECK(writev(file, empty, 2) == 0 && pwritev(file, empty, 2, 5) == 0);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    CHECK(writev(file, partly, 2) == 10 && readv(file, partly, 2) == 10);
    CHECK(lseek(file, 0, SEEK_CUR) == 20 && size_of("calls") == 124);

    /* Many parts. */
    struct iovec many[IOV_MAX + 1];
    char bytes[IOV_MAX + 1];
    for (int i = 0; i <= IOV_MAX; i++)
        many[i] = (struct iovec){&bytes[i], 1}, bytes[i] = (char)i;
    CHECK(pwritev(file, many, IOV_MAX, 0) == IOV_MAX);
    memset(bytes, 0, sizeof bytes);
    CHECK(preadv(file, many, IOV_MAX, 0) == IOV_MAX);
    for (int i = 0; i < IOV_MAX; i++)
        CHECK(bytes[i] == (char)i);
    CHECK(lseek(file, 0, SEEK_SET) == 0 && readv(file, many, IOV_MAX) == IOV_MAX && readv(file, many, 1) == 0);
    errno = 0;
    CHECK(pwritev(file, many, IOV_MAX + 1, 0) == -1 && errno == EINVAL);
    /* The compiler must not know. */
    volatile int minus_one = -1;
    char *volatile nowhere = NULL;
    CHECK(readv(file, many, minus_one) == -1 && errno == EINVAL);

    /* Who maps a file by a descriptor that was not used before, while another one makes it longer: what is mapped is there. */
    enum { PAGES = 64 };
    static char page[4096];
    int longer = warm_file("longer", 0), unused = open("longer", O_RDONLY);
    memset(page, 'm', sizeof page);
    for (int i = 0; i < PAGES; i++)
        CHECK(pwrite(longer, page, sizeof page, i * (off_t)sizeof page) == sizeof page);
    char *map = mmap(NULL, PAGES * sizeof page, PROT_READ, MAP_SHARED, unused, 0);
    CHECK(map != MAP_FAILED && map[0] == 'm' && map[PAGES * sizeof page - 1] == 'm');
    CHECK(munmap(map, PAGES * sizeof page) == 0 && close(unused) == 0 && close(longer) == 0);

    /* What is wrong. */
    CHECK(pread(file, all, 1, -1) == -1 && errno == EINVAL);
    CHECK(pwrite(file, all, 1, -5) == -1 && errno == EINVAL);
    CHECK(preadv(file, three, 3, -1) == -1 && errno == EINVAL);
    CHECK(pwritev(file, three, 3, -1) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(read(file, nowhere, 5) == -1 || lseek(file, 0, SEEK_CUR) == IOV_MAX);
    int reader = open("calls", O_RDONLY), writer = open("calls", O_WRONLY);
    for (int i = 0; i < WARM; i++) {
        CHECK(pread(reader, all, 10, 0) == 10);
        CHECK(pwrite(writer, all, 10, 0) == 10);
    }
    errno = 0;
    CHECK(write(reader, a, 1) == -1 && errno == EBADF);
    errno = 0;
    CHECK(pwrite(reader, a, 1, 0) == -1 && errno == EBADF);
    errno = 0;
    CHECK(read(writer, a, 1) == -1 && errno == EBADF);
    CHECK(close(reader) == 0 && close(writer) == 0);
    errno = 0;
    CHECK(read(reader, a, 1) == -1 && errno == EBADF);
    CHECK(close(reader) == -1 && errno == EBADF);
    CHECK(pwrite(-1, a, 1, 0) == -1 && errno == EBADF);
    CHECK(pwrite(1 << 20, a, 1, 0) == -1 && errno == EBADF);

    /* What succeeds leaves errno alone. */
    for (int i = 0; i < WARM; i++) {
        errno = 4711;
        CHECK(pwrite(file, a, 10, 0) == 10 && errno == 4711);
        CHECK(pread(file, a, 10, 0) == 10 && errno == 4711);
        CHECK(lseek(file, 0, SEEK_SET) == 0 && write(file, a, 10) == 10 && errno == 4711);
        CHECK(read(file, a, 10) == 10 && errno == 4711);
        CHECK(lseek(file, 0, SEEK_END) == IOV_MAX && errno == 4711);
        CHECK(fsync(file) == 0 && fdatasync(file) == 0 && errno == 4711);
    }

    /* Sizes that change through the kernel. */
    for (int i = 0; i < 20; i++) {
        CHECK(ftruncate(file, 100) == 0);
        CHECK(pread(file, all, 64, 80) == 20);
        CHECK(pwrite(file, "x", 1, 5000) == 1);
        CHECK(pread(file, all, 64, 100) == 64 && all[0] == 0 && all[63] == 0);
        CHECK(truncate("calls", 50) == 0);
        CHECK(lseek(file, 0, SEEK_END) == 50);
        CHECK(pread(file, all, 64, 50) == 0);
        CHECK(posix_fallocate(file, 0, 9000) == 0 && size_of("calls") == 9000);
        CHECK(pread(file, all, 64, 8990) == 10 && all[0] == 0);
    }

    /* By number. */
    CHECK(syscall(SYS_pwrite64, file, "0123456789", 10L, 0L) == 10);
    CHECK(syscall(SYS_lseek, file, 3L, SEEK_SET) == 3);
    CHECK(read(file, all, 2) == 2 && memcmp(all, "34", 2) == 0);
    CHECK(syscall(SYS_read, file, all, 2L) == 2 && memcmp(all, "56", 2) == 0);
    CHECK(lseek(file, 0, SEEK_CUR) == 7);
    CHECK(lseek(file, INT64_MAX - 10, SEEK_SET) == INT64_MAX - 10);
    CHECK(read(file, all, 64) == -1 && errno == EINVAL && lseek(file, 0, SEEK_CUR) == INT64_MAX - 10);
    CHECK(syscall(SYS_close, file) == 0);
    errno = 0;
    CHECK(pread(file, all, 1, 0) == -1 && errno == EBADF);
    return done("calls");
}
