/* Mappings: of a file that others write, truncate and unlink through the mount and through the library; in children, in parts, by many threads; of a process that is stopped. Each page says which page of which file it is, and how
 * often it was written.
 *
 *   mmap DIRECTORY                     all of it; with the library at least some of the mappings must lie on blocks
 *   mmap hold FILE SEED                maps the file and looks at it until it is told to end (SIGTERM); a page may end in SIGBUS, but must never be anything else. Says "mapped" first.
 *   mmap lock FILE SEED                maps the file and has all memory locked
 *   mmap write FILE SEED FIRST COUNT VERSION, truncate FILE BYTES          for itself */
#include "check.h"
#include <setjmp.h>
#include <sys/sysmacros.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>

#define PAGE 4096L
#define PAGES 512L
#define BYTES (PAGES * PAGE)

static const char *self;
static int has_library;
static long direct_mappings;

struct stamp {
    uint64_t seed, page, version;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fill_page(char *page, uint64_t seed, uint64_t index, uint64_t version) {
    struct stamp stamp = {seed, index, version};
    for (size_t at = 0; at + sizeof stamp <= PAGE; at += sizeof stamp)
        memcpy(page + at, &stamp, sizeof stamp);
    memset(page + PAGE - PAGE % sizeof stamp, 'e', PAGE % sizeof stamp);
}

static void write_pages(int file, uint64_t seed, long first, long count, uint64_t version) {
    char *bytes = malloc((size_t)(count * PAGE));
    for (long page = 0; page < count; page++)
        fill_page(bytes + page * PAGE, seed, (uint64_t)(first + page), version);
    CHECK(pwrite(file, bytes, (size_t)(count * PAGE), first * PAGE) == count * PAGE);
    free(bytes);
}

/* A new file, which nobody has attached. */
static void make(const char *name, uint64_t seed, long pages) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    write_pages(file, seed, 0, pages, 1);
    CHECK(close(file) == 0);
}

static uint64_t version_at(const volatile char *map, uint64_t seed, long page, size_t at) {
    const volatile struct stamp *stamp = (const volatile struct stamp *)(map + page * PAGE + at * sizeof(struct stamp));
    CHECK(stamp->seed == seed && stamp->page == (uint64_t)page);
    return stamp->version;
}

static uint64_t version_of(const volatile char *map, uint64_t seed, long page) { return version_at(map, seed, page, 0); }

static void check_all(const char *map, uint64_t seed, long first, long behind, uint64_t version) {
    for (long page = first; page < behind; page++)
        for (size_t at = 0; at < PAGE / sizeof(struct stamp); at += 16)
            CHECK(version_at(map, seed, page, at) == version);
}

/* Whether an address belongs to another file system than the file: then it lies on blocks. -1: while others map, the list may lack it. */
static int look_up(const void *address, dev_t device) {
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps);
    char line[4096];
    int direct = -1;
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        unsigned major, minor;
        CHECK(sscanf(line, "%lx-%lx %*s %*x %x:%x", &start, &end, &major, &minor) == 4);
        if ((uintptr_t)address >= start && (uintptr_t)address < end)
            direct = makedev(major, minor) != device;
    }
    fclose(maps);
    return direct;
}

static int is_direct(const void *address, int file) {
    struct stat status;
    CHECK(fstat(file, &status) == 0);
    int direct = -1;
    for (int i = 0; i < 1000 && direct < 0; i++)
        direct = look_up(address, status.st_dev);
    CHECK(direct >= 0);
    return direct;
}

static char *map_file(const char *name, long pages, int flags, int *file) {
    *file = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(*file >= 0);
    char *map = mmap(NULL, (size_t)(pages * PAGE), PROT_READ, flags, *file, 0);
    CHECK(map != MAP_FAILED);
    if (is_direct(map, *file))
        direct_mappings++;
    return map;
}

/* Where the library should have laid blocks. */
#define expect_direct(map, file) CHECK(!has_library || is_direct(map, file))

static void unmap(char *map, long pages, int file) {
    CHECK(munmap(map, (size_t)(pages * PAGE)) == 0);
    CHECK(close(file) == 0);
}

/* Another process: this program once more. */
static pid_t begin_other(int with_library, const char *const *arguments) {
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        if (!with_library)
            unsetenv("LD_PRELOAD");
        execv(self, (char *const *)arguments);
        _exit(99);
    }
    return other;
}

static void end_other(pid_t other) {
    int status;
    CHECK(waitpid(other, &status, 0) == other);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const char *text(uint64_t number) {
    static char texts[8][24];
    static int next;
    char *place = texts[next++ % 8];
    snprintf(place, 24, "%lu", (unsigned long)number);
    return place;
}

static void other_writes(int with_library, const char *name, uint64_t seed, long first, long count, uint64_t version) {
    const char *arguments[] = {self, "write", name, text(seed), text((uint64_t)first), text((uint64_t)count), text(version), NULL};
    end_other(begin_other(with_library, arguments));
}

static int write_role(char **arguments) {
    int file = open(arguments[2], O_RDWR | O_CLOEXEC);
    CHECK(file >= 0);
    uint64_t seed = strtoul(arguments[3], NULL, 10), version = strtoul(arguments[6], NULL, 10);
    long first = atol(arguments[4]), count = atol(arguments[5]);
    /* As often as it takes until the file is leased, if there is the library. */
    for (int i = 0; i < 40; i++)
        write_pages(file, seed, first, 1, version);
    write_pages(file, seed, first, count, version);
    return 0;
}

static sigjmp_buf after_bus;
static void on_bus(int signal) {
    (void)signal;
    siglongjmp(after_bus, 1);
}

static int gives_bus_error(const volatile char *address) {
    struct sigaction action = {.sa_handler = on_bus}, before;
    CHECK(sigaction(SIGBUS, &action, &before) == 0);
    volatile int is_error = 1;
    if (sigsetjmp(after_bus, 1) == 0) {
        (void)*address;
        is_error = 0;
    }
    CHECK(sigaction(SIGBUS, &before, NULL) == 0);
    return is_error;
}

static void plain(void) {
    int file, again;
    make("plain", 1, PAGES);
    CHECK(truncate("plain", BYTES - 1000) == 0);
    char *shared = map_file("plain", PAGES, MAP_SHARED, &file), *private = map_file("plain", PAGES, MAP_PRIVATE, &again);
    expect_direct(shared, file);
    expect_direct(private, again);
    check_all(shared, 1, 0, PAGES - 1, 1);
    check_all(private, 1, 0, PAGES - 1, 1);
    for (long at = BYTES - 1000; at < BYTES; at++)
        CHECK(shared[at] == 0 && private[at] == 0);
    CHECK(msync(shared, BYTES, MS_SYNC) == 0);
    /* A mapping lives without its descriptor. */
    CHECK(close(file) == 0);
    check_all(shared, 1, 0, PAGES - 1, 1);
    CHECK(munmap(shared, BYTES) == 0);
    unmap(private, PAGES, again);
    /* Behind the end. */
    char *longer = map_file("plain", PAGES + 10, MAP_SHARED, &file);
    expect_direct(longer, file);
    check_all(longer, 1, 0, PAGES - 1, 1);
    CHECK(gives_bus_error(longer + BYTES + PAGE));
    unmap(longer, PAGES + 10, file);
    /* From the middle, over something else. */
    char *place = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    file = open("plain", O_RDONLY);
    CHECK(mmap(place + PAGE, 300 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 100 * PAGE) == place + PAGE);
    expect_direct(place + PAGE, file);
    CHECK(version_of(place + PAGE - 100 * PAGE, 1, 101) == 1);
    /* And something else over a part of it. */
    CHECK(mmap(place + 5 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place + 5 * PAGE);
    other_writes(0, "plain", 1, 0, PAGES, 2);
    CHECK(place[5 * PAGE] == 0);
    CHECK(version_of(place + PAGE - 100 * PAGE, 1, 100) == 2 && version_of(place + PAGE - 100 * PAGE, 1, 105) == 2);
    CHECK(munmap(place, BYTES) == 0);
    close(file);
    /* What is no business of ours. */
    file = open("plain", O_WRONLY);
    errno = 0;
    CHECK(mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED && errno == EACCES);
    close(file);
}

static void others_write(void) {
    for (int with_library = 0; with_library < 2; with_library++) {
        int file;
        make("written", 2, PAGES);
        char *map = map_file("written", PAGES, MAP_SHARED, &file);
        expect_direct(map, file);
        check_all(map, 2, 0, PAGES, 1);
        other_writes(with_library, "written", 2, 7, 100, 5);
        CHECK(!is_direct(map, file));
        check_all(map, 2, 0, 7, 1);
        check_all(map, 2, 7, 107, 5);
        check_all(map, 2, 107, PAGES, 1);
        other_writes(with_library, "written", 2, 200, 1, 6);
        check_all(map, 2, 200, 201, 6);
        unmap(map, PAGES, file);
    }
    /* This process itself, by another descriptor. */
    int file, writer = open("written", O_RDWR);
    make("written", 2, PAGES);
    char *map = map_file("written", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    write_pages(writer, 2, 3, 4, 9);
    check_all(map, 2, 3, 7, 9);
    close(writer);
    unmap(map, PAGES, file);
}

static void others_truncate_and_unlink(void) {
    int file;
    make("cut", 3, PAGES);
    char *map = map_file("cut", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    const char *arguments[] = {self, "truncate", "cut", text(100 * PAGE + 50), NULL};
    end_other(begin_other(0, arguments));
    check_all(map, 3, 0, 100, 1);
    CHECK(map[100 * PAGE + 60] == 0);
    CHECK(gives_bus_error(map + 200 * PAGE));
    unmap(map, PAGES, file);
    make("gone", 4, PAGES);
    map = map_file("gone", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    CHECK(unlink("gone") == 0);
    CHECK(close(file) == 0);
    make("other", 5, 4 * PAGES);
    check_all(map, 4, 0, PAGES, 1);
    CHECK(munmap(map, BYTES) == 0);
    CHECK(unlink("other") == 0);
}

static void children(void) {
    int file;
    make("inherited", 6, PAGES);
    char *map = map_file("inherited", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    pid_t child = fork();
    if (child == 0) {
        check_all(map, 6, 0, PAGES, 1);
        CHECK(!is_direct(map, file));
        int own;
        char *mine = map_file("inherited", PAGES, MAP_SHARED, &own);
        check_all(mine, 6, 0, PAGES, 1);
        _exit(0);
    }
    end_other(child);
    check_all(map, 6, 0, PAGES, 1);
    unmap(map, PAGES, file);
    /* By the system call itself. */
    map = map_file("inherited", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        check_all(map, 6, 0, PAGES, 1);
        syscall(SYS_exit_group, 0);
    }
    end_other(child);
    unmap(map, PAGES, file);
    map = map_file("inherited", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    CHECK(system("true") == 0);
    check_all(map, 6, 0, PAGES, 1);
    unmap(map, PAGES, file);
}

static void changed_mappings(void) {
    int file;
    make("changed", 7, PAGES);
    char *map = map_file("changed", PAGES, MAP_PRIVATE, &file);
    expect_direct(map, file);
    CHECK(mprotect(map + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    memset(map + PAGE, 'x', PAGE);
    check_all(map, 7, 2, PAGES, 1);
    unmap(map, PAGES, file);
    map = map_file("changed", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    check_all(map, 7, 0, PAGES, 1);
    /* The file was opened for reading. */
    CHECK(mprotect(map, BYTES, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    unmap(map, PAGES, file);
    map = map_file("changed", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    CHECK(madvise(map, BYTES, MADV_RANDOM) == 0 && madvise(map, BYTES, MADV_DONTNEED) == 0);
    expect_direct(map, file);
    CHECK(madvise(map, BYTES, MADV_REMOVE) == -1);
    check_all(map, 7, 0, PAGES, 1);
    char *moved = mremap(map, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    check_all(moved, 7, 0, PAGES, 1);
    CHECK(munmap(moved, 2 * BYTES) == 0);
    close(file);
    /* Parts. */
    map = map_file("changed", PAGES, MAP_SHARED, &file);
    expect_direct(map, file);
    CHECK(munmap(map + 10 * PAGE, 20 * PAGE) == 0 && munmap(map, PAGE) == 0);
    CHECK(syscall(SYS_munmap, map + 100 * PAGE, 100 * PAGE) == 0);
    char *stranger = mmap(map + 12 * PAGE, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(stranger == map + 12 * PAGE);
    memset(stranger, 's', 3 * PAGE);
    other_writes(0, "changed", 7, 0, PAGES, 3);
    check_all(map, 7, 1, 10, 3);
    check_all(map, 7, 30, 100, 3);
    check_all(map, 7, 200, PAGES, 3);
    for (long at = 0; at < 3 * PAGE; at++)
        CHECK(stranger[at] == 's');
    unmap(map, PAGES, file);
    /* Shared memory in its place. */
    for (int by_number = 0; by_number < 2; by_number++) {
        map = map_file("changed", PAGES, MAP_SHARED, &file);
        expect_direct(map, file);
        int segment = shmget(IPC_PRIVATE, BYTES, 0600 | IPC_CREAT);
        void *put = by_number ? (void *)syscall(SYS_shmat, segment, map, SHM_REMAP) : shmat(segment, map, SHM_REMAP);
        CHECK(put == map && shmctl(segment, IPC_RMID, NULL) == 0);
        memset(map, 's', BYTES);
        other_writes(0, "changed", 7, 0, PAGES, 4 + by_number);
        for (long at = 0; at < BYTES; at++)
            CHECK(map[at] == 's');
        CHECK(shmdt(map) == 0 && close(file) == 0);
    }
}

/* A writer through the mount says in shared memory what it has written; whoever reads afterwards must see that, or something newer. */
struct board {
    _Atomic uint64_t written[PAGES];
    _Atomic int ends;
};

/* The threads begin each round together: a file that was taken back is mapped by the kernel until all have closed it. */
/* Locked memory is the kernel's, and nobody waits for anybody. */
static int lock_role(char **arguments) {
    uint64_t seed = strtoull(arguments[3], NULL, 10);
    int first_file, second_file;
    char *first = map_file(arguments[2], PAGES, MAP_SHARED, &first_file);
    expect_direct(first, first_file);
    double begin = now();
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
        CHECK(errno == EPERM || errno == ENOMEM);
        return 0;
    }
    char *second = map_file(arguments[2], PAGES, MAP_PRIVATE, &second_file);
    CHECK(now() - begin < 0.9);
    CHECK(!is_direct(first, first_file) && !is_direct(second, second_file));
    check_all(first, seed, 0, PAGES, 1);
    check_all(second, seed, 0, PAGES, 1);
    return 0;
}

static void locked(void) {
    make("locked", 9, PAGES);
    end_other(begin_other(has_library, (const char *[]){self, "lock", "locked", "9", NULL}));
}

static pthread_barrier_t round_ends;
static int is_last_round;
static long rounds;
static _Atomic long stormy_mappings;

static void *look_on(void *argument) {
    struct board *board = argument;
    unsigned seed = (unsigned)(uintptr_t)&board ^ (unsigned)getpid();
    while (!is_last_round) {
        int file = open("stormy", O_RDONLY | O_CLOEXEC);
        char *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
        CHECK(file >= 0 && map != MAP_FAILED);
        stormy_mappings += is_direct(map, file);
        for (int i = 0; i < 30000 && !board->ends; i++) {
            long page = rand_r(&seed) % PAGES;
            uint64_t before = board->written[page], found = version_of(map, 8, page);
            if (found < before) {
                printf("FAIL page %ld has version %lu, %lu was written before\n", page, (unsigned long)found, (unsigned long)before);
                fflush(stdout);
                _exit(1);
            }
        }
        unmap(map, PAGES, file);
        if (pthread_barrier_wait(&round_ends) == PTHREAD_BARRIER_SERIAL_THREAD)
            is_last_round = board->ends, rounds++;
        pthread_barrier_wait(&round_ends);
    }
    return NULL;
}

static void storm(void) {
    make("stormy", 8, PAGES);
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    pid_t writer = fork();
    if (writer == 0) {
        int file = open("stormy", O_RDWR | O_CLOEXEC);
        unsigned seed = 5;
        /* So that the library leaves the file to the kernel: leased by this one, nobody could map it directly. */
        CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) != MAP_FAILED);
        for (uint64_t version = 2; !board->ends; version++) {
            long page = rand_r(&seed) % PAGES;
            char bytes[PAGE];
            fill_page(bytes, 8, (uint64_t)page, version);
            /* Small ones go into the blocks that there are, others to new ones. */
            CHECK(version % 3 ? pwrite(file, bytes, PAGE, page * PAGE) == PAGE : pwrite(file, bytes, sizeof(struct stamp), page * PAGE) == sizeof(struct stamp));
            board->written[page] = version;
            usleep((useconds_t)(rand_r(&seed) % 20000));
        }
        _exit(0);
    }
    pthread_t threads[3];
    CHECK(pthread_barrier_init(&round_ends, NULL, 3) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, look_on, board) == 0);
    const char *seconds = getenv("STORM_SECONDS");
    sleep(seconds ? (unsigned)atoi(seconds) : 3);
    /* Where each page that the kernel fetches takes a millisecond, a round takes seconds. */
    for (int more = 0; has_library && stormy_mappings <= 5 && more < 40; more++)
        sleep(1);
    board->ends = 1;
    double start = now();
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    /* Who closes a file that was taken back a moment ago does not wait for himself. */
    CHECK(now() - start < 5);
    long direct = stormy_mappings;
    end_other(writer);
    direct_mappings += direct;
    printf("storm: %ld mappings on blocks in %ld rounds of 3\n", direct, rounds);
    CHECK(!has_library || direct > 5);
}

static volatile sig_atomic_t shall_end;
static void on_term(int signal) {
    (void)signal;
    shall_end = 1;
}

/* Pages may end in SIGBUS if the server is gone, but never be anything but the file's. */
static int hold_role(char **arguments) {
    int file;
    uint64_t seed = strtoul(arguments[3], NULL, 10);
    struct sigaction action = {.sa_handler = on_term}, bus = {.sa_handler = on_bus};
    CHECK(sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGBUS, &bus, NULL) == 0);
    char *map = map_file(arguments[2], PAGES, MAP_SHARED, &file);
    printf("mapped %p %d\n", (void *)map, is_direct(map, file));
    fflush(stdout);
    static uint64_t newest;
    static volatile long looked_at;
    while (!shall_end)
        for (looked_at = 0; looked_at < PAGES && !shall_end; looked_at++)
            /* It may be given back at any moment, so each look is guarded, and not only the first. */
            if (sigsetjmp(after_bus, 1) == 0) {
                uint64_t version = version_of(map, seed, looked_at);
                newest = version > newest ? version : newest;
            }
    printf("newest %lu\n", (unsigned long)newest);
    return 0;
}

struct holder {
    pid_t process;
    FILE *says;
    unsigned long map;
    int is_direct;
};

static struct holder begin_holder(const char *name, uint64_t seed) {
    struct holder holder;
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    holder.process = fork();
    if (holder.process == 0) {
        dup2(pipes[1], 1);
        close(pipes[0]);
        execl(self, self, "hold", name, text(seed), NULL);
        _exit(99);
    }
    close(pipes[1]);
    holder.says = fdopen(pipes[0], "r");
    CHECK(fscanf(holder.says, "mapped 0x%lx %d", &holder.map, &holder.is_direct) == 2);
    CHECK(!has_library || holder.is_direct);
    return holder;
}

static unsigned long end_holder(struct holder holder) {
    unsigned long newest;
    CHECK(kill(holder.process, SIGTERM) == 0);
    CHECK(fscanf(holder.says, " newest %lu", &newest) == 1);
    end_other(holder.process);
    fclose(holder.says);
    return newest;
}

static void stopped_and_killed(void) {
    make("held", 9, PAGES);
    struct holder holder = begin_holder("held", 9);
    CHECK(kill(holder.process, SIGSTOP) == 0);
    int status;
    CHECK(waitpid(holder.process, &status, WUNTRACED) == holder.process && WIFSTOPPED(status));
    /* Nobody waits for it for long. */
    double start = now();
    other_writes(0, "held", 9, 0, PAGES, 2);
    CHECK(now() - start < 3);
    /* What it had is given to nobody else: it still sees its own file, whatever is written meanwhile. */
    for (int round = 0; round < 3; round++) {
        make("much", 10, 20 * PAGES);
        CHECK(unlink("much") == 0);
    }
    make("much", 10, 20 * PAGES);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", holder.process);
    int memory = open(path, O_RDONLY);
    char *seen = malloc(BYTES);
    CHECK(memory >= 0 && pread(memory, seen, BYTES, (off_t)holder.map) == BYTES);
    for (long page = 0; page < PAGES; page++)
        CHECK(version_of(seen, 9, page) <= 2);
    free(seen);
    close(memory);
    CHECK(kill(holder.process, SIGCONT) == 0);
    sleep(1);
    CHECK(end_holder(holder) == 2);
    CHECK(unlink("much") == 0);
    /* A killed one is not waited for. */
    make("held", 9, PAGES);
    holder = begin_holder("held", 9);
    CHECK(kill(holder.process, SIGKILL) == 0);
    CHECK(waitpid(holder.process, &status, 0) == holder.process);
    fclose(holder.says);
    start = now();
    other_writes(0, "held", 9, 0, PAGES, 3);
    double took = now() - start;
    start = now();
    other_writes(0, "held", 9, 0, PAGES, 4);
    double usual = now() - start;
    printf("a write below a killed process took %.0f ms, the same again %.0f ms\n", 1000 * took, 1000 * usual);
    CHECK(took < 3 * usual + 0.5);
}

int main(int count, char **arguments) {
    static char path[PATH_MAX];
    CHECK(realpath("/proc/self/exe", path));
    self = path;
    const char *preload = getenv("LD_PRELOAD");
    has_library = preload && *preload && !getenv("MMAP_BY_KERNEL");
    if (count == 7 && strcmp(arguments[1], "write") == 0)
        return write_role(arguments);
    if (count == 4 && strcmp(arguments[1], "hold") == 0)
        return hold_role(arguments);
    if (count == 4 && strcmp(arguments[1], "lock") == 0)
        return lock_role(arguments);
    if (count == 4 && strcmp(arguments[1], "truncate") == 0)
        return truncate(arguments[2], atol(arguments[3])) ? 1 : 0;
    begin(count, arguments);
    plain();
    others_write();
    others_truncate_and_unlink();
    children();
    changed_mappings();
    locked();
    storm();
    stopped_and_killed();
    CHECK(!has_library || direct_mappings > 20);
    printf("%ld mappings lay on blocks\n", direct_mappings);
    return done("mmap");
}
