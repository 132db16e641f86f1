/* Stores one block of a file in one of seven ways, says "stored", and keeps descriptor and mapping
   until its input ends. usage: store HOW FILE OFFSET   HOW: mapped buffered direct aio uring library
   Neither fork nor close happens in between: both make the kernel write dirty pages. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES 4096

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void check(int is_true, const char *what)
{
    if (!is_true)
        die(what);
}

static void by_aio(int fd, void *block, off_t at)
{
    aio_context_t context = 0;
    check(syscall(SYS_io_setup, 1, &context) == 0, "io_setup");
    struct iocb call = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (unsigned long)block,
                        .aio_nbytes = BYTES, .aio_offset = at};
    struct iocb *calls = &call;
    check(syscall(SYS_io_submit, context, 1, &calls) == 1, "io_submit");
    struct io_event event;
    check(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1, "io_getevents");
    check(event.res == BYTES, "aio write");
}

/* Returns 0 where the kernel has no io_uring. */
static int by_uring(int fd, void *block, off_t at)
{
    struct io_uring_params setup = {0};
    int ring = syscall(SYS_io_uring_setup, 4, &setup);
    if (ring < 0)
        return 0;
    char *queue = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry =
        mmap(0, setup.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    check(queue != MAP_FAILED && entry != MAP_FAILED, "mmap of the ring");
    *entry = (struct io_uring_sqe){
        .opcode = IORING_OP_WRITE, .fd = fd, .addr = (unsigned long)block, .len = BYTES, .off = at};
    ((unsigned *)(queue + setup.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(queue + setup.sq_off.tail), 1, __ATOMIC_RELEASE);
    check(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1, "io_uring_enter");
    struct io_uring_cqe *done = (struct io_uring_cqe *)(queue + setup.cq_off.cqes);
    check(done->res == BYTES, "io_uring write");
    return 1;
}

int main(int argc, char **argv)
{
    check(argc == 4, "usage: store HOW FILE OFFSET");
    const char *how = argv[1];
    off_t at = atoll(argv[3]);
    int past_cache = !strcmp(how, "direct") || !strcmp(how, "aio") || !strcmp(how, "uring");
    int fd = open(argv[2], O_RDWR | (past_cache ? O_DIRECT : 0));
    check(fd >= 0, "open");
    char *block = NULL, *mapping = MAP_FAILED;
    check(posix_memalign((void **)&block, BYTES, BYTES) == 0, "posix_memalign");
    memset(block, 'X', BYTES);
    if (!strcmp(how, "mapped")) {
        if (lseek(fd, 0, SEEK_END) < at + BYTES)
            check(ftruncate(fd, at + BYTES) == 0, "ftruncate");
        mapping = mmap(0, at + BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        check(mapping != MAP_FAILED, "mmap");
        memcpy(mapping + at, block, BYTES);
    } else if (!strcmp(how, "aio")) {
        by_aio(fd, block, at);
    } else if (!strcmp(how, "uring")) {
        if (!by_uring(fd, block, at))
            check(pwrite(fd, block, BYTES, at) == BYTES, "pwrite");
    } else {
        /* With the library the first writes go through the kernel, the later ones do not. */
        for (int round = 0; round < (!strcmp(how, "library") ? 200 : 1); round++)
            check(pwrite(fd, block, BYTES, at) == BYTES, "pwrite");
    }
    /* The same process sees its own store. */
    char *seen = NULL;
    check(posix_memalign((void **)&seen, BYTES, BYTES) == 0, "posix_memalign");
    check(pread(fd, seen, BYTES, at) == BYTES && !memcmp(seen, block, BYTES), "pread of the own store");
    check(lseek(fd, at, SEEK_DATA) == at, "SEEK_DATA at the own store");
    puts("stored");
    fflush(stdout);
    for (char line[16]; fgets(line, sizeof line, stdin);)
        if (!strcmp(line, "sync\n")) {
            if (mapping != MAP_FAILED)
                check(msync(mapping, at + BYTES, MS_SYNC) == 0, "msync");
            check(fsync(fd) == 0, "fsync");
            puts("synced");
            fflush(stdout);
        }
    return 0;
}
