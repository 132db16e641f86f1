/* Positions: one description, one position, whoever moves it: duplicates, children, other programs, receivers of descriptors. */
#include "check.h"
#include <dirent.h>

#define RECORDS 400

static void write_record(int file, int number) {
    char line[9];
    snprintf(line, sizeof line, "%07d\n", number);
    CHECK(write(file, line, 8) == 8);
}

static void read_record(int file, int number) {
    char line[9] = {0}, expected[9];
    snprintf(expected, sizeof expected, "%07d\n", number);
    ssize_t got = read(file, line, 8);
    if (got != 8 || memcmp(line, expected, 8))
        printf("record %d at %ld: %zd bytes, %.7s\n", number, (long)lseek(file, 0, SEEK_CUR), got, line);
    CHECK(got == 8 && memcmp(line, expected, 8) == 0);
}

/* A handler that is called before a fork opens a file and reads ten bytes of it: nobody has looked at anything yet. */
static int opened_at_fork = -1;
static void open_at_fork(void) {
    char byte;
    if (opened_at_fork >= 0)
        return;
    opened_at_fork = open("at-fork", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 10; i++)
        CHECK(read(opened_at_fork, &byte, 1) == 1);
}

/* A child of a process that has not used anything three times yet: both go on at one position. */
static void early_fork(void) {
    char bytes[64];
    int status, file = open("early", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("at-fork", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 64; i++)
        bytes[i] = (char)i;
    CHECK(file >= 0 && write(other, bytes, 64) == 64 && close(other) == 0);
    CHECK(pthread_atfork(open_at_fork, NULL, NULL) == 0);
    pid_t child = fork();
    for (int i = 0; i < 20; i++)
        CHECK(write(file, "six by", 6) == 6);
    if (child == 0)
        _exit(read(opened_at_fork, bytes, 1) != 1 || bytes[0] != 10);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(size_of("early") == 240 && lseek(file, 0, SEEK_CUR) == 240);
    CHECK(read(opened_at_fork, bytes, 1) == 1 && bytes[0] == 11);
    CHECK(close(file) == 0 && close(opened_at_fork) == 0);
}

static void sequential(void) {
    int file = warm_file("sequential", 0);
    for (int i = 0; i < RECORDS; i++) {
        write_record(file, i);
        CHECK(lseek(file, 0, SEEK_CUR) == 8 * (i + 1));
    }
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    for (int i = 0; i < RECORDS; i++)
        read_record(file, i);
    char end;
    CHECK(read(file, &end, 1) == 0);
    CHECK(lseek(file, -16, SEEK_END) == 8 * (RECORDS - 2));
    read_record(file, RECORDS - 2);
    CHECK(lseek(file, -16, SEEK_CUR) == 8 * (RECORDS - 3));
    read_record(file, RECORDS - 3);
    off_t before = lseek(file, 0, SEEK_CUR);
    errno = 0;
    CHECK(lseek(file, -1, SEEK_SET) == -1 && errno == EINVAL);
    CHECK(lseek(file, -1000000, SEEK_CUR) == -1 && errno == EINVAL);
    CHECK(lseek(file, 0, 77) == -1 && errno == EINVAL);
    CHECK(lseek(file, 0, SEEK_CUR) == before);
    /* A hole behind the end. */
    CHECK(lseek(file, 100000, SEEK_SET) == 100000);
    write_record(file, 7);
    CHECK(lseek(file, 0, SEEK_END) == 100008);
    CHECK(lseek(file, 0, SEEK_DATA) == 0 && lseek(file, 0, SEEK_CUR) == 0);
    CHECK(size_of("sequential") == 100008);
    CHECK(ftruncate(file, 8) == 0);
    CHECK(lseek(file, 0, SEEK_END) == 8);
    close(file);
}

static void duplicates(void) {
    int file = warm_file("duplicates", 0);
    int copy = dup(file), second = fcntl(file, F_DUPFD_CLOEXEC, 100);
    CHECK(copy >= 0 && second >= 100);
    for (int i = 0; i < RECORDS; i++)
        write_record(i % 3 == 0 ? file : i % 3 == 1 ? copy : second, i);
    CHECK(lseek(copy, 0, SEEK_SET) == 0);
    for (int i = 0; i < RECORDS; i++)
        read_record(i % 2 ? file : second, i);
    CHECK(close(file) == 0);
    CHECK(lseek(copy, 800, SEEK_SET) == 800);
    read_record(second, 100);
    /* Over another file that was in use itself. */
    int other = warm_file("other", 0);
    write_record(other, 1);
    CHECK(dup2(copy, other) == other);
    read_record(other, 101);
    CHECK(dup2(other, other) == other);
    read_record(other, 102);
    errno = 0;
    CHECK(dup2(9999, other) == -1 && errno == EBADF);
    read_record(other, 103);
    CHECK(size_of("other") == 64);
    /* Duplicated at once, before anything was read. */
    int fresh = open("duplicates", O_RDONLY);
    int twin = dup(fresh);
    for (int i = 0; i < RECORDS; i++)
        read_record(i % 2 ? fresh : twin, i);
    close(fresh), close(twin), close(other), close(copy), close(second);
}

static void appends(void) {
    int file = warm_file("appends", O_APPEND), other = open("appends", O_WRONLY | O_APPEND);
    for (int i = 0; i < RECORDS; i++) {
        write_record(i % 2 ? file : other, i);
        CHECK(lseek(i % 2 ? file : other, 0, SEEK_CUR) == 8 * (i + 1));
        if (i % 7 == 0)
            CHECK(lseek(file, 3, SEEK_SET) == 3);
    }
    /* As Linux does it: the offset is ignored, the position stays. */
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    CHECK(pwrite(file, "0000400\n", 8, 0) == 8);
    for (int i = 0; i <= RECORDS; i++)
        read_record(file, i);
    /* O_APPEND taken away and given. */
    CHECK(fcntl(file, F_SETFL, 0) == 0);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    write_record(file, 0);
    CHECK(size_of("appends") == 8 * (RECORDS + 1));
    CHECK(fcntl(file, F_SETFL, O_APPEND) == 0);
    write_record(file, RECORDS + 1);
    CHECK(size_of("appends") == 8 * (RECORDS + 2));
    close(file), close(other);
}

/* Turns with a child, through two pipes: both use the shared position. */
static void turns(int flags) {
    int file = warm_file("turns", flags), to[2], from[2];
    char turn = 0;
    for (int i = 0; i < 50; i++)
        write_record(file, i);
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 51; i < RECORDS; i += 2) {
            CHECK(read(to[0], &turn, 1) == 1);
            write_record(file, i);
            CHECK(write(from[1], &turn, 1) == 1);
        }
        _exit(0);
    }
    for (int i = 50; i < RECORDS; i += 2) {
        write_record(file, i);
        CHECK(write(to[1], &turn, 1) == 1);
        CHECK(read(from[0], &turn, 1) == 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(lseek(file, 0, SEEK_CUR) == 8 * RECORDS);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    for (int i = 0; i < RECORDS; i++)
        read_record(file, i);
    close(file), close(to[0]), close(to[1]), close(from[0]), close(from[1]);
}

/* Both at once, nothing is lost: each record is there once. */
static void race_of_children(int with_vfork) {
    int file = warm_file("race", 0);
    CHECK(ftruncate(file, 0) == 0);
    write_record(file, 0);
    pid_t child = with_vfork ? vfork() : fork();
    CHECK(child >= 0);
    for (int i = 1; i <= RECORDS; i++)
        write_record(file, child ? i : 10000 + i);
    if (child == 0)
        _exit(0);
    int status, seen[2] = {0, 0};
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    for (int i = 0; i <= 2 * RECORDS; i++) {
        char line[9] = {0};
        CHECK(read(file, line, 8) == 8);
        int number = atoi(line), of_child = number > 10000;
        CHECK(number == 0 ? i == 0 : number - 10000 * of_child == ++seen[of_child]);
    }
    CHECK(seen[0] == RECORDS && seen[1] == RECORDS);
    close(file);
}

/* A child works on its own: opens, reads at offsets, and its grandchild too. */
static void children_on_their_own(void) {
    int file = warm_file("own", 0);
    for (int i = 0; i < RECORDS; i++)
        write_record(file, i);
    pid_t child = fork();
    if (child == 0) {
        char line[8];
        for (int i = 0; i < RECORDS; i++)
            CHECK(pread(file, line, 8, 8 * i) == 8 && atoi(line) == i);
        int mine = warm_file("own-child", 0);
        for (int i = 0; i < RECORDS; i++)
            write_record(mine, i);
        pid_t grandchild = (pid_t)syscall(SYS_fork);
        if (grandchild == 0) {
            write_record(mine, RECORDS);
            close(file);
            _exit(0);
        }
        int status;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        write_record(mine, RECORDS + 1);
        CHECK(size_of("own-child") == 8 * (RECORDS + 2));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    write_record(file, RECORDS);
    CHECK(size_of("own") == 8 * (RECORDS + 1));
    close(file);
}

/* A program that inherits the descriptor goes on where this one was. */
static void programs(const char *self) {
    int file = warm_file("programs", 0);
    CHECK(fcntl(file, F_SETFD, 0) == 0);
    for (int i = 0; i < RECORDS; i++)
        write_record(file, i);
    CHECK(lseek(file, 80, SEEK_SET) == 80);
    char number[16];
    snprintf(number, sizeof number, "%d", file);
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        if (child == 0) {
            char *arguments[] = {(char *)self, ".", number, NULL};
            if (way == 0)
                execv(self, arguments);
            else if (way == 1)
                execl(self, self, ".", number, NULL);
            else if (way == 2)
                execle(self, self, ".", number, NULL, environ);
            else {
                char command[PATH_MAX + 32];
                snprintf(command, sizeof command, "'%s' . %s", self, number);
                _exit(WEXITSTATUS(system(command)));
            }
            _exit(9);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
        read_record(file, 15 + 6 * way);
    }
    close(file);
}

/* What `programs` runs: reads records from 10 + 6 times on, five of them. */
static int inherited(int file) {
    off_t at = lseek(file, 0, SEEK_CUR);
    CHECK(at % 8 == 0);
    for (int i = 0; i < 5; i++)
        read_record(file, (int)(at / 8) + i);
    return 42;
}

static void sent(void) {
    int file = warm_file("sent", 0), sockets[2];
    for (int i = 0; i < RECORDS; i++)
        write_record(file, i);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    read_record(file, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int))]; } control = {0};
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof(int));
    CHECK(sendmsg(sockets[0], &message, 0) == 1);
    CHECK(recvmsg(sockets[1], &message, 0) == 1);
    int received;
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    CHECK(received != file);
    for (int i = 1; i < RECORDS; i++)
        read_record(i % 2 ? file : received, i);
    close(file), close(received), close(sockets[0]), close(sockets[1]);
}

/* Calls that use the position beside read and write. */
static void beside(void) {
    int from = warm_file("from", 0), to = warm_file("to", 0);
    for (int i = 0; i < RECORDS; i++)
        write_record(from, i);
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    read_record(from, 0);
    write_record(to, 0);
    size_t left = 80;
    while (left > 0) {
        ssize_t copied = copy_file_range(from, NULL, to, NULL, left, 0);
        if (copied < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS))
            break;
        CHECK(copied > 0);
        left -= (size_t)copied;
    }
    if (left == 80)
        for (int i = 1; i <= 10; i++)
            read_record(from, i), write_record(to, i);
    read_record(from, 11);
    write_record(to, 11);
    for (int i = 12; i < 100; i++)
        write_record(to, i);
    CHECK(dprintf(to, "%07d\n", 100) == 8);
    write_record(to, 101);
    CHECK(lseek(to, 0, SEEK_SET) == 0);
    for (int i = 0; i <= 101; i++)
        read_record(to, i);
    close(from), close(to);
}

/* Does to its own description of the file what it is told, and says what came of it: of a lock it sees whom it would wait for. */
static void judge(int orders, int answers) {
    struct flock lock;
    int file = open("locks", O_RDWR | O_CLOEXEC);
    CHECK(file >= 0);
    while (read(orders, &lock, sizeof lock) == sizeof lock) {
        CHECK(fcntl(file, lock.l_pid ? F_SETLK : F_GETLK, &lock) == 0);
        CHECK(write(answers, &lock, sizeof lock) == sizeof lock);
    }
    _exit(0);
}

static struct flock judged(int orders, int answers, short type, off_t start, off_t bytes, int is_to_be_set) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes, .l_pid = is_to_be_set};
    CHECK(write(orders, &lock, sizeof lock) == sizeof lock);
    CHECK(read(answers, &lock, sizeof lock) == sizeof lock);
    return lock;
}

/* Locks relative to the beginning, the position, which the library keeps meanwhile, and the end. */
static void locks(void) {
    int orders[2], answers[2], status;
    CHECK(pipe2(orders, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    CHECK(close(open("locks", O_RDWR | O_CREAT, 0600)) == 0);
    /* Before the file is opened here, so that the position is the library's. */
    pid_t child = fork();
    if (child == 0)
        close(orders[1]), judge(orders[0], answers[1]);
    CHECK(child > 0 && close(orders[0]) == 0 && close(answers[1]) == 0);
    int file = warm_file("locks", 0);
    for (int i = 0; i < 60; i++) {
        static const int commands[] = {F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW};
        static const short whences[] = {SEEK_SET, SEEK_CUR, SEEK_END};
        off_t at = 1000 + 10 * i, end = 5000 + 10 * i;
        /* Opened before the file grows: opening tells the kernel where it ends. */
        int unused = open("locks", O_RDWR | O_CLOEXEC);
        CHECK(unused >= 0 && pwrite(file, "x", 1, end - 1) == 1 && lseek(file, at, SEEK_SET) == at);
        int command = commands[i / 3 % 4];
        short whence = whences[i % 3];
        struct flock lock = {.l_type = F_WRLCK, .l_whence = whence, .l_start = whence == SEEK_SET ? 700 + i : -i, .l_len = 8};
        off_t start = lock.l_start + (whence == SEEK_CUR ? at : whence == SEEK_END ? end : 0);
        CHECK(fcntl(file, command, &lock) == 0);
        struct flock seen = judged(orders[1], answers[0], F_WRLCK, 0, 0, 0);
        CHECK(seen.l_type == F_WRLCK && seen.l_start == start && seen.l_len == 8);
        lock = (struct flock){.l_type = F_UNLCK, .l_whence = SEEK_SET};
        CHECK(fcntl(file, command, &lock) == 0);
        /* By a descriptor that nobody has looked at. Closing it drops all locks. */
        lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -3, .l_len = 2};
        CHECK(fcntl(unused, command, &lock) == 0);
        seen = judged(orders[1], answers[0], F_WRLCK, 0, 0, 0);
        CHECK(seen.l_type == F_WRLCK && seen.l_start == end - 3 && seen.l_len == 2 && close(unused) == 0);
        /* Always relative to the position. */
        CHECK(lockf(file, F_TLOCK, 5) == 0);
        seen = judged(orders[1], answers[0], F_WRLCK, 0, 0, 0);
        CHECK(seen.l_type == F_WRLCK && seen.l_start == at && seen.l_len == 5 && lockf(file, F_ULOCK, 5) == 0);
        CHECK(judged(orders[1], answers[0], F_WRLCK, 0, 0, 0).l_type == F_UNLCK);
        /* Who asks for somebody else's. */
        judged(orders[1], answers[0], F_WRLCK, at + 3, 1, 1);
        for (int before = 0; before < 2; before++) {
            lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -4 * before, .l_len = 4};
            CHECK(fcntl(file, i % 2 ? F_GETLK : F_OFD_GETLK, &lock) == 0);
            CHECK(before ? lock.l_type == F_UNLCK : lock.l_type == F_WRLCK && lock.l_start == at + 3);
        }
        judged(orders[1], answers[0], F_UNLCK, 0, 0, 1);
        CHECK(lseek(file, 0, SEEK_CUR) == at);
    }
    struct flock *volatile nowhere = NULL;
    CHECK(fcntl(file, F_SETLK, nowhere) == -1 && errno == EFAULT);
    CHECK(close(file) == 0 && close(orders[1]) == 0 && close(answers[0]) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Appending with a flag: locks on the file stay, and with an offset the position does. */
static void flagged_appends(void) {
    struct iovec data = {"abcd", 4};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int status, file = open("flagged", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && fcntl(file, F_SETLK, &lock) == 0);
    for (int i = 0; i < 30; i++)
        CHECK(pwritev2(file, &data, 1, 0, RWF_APPEND) == 4);
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(file, F_GETLK, &lock) != 0 || lock.l_type != F_WRLCK);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && size_of("flagged") == 120 && close(file) == 0);

    file = open("flagged", O_RDWR | O_APPEND);
    CHECK(write(file, "0123", 4) == 4 && lseek(file, 0, SEEK_SET) == 0);
    child = fork();
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pwritev2(file, &data, 1, 0, RWF_APPEND) == 4 && lseek(file, 0, SEEK_CUR) == 0 && close(file) == 0);
}

/* Another holder of the description says that it appends. */
static void flags_of_others(void) {
    int status, file = warm_file("others-flags", 0);
    CHECK(ftruncate(file, 0) == 0);
    for (int i = 0; i < WARM; i++)
        CHECK(pwrite(file, "aaaa", 4, 0) == 4);
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(file, F_SETFL, O_APPEND));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pwrite(file, "bbbb", 4, 0) == 4 && size_of("others-flags") == 8 && close(file) == 0);
}

/* A file comes with a message, under the number of a directory that the C library has closed. */
static void received(void) {
    int ends[2], status, files[1], rounds = 20;
    char byte, control[CMSG_SPACE(sizeof files)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    int file = warm_file("received", 0);
    CHECK(ftruncate(file, 100) == 0 && close(file) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){CMSG_LEN(sizeof files), SOL_SOCKET, SCM_RIGHTS};
        files[0] = open("received", O_RDONLY);
        memcpy(CMSG_DATA(header), files, sizeof files);
        CHECK(sendmsg(ends[1], &message, 0) == 1 && read(ends[1], &byte, 1) == 1);
        _exit(lseek(files[0], 0, SEEK_CUR) != rounds);
    }
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    DIR *stream = fdopendir(directory);
    CHECK(stream != NULL && closedir(stream) == 0 && recvmsg(ends[0], &message, 0) == 1);
    memcpy(files, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof files);
    CHECK(files[0] == directory);
    for (int i = 0; i < rounds; i++)
        CHECK(read(files[0], &byte, 1) == 1);
    CHECK(write(ends[0], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    close(files[0]), close(ends[0]), close(ends[1]);
}

int main(int count, char **arguments) {
    char self[PATH_MAX];
    CHECK(realpath("/proc/self/exe", self));
    begin(count, arguments);
    if (count > 2)
        return inherited(atoi(arguments[2]));
    early_fork();
    sequential();
    duplicates();
    appends();
    turns(0);
    turns(O_APPEND);
    race_of_children(0);
    race_of_children(1);
    children_on_their_own();
    programs(self);
    sent();
    beside();
    locks();
    flagged_appends();
    flags_of_others();
    received();
    return done("positions");
}
