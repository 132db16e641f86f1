/* Two processes alternate on one file: a token goes to and fro through pipes, and whoever has it does some random operations and checks each against a model of the file in shared memory. Whether they run with the
 * library is the caller's choice.
 *
 *   coherence FILE MODEL SEED ROUNDS ME      ME is 0 or 1; descriptors 3 (token in) and 4 (token out) */
#include "check.h"
#include <sys/mman.h>

#define MAX (1 << 20)

struct model {
    int64_t size;
    unsigned char bytes[MAX];
};

static struct model *model;
static int file, appender, me, is_late, has_library;
static long operations;
static unsigned seed;
static const char *name;

static unsigned below(unsigned limit) { return (unsigned)rand_r(&seed) % limit; }

static void wrong(const char *what, int64_t at, int64_t found, int64_t expected) {
    printf("FAIL process %d, operation %ld, %s at %ld: %ld, expected %ld (size %ld, errno %d)\n", me, operations, what, (long)at, (long)found, (long)expected, (long)model->size, errno);
    fflush(stdout);
    _exit(1);
}

static void compare(const char *what, const unsigned char *found, int64_t at, int64_t length, ssize_t got) {
    int64_t expected = at >= model->size ? 0 : model->size - at < length ? model->size - at : length;
    if (got != expected)
        wrong(what, at, got, expected);
    for (int64_t i = 0; i < expected; i++)
        if (found[i] != model->bytes[at + i])
            wrong(what, at + i, found[i], model->bytes[at + i]);
}

static void set_size(int64_t size) {
    if (size < model->size)
        memset(model->bytes + size, 0, (size_t)(model->size - size));
    model->size = size;
}

static void put(const unsigned char *bytes, int64_t at, int64_t length) {
    if (length && at + length > model->size)
        set_size(at + length);
    memcpy(model->bytes + at, bytes, (size_t)length);
}

static void operate(void) {
    static unsigned char bytes[70000];
    int64_t length = below(8) ? 1 + below(9000) : 1 + below(65536), at = below(MAX - 70000);
    if (below(3) == 0)
        at &= ~4095, length = 4096;
    for (int64_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(operations * 7 + i * 13 + me);
    struct stat status;
    off_t end;
    operations++;
    switch (below(16)) {
    case 0 ... 4:
        memset(bytes, 0xee, sizeof bytes);
        compare("pread", bytes, at, length, pread(file, bytes, (size_t)length, at));
        break;
    case 5:
        CHECK(lseek(file, at, SEEK_SET) == at);
        compare("read", bytes, at, length, read(file, bytes, (size_t)length));
        break;
    case 6 ... 9: {
        ssize_t put_there = pwrite(file, bytes, (size_t)length, at);
        if (put_there != length)
            wrong("pwrite", at, put_there, length);
        put(bytes, at, length);
        break;
    }
    case 10:
        CHECK(lseek(file, at, SEEK_SET) == at);
        CHECK(write(file, bytes, (size_t)length) == length);
        put(bytes, at, length);
        break;
    case 11 ... 12:
        if (model->size + length <= MAX) {
            /* Without the library nobody hears that this one write is to append (DIRECT.md, Beside the kernel). */
            struct iovec part = {bytes, (size_t)length};
            unsigned way = has_library ? below(4) : 3;
            ssize_t appended = way == 0   ? pwritev2(file, &part, 1, -1, RWF_APPEND)
                               : way == 1 ? pwritev2(file, &part, 1, at, RWF_APPEND)
                                          : write(appender, bytes, (size_t)length);
            if (appended != length)
                wrong("append", at, appended, length);
            if (way == 0)
                CHECK(lseek(file, 0, SEEK_CUR) == model->size + length);
            put(bytes, model->size, length);
        }
        break;
    case 13:
        if (below(25) == 0) {
            CHECK(ftruncate(file, at) == 0);
            set_size(at);
        }
        break;
    case 14:
        CHECK(below(2) ? fstat(file, &status) == 0 : stat(name, &status) == 0);
        if (status.st_size != model->size)
            wrong("stat", 0, status.st_size, model->size);
        break;
    default:
        /* Without the library twice: just when the kernel drops what it has of the file, behind an append whose place it had wrong, it throws the first answer away (DIRECT.md, Beside the kernel). */
        end = lseek(file, 0, SEEK_END);
        if (end != model->size && !has_library)
            end = lseek(file, 0, SEEK_END);
        if (end != model->size)
            wrong("end", 0, end, model->size);
        if (is_late && below(4) == 0 && model->size) {
            /* What is mapped is what is there. Who has mapped a file uses the kernel for some time, so not too early. */
            unsigned char *map = mmap(NULL, (size_t)model->size, PROT_READ, MAP_SHARED, file, 0);
            CHECK(map != MAP_FAILED);
            compare("map", map, 0, model->size, model->size);
            CHECK(munmap(map, (size_t)model->size) == 0);
        }
    }
}

static void open_both(void) {
    file = open(name, O_RDWR), appender = open(name, O_WRONLY | O_APPEND);
    CHECK(file >= 0 && appender >= 0);
}

int main(int count, char **arguments) {
    CHECK(count == 6);
    name = arguments[1];
    me = atoi(arguments[5]);
    has_library = getenv("LD_PRELOAD") && *getenv("LD_PRELOAD");
    seed = (unsigned)atoi(arguments[3]) * 2 + (unsigned)me;
    int there = open(arguments[2], O_RDWR);
    CHECK(there >= 0);
    model = mmap(NULL, sizeof *model, PROT_READ | PROT_WRITE, MAP_SHARED, there, 0);
    CHECK(model != MAP_FAILED);
    open_both();
    char token = 't';
    for (int round = 0; round < atoi(arguments[4]); round++) {
        if (read(3, &token, 1) != 1)
            _exit(round || me ? 2 : 3); /* The other one has failed, and said so. */
        /* Some turns are long enough that the file is attached; opened anew it is at once, else the library waits longer each time that it was taken away. */
        int turns = below(6) ? 1 + (int)below(8) : 200 + (int)below(1000);
        if (turns > 100 && below(4)) {
            CHECK(close(file) == 0 && close(appender) == 0);
            open_both();
        }
        is_late = round > atoi(arguments[4]) * 3 / 4;
        for (int i = 0; i < turns; i++)
            operate();
        if (write(4, &token, 1) != 1 && errno != EPIPE)
            _exit(2);
    }
    printf("PASS process %d, %ld operations\n", me, operations);
    return 0;
}
