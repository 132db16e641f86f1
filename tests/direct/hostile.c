/* A process that has a right to some files and wants more: talks to the server of direct access as no library does. Says FAIL if it gets what it should not.
 *
 *   hostile OWN OTHERS DIRECTORY SECRET SEED      OWN is its file, OTHERS one of somebody else that it may read; SECRET stands in files of others that it may not read */
#include "protocol.h"
#include <poll.h>
#include <sys/mman.h>

static struct discovery discovery;
static unsigned seed;
static const char *secret;

static uint64_t any(void) { return (uint64_t)rand_r(&seed) << 40 ^ (uint64_t)rand_r(&seed) << 20 ^ (uint64_t)rand_r(&seed); }

static int meet(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int line = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(line >= 0);
    size_t length = strlen(discovery.socket);
    memcpy(name.sun_path + 1, discovery.socket, length);
    struct timeval patience = {5, 0};
    CHECK(setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    CHECK(setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
    CHECK(connect(line, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0);
    return line;
}

/* Sends any bytes with any descriptors. */
static ssize_t tell(int line, const void *bytes, size_t length, const int *beside, size_t count) {
    char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec part = {(void *)bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), beside, count * sizeof(int));
    }
    return sendmsg(line, &message, MSG_NOSIGNAL);
}

/* Descriptors beside the last reply. */
static int heard[253];
static size_t heard_count;

/* False if the server has hung up. The caller gets the descriptor, or all of them if it asks for `heard`. */
static int hear(int line, struct reply *reply, int *beside) {
    char control[CMSG_SPACE(sizeof heard)];
    struct iovec part = {reply, sizeof *reply};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(line, &message, MSG_CMSG_CLOEXEC);
    heard_count = 0;
    if (got > 0 && CMSG_FIRSTHDR(&message)) {
        heard_count = (CMSG_FIRSTHDR(&message)->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(heard, CMSG_DATA(CMSG_FIRSTHDR(&message)), heard_count * sizeof(int));
    }
    if (beside != heard)
        for (size_t i = beside ? 1 : 0; i < heard_count; i++)
            close(heard[i]);
    if (beside && beside != heard)
        *beside = heard_count ? heard[0] : -1;
    CHECK(got >= 0 || errno == ECONNRESET || errno == EPIPE); /* The server answers in time. */
    return got == sizeof *reply;
}

static struct reply ask(int line, uint32_t kind, uint32_t file, uint64_t first, uint64_t second, int with, int *beside) {
    struct request request = {kind, file, first, second};
    struct reply reply;
    CHECK(tell(line, &request, sizeof request, &with, with >= 0) == sizeof request);
    CHECK(hear(line, &reply, beside));
    return reply;
}

static unsigned granted, refused;

static void holds_no_secret(const struct reply *welcome, uint64_t number, const void *map) {
    if (memmem(map, welcome->words[2], secret, strlen(secret))) {
        printf("FAIL segment %lu holds a secret of others\n", number);
        _exit(1);
    }
}

/* What was given one by one, to read and to write. */
static unsigned char given_alone[2][1 << 16];

/* A row of segments at such a distance gives those that one by one are given, and no other. */
static void row(int line, const struct reply *welcome, uint64_t first, uint64_t distance, uint32_t writes) {
    uint64_t expected = 0;
    for (uint64_t bit = 0, number = first; bit < AT_ONCE && number < welcome->words[3]; bit++, number += distance)
        expected |= (uint64_t)given_alone[writes][number] << bit;
    struct reply reply = ask(line, SEGMENTS, writes, first, UINT32_MAX | (distance - 1) << AT_ONCE, -1, heard);
    uint64_t given = reply.refusal ? 0 : reply.words[0];
    CHECK(given == expected && heard_count == (size_t)__builtin_popcountll(given));
    size_t next = 0;
    for (uint64_t bit = 0; bit < AT_ONCE; bit++) {
        if (!(given >> bit & 1))
            continue;
        void *map = mmap(NULL, welcome->words[2], PROT_READ, MAP_SHARED, heard[next], 0);
        CHECK(map != MAP_FAILED);
        holds_no_secret(welcome, first + bit * distance, map);
        munmap(map, welcome->words[2]);
        errno = 0;
        CHECK(writes || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, heard[next], 0) == MAP_FAILED);
        close(heard[next++]);
    }
}

/* All segments that the server gives: nothing of others stands in them. */
static void segments(int line, const struct reply *welcome, unsigned char **maps) {
    static const uint64_t distances[] = {2, 7, 32, 64, 1ul << 32};
    CHECK(welcome->words[3] <= sizeof given_alone[0]);
    memset(given_alone, 0, sizeof given_alone);
    for (uint64_t number = 0; number < welcome->words[3]; number++) {
        for (uint64_t writes = 0; writes < 2; writes++) {
            int file;
            struct reply reply = ask(line, SEGMENTS, (uint32_t)writes, number, 1, -1, &file);
            if (reply.refusal) {
                CHECK(reply.refusal == NOT_YOURS && file < 0);
                refused++;
                continue;
            }
            CHECK(file >= 0 && heard_count == 1 && reply.words[0] == 1);
            granted++;
            given_alone[writes][number] = 1;
            void *map = mmap(NULL, welcome->words[2], PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, file, 0);
            CHECK(map != MAP_FAILED);
            holds_no_secret(welcome, number, map);
            CHECK(!writes || madvise(map, 4096, MADV_REMOVE) == -1); /* No holes can be made in it. */
            if (writes && maps)
                maps[number] = map;
            else
                munmap(map, welcome->words[2]);
            /* A segment cannot be cut off. */
            if (writes)
                fcntl(file, F_ADD_SEALS, F_SEAL_WRITE);
            close(file);
        }
    }
    for (uint32_t writes = 0; writes < 2; writes++) {
        for (uint64_t first = 0; first < welcome->words[3]; first += AT_ONCE)
            row(line, welcome, first, 1, writes);
        for (uint64_t first = 0; first < welcome->words[3] && first < AT_ONCE; first++)
            for (size_t i = 0; i < sizeof distances / sizeof *distances; i++)
                row(line, welcome, first, distances[i], writes);
    }
    for (uint64_t bits = 1; bits; bits = bits == 1 ? UINT64_MAX : 0) {
        struct reply reply = ask(line, SEGMENTS, 0, welcome->words[3], bits, -1, NULL);
        CHECK(reply.refusal == NOT_YOURS || reply.refusal == PROTOCOL);
        CHECK(ask(line, SEGMENTS, 0, UINT64_MAX, bits, -1, NULL).refusal != 0);
    }
    CHECK(ask(line, SEGMENTS, 0, 0, 0, -1, NULL).refusal == PROTOCOL);
    CHECK(ask(line, SEGMENTS, 0, 0, UINT64_MAX << AT_ONCE, -1, NULL).refusal == PROTOCOL);
}

static void refusals(const char *own, const char *others, const char *directory) {
    int line = meet(), pipes[2], theirs = open(others, O_RDONLY), mine = open(own, O_RDWR), place = open(directory, O_RDONLY | O_DIRECTORY);
    int by_path = open(own, O_PATH), read_only = open(own, O_RDONLY), write_only = open(own, O_WRONLY), elsewhere = open("/proc/self/exe", O_RDONLY), memory = memfd_create("m", 0);
    CHECK(theirs >= 0 && mine >= 0 && place >= 0 && by_path >= 0 && read_only >= 0 && write_only >= 0 && elsewhere >= 0 && memory >= 0 && pipe(pipes) == 0);
    errno = 0;
    CHECK(open(others, O_RDWR) == -1 && errno == EACCES);
    CHECK(ask(line, HELLO, 0, VERSION + 1, 0, -1, NULL).refusal == PROTOCOL);
    CHECK(ask(line, HELLO, 0, 0, 0, -1, NULL).refusal == PROTOCOL);
    struct reply welcome = ask(line, HELLO, 0, VERSION, 0, -1, NULL);
    CHECK(welcome.refusal == 0 && welcome.words[0] == VERSION);
    CHECK(ask(line, HELLO, 0, VERSION, 0, -1, NULL).refusal == PROTOCOL);
    segments(line, &welcome, NULL);
    CHECK(granted == 0);
    CHECK(ask(line, ATTACH, 0, 0, 0, -1, NULL).refusal == PROTOCOL);
    for (uint64_t writes = 0; writes < 2; writes++) {
        CHECK(ask(line, ATTACH, 0, writes, 0, pipes[writes], NULL).refusal == NOT_OURS);
        CHECK(ask(line, ATTACH, 0, writes, 0, elsewhere, NULL).refusal == NOT_OURS);
        CHECK(ask(line, ATTACH, 0, writes, 0, memory, NULL).refusal == NOT_OURS);
        CHECK(ask(line, ATTACH, 0, writes, 0, by_path, NULL).refusal == NOT_OURS);
        CHECK(ask(line, ATTACH, 0, writes, 0, line, NULL).refusal == NOT_OURS);
        struct reply reply = ask(line, ATTACH, 0, writes, 0, place, NULL);
        CHECK(reply.refusal == NOT_OURS || reply.refusal == UNSUITABLE);
    }
    CHECK(ask(line, ATTACH, 0, 0, 0, theirs, NULL).refusal == NOT_YOURS);
    CHECK(ask(line, ATTACH, 0, 1, 0, theirs, NULL).refusal == NOT_OURS);
    CHECK(ask(line, ATTACH, 0, 1, 0, read_only, NULL).refusal == NOT_OURS);
    CHECK(ask(line, ATTACH, 0, 0, 0, write_only, NULL).refusal == NOT_OURS);
    for (uint32_t kind = MAP; kind <= OUTCOME; kind++)
        CHECK(ask(line, kind, 0, 0, 512, -1, NULL).refusal == ENDED);
    segments(line, &welcome, NULL);
    CHECK(granted == 0);
    /* To read, then to write: segments of its own for that, and no more. */
    struct reply reading = ask(line, ATTACH, 0, 0, 0, read_only, NULL);
    CHECK(reading.refusal == 0);
    segments(line, &welcome, NULL);
    CHECK(granted > 0 && refused > 0);
    for (uint64_t number = 0; number < welcome.words[3]; number++)
        for (uint64_t bits = 1; bits; bits = bits == 1 ? UINT64_MAX : 0)
            CHECK(ask(line, SEGMENTS, 1, number, bits, -1, NULL).refusal != 0);
    CHECK(ask(line, DETACH, (uint32_t)reading.words[0], 0, 0, -1, NULL).refusal == 0);
    close(line), close(theirs), close(mine), close(place), close(by_path), close(read_only), close(write_only), close(elsewhere), close(memory), close(pipes[0]), close(pipes[1]);
}

/* A small lease, and memory for it: that of the attachment that is named only if it is the last one that was let go, by this or before, and once. */
static uint32_t lease(int line, int mine, uint32_t named, int is_used_again) {
    int memory = -1;
    struct reply attached = ask(line, ATTACH, named, 1, 1, mine, &memory);
    /* Segments that its blocks are in and that this process has not got lie beside the answer as well. */
    uint32_t listed[4];
    memcpy(listed, &attached.words[12], sizeof listed);
    size_t new_segments = 0;
    for (size_t i = 0; i < 4; i++)
        new_segments += listed[i] != 0;
    CHECK(attached.refusal == 0 && attached.words[10] == (uint64_t)is_used_again && heard_count == new_segments + !is_used_again);
    if (memory >= 0)
        close(memory);
    return (uint32_t)attached.words[0];
}

static void memory_again(const char *own) {
    int line = meet(), mine = open(own, O_RDWR), process;
    CHECK(mine >= 0 && ask(line, HELLO, 0, VERSION, 0, -1, &process).refusal == 0);
    uint32_t first = lease(line, mine, 0, 0);
    /* It is in use, unless the question says that it was let go. */
    CHECK(ask(line, ATTACH, 0, 1, 1, mine, NULL).refusal == BUSY);
    CHECK(ask(line, ATTACH, first + 1, 1, 1, mine, NULL).refusal == BUSY);
    first = lease(line, mine, first, 1);
    CHECK(ask(line, FOLD, first - 1, 0, 0, -1, NULL).refusal == ENDED);
    struct request let_go = {LET_GO, first, 0, 0};
    CHECK(tell(line, &let_go, sizeof let_go, NULL, 0) == sizeof let_go);
    let_go.file = lease(line, mine, first + 1, 0);
    CHECK(tell(line, &let_go, sizeof let_go, NULL, 0) == sizeof let_go);
    uint32_t again = lease(line, mine, let_go.file, 1);
    CHECK(ask(line, DETACH, again, 0, 0, -1, NULL).refusal == 0);
    CHECK(ask(line, DETACH, lease(line, mine, let_go.file, 0), 0, 0, -1, NULL).refusal == 0);
    close(line), close(mine), close(process);
}

/* The server looks at the process's file: what is not there any more must not hurt it. */
static void cut(int line, int process, uint32_t file) {
    if (ftruncate(process, (off_t)(any() % 4096)) == 0)
        printf("the process's file was made shorter\n");
    ask(line, FOLD, file, 0, 0, -1, NULL);
}

/* Lies in all that it may write: ring, spare blocks, what it is busy with. */
static void lies(const char *own, int round) {
    int line = meet(), mine = open(own, O_RDWR), process, memory;
    CHECK(mine >= 0);
    struct reply welcome = ask(line, HELLO, 0, VERSION, 0, -1, &process);
    CHECK(welcome.refusal == 0 && process >= 0 && welcome.words[3] < 4096);
    struct stat status;
    CHECK(fstat(process, &status) == 0);
    uint64_t *words = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, process, 0);
    CHECK(words != MAP_FAILED);
    /* It takes no more room than it has. */
    CHECK(ftruncate(process, 2 * status.st_size) == -1 && pwrite(process, "x", 1, status.st_size) == -1 && fallocate(process, 0, 0, 1l << 40) == -1);
    CHECK(ftruncate(process, 0) == -1 && madvise(words, 4096, MADV_REMOVE) == 0);
    struct reply attached = ask(line, ATTACH, 0, 1, 0, mine, &memory);
    if (attached.refusal == BUSY || attached.refusal == NO_ROOM) {
        close(line), close(mine), close(process);
        return;
    }
    CHECK(attached.refusal == 0 && memory >= 0);
    uint32_t file = (uint32_t)attached.words[0];
    uint64_t ring_blocks = attached.words[4], spare_blocks = attached.words[5], salt = attached.words[6], next = attached.words[7], slot = attached.words[8];
    CHECK(fstat(memory, &status) == 0);
    /* Processes can only read it. */
    errno = 0;
    CHECK(mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED);
    CHECK(ftruncate(memory, 0) == -1);
    const uint64_t *head = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, memory, 0);
    CHECK(head != MAP_FAILED);
    static unsigned char *maps[4096];
    memset(maps, 0, sizeof maps);
    segments(line, &welcome, maps);
    for (int turn = 0; turn < 40; turn++) {
        for (int times = 0; times < 400; times++) {
            uint64_t at = 8 + any() % (ring_blocks + 2 * spare_blocks), block = head[at] * 4096;
            if (at >= 8 + ring_blocks && (at - 8 - ring_blocks) % 2 == 0)
                continue;
            if (block < welcome.words[1])
                continue;
            uint64_t segment = (block - welcome.words[1]) / welcome.words[2], within = (block - welcome.words[1]) % welcome.words[2];
            if (segment >= welcome.words[3] || maps[segment] == NULL)
                continue;
            uint64_t *record = (uint64_t *)(maps[segment] + within) + 8 * (any() % 64);
            for (int word = 0; word < 8; word++)
                record[word] = any() % 3 ? any() : any() % 2 ? salt : next + any() % 4;
        }
        words[slot * 8 + any() % 8] = any() % 2 ? any() : 0;
        words[any() % 8192] = any();
        switch (any() % 5) {
        case 0: ask(line, FOLD, file, any(), any(), -1, NULL); break;
        case 1: {
            struct request ring = {RING, file, 0, 0};
            tell(line, &ring, sizeof ring, NULL, 0);
            break;
        }
        case 2: ask(line, MAP, file, any() % 4096 * 512, 512, -1, NULL); break;
        case 3: ask(line, MAP, file, any(), any(), -1, NULL); break;
        default: pwrite(mine, "through the kernel", 18, (off_t)(any() % 10000)); break;
        }
    }
    if (round % 3 == 0)
        cut(line, process, file);
    if (round % 2)
        ask(line, round % 4 == 1 ? DETACH : OUTCOME, file, any(), 0, -1, NULL);
    /* Or it just goes, with all that it has. */
    close(line), close(mine), close(process), close(memory);
}

static void nonsense(const char *own, const char *others) {
    int line = -1, pipes[2], with[6];
    CHECK(pipe(pipes) == 0);
    with[0] = pipes[0], with[1] = open(own, O_RDWR), with[2] = open(others, O_RDONLY), with[3] = open(own, O_PATH), with[4] = open("/dev/null", O_RDWR), with[5] = pipes[1];
    for (int i = 0; i < 200; i++) {
        if (line < 0) {
            line = meet();
            if (any() % 8) {
                struct request hello = {HELLO, 0, VERSION, 0};
                struct reply reply;
                if (tell(line, &hello, sizeof hello, NULL, 0) < 0 || !hear(line, &reply, NULL)) {
                    close(line), line = -1;
                    continue;
                }
            }
        }
        struct request request = {(uint32_t)(any() % 13), (uint32_t)(any() % 3), any() % 3 ? any() % 600 : any(), any() % 3 ? any() % 2 : any()};
        unsigned char bytes[256];
        memcpy(bytes, &request, sizeof request);
        size_t length = any() % 20 ? sizeof request : any() % sizeof bytes, count = any() % 3 ? any() % 2 : any() % 6;
        int chosen[6];
        for (int j = 0; j < 6; j++)
            chosen[j] = with[any() % 6];
        struct reply reply;
        if (tell(line, bytes, length, chosen, count) < 0 || (request.kind != RING && request.kind != LET_GO && !hear(line, &reply, NULL)) || any() % 200 == 0)
            close(line), line = -1;
    }
    for (int j = 0; j < 6; j++)
        close(with[j]);
    if (line >= 0)
        close(line);
}

static void flood(void) {
    int lines[400], count = 0;
    for (; count < 400; count++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        size_t length = strlen(discovery.socket);
        memcpy(name.sun_path + 1, discovery.socket, length);
        lines[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CHECK(lines[count] >= 0);
        /* Full is an answer as well. */
        if (connect(lines[count], (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0 && errno == EAGAIN)
            usleep(1000);
    }
    /* Asks without listening. */
    for (int i = 0; i < count; i++)
        for (int j = 0; j < 500; j++) {
            struct request request = {j ? FOLD : HELLO, 0, VERSION, 0};
            if (send(lines[i], &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                break;
        }
    for (int i = 0; i < count; i++)
        close(lines[i]);
}

int main(int count, char **arguments) {
    CHECK(count == 6);
    secret = arguments[4];
    seed = (unsigned)atoi(arguments[5]);
    int mine = open(arguments[1], O_RDWR);
    CHECK(mine >= 0);
    CHECK(ioctl(mine, _IOR('p', 0xd1, struct discovery), &discovery) == 0);
    CHECK(discovery.magic == 0x70657264 && discovery.version == VERSION && discovery.socket[0]);
    /* By somebody else's file as well: it is the mount that is asked. */
    close(mine);
    refusals(arguments[1], arguments[2], arguments[3]);
    printf("refusals: %u segments given, %u refused\n", granted, refused);
    fflush(stdout);
    memory_again(arguments[1]);
    printf("memory is used again by whom it was given to\n");
    fflush(stdout);
    for (int round = 0; round < 24; round++) {
        pid_t child = fork();
        if (child == 0) {
            seed += (unsigned)round * 101;
            lies(arguments[1], round);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    printf("lies: 24 processes\n");
    fflush(stdout);
    for (int round = 0; round < 20; round++) {
        /* A process keeps its conversations until it ends, however they went. */
        pid_t child = fork();
        if (child == 0) {
            seed += (unsigned)round * 103;
            nonsense(arguments[1], arguments[2]);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    printf("nonsense: 20 processes\n");
    fflush(stdout);
    flood();
    return done("hostile");
}
