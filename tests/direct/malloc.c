/* Threads meet on one file, and no call of theirs comes to the program's malloc: a handler that has interrupted that may write as well. */
#include "check.h"

#define THREADS 3
#define EACH 20000

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static __thread int is_inside;
static int file, called;

static void note(void) {
    if (is_inside)
        __atomic_store_n(&called, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t bytes) { return note(), __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return note(), __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { return note(), __libc_realloc(old, bytes); }

static void *work(void *argument) {
    char data[8192];
    memset(data, 'a' + (intptr_t)argument, sizeof data);
    for (int i = 0; i < EACH; i++) {
        is_inside = 1;
        ssize_t written = pwrite(file, data, sizeof data, 0), found = pread(file, data, 100, 8192);
        is_inside = 0;
        CHECK(written == sizeof data && found == 0);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    begin(count, arguments);
    file = warm_file("malloc", 0);
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(!called);
    return done("malloc");
}
