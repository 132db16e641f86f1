/* Numbers that change hands where nobody looks: a stale entry would lead to the file that had the number before. */
#include "check.h"
#include <dirent.h>

/* How a number goes away. */
static void by_fclose(int number) {
    FILE *stream = fdopen(number, "r+");
    CHECK(stream && fputs("S", stream) >= 0 && fclose(stream) == 0);
}
static void by_freopen(int number) {
    FILE *stream = fdopen(number, "r+");
    CHECK(stream && freopen("/dev/null", "r", stream) && fclose(stream) == 0);
}
static void by_close_range(int number) { CHECK(close_range((unsigned)number, (unsigned)number, 0) == 0); }
static void by_dup2(int number) {
    int other = open("/dev/null", O_RDWR);
    CHECK(dup2(other, number) == number && close(number) == 0 && close(other) == 0);
}
static void by_syscall(int number) { CHECK(syscall(SYS_close, number) == 0); }
static void by_close(int number) { CHECK(close(number) == 0); }

/* How it comes back, for the file "second". */
static int by_open(void) { return open("second", O_RDWR); }
static int by_fopen(void) { return fileno(fopen("second", "r+")); }
static int by_openat(void) { return openat(AT_FDCWD, "second", O_RDWR); }
static int by_number(void) { return (int)syscall(SYS_openat, AT_FDCWD, "second", O_RDWR); }
static int by_dup(void) {
    int number = open("second", O_RDWR), copy = fcntl(number, F_DUPFD, 200);
    CHECK(close(number) == 0);
    number = dup(copy);
    CHECK(close(copy) == 0);
    return number;
}

static void fill(const char *name, char letter) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char block[256];
    memset(block, letter, sizeof block);
    CHECK(file >= 0 && write(file, block, sizeof block) == sizeof block && close(file) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    void (*ways_out[])(int) = {by_fclose, by_freopen, by_close_range, by_dup2, by_syscall, by_close};
    int (*ways_in[])(void) = {by_open, by_fopen, by_openat, by_number, by_dup};
    char block[256];
    for (size_t out = 0; out < sizeof ways_out / sizeof *ways_out; out++)
        for (size_t in = 0; in < sizeof ways_in / sizeof *ways_in; in++) {
            fill("first", '1');
            fill("second", '2');
            int first = open("first", O_RDWR);
            for (int i = 0; i < WARM; i++) {
                CHECK(pread(first, block, 256, 0) == 256 && block[100] == '1');
                CHECK(pwrite(first, "1", 1, 17) == 1);
            }
            CHECK(read(first, block, 10) == 10);
            ways_out[out](first);
            int second = ways_in[in]();
            CHECK(second == first);
            for (int i = 0; i < WARM; i++) {
                CHECK(pread(second, block, 256, 0) == 256 && block[100] == '2');
                CHECK(pwrite(second, "2", 1, 100) == 1);
            }
            CHECK(lseek(second, 0, SEEK_CUR) == 0 && write(second, "22", 2) == 2 && lseek(second, 0, SEEK_CUR) == 2);
            CHECK(close(second) == 0);
            int file = open("first", O_RDONLY);
            CHECK(read(file, block, 256) == 256 && !memchr(block, '2', 256) && close(file) == 0);
            /* The stream wrote behind the ten bytes that were read. */
            CHECK(block[10] == (out == 0 ? 'S' : '1'));
            file = open("second", O_RDONLY);
            CHECK(read(file, block, 256) == 256 && !memchr(block, '1', 256) && close(file) == 0);
        }
    /* A number that becomes a directory, a pipe: opened in a way that nobody sees. */
    for (size_t out = 0; out < sizeof ways_out / sizeof *ways_out; out++) {
        int first = warm_file("first", 0), ends[2];
        ways_out[out](first);
        DIR *directory = opendir(".");
        CHECK(directory && dirfd(directory) == first && readdir(directory) && closedir(directory) == 0);
        first = warm_file("first", 0);
        ways_out[out](first);
        CHECK(pipe(ends) == 0 && ends[0] == first);
        for (int j = 0; j < 10; j++)
            CHECK(pread(ends[0], block, 1, 0) == -1 && errno == ESPIPE);
        for (int j = 0; j < 10; j++)
            CHECK(write(ends[1], "p", 1) == 1 && read(ends[0], block, 1) == 1 && block[0] == 'p');
        close(ends[0]), close(ends[1]);
    }
    return done("reuse");
}
