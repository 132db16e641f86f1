/* Threads open, duplicate and close the same numbers again and again; no byte lands in another file: a file's bytes carry its number. */
#include "check.h"
#include <stdatomic.h>

#define THREADS 6
#define FILES 12
#define ROUNDS 1500
#define RECORDS 64

static atomic_long operations;

struct record {
    uint32_t file, place, sum, end;
};

static struct record record_of(uint32_t file, uint32_t place) {
    return (struct record){file, place, file * 2654435761u ^ place, ~file};
}

static void check_record(struct record record, uint32_t file, uint32_t place) {
    struct record expected = record_of(file, place);
    CHECK(memcmp(&record, &expected, sizeof record) == 0);
}

static void name_of(char *name, unsigned file) { snprintf(name, 32, "storm-%u", file); }

/* Opens some file, works on it for a while by its numbers, closes them. */
static void *storm(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    char name[32];
    for (int round = 0; round < ROUNDS; round++) {
        unsigned file = (unsigned)rand_r(&seed) % FILES;
        name_of(name, file);
        int number = open(name, O_RDWR | O_CLOEXEC), copy = -1;
        CHECK(number >= 0);
        if (rand_r(&seed) % 4 == 0)
            CHECK((copy = dup(number)) >= 0);
        int length = rand_r(&seed) % 40;
        uint32_t next = 0;
        for (int i = 0; i < length; i++) {
            uint32_t place = (uint32_t)rand_r(&seed) % RECORDS;
            off_t at = (off_t)(place * sizeof(struct record));
            struct record record = record_of(file, place);
            int used = copy >= 0 && i % 2 ? copy : number;
            switch (rand_r(&seed) % 4) {
            case 0: CHECK(pwrite(used, &record, sizeof record, at) == sizeof record); break;
            case 1:
                CHECK(pread(used, &record, sizeof record, at) == sizeof record);
                check_record(record, file, place);
                break;
            case 2:
                CHECK(read(used, &record, sizeof record) == sizeof record);
                check_record(record, file, next);
                next++;
                break;
            default:
                record = record_of(file, next);
                CHECK(write(used, &record, sizeof record) == sizeof record);
                next++;
            }
            if (next == RECORDS) {
                next = 0;
                CHECK(lseek(used, 0, SEEK_SET) == 0);
            }
            atomic_fetch_add(&operations, 1);
        }
        if (copy >= 0 && rand_r(&seed) % 2) {
            unsigned other = (unsigned)rand_r(&seed) % FILES;
            name_of(name, other);
            int replaced = open(name, O_RDWR | O_CLOEXEC);
            CHECK(replaced >= 0 && dup2(replaced, copy) == copy && close(replaced) == 0);
            struct record record;
            CHECK(read(copy, &record, sizeof record) == sizeof record);
            check_record(record, other, 0);
            CHECK(read(copy, &record, sizeof record) == sizeof record);
            check_record(record, other, 1);
        }
        CHECK(close(number) == 0);
        if (copy >= 0)
            CHECK(close(copy) == 0);
    }
    return NULL;
}

/* Uses numbers that others close: each call fails, or meets a file's own record, or memory that the library has just been sent and is about to map. */
static atomic_int is_over;
static void *trespass(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!is_over) {
        struct record record;
        int number = 3 + rand_r(&seed) % 24;
        uint32_t place = (uint32_t)rand_r(&seed) % RECORDS;
        ssize_t got = pread(number, &record, sizeof record, (off_t)(place * sizeof record));
        if (got == sizeof record && record.file < FILES && record.end == ~record.file)
            check_record(record, record.file, place);
    }
    return NULL;
}

/* Threads share one description: each record is taken once. */
static int shared;
static atomic_uint taken[4096];
static void *share(void *argument) {
    (void)argument;
    uint32_t record;
    while (read(shared, &record, sizeof record) == sizeof record) {
        CHECK(record < 4096);
        atomic_fetch_add(&taken[record], 1);
    }
    return NULL;
}
static void *append(void *argument) {
    for (uint32_t i = 0; i < 4096 / THREADS; i++) {
        uint32_t record = (uint32_t)(uintptr_t)argument * (4096 / THREADS) + i;
        CHECK(write(shared, &record, sizeof record) == sizeof record);
    }
    return NULL;
}

static void all(void *(*work)(void *), int first) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(first + i)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    char name[32];
    for (unsigned file = 0; file < FILES; file++) {
        name_of(name, file);
        int number = warm_file(name, 0);
        for (uint32_t place = 0; place < RECORDS; place++) {
            struct record record = record_of(file, place);
            CHECK(write(number, &record, sizeof record) == sizeof record);
        }
        close(number);
    }
    pthread_t trespasser;
    CHECK(pthread_create(&trespasser, NULL, trespass, (void *)99) == 0);
    all(storm, 1);
    is_over = 1;
    CHECK(pthread_join(trespasser, NULL) == 0);
    for (unsigned file = 0; file < FILES; file++) {
        name_of(name, file);
        int number = open(name, O_RDONLY);
        for (uint32_t place = 0; place < RECORDS; place++) {
            struct record record;
            CHECK(read(number, &record, sizeof record) == sizeof record);
            check_record(record, file, place);
        }
        CHECK(size_of(name) == RECORDS * sizeof(struct record));
        close(number);
    }
    for (int flags = 0; flags <= O_APPEND; flags += O_APPEND) {
        shared = warm_file("shared", flags);
        CHECK(ftruncate(shared, 0) == 0);
        all(append, 0);
        CHECK(lseek(shared, 0, SEEK_SET) == 0);
        memset(taken, 0, sizeof taken);
        all(share, 0);
        for (uint32_t i = 0; i < 4096 / THREADS * THREADS; i++)
            CHECK(taken[i] == 1);
        close(shared);
    }
    return done("storm");
}
