/* A process that wants all of what the server has only so much of, or makes it wait. Each part says PASS when it has done its worst, and stays until it is ended.
 *
 *   greedy late DIRECTORY          says that it has 64 files mapped, gives none of them back, and writes them through the kernel
 *   greedy unread FILE N           N conversations ask for segments and read no answer
 *   greedy map DIRECTORY           asks for the map of one sparse file of 1 TiB, until it is refused
 *   greedy attach DIRECTORY N      attaches N files for reading, until it is refused
 *   greedy keep DIRECTORY          frees blocks of a file that it says it has mapped, 8 MiB at a time, until it is refused
 *   greedy linger FILE             sends a socket that takes a day to close, in conversations and in connections that nobody takes in
 *   greedy hoard DIRECTORY HOW     keeps the segments of removed files, `mapped` or `queued`
 *   greedy hide FILE READY         says that it is busy; when the server is gone, ends, and leaves a child with its file of words */
#include "talk.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define FILES 64

/* Says what was done, and stays. */
static int stay(const char *what, long number) {
    printf("PASS %s %ld\n", what, number);
    fflush(stdout);
    pause();
    return 0;
}

/* Meets the server of a file: the line, and its file of words. */
static int greet(int file, int *words) {
    int line = meet(file);
    CHECK(ask(line, (struct request){HELLO, 0, VERSION, 0}, -1, words).refusal == 0);
    return line;
}

static void say_busy(int words) {
    uint64_t *map = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, words, 0);
    CHECK(map != MAP_FAILED);
    memset(map, 1, 1 << 16);
}

static struct reply attach(int line, int file) {
    int memory;
    struct reply reply = ask(line, (struct request){ATTACH, 0, 0, 0}, file, &memory);
    if (memory >= 0)
        close(memory);
    return reply;
}

static struct reply map_file(int line, const struct reply *attached) {
    int beside;
    return ask(line, (struct request){MAPPING, (uint32_t)attached->words[0], 0, 0}, -1, &beside);
}

static int late(void) {
    int files[FILES], words;
    for (int i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof name, "late%d", i);
        files[i] = open(name, O_RDWR | O_CREAT, 0600);
        CHECK(files[i] >= 0 && pwrite(files[i], "abc", 3, 0) == 3);
    }
    int line = greet(files[0], &words);
    say_busy(words);
    for (int i = 0; i < FILES; i++) {
        struct reply attached = attach(line, files[i]);
        CHECK(attached.refusal == 0 && map_file(line, &attached).refusal == 0);
    }
    for (int i = 0; i < FILES; i++)
        if (fork() == 0) {
            CHECK(pwrite(files[i], "xyz", 3, 0) == 3);
            _exit(0);
        }
    return stay("late", FILES);
}

static int unread(int file, int count) {
    for (int i = 0; i < count; i++) {
        int words, line = greet(file, &words);
        CHECK(attach(line, file).refusal == 0);
        struct request segments = {SEGMENTS, 0, 0, UINT32_MAX};
        for (int k = 0; k < 5000 && send(line, &segments, sizeof segments, MSG_NOSIGNAL) == sizeof segments; k++)
            ;
    }
    return stay("unread", count);
}

static int map(void) {
    int words, beside, file = open("sparse", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, 1l << 40) == 0);
    int line = greet(file, &words);
    struct reply attached = attach(line, file);
    CHECK(attached.refusal == 0);
    uint64_t first = 0;
    while (first < attached.words[3] && ask(line, (struct request){MAP, (uint32_t)attached.words[0], first, 64 * 512}, -1, &beside).refusal == 0)
        first += 64 * 512;
    CHECK(first < attached.words[3]);
    return stay("map", (long)(first / 512 * 4096 >> 20));
}

static int attach_many(int count) {
    int words, first = open("first", O_RDWR | O_CREAT, 0600), line = greet(first, &words), done = 0;
    for (; done < count; done++) {
        char name[16];
        snprintf(name, sizeof name, "many%d", done);
        int file = open(name, O_RDWR | O_CREAT, 0600);
        CHECK(file >= 0);
        uint32_t refusal = attach(line, file).refusal;
        close(file);
        CHECK(refusal == 0 || refusal == NO_ROOM);
        if (refusal)
            break;
    }
    return stay("attach", done);
}

static int keep(void) {
    static char mebibyte[1 << 20];
    int words, beside, file = open("kept", O_RDWR | O_CREAT, 0600), rounds = 0;
    CHECK(file >= 0);
    int line = greet(file, &words);
    say_busy(words);
    memset(mebibyte, 7, sizeof mebibyte);
    for (; rounds < 26; rounds++) {
        for (off_t at = 0; at < 8; at++)
            CHECK(pwrite(file, mebibyte, sizeof mebibyte, at << 20) == sizeof mebibyte);
        struct reply attached = attach(line, file);
        CHECK(attached.refusal == 0);
        ask(line, (struct request){MAP, (uint32_t)attached.words[0], 0, 64 * 512}, -1, &beside);
        if (map_file(line, &attached).refusal)
            break;
        CHECK(ftruncate(file, 0) == 0);
    }
    return stay("keep", rounds * 8);
}

/* A socket with much to send that nobody receives, and that waits for that a day when it is closed. */
static int lingering(void) {
    static char junk[65536];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (void *)&at, length) == 0 && listen(listener, 1) == 0 && getsockname(listener, (void *)&at, &length) == 0);
    CHECK(connect(ours, (void *)&at, length) == 0 || errno == EINPROGRESS);
    CHECK(accept(listener, NULL, NULL) >= 0);
    close(listener);
    while (write(ours, junk, sizeof junk) > 0)
        ;
    struct linger day = {1, 86400};
    CHECK(setsockopt(ours, SOL_SOCKET, SO_LINGER, &day, sizeof day) == 0);
    return ours;
}

/* Sends a message with a descriptor. */
static void pass(int line, int with) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {0};
    struct request hello = {HELLO, 0, VERSION, 0};
    struct iovec part = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(int))};
    control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.header), &with, sizeof(int));
    sendmsg(line, &message, MSG_NOSIGNAL);
}

static int linger(int file) {
    pid_t child = fork();
    if (child == 0) {
        int lines[128], sockets[60];
        for (int i = 0; i < 60; i++)
            sockets[i] = lingering();
        for (int i = 0; i < 128; i++) {
            lines[i] = meet(file);
            usleep(2000);
        }
        /* The first ones have a place, the others find none. */
        for (int i = 0; i < 60; i++)
            pass(i < 5 ? lines[i] : meet(file), sockets[i]);
        /* Who ends does not wait, and what is on its way has the last ones. */
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    close(file);
    return stay("linger", 60);
}

static void mapped(int segment, size_t bytes) {
    CHECK(mmap(NULL, bytes, PROT_READ, MAP_SHARED, segment, 0) != MAP_FAILED);
    close(segment);
}

/* Each pair of sockets takes few messages that nobody receives. */
static void queued(int segment) {
    static int pair[2], count;
    if (count++ % 8 == 0)
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    pass(pair[0], segment);
    close(segment);
}

static int hoard(const char *how) {
    static char mebibyte[1 << 20], has[4096];
    int words, first = open("first", O_RDWR | O_CREAT, 0600), line = meet(first);
    struct reply welcome = ask(line, (struct request){HELLO, 0, VERSION, 0}, -1, &words);
    CHECK(welcome.refusal == 0 && welcome.words[3] <= sizeof has);
    long kept = 0;
    memset(mebibyte, 7, sizeof mebibyte);
    for (int round = 0, idle = 0; round < 200 && idle < 8; round++, idle++) {
        int file = open("hoard", O_RDWR | O_CREAT | O_TRUNC, 0600), beside;
        CHECK(file >= 0);
        for (int at = 0; at < 28 && pwrite(file, mebibyte, sizeof mebibyte, (off_t)at << 20) == sizeof mebibyte; at++)
            ;
        /* Without a file that is attached for writing there are no segments to write. */
        struct reply attached = ask(line, (struct request){ATTACH, 0, 1, 0}, file, &beside);
        for (uint64_t number = 0; attached.refusal == 0 && number < welcome.words[3]; number++) {
            int segment;
            if (has[number] || ask(line, (struct request){SEGMENTS, 1, number, 1}, -1, &segment).refusal || segment < 0)
                continue;
            if (how[0] == 'm')
                mapped(segment, welcome.words[2]);
            else
                queued(segment);
            has[number] = 1, kept++, idle = 0;
        }
        if (attached.refusal == 0)
            ask(line, (struct request){DETACH, (uint32_t)attached.words[0], 0, 0}, -1, &beside);
        close(file);
        CHECK(unlink("hoard") == 0);
    }
    /* From here on only the segments say what it has. */
    close(line), close(first), close(words);
    return stay("hoard", kept * (long)welcome.words[2] >> 20);
}

static int hide(int file, const char *ready) {
    int words, line = greet(file, &words);
    say_busy(words);
    close(file);
    close(open(ready, O_CREAT | O_WRONLY, 0600));
    struct pollfd server = {line, POLLIN, 0};
    poll(&server, 1, 30000);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    printf("%d\n", child);
    fflush(stdout);
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count >= 3);
    const char *what = arguments[1], *where = arguments[2];
    struct rlimit files = {20000, 20000};
    setrlimit(RLIMIT_NOFILE, &files);
    if (strcmp(what, "unread") == 0 || strcmp(what, "linger") == 0 || strcmp(what, "hide") == 0) {
        int file = open(where, O_RDWR);
        CHECK(file >= 0);
        if (what[0] == 'u')
            return unread(file, atoi(arguments[3]));
        return what[0] == 'l' ? linger(file) : hide(file, arguments[3]);
    }
    CHECK(chdir(where) == 0);
    if (strcmp(what, "late") == 0)
        return late();
    if (strcmp(what, "map") == 0)
        return map();
    if (strcmp(what, "attach") == 0)
        return attach_many(atoi(arguments[3]));
    if (strcmp(what, "hoard") == 0)
        return hoard(arguments[3]);
    CHECK(strcmp(what, "keep") == 0);
    return keep();
}
