/* A signal handler writes to the file that it interrupts a write to: no deadlock, nothing lost, errno untouched. */
#include "check.h"
#include <sys/time.h>

static int file, log_file;
static volatile sig_atomic_t handled;
static char handlers[16] = "handler-handler";
static char mains[16] = "main-main-main-";

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    CHECK(write(file, handlers, 16) == 16);
    CHECK(write(log_file, handlers, 16) == 16);
    CHECK(pwrite(log_file, "h", 1, 0) == 1);
    handled++;
    errno = saved;
}

static void run(const char *name, int flags) {
    file = warm_file(name, flags);
    CHECK(ftruncate(file, 0) == 0);
    handled = 0;
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    int written = 0;
    while (written < 20000 || handled < 50) {
        errno = 4711;
        CHECK(write(file, mains, 16) == 16);
        CHECK(errno == 4711);
        written++;
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    int total = written + handled, found = 0;
    CHECK(size_of(name) == 16L * total);
    CHECK(lseek(file, 0, SEEK_CUR) == 16L * total);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    for (int i = 0; i < total; i++) {
        char line[16];
        CHECK(read(file, line, 16) == 16);
        CHECK(memcmp(line, mains, 16) == 0 || memcmp(line, handlers, 16) == 0);
        found += line[0] == 'h';
    }
    CHECK(found == handled);
    close(file);
}

/* Whole blocks are read without a lock, so the handler comes back in the middle of that: it reads and writes the same file, and nobody waits for himself. */
#define BLOCKS 64
static char block[4096] __attribute__((aligned(4096)));
static volatile long longest_us;

static long now_us(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void reading_handler(int signal) {
    (void)signal;
    char other[4096] __attribute__((aligned(64)));
    int saved = errno, number = handled % BLOCKS;
    long begin = now_us();
    CHECK(pread(file, other, 4096, number * 4096L) == 4096);
    CHECK(other[0] == number && other[4095] == number);
    memset(other, number, 4096);
    CHECK(pwrite(file, other, handled % 3 ? 4096 : 100, number * 4096L) > 0);
    long took = now_us() - begin;
    if (took > longest_us)
        longest_us = took;
    handled++;
    errno = saved;
}

static void read_blocks(void) {
    file = warm_file("signals-blocks", 0);
    for (int i = 0; i < BLOCKS; i++) {
        memset(block, i, 4096);
        CHECK(pwrite(file, block, 4096, i * 4096L) == 4096);
    }
    handled = 0;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 200000 || handled < 200; i++) {
        int number = i % BLOCKS;
        errno = 4711;
        CHECK(pread(file, block, 4096, number * 4096L) == 4096);
        CHECK(errno == 4711 && block[0] == number && block[4095] == number);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    /* An honest wait for a lock that this very thread has takes four seconds. */
    CHECK(longest_us < 2000000);
    close(file);
}

/* The handler uses files so often that they are attached, while the program is in the middle of malloc. */
#define LOGS 40
static int logs[LOGS];
static void logging_handler(int signal) {
    (void)signal;
    int saved = errno;
    if (handled < LOGS * 10)
        for (int i = 0; i < 3; i++)
            CHECK(write(logs[handled / 10], "a line of the log\n", 18) == 18);
    handled++;
    errno = saved;
}

static void attach_in_handler(void) {
    static char *blocks[4096];
    char name[16];
    unsigned random = 1;
    for (int i = 0; i < LOGS; i++) {
        snprintf(name, sizeof name, "log-%d", i);
        logs[i] = open(name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
        for (int k = 0; k < 4; k++)
            CHECK(write(logs[i], "begin\n", 6) == 6);
    }
    handled = 0;
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (handled < LOGS * 10) {
        random = random * 1103515245 + 12345;
        char **block = &blocks[random >> 20];
        free(*block);
        CHECK((*block = malloc(16 + (random >> 8) % 3000)) != NULL);
        **block = 1;
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    for (int i = 0; i < 4096; i++)
        free(blocks[i]);
    for (int i = 0; i < LOGS; i++)
        close(logs[i]);
}

/* The handler shares the position in the middle of a read: the child's is behind it, or before. */
#define CHUNK (256 << 10)
static void forking_handler(int signal) {
    (void)signal;
    int saved = errno, status;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, &status, 0) == child);
    handled++;
    errno = saved;
}

static void share_in_handler(void) {
    static uint64_t words[CHUNK / 8];
    file = warm_file("signals-shared", 0);
    for (uint64_t i = 0; i < 4 * CHUNK / 8; i++) {
        words[i % (CHUNK / 8)] = i;
        if ((i + 1) % (CHUNK / 8) == 0)
            CHECK(pwrite(file, words, CHUNK, (i + 1) * 8 - CHUNK) == CHUNK);
    }
    close(file);
    for (int round = 0; round < 100; round++) {
        CHECK((file = open("signals-shared", O_RDONLY)) >= 0);
        struct itimerval once = {{0, 0}, {0, 100 + round * 10}};
        uint64_t next = 0;
        handled = 0;
        CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
        for (int after = 0; after < 2; after += handled) {
            CHECK(read(file, words, CHUNK) == CHUNK && words[0] == next);
            next += CHUNK / 8;
            if (next == 4 * CHUNK / 8) {
                CHECK(lseek(file, 0, SEEK_SET) == 0);
                next = 0;
            }
        }
        close(file);
    }
}

/* A thread that is cancelled while it waits for a pipe; and one that works directly, and ends soon after. */
static int ends[2];
static void *wait_for_pipe(void *argument) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return argument;
}

/* A thread is made to stand still wherever it is, as collectors do that stop the world: who writes meanwhile does not wait for it long. */
static volatile sig_atomic_t stands, goes_on;
static void standing_handler(int signal) {
    (void)signal;
    int saved = errno;
    stands = 1;
    while (!goes_on)
        usleep(100);
    errno = saved;
}

static volatile sig_atomic_t is_over;
static void *overwrite(void *argument) {
    char other[4096] = {0};
    for (int i = 0; !is_over; i++)
        CHECK(pwrite(file, other, 4096, i % BLOCKS * 4096L) == 4096);
    return argument;
}

static void stand_still(void) {
    struct sigaction action = {.sa_handler = standing_handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    file = warm_file("signals-still", 0);
    CHECK(ftruncate(file, BLOCKS * 4096L) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, overwrite, NULL) == 0);
    for (int round = 0; round < 20; round++) {
        usleep(20000);
        stands = goes_on = 0;
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (!stands)
            usleep(10);
        long begin = now_us();
        CHECK(pwrite(file, "a line", 6, BLOCKS * 4096L) == 6);
        CHECK(now_us() - begin < 2000000);
        goes_on = 1;
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    close(file);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    log_file = warm_file("signals-log", O_APPEND);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    run("signals", 0);
    run("signals-append", O_APPEND);
    action.sa_handler = reading_handler;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    read_blocks();
    action.sa_handler = logging_handler;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    attach_in_handler();
    action.sa_handler = forking_handler;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    share_in_handler();
    stand_still();
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        void *result;
        CHECK(pipe(ends) == 0);
        CHECK(pthread_create(&thread, NULL, wait_for_pipe, NULL) == 0);
        usleep(2000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        close(ends[0]), close(ends[1]);
    }
    return done("signals");
}
