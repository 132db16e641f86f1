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

/* A thread that is cancelled while it waits for a pipe; and one that works directly, and ends soon after. */
static int ends[2];
static void *wait_for_pipe(void *argument) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return argument;
}

int main(int count, char **arguments) {
    begin(count, arguments);
    log_file = warm_file("signals-log", O_APPEND);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    run("signals", 0);
    run("signals-append", O_APPEND);
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
