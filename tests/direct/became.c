/* A process gets what it may have as who it is when it asks, not as who it was when it met the server. Says FAIL if it gets more, or less.
 *
 *   became USER OWN OTHERS USERS   root's process gets segments of OWN, which is its file, and may attach OTHERS, which is somebody else's; then it becomes USER, who may read OTHERS and owns USERS
 *   became powerless OWN OTHERS    a process of root to which modes of files apply gets segments of OWN, and may not attach OTHERS, which it may read */
#include "talk.h"
#include <stdbool.h>
#include <unistd.h>

static size_t segments;

static struct reply attach(int line, const char *path, bool for_writing) {
    int file = open(path, for_writing ? O_RDWR : O_RDONLY), memory;
    CHECK(file >= 0);
    struct reply reply = ask(line, (struct request){ATTACH, 0, for_writing, 0}, file, &memory);
    close(file), close(memory);
    return reply;
}

static size_t gets_segments(int line) {
    size_t given = 0;
    for (size_t number = 0; number < segments; number++) {
        int segment;
        struct reply reply = ask(line, (struct request){SEGMENTS, 0, number, 1}, -1, &segment);
        given += reply.refusal == 0;
        CHECK((reply.refusal == 0) == (segment >= 0));
        close(segment);
    }
    return given;
}

static int greet(const char *path) {
    int file = open(path, O_RDONLY), line = meet(file), process;
    struct reply welcome = ask(line, (struct request){HELLO, 0, VERSION, 0}, -1, &process);
    CHECK(welcome.refusal == 0);
    segments = welcome.words[3];
    close(file), close(process);
    return line;
}

int main(int count, char **arguments) {
    CHECK(count >= 4);
    bool is_powerless = strcmp(arguments[1], "powerless") == 0;
    const char *own = arguments[2], *others = arguments[3];
    int line = greet(own);
    CHECK(attach(line, own, true).refusal == 0);
    size_t as_root = gets_segments(line);
    CHECK(as_root > 0);
    uint32_t refusal = attach(line, others, false).refusal;
    if (is_powerless) {
        CHECK(refusal == NOT_YOURS);
        printf("root without power over modes: %zu segments of its own, none of others\n", as_root);
        return 0;
    }
    CHECK(refusal == 0);
    CHECK(gets_segments(line) > as_root);
    uid_t user = (uid_t)atoi(arguments[1]);
    CHECK(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
    CHECK(attach(line, others, false).refusal == NOT_YOURS);
    CHECK(gets_segments(line) == 0);
    CHECK(attach(line, arguments[4], true).refusal == 0);
    size_t as_user = gets_segments(line);
    CHECK(as_user > 0 && as_user < segments);
    printf("who was root is not any more: %zu segments, then %zu of his own\n", as_root, as_user);
    return 0;
}
