/* SPDX-License-Identifier: MIT */
/* Bytes over a Unix stream socket. Every wait ends when the other side closes the socket, which it does when it ends or
 * crashes. */
#include "wire.h"
#include "kit/fail.h"
#include "kit/now.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define NS_PER_MS 1000000u

loch_status lochi_comm_handover_socket_check(int socket)
{
    int domain = 0, kind = 0;
    socklen_t length = sizeof domain;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX) {
        length = sizeof kind;
        if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &kind, &length) == 0 && kind == SOCK_STREAM) return LOCH_OK;
    }
    return LOCH_FAIL(
        INVALID, "the peer of a hand-over has no communicator, and descriptor %d is not a Unix stream socket", socket);
}

/* Waits until the socket can go on. E_BUSY: `end_ns` has passed. */
static loch_status socket_wait(const handover_wire *wire, short events, uint64_t end_ns)
{
    for (;;) {
        struct pollfd one = {.fd = wire->socket, .events = events};
        int ms = -1;
        if (end_ns) {
            const uint64_t now = lochi_now_ns();
            if (now >= end_ns) return LOCH_FAIL(BUSY, "the hand-over waits for %s longer than it may", wire->name);
            const uint64_t left = (end_ns - now) / NS_PER_MS + 1;
            ms = left > 1000 ? 1000 : (int)left;
        }
        const int ready = poll(&one, 1, ms);
        if (ready > 0) return LOCH_OK;
        if (ready < 0 && errno != EINTR)
            return loch_error_set(LOCH_E_IO, NULL, errno, "waiting for the socket failed: %s", strerror(errno));
    }
}

static loch_status socket_fail(const handover_wire *wire, int error)
{
    if (error == EPIPE || error == ECONNRESET)
        return loch_error_set(LOCH_E_IO, NULL, error, "%s has ended or closed the socket during a hand-over",
                              wire->name);
    return loch_error_set(LOCH_E_IO, NULL, error, "the socket of a hand-over failed: %s", strerror(error));
}

static uint64_t socket_end(const handover_wire *wire)
{
    return wire->timeout_ns ? lochi_now_ns() + wire->timeout_ns : 0;
}

loch_status lochi_comm_handover_socket_send(handover_wire *wire, const void *from, size_t bytes)
{
    const uint64_t end_ns = socket_end(wire);
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = send(wire->socket, (const char *)from + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (got >= 0) {
            done += (size_t)got;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return socket_fail(wire, errno);
        const loch_status status = socket_wait(wire, POLLOUT, end_ns);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}

loch_status lochi_comm_handover_socket_receive(handover_wire *wire, void *to, size_t bytes)
{
    const uint64_t end_ns = socket_end(wire);
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = recv(wire->socket, (char *)to + done, bytes - done, MSG_DONTWAIT);
        if (got > 0) {
            done += (size_t)got;
            continue;
        }
        if (got == 0) return socket_fail(wire, EPIPE);
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return socket_fail(wire, errno);
        const loch_status status = socket_wait(wire, POLLIN, end_ns);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}
