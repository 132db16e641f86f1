/* One writer by asynchronous O_DIRECT, two buffered readers. After each completion a buffered read
   has the new bytes. usage: stale FILE WRITES */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (640 * 1024)

static const char *path;
static atomic_int is_over;

static void check(int is_true, const char *what)
{
    if (!is_true) {
        perror(what);
        exit(1);
    }
}

static void *reader(void *unused)
{
    (void)unused;
    char *buffer = malloc(BYTES);
    int fd = open(path, O_RDONLY);
    check(fd >= 0 && buffer, "reader");
    while (!is_over)
        check(pread(fd, buffer, BYTES, 0) == BYTES, "pread");
    return NULL;
}

int main(int argc, char **argv)
{
    check(argc == 3, "usage: stale FILE WRITES");
    path = argv[1];
    char *block = NULL, *seen = malloc(BYTES);
    check(posix_memalign((void **)&block, 4096, BYTES) == 0, "posix_memalign");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644), buffered = open(path, O_RDONLY);
    memset(block, 0xaa, BYTES);
    check(pwrite(fd, block, BYTES, 0) == BYTES, "pwrite");
    aio_context_t context = 0;
    check(syscall(SYS_io_setup, 4, &context) == 0, "io_setup");
    pthread_t readers[2];
    for (int number = 0; number < 2; number++)
        check(pthread_create(&readers[number], NULL, reader, NULL) == 0, "pthread_create");
    long writes = atol(argv[2]), stale = 0;
    for (long number = 0; number < writes; number++) {
        memset(block, number & 1 ? 0xaa : 0x55, BYTES);
        struct iocb call = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (unsigned long)block, .aio_nbytes = BYTES};
        struct iocb *calls = &call;
        struct io_event event;
        check(syscall(SYS_io_submit, context, 1, &calls) == 1, "io_submit");
        check(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == BYTES, "io_getevents");
        check(pread(buffered, seen, BYTES, 0) == BYTES, "pread");
        stale += memcmp(seen, block, BYTES) != 0;
    }
    is_over = 1;
    for (int number = 0; number < 2; number++)
        pthread_join(readers[number], NULL);
    printf("%ld asynchronous writes, %ld stale reads\n", writes, stale);
    return stale != 0;
}
