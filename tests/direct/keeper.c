/* keeper HOW OWN READY GO SECRET: keeps what it can of its segments although it has none of them open or mapped any more, looks into that when GO exists, and says whether SECRET is there.
 * HOW: pages (in pipes), names (descriptors that are good for nothing but to be opened again). */
#include "talk.h"
#include <sys/mman.h>

enum { KEPT = 48, PIPE = 1 << 20 };

static int kept[KEPT][2], count;

/* Nobody can make a segment shorter, longer or full of holes. */
static void change_length(int segment, off_t bytes) {
    CHECK(ftruncate(segment, 0) != 0 && ftruncate(segment, 2 * bytes) != 0);
    CHECK(fallocate(segment, 0, bytes, 4096) != 0);
    CHECK(fallocate(segment, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) != 0);
    CHECK(pwrite(segment, "x", 1, bytes) != 1);
    struct stat found;
    CHECK(fstat(segment, &found) == 0 && found.st_size == bytes);
}

static void keep_pages(int segment, size_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
    CHECK(memory != MAP_FAILED);
    for (size_t at = 0; at < bytes && count < KEPT; at += PIPE, count++) {
        CHECK(pipe(kept[count]) == 0 && fcntl(kept[count][1], F_SETPIPE_SZ, PIPE) >= PIPE);
        CHECK(fcntl(kept[count][0], F_SETFL, O_NONBLOCK) == 0);
        for (size_t done = 0; done < PIPE;) {
            struct iovec part = {memory + at + done, PIPE - done};
            ssize_t spliced = vmsplice(kept[count][1], &part, 1, SPLICE_F_NONBLOCK);
            CHECK(spliced > 0);
            done += (size_t)spliced;
        }
    }
    CHECK(munmap(memory, bytes) == 0);
}

static void keep_name(int segment) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", segment);
    if (count < KEPT) {
        kept[count][0] = open(name, O_PATH);
        CHECK(kept[count][0] >= 0);
        count++;
    }
}

/* What is in a pipe, or in a file that is opened again; nothing if that is refused. */
static size_t look(int what, int are_pages, char *into, size_t bytes) {
    int file = what;
    if (!are_pages) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", what);
        file = open(name, O_RDONLY);
    }
    size_t got = 0;
    for (ssize_t part; got < bytes && (part = read(file, into + got, bytes - got)) > 0;)
        got += (size_t)part;
    return got;
}

int main(int arguments, char **argument) {
    CHECK(arguments == 6);
    int are_pages = !strcmp(argument[1], "pages");
    int file = open(argument[2], O_RDWR), line = meet(file), process, memory;
    struct reply welcome = ask(line, (struct request){HELLO, 0, VERSION, 0}, -1, &process);
    CHECK(welcome.refusal == 0);
    size_t bytes = welcome.words[2];
    CHECK(ask(line, (struct request){ATTACH, 0, 1, 0}, file, &memory).refusal == 0);
    for (uint64_t number = 0; number < welcome.words[3]; number++) {
        int segment;
        if (ask(line, (struct request){SEGMENTS, 1, number, 1}, -1, &segment).refusal)
            continue;
        change_length(segment, (off_t)bytes);
        if (are_pages)
            keep_pages(segment, bytes);
        else
            keep_name(segment);
        close(segment);
    }
    CHECK(count > 0);
    close(line), close(file), close(process), close(memory);
    close(open(argument[3], O_WRONLY | O_CREAT, 0600));
    for (int tries = 0; access(argument[4], F_OK) != 0 && tries < 60000; tries++)
        usleep(1000);
    size_t room = bytes > PIPE ? bytes : PIPE;
    char *found = malloc(room);
    CHECK(found);
    for (int i = 0; i < count; i++) {
        size_t got = look(kept[i][0], are_pages, found, room);
        CHECK(!memmem(found, got, argument[5], strlen(argument[5])));
    }
    printf("kept %d: nothing of others\n", count);
    return 0;
}
