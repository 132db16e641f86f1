/* Direct access to files of a mounted pool.
 *
 *   client MOUNT ELSEWHERE
 *
 * Writes MOUNT/blocks, 64 blocks of which block n is full of n, and MOUNT/log, the numbers from 0 to 4999.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_BYTES 4096
#define BLOCKS 64
#define RECORDS 5000

static struct perdure_client *client;
static unsigned long direct_count, kernel_count;

static int open_at(const char *place, const char *name, int flags)
{
    char path[512];
    int fd;
    snprintf(path, sizeof path, "%s/%s", place, name);
    fd = open(path, flags, 0644);
    CHECK(fd >= 0);
    return fd;
}

static struct perdure_direct *attach(int fd)
{
    struct perdure_direct *direct;
    CHECK(perdure_client_file(client, fd, &direct) == 0);
    return direct;
}

static void count(ssize_t returned)
{
    CHECK(returned >= 0 || returned == PERDURE_USE_KERNEL);
    if (returned >= 0)
        direct_count++;
    else
        kernel_count++;
}

/* Direct, and by hand through the kernel where that is refused. */
static void blocks(const char *mount)
{
    static unsigned char written[BLOCK_BYTES], read_back[BLOCK_BYTES];
    int fd = open_at(mount, "blocks", O_RDWR | O_CREAT);
    struct perdure_direct *direct = attach(fd);
    uint64_t size = 0;
    int round;
    CHECK(perdure_direct_is_offered(direct) == 1);
    for (round = 0; round < 100 * BLOCKS; round++) {
        off_t offset = (off_t)(round % BLOCKS) * BLOCK_BYTES;
        ssize_t done;
        memset(written, round % BLOCKS, sizeof written);
        done = perdure_direct_try_pwrite(direct, written, sizeof written, (uint64_t)offset);
        count(done);
        if (done == PERDURE_USE_KERNEL)
            done = pwrite(fd, written, sizeof written, offset);
        CHECK(done == BLOCK_BYTES);
        done = perdure_direct_try_pread(direct, read_back, sizeof read_back, (uint64_t)offset);
        count(done);
        if (done == PERDURE_USE_KERNEL)
            done = pread(fd, read_back, sizeof read_back, offset);
        CHECK(done == BLOCK_BYTES && memcmp(read_back, written, BLOCK_BYTES) == 0);
    }
    CHECK(perdure_direct_size(direct, &size) == 0 && size == BLOCKS * BLOCK_BYTES);
    CHECK(perdure_direct_fsync(direct) == 0);
    CHECK(perdure_direct_pread(direct, read_back, sizeof read_back, size) == 0);
    FAILS(perdure_direct_append(direct, "a", 1), EINVAL, "O_APPEND");
    FAILS(perdure_direct_try_append(direct, "a", 1), EINVAL, "O_APPEND");
    perdure_direct_close(direct);
    CHECK(close(fd) == 0);
}

/* The convenient way: who does the work is not the program's business. */
static void log_records(const char *mount)
{
    int fd = open_at(mount, "log", O_RDWR | O_CREAT | O_APPEND);
    struct perdure_direct *direct = attach(fd);
    uint64_t number;
    int missed = 0;
    for (number = 0; number < RECORDS; number++) {
        /* Half of them as pwrite, which appends as well, and now and then by the kernel. */
        ssize_t done;
        if (number % 50 == 49) {
            uint64_t before = 0;
            ssize_t got;
            done = write(fd, &number, sizeof number);
            /* Rarely the kernel knows an older end for a moment: docs/DIRECT.md. */
            while ((got = pread(fd, &before, sizeof before, 8 * (off_t)(number - 1))) == 0)
                CHECK(++missed <= 2);
            CHECK(got == 8 && before == number - 1);
        }
        else if (number % 2 == 0)
            done = perdure_direct_append(direct, &number, sizeof number);
        else
            done = perdure_direct_pwrite(direct, &number, sizeof number, 0);
        CHECK(done == sizeof number);
    }
    CHECK(perdure_direct_pread(direct, &number, 8, 8 * 777) == 8 && number == 777);
    perdure_direct_close(direct);
    CHECK(close(fd) == 0);
    fd = open_at(mount, "log", O_WRONLY | O_APPEND);
    direct = attach(fd);
    CHECK(perdure_direct_try_pread(direct, &number, 8, 0) == PERDURE_USE_KERNEL);
    FAILS(perdure_direct_pread(direct, &number, 8, 0), EBADF, "pread on descriptor");
    perdure_direct_close(direct);
    CHECK(close(fd) == 0);
}

/* A descriptor does what it was opened for, whatever others of the same file may do. */
static void rights(const char *mount)
{
    char buffer[8] = "seven";
    int round, reader = open_at(mount, "blocks", O_RDONLY), writer = open_at(mount, "blocks", O_RDWR);
    struct perdure_direct *reading = attach(reader), *writing = attach(writer);
    CHECK(perdure_direct_pread(writing, buffer, 8, 0) == 8);
    for (round = 0; round < 20; round++) {
        CHECK(perdure_direct_pwrite(writing, buffer, 8, 0) == 8);
        CHECK(perdure_direct_try_pwrite(reading, "xxxxxxxx", 8, 0) == PERDURE_USE_KERNEL);
    }
    FAILS(perdure_direct_pwrite(reading, buffer, 8, 0), EBADF, "pwrite on descriptor");
    CHECK(perdure_direct_pread(reading, buffer, 8, 4096) == 8 && buffer[7] == 1);
    perdure_direct_close(reading);
    perdure_direct_close(writing);
    close(reader);
    close(writer);
}

static void elsewhere(const char *place)
{
    struct perdure_direct *direct;
    char buffer[8];
    uint64_t size;
    int fd = open_at(place, "other", O_RDWR | O_CREAT);
    direct = attach(fd);
    CHECK(perdure_direct_is_offered(direct) == 0);
    CHECK(perdure_direct_try_pwrite(direct, "abc", 3, 0) == PERDURE_USE_KERNEL);
    CHECK(perdure_direct_pwrite(direct, "abc", 3, 0) == 3);
    CHECK(perdure_direct_pread(direct, buffer, 8, 1) == 2 && buffer[0] == 'b');
    CHECK(perdure_direct_size(direct, &size) == 0 && size == 3);
    CHECK(perdure_direct_fsync(direct) == 0);
    perdure_direct_close(direct);
    CHECK(close(fd) == 0);
    FAILS(perdure_client_file(client, fd, &direct), EBADF, "fcntl on descriptor");
    CHECK(direct == NULL);
    FAILS(perdure_client_file(client, -1, &direct), EBADF, "descriptor -1");
    FAILS(perdure_client_file(NULL, 0, &direct), EINVAL, "`client`");
}

/* A child of fork uses the kernel with what is its parent's, and direct access with what it attaches itself. */
static void forking(const char *mount)
{
    int fd = open_at(mount, "blocks", O_RDWR), status, round;
    struct perdure_direct *direct = attach(fd);
    unsigned char buffer[8];
    pid_t child;
    for (round = 0; round < 100000; round++) {
        CHECK(perdure_direct_pread(direct, buffer, 8, 5 * BLOCK_BYTES) == 8);
        if (round > 20 && perdure_direct_try_pread(direct, buffer, 8, 5 * BLOCK_BYTES) == 8)
            break;
    }
    CHECK(round < 100000);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct perdure_direct *own;
        CHECK(perdure_direct_try_pread(direct, buffer, 8, 5 * BLOCK_BYTES) == PERDURE_USE_KERNEL);
        CHECK(perdure_direct_pread(direct, buffer, 8, 5 * BLOCK_BYTES) == 8 && buffer[3] == 5);
        perdure_direct_close(direct);
        perdure_client_free(client);
        CHECK(perdure_client_new(&client) == 0);
        own = attach(fd);
        /* What the kernel reads ahead may come late, and end what has just been attached. */
        for (round = 0; round < 100000; round++) {
            CHECK(perdure_direct_pread(own, buffer, 8, 6 * BLOCK_BYTES) == 8 && buffer[3] == 6);
            if (round > 20 && perdure_direct_try_pread(own, buffer, 8, 6 * BLOCK_BYTES) == 8)
                break;
        }
        CHECK(round < 100000);
        perdure_direct_close(own);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(perdure_direct_pread(direct, buffer, 8, 5 * BLOCK_BYTES) == 8 && buffer[3] == 5);
    perdure_direct_close(direct);
    close(fd);
}

int main(int arguments, char **argument)
{
    static unsigned char zeros[BLOCK_BYTES];
    int fd;
    if (arguments != 3)
        return 2;
    CHECK(perdure_client_new(&client) == 0);
    blocks(argument[1]);
    log_records(argument[1]);
    rights(argument[1]);
    forking(argument[1]);
    elsewhere(argument[2]);
    /* What the test of rights has left. */
    fd = open_at(argument[1], "blocks", O_RDWR);
    CHECK(pwrite(fd, zeros, sizeof zeros, 0) == BLOCK_BYTES);
    close(fd);
    perdure_client_free(client);
    printf("direct %lu kernel %lu\nPASS\n", direct_count, kernel_count);
    return 0;
}
