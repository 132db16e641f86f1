/* What a process was given, in the hands of others when it is gone: they see and change nothing of what other users write there later. Says FAIL if they do.
 *
 *   heir dies OWN READY GO SECRET       the process ends, a child goes on with its mappings
 *   heir hangs-up OWN READY GO SECRET   the process hangs up and closes all that it was given, but for its mappings
 *
 * OWN is its file. Makes READY when it has what it wants, and looks for SECRET, which others have written meanwhile, when there is GO. */
#include "talk.h"
#include <sys/mman.h>

static char *maps[4096];
static size_t segment_bytes, segments;

/* Maps each segment that it can have. */
static void take_all(const char *own) {
    int file = open(own, O_RDWR), line = meet(file), process, memory, given = 0;
    struct reply welcome = ask(line, (struct request){HELLO, 0, VERSION, 0}, -1, &process);
    CHECK(welcome.refusal == 0 && welcome.words[3] <= 4096);
    segment_bytes = welcome.words[2], segments = welcome.words[3];
    CHECK(ask(line, (struct request){ATTACH, 0, 1, 0}, file, &memory).refusal == 0);
    for (size_t number = 0; number < segments; number++) {
        int segment;
        if (ask(line, (struct request){SEGMENTS, 1, number, 1}, -1, &segment).refusal)
            continue;
        maps[number] = mmap(NULL, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
        CHECK(maps[number] != MAP_FAILED);
        close(segment), given++;
    }
    CHECK(given > 0);
    printf("%d of %zu segments were given\n", given, segments);
    fflush(stdout);
    close(line), close(file), close(process), close(memory);
}

/* What others have written is not there. */
static void look(const char *secret) {
    for (size_t number = 0; number < segments; number++) {
        char *found = maps[number] ? memmem(maps[number], segment_bytes, secret, strlen(secret)) : NULL;
        if (found) {
            printf("FAIL segment %zu holds a secret of others\n", number);
            *found ^= 1;
            fflush(stdout);
            _exit(1);
        }
    }
    printf("nothing of others\n");
    fflush(stdout);
    _exit(0);
}

int main(int count, char **arguments) {
    CHECK(count == 6);
    int dies = strcmp(arguments[1], "dies") == 0, pipes[2];
    CHECK(pipe(pipes) == 0);
    /* The heir begins when the process is dead: nothing is left of that but the mappings. */
    pid_t process = dies ? getpid() : 0;
    take_all(arguments[2]);
    if (dies && fork() != 0)
        _exit(0);
    while (dies && getppid() == process)
        usleep(1000);
    close(open(arguments[3], O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (int tries = 0; access(arguments[4], F_OK) != 0; tries++) {
        CHECK(tries < 60000);
        usleep(1000);
    }
    look(arguments[5]);
}
