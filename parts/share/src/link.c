/* SPDX-License-Identifier: MIT */
/* Sockets of the kind SOCK_SEQPACKET: one send is one message. Names are in the abstract space: nothing is left in the
 * file system when a process dies. */
#include "link.h"
#include "kit/now.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* since Linux 6.5 */
#endif

#define LINK_KIND (SOCK_SEQPACKET | SOCK_CLOEXEC)
#define LINK_BACKLOG 128

bool lochi_share_key_create(share_key *out)
{
    for (size_t have = 0; have < sizeof *out;) {
        const ssize_t got = getrandom(out->bytes + have, sizeof *out - have, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        have += (size_t)got;
    }
    return true;
}

/* --- deadlines --- */

static uint64_t deadline_left_ns(uint64_t deadline_ns)
{
    const uint64_t now = lochi_now_ns();
    return now < deadline_ns ? deadline_ns - now : 0;
}

uint64_t lochi_share_deadline(uint64_t timeout_ns)
{
    const uint64_t now = lochi_now_ns();
    return timeout_ns < INT64_MAX - now ? now + timeout_ns : INT64_MAX; /* fits a timespec */
}

bool lochi_share_deadline_is_over(uint64_t deadline_ns)
{
    return !deadline_left_ns(deadline_ns);
}

/* --- sockets --- */

static socklen_t link_name(const share_key *owner, struct sockaddr_un *out)
{
    static const char prefix[] = "loch-share-";
    *out = (struct sockaddr_un){.sun_family = AF_UNIX}; /* the name begins with a zero byte */
    char *at = out->sun_path + 1;
    memcpy(at, prefix, sizeof prefix - 1);
    at += sizeof prefix - 1;
    for (size_t i = 0; i < SHARE_KEY_BYTES; i++, at += 2)
        snprintf(at, 3, "%02x", owner->bytes[i]);
    return (socklen_t)(at - (char *)out);
}

/* Closes a socket after a failure and keeps errno. Returns -1. */
static int link_give_up(int link)
{
    const int error = errno;
    close(link);
    errno = error;
    return -1;
}

int lochi_share_link_listen(const share_key *owner)
{
    struct sockaddr_un name;
    const socklen_t length = link_name(owner, &name);
    const int link = socket(AF_UNIX, LINK_KIND | SOCK_NONBLOCK, 0);
    if (link < 0) return -1;
    if (bind(link, (struct sockaddr *)&name, length) != 0 || listen(link, LINK_BACKLOG) != 0) return link_give_up(link);
    return link;
}

int lochi_share_link_connect(const share_key *owner, uint64_t deadline_ns)
{
    struct sockaddr_un name;
    const socklen_t length = link_name(owner, &name);
    const int link = socket(AF_UNIX, LINK_KIND, 0);
    if (link < 0) return -1;
    int result;
    do {                                                               /* a signal does not start the time anew */
        const uint64_t us = deadline_left_ns(deadline_ns) / 1000u + 1; /* 0 would be no limit */
        const struct timeval limit = {.tv_sec = (time_t)(us / 1000000u), .tv_usec = (suseconds_t)(us % 1000000u)};
        (void)!setsockopt(link, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        result = connect(link, (struct sockaddr *)&name, length);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? link : link_give_up(link);
}

bool lochi_share_link_pair(int ends[2])
{
    return socketpair(AF_UNIX, LINK_KIND, 0, ends) == 0;
}

bool lochi_share_link_peer(int link, share_peer *out)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
    *out = (share_peer){.pid = peer.pid, .uid = peer.uid};
    return true;
}

int lochi_share_link_pidfd(int link, const share_peer *peer)
{
    int pidfd = -1;
    socklen_t length = sizeof pidfd;
    if (link >= 0 && getsockopt(link, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) return pidfd;
#ifdef SYS_pidfd_open
    if (peer->pid > 0) return (int)syscall(SYS_pidfd_open, peer->pid, 0); /* is closed by exec */
#endif
    (void)peer;
    errno = ENOSYS;
    return -1;
}

bool lochi_share_link_know_senders(int link)
{
    const int on = 1;
    return setsockopt(link, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0;
}

/* --- messages --- */

/* Waits until a message or the end is there (POLLIN), or until there is room for one (POLLOUT). Returns 0 or the error
 * number. */
static int link_wait(int link, short events, uint64_t deadline_ns)
{
    if (!deadline_ns) return EAGAIN;
    for (;;) {
        const uint64_t left_ns = deadline_left_ns(deadline_ns), left_ms = left_ns / 1000000u + 1;
        if (!left_ns) return ETIMEDOUT;
        struct pollfd one = {.fd = link, .events = events};
        const int ready = poll(&one, 1, left_ms > 100000 ? 100000 : (int)left_ms);
        if (ready > 0) return 0;
        if (ready < 0 && errno != EINTR) return errno;
    }
}

/* Room for the descriptors of one message, aligned for the system. */
typedef union link_control {
    char bytes[CMSG_SPACE(SHARE_CHUNK * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr header;
} link_control;

int lochi_share_link_send(int link, const void *bytes, size_t length, const int *descriptors, size_t count, int flags)
{
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    link_control control;
    if (count) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    }
    for (;;) {
        const ssize_t sent = sendmsg(link, &message, flags | MSG_NOSIGNAL);
        if (sent >= 0) return (size_t)sent == length ? 0 : EMSGSIZE;
        if (errno != EINTR) return errno;
    }
}

int lochi_share_link_ask(int link, const void *bytes, size_t length, uint64_t deadline_ns)
{
    for (;;) {
        int error = lochi_share_link_send(link, bytes, length, NULL, 0, MSG_DONTWAIT);
        if (error != EAGAIN) return error;
        error = link_wait(link, POLLOUT, deadline_ns);
        if (error) return error;
    }
}

/* Takes the descriptors out of a message that was received. */
static void link_take_descriptors(struct msghdr *message, int *descriptors, size_t *count)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int one;
            memcpy(&one, CMSG_DATA(header) + i * sizeof one, sizeof one);
            if (*count < SHARE_CHUNK)
                descriptors[(*count)++] = one;
            else
                close(one);
        }
    }
}

/* Reads which process sent a message, if the system tells it. */
static void link_take_sender(struct msghdr *message, share_peer *sender)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        struct ucred found;
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS) continue;
        memcpy(&found, CMSG_DATA(header), sizeof found);
        *sender = (share_peer){.pid = found.pid, .uid = found.uid};
    }
}

static int link_receive(int link, void *bytes, size_t capacity, uint64_t deadline_ns, size_t *length, int *descriptors,
                        size_t *count, share_peer *sender)
{
    *length = *count = 0;
    *sender = (share_peer){.pid = 0, .uid = (uid_t)-1};
    for (;;) {
        struct iovec piece = {.iov_base = bytes, .iov_len = capacity};
        link_control control;
        struct msghdr message = {
            .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        const ssize_t got = recvmsg(link, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) {
            const int error = link_wait(link, POLLIN, deadline_ns);
            if (error) return error;
            continue;
        }
        if (got < 0) return errno;
        link_take_descriptors(&message, descriptors, count);
        link_take_sender(&message, sender);
        *length = (size_t)got;
        /* Descriptors that were cut off did not fit this process's limit, because the room is that of the most. */
        return message.msg_flags & MSG_CTRUNC ? EMFILE : message.msg_flags & MSG_TRUNC ? EMSGSIZE : 0;
    }
}

int lochi_share_link_receive(int link, void *bytes, size_t capacity, uint64_t deadline_ns, size_t *length,
                             int *descriptors, size_t *count)
{
    share_peer sender;
    return link_receive(link, bytes, capacity, deadline_ns, length, descriptors, count, &sender);
}

int lochi_share_link_read(int link, void *bytes, size_t capacity, size_t *length, share_peer *sender)
{
    int descriptors[SHARE_CHUNK];
    size_t count;
    const int error = link_receive(link, bytes, capacity, 0, length, descriptors, &count, sender);
    lochi_share_link_close_all(descriptors, count);
    return error;
}

void lochi_share_link_close_all(const int *descriptors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (descriptors[i] >= 0) close(descriptors[i]);
}
