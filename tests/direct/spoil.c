/* Does harm with the segments and the lease that it is given. Says FAIL if it cannot try.
 *
 *   spoil tail FILE            stores bytes behind the end of FILE, in the block where it ends
 *   spoil late FILE FOLDER     says that a write has begun; when the server is gone, leaves all to
 *                              a child, the file of words in a socket. The child stores into ring
 *                              and spare blocks after FOLDER/scribble, everywhere after FOLDER/go
 *   spoil log FILE N           sends N `ioctl` to a segment, and writes N bad records */
#include "talk.h"
#include <poll.h>
#include <sys/mman.h>

static uint64_t first_segment_at, segment_bytes, segments;
static int line, own, words;

static void greet(const char *name) {
    own = open(name, O_RDWR);
    line = meet(own);
    struct reply welcome = ask(line, (struct request){HELLO, 0, VERSION, 0}, -1, &words);
    CHECK(welcome.refusal == 0);
    first_segment_at = welcome.words[1], segment_bytes = welcome.words[2], segments = welcome.words[3];
}

/* Attaches the file for writing; its memory, as the server shows it. */
static struct reply attach(const uint64_t **head) {
    int memory;
    struct reply attached = ask(line, (struct request){ATTACH, 0, 1, 0}, own, &memory);
    CHECK(attached.refusal == 0 && memory >= 0);
    struct stat status;
    CHECK(fstat(memory, &status) == 0);
    *head = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, memory, 0);
    CHECK(*head != MAP_FAILED);
    close(memory);
    return attached;
}

/* A segment, for writing: -1 if it belongs to others. */
static int segment(uint64_t number) {
    int descriptor;
    struct reply reply = ask(line, (struct request){SEGMENTS, 1, number, 1}, -1, &descriptor);
    CHECK((reply.refusal == 0) == (descriptor >= 0));
    return descriptor;
}

static char *map(int descriptor) {
    char *place = mmap(NULL, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(place != MAP_FAILED);
    return place;
}

static char *maps[4096];

static uint32_t crc32c(const void *bytes, size_t length) {
    uint32_t sum = ~0u;
    for (const unsigned char *at = bytes; length--; at++) {
        sum ^= *at;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78 : 0);
    }
    return ~sum;
}

/* Stores a record, whose last word is the lease's salt, with the checksum of a whole one. */
static void write_record(char *place, uint64_t record[8]) {
    record[6] = (uint64_t)crc32c(record, 64) << 32, record[7] = 0;
    memcpy(place, record, 64);
}

static int tail(void) {
    struct stat status;
    char last[4096];
    CHECK(fstat(own, &status) == 0 && status.st_size % 4096);
    size_t used = (size_t)status.st_size % 4096;
    CHECK(pread(own, last, used, status.st_size - (off_t)used) == (ssize_t)used);
    const uint64_t *head;
    struct reply attached = attach(&head);
    CHECK(segments <= 4096);
    for (uint64_t number = 0; number < segments; number++) {
        int descriptor = segment(number);
        if (descriptor < 0)
            continue;
        maps[number] = map(descriptor);
        close(descriptor);
    }
    /* The end of a lease zeroes the tail, so the lease ends first. */
    int beside, found = 0;
    CHECK(ask(line, (struct request){DETACH, (uint32_t)attached.words[0], 0, 0}, -1, &beside).refusal == 0);
    for (uint64_t number = 0; number < segments; number++) {
        char *place = maps[number];
        for (uint64_t at = 0; place && at < segment_bytes; at += 4096)
            if (memcmp(place + at, last, used) == 0)
                memset(place + at + used, 'x', 4096 - used), found++;
    }
    CHECK(found > 0);
    return done("tail");
}

static int fill_log(int count) {
    const uint64_t *head;
    char *place = NULL;
    uint64_t mapped = 0;
    for (int i = 0; i < count; i++) {
        struct reply attached = attach(&head);
        uint64_t ring = head[8] * 4096 - first_segment_at, number = ring / segment_bytes;
        if (!place || mapped != number) {
            int descriptor = segment(number);
            CHECK(descriptor >= 0);
            place = map(descriptor), mapped = number;
            for (int times = 0; i == 0 && times < count; times++)
                CHECK(ioctl(descriptor, 0x1234, 0) == -1);
            close(descriptor);
        }
        uint64_t record[8] = {attached.words[7], 0, 1, 1, UINT32_MAX, 0, 0, attached.words[6]};
        write_record(place + ring % segment_bytes + attached.words[7] % 64 * 64, record);
        int beside;
        ask(line, (struct request){FOLD, (uint32_t)attached.words[0], 0, 0}, -1, &beside);
        ask(line, (struct request){DETACH, (uint32_t)attached.words[0], 0, 0}, -1, &beside);
        munmap((void *)head, 4096);
    }
    return done("log");
}

/* Puts a descriptor into a socket's queue, where no process has it open. */
static void queue(int socket, int descriptor) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {0};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.header), &descriptor, sizeof(int));
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
    close(descriptor);
}

/* Where a block of the pool is mapped, if it is. */
static char *place_of(uint64_t block) {
    uint64_t at = block * 4096 - first_segment_at;
    return block * 4096 < first_segment_at || at / segment_bytes >= segments || !maps[at / segment_bytes] ? NULL : maps[at / segment_bytes] + at % segment_bytes;
}

/* Stores words and records into the lease while the next server applies it. */
static void scribble(const uint64_t *head, const struct reply *attached) {
    uint64_t ring_blocks = attached->words[4], spare_blocks = attached->words[5];
    for (int times = 0; times < 1000; times++) {
        uint64_t at = (uint64_t)rand() % (ring_blocks + spare_blocks), sequence = attached->words[7] + (uint64_t)rand() % 64;
        char *ring = place_of(head[8]), *any = place_of(at < ring_blocks ? head[8 + at] : head[8 + ring_blocks + 2 * (at - ring_blocks) + 1]);
        if (any)
            *(uint64_t *)(any + rand() % 512 * 8) = (uint64_t)rand();
        if (ring)
            write_record(ring + sequence % 64 * 64, (uint64_t[8]){sequence, (uint64_t)rand() % 3000, (uint64_t)rand() % 9000000, 1, (uint64_t)rand() % 600, 0, 0, attached->words[6]});
    }
}

static int is_there(const char *folder, const char *sign) {
    char name[4096];
    snprintf(name, sizeof name, "%s/%s", folder, sign);
    return access(name, F_OK) == 0;
}

static int late(const char *folder) {
    const uint64_t *head;
    int pair[2];
    struct reply attached = attach(&head);
    CHECK(segments <= 4096 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    for (uint64_t number = 0; number < segments; number++) {
        int descriptor = segment(number);
        if (descriptor < 0)
            continue;
        maps[number] = map(descriptor);
        close(descriptor);
    }
    volatile uint64_t *busy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, words, 0);
    CHECK(busy != MAP_FAILED);
    *busy = 1;
    munmap((void *)busy, 4096);
    queue(pair[0], words);
    close(own);
    CHECK(chdir(folder) == 0);
    close(open("ready", O_CREAT | O_WRONLY, 0600));
    struct pollfd server = {line, POLLIN, 0};
    poll(&server, 1, 60000);
    if (fork() != 0)
        _exit(0);
    close(line);
    for (int tries = 0; !is_there(folder, "go"); tries++) {
        CHECK(tries < 120000);
        if (is_there(folder, "scribble"))
            scribble(head, &attached);
        else
            usleep(1000);
    }
    for (uint64_t number = 0; number < segments; number++)
        if (maps[number])
            memset(maps[number], 'x', segment_bytes);
    printf("stored\n");
    fflush(stdout);
    pause();
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count >= 3);
    greet(arguments[2]);
    if (strcmp(arguments[1], "late") == 0 && count == 4)
        return late(arguments[3]);
    if (strcmp(arguments[1], "tail") == 0)
        return tail();
    CHECK(count == 4);
    return fill_log(atoi(arguments[3]));
}
