/* What a process and the server say to each other (crates/direct/src/protocol.rs), for programs that say it without the library. */
#include "check.h"
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#define VERSION 9
#define AT_ONCE 32
enum { HELLO = 1, ATTACH, SEGMENTS, MAP, FOLD, DETACH, OUTCOME, RING, LET_GO = 10, MAPPING };
enum { PROTOCOL = 1, NOT_OURS, NOT_YOURS, BUSY, UNSUITABLE, NO_ROOM, ENDED, FAILED };

struct discovery {
    uint32_t magic, version;
    uint64_t reads_only;
    char socket[48];
};
struct request {
    uint32_t kind, file;
    uint64_t first, second;
};
struct reply {
    uint32_t refusal, reserved;
    uint64_t words[15];
};
