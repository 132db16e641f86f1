/* Questions to the server of direct access, and its answers, for programs that ask what the library would. */
#include "protocol.h"

/* A conversation with the server of the mount that a file is on. */
static int meet(int file) {
    struct discovery discovery;
    CHECK(ioctl(file, _IOR('p', 0xd1, struct discovery), &discovery) == 0 && discovery.version == VERSION);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int line = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    size_t length = strlen(discovery.socket);
    memcpy(name.sun_path + 1, discovery.socket, length);
    CHECK(line >= 0 && connect(line, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0);
    return line;
}

/* Asks with one descriptor or none; gets the first descriptor of the answer, or -1. */
static struct reply ask(int line, struct request request, int with, int *beside) {
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr header;
    } control = {0};
    struct iovec part = {&request, sizeof request};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (with >= 0) {
        message.msg_control = &control, message.msg_controllen = CMSG_SPACE(sizeof(int));
        control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(&control.header), &with, sizeof(int));
    }
    CHECK(sendmsg(line, &message, MSG_NOSIGNAL) == sizeof request);
    struct reply reply;
    part = (struct iovec){&reply, sizeof reply};
    message.msg_control = &control, message.msg_controllen = sizeof control;
    CHECK(recvmsg(line, &message, 0) == sizeof reply);
    int got[8];
    size_t count = 0;
    if (CMSG_FIRSTHDR(&message)) {
        count = (CMSG_FIRSTHDR(&message)->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(got, CMSG_DATA(CMSG_FIRSTHDR(&message)), count * sizeof(int));
    }
    for (size_t i = 1; i < count; i++)
        close(got[i]);
    *beside = count ? got[0] : -1;
    return reply;
}
