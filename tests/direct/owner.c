/* Giving a file to whom it belongs does what it does without the library, just after the file was made and later: to the time of change, bits that set ids, capabilities; and whoever may not is told so. */
#include "check.h"
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <time.h>

#define NAME "journal"
#define VIEW "view/journal"
#define TRIES 40
#define SOMEBODY 1234

static uid_t me;
static gid_t mine;

static int64_t nanoseconds(int64_t seconds, int64_t rest) { return seconds * 1000000000 + rest; }

/* What kernel file systems stamp files with. */
static int64_t tick(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0);
    return nanoseconds(now.tv_sec, now.tv_nsec);
}

static void nap(void) { CHECK(usleep(12000) == 0); }

/* What the kernel tells: asked in a way that the library leaves to it. */
static struct statx told(int file) {
    struct statx status;
    CHECK(statx(file, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &status) == 0);
    return status;
}

static int64_t changed(int file) {
    struct statx status = told(file);
    return nanoseconds(status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec);
}

/* A new file under the name that others had which were used often. */
static int made(void) {
    int file = open(NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    return file;
}

/* Uses it often, so that the next one of its name is expected to be. */
static void used(int file) {
    char block[64] = "";
    for (int i = 0; i < WARM; i++) {
        CHECK(pwrite(file, block, sizeof block, 0) == sizeof block);
        CHECK(pread(file, block, sizeof block, 0) == sizeof block);
    }
    CHECK(close(file) == 0);
}

static void finished(int file) {
    used(file);
    CHECK(unlink(NAME) == 0);
}

/* All the ways to ask for the same. */
static int give(int file, int way) {
    switch (way % 6) {
    case 0: return fchown(file, me, mine);
    case 1: return fchown(file, -1, mine);
    case 2: return fchown(file, me, -1);
    case 3: return fchownat(file, "", me, mine, AT_EMPTY_PATH);
    case 4: return (int)syscall(SYS_fchown, file, me, mine);
    default: return (int)syscall(SYS_fchownat, file, "", me, mine, AT_EMPTY_PATH);
    }
}

/* Afterwards the time of change is not before the call. The kernel tells those who watch the file of a call that it got: of those that come at once it did not get most, where files are stamped with the tick. */
static void time_of_change(void) {
    int watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), unseen = 0, stamped = 0;
    CHECK(watcher >= 0);
    for (int i = 0; i < TRIES; i++) {
        struct inotify_event event;
        int file = made(), is_late = i % 4 == 3, watch = inotify_add_watch(watcher, NAME, IN_ATTRIB);
        CHECK(watch >= 0);
        if (is_late)
            nap();
        int64_t before = tick();
        errno = 4711;
        CHECK(give(file, i) == 0 && errno == 4711);
        int64_t then = changed(file);
        CHECK(then >= before);
        stamped += !is_late && then == tick();
        ssize_t seen = read(watcher, &event, sizeof event);
        CHECK(!is_late || seen > 0);
        unseen += seen < 0;
        struct statx status = told(file);
        CHECK(status.stx_uid == me && status.stx_gid == mine && (status.stx_mode & 07777) == 0600);
        CHECK(inotify_rm_watch(watcher, watch) == 0);
        while (read(watcher, &event, sizeof event) > 0) {
        }
        /* And of a file in use. */
        if (is_late) {
            finished(file), file = made();
            CHECK(write(file, "x", 1) == 1);
            nap();
            before = tick();
            CHECK(give(file, i) == 0 && changed(file) >= before);
        }
        finished(file);
    }
    const char *library = getenv("LD_PRELOAD");
    CHECK(!library || !*library || unseen > stamped / 2 || (unseen == 0 && stamped == 0));
    CHECK(close(watcher) == 0);
}

static void set_ids(void) {
    for (int i = 0; i < TRIES; i++) {
        static const mode_t modes[] = {04755, 02755, 06755};
        int file = made();
        CHECK(fchmod(file, modes[i % 3]) == 0 && (told(file).stx_mode & 07777) == modes[i % 3]);
        CHECK(give(file, i) == 0);
        CHECK((told(file).stx_mode & 07777) == 0755);
        finished(file);
    }
}

/* Where attributes take no blocks the file is none of ours, whatever the double takes it for. */
static void capabilities(void) {
    const uint32_t value[5] = {0x02000000, 1 << 10};
    for (int i = 0; i < TRIES; i++) {
        int file = made();
        CHECK(fsetxattr(file, "security.capability", value, sizeof value, 0) == 0);
        if (told(file).stx_blocks > 0) {
            CHECK(give(file, i) == 0);
            errno = 0;
            CHECK(fgetxattr(file, "security.capability", NULL, 0) == -1 && errno == ENODATA);
        }
        finished(file);
    }
}

static void to_others(void) {
    static const uid_t ids[][2] = {{SOMEBODY, -1}, {-1, SOMEBODY}, {SOMEBODY, 0}, {0, SOMEBODY}, {SOMEBODY, SOMEBODY + 1}};
    for (int i = 0; i < TRIES; i++) {
        uid_t user = ids[i % 5][0], group = ids[i % 5][1];
        int file = made();
        CHECK(fchown(file, user, group) == 0);
        struct statx status = told(file);
        CHECK(status.stx_uid == (user == (uid_t)-1 ? 0 : user) && status.stx_gid == (group == (gid_t)-1 ? 0 : group));
        finished(file);
    }
}

static int is_refused(int result) {
    int is = result == -1 && errno == EPERM;
    errno = 0;
    return is;
}

/* Who may is judged by the thread's own identity at the time of the call. */
static void by_others(void) {
    CHECK(chmod(".", 0777) == 0);
    for (int i = 0; i < TRIES; i++) {
        int file = made();
        switch (i % 4) {
        case 0:
            CHECK(seteuid(SOMEBODY) == 0 && is_refused(give(file, 0)) && seteuid(0) == 0);
            break;
        case 1:
            CHECK(setfsuid(SOMEBODY) == 0 && is_refused(give(file, 1)) && setfsuid(0) == SOMEBODY);
            break;
        case 2: {
            int status;
            pid_t child = fork();
            if (child == 0) {
                CHECK(setuid(SOMEBODY) == 0 && is_refused(give(file, 0)));
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            break;
        }
        default:
            /* An owner who is nobody else. */
            finished(file);
            CHECK(setfsuid(SOMEBODY) == 0);
            file = made();
            CHECK(fchown(file, SOMEBODY, -1) == 0 && fchown(file, -1, 0) == 0 && is_refused(fchown(file, 0, -1)));
            CHECK(told(file).stx_uid == SOMEBODY && setfsuid(0) == SOMEBODY);
            finished(file), file = made();
            CHECK(fchown(file, 0, 0) == 0);
        }
        finished(file);
    }
}

/* Descriptors for which the kernel has another answer. */
static void descriptors(void) {
    for (int i = 0; i < 6; i++) {
        int file = made(), path = open(NAME, O_PATH | O_CREAT, 0600), reader = open(NAME, O_RDONLY | O_CREAT, 0600);
        CHECK(path >= 0 && reader >= 0);
        CHECK(fchownat(file, "", me, mine, 0) == -1 && errno == ENOENT);
        CHECK(fchownat(file, "", me, mine, 0x40000000) == -1 && errno == EINVAL);
        errno = 0;
        CHECK(fchown(path, me, mine) == -1 && errno == EBADF);
        CHECK(give(reader, i) == 0 && close(path) == 0 && close(reader) == 0);
        finished(file);
    }
    errno = 0;
    CHECK(fchown(-1, me, mine) == -1 && errno == EBADF);
}

/* Does this in a child that has namespaces of its own, if it may. */
static void apart(int namespaces, void (*what)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (unshare(namespaces) == 0)
            what();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* By a mount that is read-only, of a file that is made beside it. */
static void through_read_only(void) {
    int file;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount(".", "view", NULL, MS_BIND, NULL) != 0)
        return;
    for (int i = 0; i < TRIES; i++) {
        for (int before = 0; before < 2; before++) {
            CHECK((file = open(VIEW, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0);
            used(file);
            CHECK(unlink(VIEW) == 0);
        }
        CHECK(mount(NULL, "view", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
        file = made();
        int reader = open(VIEW, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK(reader >= 0 && give(reader, 0) == -1 && errno == EROFS && close(reader) == 0);
        finished(file);
        CHECK(mount(NULL, "view", NULL, MS_REMOUNT | MS_BIND, NULL) == 0);
    }
}

/* Where nobody has a number that he could be named by. */
static void without_numbers(void) {
    for (int i = 0; i < TRIES; i++) {
        int file = made();
        struct statx status = told(file);
        CHECK(fchown(file, status.stx_uid, -1) == -1 && errno == EINVAL);
        CHECK(fchown(file, -1, status.stx_gid) == -1 && errno == EINVAL);
        finished(file);
    }
}

int main(int count, char **arguments) {
    begin(count, arguments);
    me = geteuid(), mine = getegid();
    for (int i = 0; i < 3; i++)
        finished(made());
    time_of_change();
    set_ids();
    descriptors();
    if (me == 0) {
        capabilities();
        to_others();
        by_others();
        CHECK(mkdir("view", 0700) == 0);
        apart(CLONE_NEWNS, through_read_only);
        apart(CLONE_NEWUSER, without_numbers);
    }
    return done("owner");
}
