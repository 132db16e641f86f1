/* What programs seldom do: odd counts, flags for one write, descriptors that are used for the first time. The kernel's answers are the right ones. */
#include "check.h"
#include <linux/fs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/prctl.h>

static off_t place_of(const char *name, const char *mark) {
    static char all[1 << 16];
    int file = open(name, O_RDONLY);
    ssize_t bytes = pread(file, all, sizeof all, 0);
    char *found = bytes > 0 ? memmem(all, (size_t)bytes, mark, strlen(mark)) : NULL;
    close(file);
    return found ? found - all : -1;
}

/* A file that is written directly, and longer than the kernel knows. Another descriptor of it, opened before with these flags, was not used yet. */
static int longer_file(const char *name, off_t bytes, int flags, int *other) {
    char line[100];
    int file = warm_file(name, 0);
    CHECK((*other = open(name, flags)) >= 0);
    memset(line, '1', sizeof line);
    for (off_t at = 0; at < bytes; at += (off_t)sizeof line)
        CHECK(pwrite(file, line, sizeof line, at) == sizeof line);
    return file;
}

/* RWF_APPEND at the position by a descriptor that was not used before; and of vectors that the kernel judges. */
static void flagged_appends(void) {
    struct iovec one = {"first", 5}, odd[2] = {{NULL, 0}, {NULL, 0}};
    int other, file = longer_file("flagged", 10000, O_RDWR, &other);
    CHECK(pwritev2(other, &one, 1, -1, RWF_APPEND) == 5 && place_of("flagged", "first") == 10000);
    CHECK(lseek(other, 0, SEEK_CUR) == 10005 && size_of("flagged") == 10005);
    for (int i = 0; i < 100; i++)
        CHECK(pwrite(file, "more", 4, 10005 + 4 * i) == 4);
    odd[1] = (struct iovec){"second", 6};
    CHECK(pwritev2(other, odd, 2, -1, RWF_APPEND) == 6 && place_of("flagged", "second") == 10405);
    CHECK(lseek(other, 0, SEEK_CUR) == 10411);
    for (int i = 0; i < 100; i++)
        CHECK(pwrite(file, "more", 4, 10411 + 4 * i) == 4);
    odd[1] = (struct iovec){"third", 5};
    CHECK(pwritev2(other, odd, 2, 0, RWF_APPEND) == 5 && place_of("flagged", "third") == 10811);
    CHECK(lseek(other, 0, SEEK_CUR) == 10411 && close(other) == 0 && close(file) == 0);
}

/* By another process. */
static void appends_of_others(void) {
    int status, asks[2], file, other;
    char byte;
    struct iovec one = {"child", 5};
    CHECK(pipe(asks) == 0);
    close(open("others", O_RDWR | O_CREAT | O_TRUNC, 0600));
    pid_t child = fork();
    if (child == 0) {
        close(asks[1]);
        other = open("others", O_RDWR);
        CHECK(read(asks[0], &byte, 1) == 0);
        _exit(pwritev2(other, &one, 1, -1, RWF_APPEND) != 5 || lseek(other, 0, SEEK_CUR) != 10005);
    }
    file = longer_file("others", 10000, O_RDONLY, &other);
    CHECK(close(asks[0]) == 0 && close(asks[1]) == 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(place_of("others", "child") == 10000 && size_of("others") == 10005);
    CHECK(close(other) == 0 && close(file) == 0);
}

/* More bytes than there can be behind an address, of which the file has fewer. */
static void counts(void) {
    static char data[65536];
    const volatile size_t counts[] = {(size_t)-1, SSIZE_MAX, (size_t)1 << 63, (size_t)1 << 62, (size_t)1 << 48};
    struct {
        char room[16], behind[64];
    } *small = malloc(1 << 17);
    int file = warm_file("counts", 0);
    memset(data, 'x', sizeof data), memset(small, 'b', sizeof *small);
    CHECK(pwrite(file, data, sizeof data, 0) == sizeof data && lseek(file, 100, SEEK_SET) == 100);
    char *volatile room = small->room;
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        CHECK(pread(file, room, counts[i], 0) == -1 && errno == EFAULT);
        CHECK(read(file, room, counts[i]) == -1 && errno == EFAULT);
        CHECK(pwrite(file, room, counts[i], 0) == -1 && errno == EFAULT);
        CHECK(write(file, room, counts[i]) == -1 && errno == EFAULT);
        CHECK(small->behind[0] == 'b' && lseek(file, 0, SEEK_CUR) == 100 && size_of("counts") == sizeof data);
    }
    struct iovec two[2] = {{data, 1}, {room, (size_t)-1}};
    CHECK(readv(file, two, 2) == -1 && errno == EINVAL && preadv(file, two + 1, 1, 0) == -1 && errno == EINVAL);
    CHECK(small->behind[0] == 'b' && close(file) == 0);
    free(small);
}

/* Two threads put a file of their own at the same number: behind that the number is what the kernel says. */
static int raced[2];
static pthread_barrier_t barrier;
static volatile int is_over;
static void put(int which, unsigned *random) {
    *random = *random * 1103515245 + 12345;
    for (volatile unsigned i = (*random >> 16) % 200; i > 0; i--)
        ;
    CHECK(dup2(raced[which], 200) == 200);
}

static void *put_other(void *argument) {
    unsigned random = 2;
    while (pthread_barrier_wait(&barrier), !is_over) {
        put(1, &random);
        pthread_barrier_wait(&barrier);
    }
    return argument;
}

static void race_of_duplicates(void) {
    pthread_t thread;
    unsigned random = 1;
    char block[64], found[64];
    struct stat files[2], status;
    raced[0] = warm_file("raced-0", 0), raced[1] = warm_file("raced-1", 0);
    CHECK(fstat(raced[0], &files[0]) == 0 && fstat(raced[1], &files[1]) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&thread, NULL, put_other, NULL) == 0);
    for (int round = 0; round < 30000; round++) {
        pthread_barrier_wait(&barrier);
        put(0, &random);
        pthread_barrier_wait(&barrier);
        CHECK(fstat(200, &status) == 0);
        char path[] = "/proc/self/fd/200", name[PATH_MAX];
        ssize_t bytes = readlink(path, name, sizeof name);
        CHECK(bytes > 0);
        int which = name[bytes - 1] == '1';
        memset(block, round, sizeof block);
        CHECK(pwrite(200, block, sizeof block, 0) == sizeof block);
        CHECK(pread(raced[which], found, sizeof found, 0) == sizeof found && memcmp(block, found, sizeof block) == 0);
        CHECK(status.st_ino == files[which].st_ino);
    }
    is_over = 1;
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0 && close(200) == 0);
    /* Alone it leads to the file again, and shares the position. */
    CHECK(dup2(raced[0], 200) == 200 && lseek(raced[0], 7, SEEK_SET) == 7 && lseek(200, 0, SEEK_CUR) == 7);
    CHECK(close(200) == 0 && close(raced[0]) == 0 && close(raced[1]) == 0);
}

/* A process that lets through the system calls that it makes, and is ended by any other. */
static void filtered(void) {
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter calls[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_sendmsg), ALLOW(SYS_recvmsg), ALLOW(SYS_vmsplice), ALLOW(SYS_close), ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof calls / sizeof *calls, calls};
    int status, sockets[2], ends[2], received;
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr plain = {.msg_iov = &one, .msg_iovlen = 1}, message = plain;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0 && pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        int file = warm_file("filtered", 0);
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
        message.msg_control = control, message.msg_controllen = sizeof control;
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof file), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &file, sizeof file);
        for (int i = 0; i < 10; i++) {
            CHECK(write(file, "hello", 5) == 5);
            CHECK(sendmsg(sockets[0], &plain, 0) == 1 && recvmsg(sockets[1], &plain, 0) == 1);
            CHECK(sendmsg(sockets[0], &message, 0) == 1 && recvmsg(sockets[1], &message, 0) == 1);
            memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
            CHECK(write(received, "hello", 5) == 5 && close(received) == 0);
            CHECK(vmsplice(ends[1], &one, 1, 0) == 1 && read(ends[0], &byte, 1) == 1);
            memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &file, sizeof file);
        }
        _exit(close(file));
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && size_of("filtered") == 100);
    close(sockets[0]), close(sockets[1]), close(ends[0]), close(ends[1]);
}

/* A log of which one descriptor is written directly, by this process or another one; a second one appends for the first time. */
static void first_append(int by_child) {
    int file = -1, log, asks[2], answers[2], status;
    char byte, text[8];
    struct iovec one = {"entry", 5};
    CHECK(pipe(asks) == 0 && pipe(answers) == 0);
    pid_t child = by_child ? fork() : 0;
    if (child == 0) {
        file = longer_file("log", 10000, O_RDWR | O_APPEND, &log);
        if (by_child) {
            CHECK(write(answers[1], "x", 1) == 1 && read(asks[0], &byte, 1) == 1);
            for (int i = 0; i < 100; i++)
                CHECK(pwrite(file, "more", 4, 10000 + 4 * i) == 4);
            CHECK(write(answers[1], "x", 1) == 1);
            _exit(read(asks[0], &byte, 1) != 1);
        }
    } else {
        CHECK(read(answers[0], &byte, 1) == 1 && (log = open("log", O_RDWR | O_APPEND)) >= 0);
        CHECK(write(asks[1], "x", 1) == 1 && read(answers[0], &byte, 1) == 1);
    }
    off_t end = by_child ? 10400 : 10000;
    CHECK(write(log, "entry", 5) == 5 && place_of("log", "entry") == end);
    CHECK(lseek(log, 0, SEEK_CUR) == end + 5 && read(log, text, 5) == 0);
    CHECK(writev(log, &one, 1) == 5 && lseek(log, 0, SEEK_CUR) == end + 10 && size_of("log") == end + 10);
    if (by_child)
        CHECK(write(asks[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    else
        CHECK(close(file) == 0);
    CHECK(close(log) == 0);
    close(asks[0]), close(asks[1]), close(answers[0]), close(answers[1]);
}

/* Threads are suspended by a signal wherever they are, as collectors of garbage do it, and a line goes to the file that they write. */
static int shared_log;
static sem_t is_suspended;
static volatile long lines_written;
static void suspend(int signal) {
    (void)signal;
    int saved = errno;
    sigset_t others;
    sigfillset(&others), sigdelset(&others, SIGUSR2);
    sem_post(&is_suspended);
    sigsuspend(&others);
    errno = saved;
}

static void resume(int signal) {
    (void)signal;
}

static void *write_lines(void *argument) {
    while (!is_over) {
        CHECK(write(shared_log, "of the thread\n\n\n", 16) == 16);
        lines_written++;
    }
    return argument;
}

static void suspended(void) {
    enum { ROUNDS = 40 };
    pthread_t thread;
    char line[16];
    struct sigaction action = {.sa_handler = suspend, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    CHECK(sem_init(&is_suspended, 0, 0) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_handler = resume;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    shared_log = warm_file("suspended", 0);
    CHECK(ftruncate(shared_log, 0) == 0);
    is_over = 0;
    CHECK(pthread_create(&thread, NULL, write_lines, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        usleep(1000);
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (sem_wait(&is_suspended))
            CHECK(errno == EINTR);
        CHECK(write(shared_log, "of the collector", 16) == 16);
        CHECK(pthread_kill(thread, SIGUSR2) == 0);
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    long lines = lines_written + ROUNDS, found = 0;
    CHECK(size_of("suspended") == 16 * lines && lseek(shared_log, 0, SEEK_CUR) == 16 * lines && lseek(shared_log, 0, SEEK_SET) == 0);
    for (long i = 0; i < lines; i++) {
        CHECK(read(shared_log, line, 16) == 16 && memcmp(line, "of the ", 7) == 0);
        found += line[7] == 'c';
    }
    CHECK(found == ROUNDS && close(shared_log) == 0);
}

/* What the library opens for RWF_APPEND takes no number that the program counts on, and costs it no lock. */
static void numbers_and_locks(void) {
    int status, file = open("numbers", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("numbers-locked", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct iovec one = {"line", 4};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int lowest = dup(file);
    CHECK(close(lowest) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(pwritev2(file, &one, 1, 0, RWF_APPEND) == 4);
    CHECK(open("numbers", O_RDONLY) == lowest && close(lowest) == 0);
    CHECK(fcntl(other, F_SETLK, &lock) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(pwritev2(other, &one, 1, 0, RWF_APPEND) == 4);
    pid_t child = fork();
    if (child == 0) {
        CHECK(fcntl(other, F_GETLK, &lock) == 0);
        _exit(lock.l_type != F_WRLCK);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(size_of("numbers") == 20 && size_of("numbers-locked") == 20 && close(other) == 0 && close(file) == 0);
}

/* RWF_NOAPPEND writes where it is told to, though the file was opened with O_APPEND. Before Linux 6.9 there is none. */
static void flagged_places(void) {
#ifdef RWF_NOAPPEND
    int file = warm_file("places", O_APPEND), other = open("places", O_RDWR | O_APPEND);
    struct iovec line = {"0123456789", 10}, one = {"at 0", 4}, two = {"position", 8};
    for (int i = 0; i < 60; i++)
        CHECK(write(file, "0123456789", 10) == 10);
    if (pwritev2(other, &one, 1, 0, RWF_NOAPPEND) == -1 && errno == EOPNOTSUPP)
        return;
    CHECK(place_of("places", "at 0") == 0 && size_of("places") == 600);
    for (int i = 1; i < 20; i++) {
        CHECK(pwritev2(file, &two, 1, 10 * i, RWF_NOAPPEND) == 8 && place_of("places", "position") == 10 * i);
        CHECK(lseek(file, 0, SEEK_CUR) == 600 && size_of("places") == 600);
        CHECK(pwritev2(file, &line, 1, 10 * i, RWF_NOAPPEND) == 10 && place_of("places", "position") == -1);
    }
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        if (is_shared && fork() == 0)
            _exit(0);
        CHECK(lseek(file, 55, SEEK_SET) == 55 && pwritev2(file, &two, 1, -1, RWF_NOAPPEND) == 8);
        CHECK(lseek(file, 0, SEEK_CUR) == 63 && place_of("places", "position") == 55 && size_of("places") == 600);
        CHECK(pwritev2(file, &line, 1, 55, RWF_NOAPPEND) == 10);
    }
    CHECK(pwritev2(file, &line, 1, 0, RWF_NOAPPEND | RWF_APPEND) == -1 && errno == EINVAL);
    CHECK(wait(NULL) > 0 && write(file, "end", 3) == 3 && place_of("places", "end") == 600 && close(file) == 0 && close(other) == 0);
#endif
}

int main(int count, char **arguments) {
    begin(count, arguments);
    numbers_and_locks();
    flagged_appends();
    appends_of_others();
    flagged_places();
    counts();
    race_of_duplicates();
    filtered();
    first_append(0);
    first_append(1);
    suspended();
    return done("edges");
}
