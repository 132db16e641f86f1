/* What the programs share. Each works in the directory that it is given, checks itself and says PASS or FAIL. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Operations on a file before a part begins, so that it is attached by then. */
#define WARM 200

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("FAIL %s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            fflush(stdout); \
            _exit(1); \
        } \
    } while (0)

__attribute__((unused)) static int begin(int count, char **arguments) {
    CHECK(count >= 2);
    CHECK(chdir(arguments[1]) == 0);
    return 0;
}

__attribute__((unused)) static int done(const char *name) {
    printf("PASS %s\n", name);
    return 0;
}

/* A new file, read and written often enough that it is attached; its position is 0. */
__attribute__((unused)) static int warm_file(const char *name, int flags) {
    char block[64];
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0600);
    CHECK(file >= 0);
    memset(block, 'w', sizeof block);
    for (int i = 0; i < WARM; i++) {
        CHECK(pwrite(file, block, sizeof block, 0) == sizeof block);
        CHECK(pread(file, block, sizeof block, 0) == sizeof block);
    }
    if (flags & O_APPEND)
        CHECK(ftruncate(file, 0) == 0);
    return file;
}

__attribute__((unused)) static off_t size_of(const char *name) {
    struct stat status;
    CHECK(stat(name, &status) == 0);
    return status.st_size;
}
