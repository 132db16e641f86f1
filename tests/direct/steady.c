/* Numbered writes by a process that the test kills, or whose server the test kills. The writer
 * notes acknowledged writes in shared memory; the checks read the files.
 *
 *   steady write FILE STATE SEED                 overwrites places of FILE and appends to FILE.log until a write fails
 *   steady await FILE STATE OPERATIONS           waits until that many writes returned: the writer is attached by then
 *   steady check FILE STATE                      every acknowledged write is there, each write is there as a whole or not at all
 *   steady kill FILE STATE COUNT PRELOAD SEED    COUNT times: start a writer with PRELOAD, kill it, check */
#include "check.h"
#include <sys/mman.h>
#include <time.h>

#define PLACES 64
#define STRIDE 40960
#define LONGEST 30000
#define LINE 100

struct state {
    /* Numbers of the writes that were begun and that returned, by place; the log comes last. */
    volatile uint64_t begun[PLACES + 1], acknowledged[PLACES + 1];
    volatile uint64_t operations, log_from;
};
static struct state *state;
static char log_name[4096];

/* Aligned, within a block, across two, across many. */
static const int lengths[4] = {4096, 120, 5000, LONGEST}, starts[4] = {0, 50, 3000, 700};

static void fill(unsigned char *bytes, int length, int place, uint64_t number) {
    uint64_t word = number * 0x9e3779b97f4a7c15u + (uint64_t)place;
    for (int i = 0; i < length; i++) {
        if (i % 8 == 0)
            word ^= word << 13, word ^= word >> 7, word ^= word << 17;
        bytes[i] = (unsigned char)(word >> (i % 8 * 8));
    }
    memcpy(bytes, &number, sizeof number);
}

static void open_state(const char *name) {
    int file = open(name, O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, sizeof *state) == 0);
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(state != MAP_FAILED);
    close(file);
}

static int failed(const char *what, ssize_t written, int length) {
    if (written == length)
        return 0;
    /* A server that is gone, in all the words that the kernel has for it. */
    if (written < 0 && (errno == ENOTCONN || errno == EIO || errno == ECONNABORTED || errno == ECANCELED || errno == ESTALE || errno == EINTR))
        return 1;
    printf("FAIL %s: %zd of %d, errno %d\n", what, written, length, errno);
    fflush(stdout);
    _exit(1);
}

static int keep_writing(const char *name, unsigned seed) {
    static unsigned char bytes[LONGEST];
    int file = open(name, O_RDWR | O_CREAT, 0600), lines = open(log_name, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file < 0 || lines < 0)
        return failed("open", -1, 0) ? 0 : 1;
    for (;;) {
        int place = (int)((unsigned)rand_r(&seed) % (PLACES * 3 / 2)), is_line = place >= PLACES;
        if (is_line)
            place = PLACES;
        int length = is_line ? LINE : lengths[place % 4];
        uint64_t number = state->acknowledged[place] + 1;
        fill(bytes, length, place, number);
        state->begun[place] = number;
        ssize_t written = is_line ? write(lines, bytes, LINE) : pwrite(file, bytes, (size_t)length, (off_t)place * STRIDE + starts[place % 4]);
        if (failed(is_line ? "append" : "write", written, length))
            return 0;
        state->acknowledged[place] = number;
        state->operations++;
    }
}

/* Complains, but does not end: the caller says what to do. */
static int check_all(const char *name) {
    static unsigned char found[LONGEST], expected[LONGEST];
    int file = open(name, O_RDONLY), lines = open(log_name, O_RDWR);
    CHECK(file >= 0 && lines >= 0);
    for (int place = 0; place < PLACES; place++) {
        int length = lengths[place % 4];
        uint64_t acknowledged = state->acknowledged[place], number = 0;
        ssize_t got = pread(file, found, (size_t)length, (off_t)place * STRIDE + starts[place % 4]);
        if (got == length)
            memcpy(&number, found, sizeof number);
        if (number == 0 && acknowledged == 0)
            continue;
        fill(expected, length, place, number);
        if (got != length || (number != acknowledged && number != state->begun[place]) || memcmp(found, expected, (size_t)length)) {
            int at = 0;
            while (at < got && found[at] == expected[at])
                at++;
            printf("FAIL place %d of %d bytes: write %lu acknowledged, %lu begun; %zd bytes of %lu there, right up to %d\n", place, length, acknowledged, state->begun[place], got, number, at);
            return 1;
        }
        /* It was seen, so it has to stay. */
        state->acknowledged[place] = number;
    }
    uint64_t line = state->log_from;
    ssize_t got;
    while ((got = read(lines, found, LINE)) == LINE) {
        fill(expected, LINE, PLACES, ++line);
        if (memcmp(found, expected, LINE)) {
            printf("FAIL line %lu of the log (%lu acknowledged) is not that\n", line, state->acknowledged[PLACES]);
            return 1;
        }
    }
    if (got != 0 || (line != state->acknowledged[PLACES] && line != state->begun[PLACES])) {
        printf("FAIL the log ends behind line %lu with %zd bytes; %lu acknowledged, %lu begun\n", line, got, state->acknowledged[PLACES], state->begun[PLACES]);
        return 1;
    }
    state->acknowledged[PLACES] = line;
    if (line - state->log_from > 10000) {
        CHECK(ftruncate(lines, 0) == 0);
        state->log_from = line;
    }
    close(file), close(lines);
    return 0;
}

/* Allocates all blocks. A write to a hole goes through the kernel, which sends a write that begins
 * within a page as two requests; a process killed between them leaves half of it. */
static void fill_up(const char *name) {
    static const char zeros[1 << 16];
    int file = open(name, O_WRONLY | O_CREAT, 0644);
    CHECK(file >= 0);
    for (off_t at = 0; at < (off_t)PLACES * STRIDE + LONGEST; at += sizeof zeros)
        CHECK(pwrite(file, zeros, sizeof zeros, at) == sizeof zeros);
    close(file);
}

static int kill_many(char **arguments, int count, unsigned seed) {
    fill_up(arguments[2]);
    char preload[4096];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", arguments[5]);
    char *environment[] = {preload, "PERDURE_DIRECT_AFTER=16", NULL};
    for (int round = 0; round < count; round++) {
        char number[16];
        snprintf(number, sizeof number, "%u", rand_r(&seed));
        uint64_t before = state->operations;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char *words[] = {arguments[0], "write", arguments[2], arguments[3], number, NULL};
            execve(arguments[0], words, environment);
            _exit(127);
        }
        /* It is attached by then, with its sixteenth operation. */
        while (state->operations < before + 100) {
            CHECK(waitpid(child, NULL, WNOHANG) == 0);
            usleep(500);
        }
        usleep(5000 + (unsigned)rand_r(&seed) % 55000);
        CHECK(kill(child, SIGKILL) == 0);
        /* Now and then before it is dead. */
        if (round % 2)
            CHECK(waitpid(child, NULL, 0) == child);
        else
            for (siginfo_t info; waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) != 0;)
                CHECK(errno == EINTR);
        if (check_all(arguments[2])) {
            printf("FAIL round %d\n", round);
            return 1;
        }
        if (round % 2 == 0)
            CHECK(waitpid(child, NULL, 0) == child);
    }
    printf("%d kills, %lu acknowledged writes\n", count, state->operations);
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count >= 4);
    snprintf(log_name, sizeof log_name, "%s.log", arguments[2]);
    open_state(arguments[3]);
    if (count == 5 && strcmp(arguments[1], "write") == 0)
        return keep_writing(arguments[2], (unsigned)atoi(arguments[4]));
    if (count == 4 && strcmp(arguments[1], "fill") == 0) {
        fill_up(arguments[2]);
        return 0;
    }
    if (count == 5 && strcmp(arguments[1], "await") == 0) {
        while (state->operations < (uint64_t)atoll(arguments[4]))
            usleep(500);
        return 0;
    }
    if (count == 4 && strcmp(arguments[1], "check") == 0) {
        int status = check_all(arguments[2]);
        if (status == 0)
            printf("%lu\n", state->operations);
        return status;
    }
    CHECK(count == 7 && strcmp(arguments[1], "kill") == 0);
    return kill_many(arguments, atoi(arguments[4]), (unsigned)atoi(arguments[6]));
}
