/* SPDX-License-Identifier: MIT */
/* One byte with the length of the token, the token, and a descriptor with the first byte. On a stream the message is
 * read byte by byte as far as it goes, so that what follows stays in the socket. */
#include "transfer.h"
#include "link.h"
#include "kit/fail.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

loch_status lochi_share_transfer_check(int socket)
{
    int domain = 0;
    socklen_t length = sizeof domain;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX) return LOCH_OK;
    return LOCH_FAIL(INVALID, "descriptor %d is not a Unix socket", socket);
}

static loch_status transfer_fail(const char *what, int error)
{
    return loch_error_set(LOCH_E_IO, NULL, error, "%s a parcel over the socket failed: %s", what, strerror(error));
}

/* Waits until a socket that does not block can go on. */
static void transfer_wait(int socket, short events)
{
    struct pollfd one = {.fd = socket, .events = events};
    poll(&one, 1, -1);
}

loch_status lochi_share_transfer_send(int socket, const uint8_t *token, size_t bytes, int link)
{
    uint8_t message[1 + LOCH_PARCEL_TOKEN_MAX];
    message[0] = (uint8_t)bytes;
    memcpy(message + 1, token, bytes);
    for (size_t sent = 0; sent <= bytes;) { /* the system takes a small message whole, except on a full stream */
        const int error = lochi_share_link_send(socket, message + sent, 1 + bytes - sent, &link, sent == 0, 0);
        if (error == EAGAIN)
            transfer_wait(socket, POLLOUT);
        else if (error)
            return transfer_fail("sending", error);
        else
            sent = 1 + bytes;
    }
    return LOCH_OK;
}

/* What is read of a message. */
typedef struct transfer_state {
    uint8_t bytes[1 + LOCH_PARCEL_TOKEN_MAX];
    size_t have;
    int link;     /* the first descriptor that came; -1 for none */
    bool is_lost; /* a descriptor came that this process has no room for */
} transfer_state;

/* Receives up to `bytes` bytes more with at most one descriptor. Returns 0 or the error number. */
static int transfer_take(int socket, uint64_t deadline_ns, size_t bytes, transfer_state *state)
{
    int descriptors[SHARE_CHUNK];
    size_t count, got;
    int error =
        lochi_share_link_receive(socket, state->bytes + state->have, bytes, deadline_ns, &got, descriptors, &count);
    if (count && state->link < 0) {
        state->link = descriptors[0];
        lochi_share_link_close_all(descriptors + 1, count - 1);
    } else {
        lochi_share_link_close_all(descriptors, count);
    }
    if (error == EMFILE) { /* the bytes are there: the rest is read, so that the next parcel can be */
        state->is_lost = true;
        error = 0;
    }
    state->have += error ? 0 : got;
    return error || got ? error : ECONNRESET;
}

static loch_status transfer_refuse(const transfer_state *state, int error)
{
    if (error == ETIMEDOUT && !state->have) return LOCH_FAIL(BUSY, "no parcel came over the socket in time");
    if (error == ETIMEDOUT)
        return loch_error_set(LOCH_E_IO, NULL, error,
                              "%zu of %u bytes of a parcel came over the socket in time: close the socket", state->have,
                              1u + state->bytes[0]);
    if (error) return transfer_fail("receiving", error);
    if (state->is_lost)
        return loch_error_set(LOCH_E_LIMIT, NULL, EMFILE,
                              "this process has no file descriptor left for the connection of a parcel");
    return LOCH_FAIL(IO, "the parcel came over the socket without a connection to its owner");
}

loch_status lochi_share_transfer_receive(int socket, uint64_t deadline_ns, uint8_t *token, size_t *bytes, int *link)
{
    transfer_state state = {.link = -1};
    int kind = SOCK_STREAM;
    socklen_t length = sizeof kind;
    (void)!getsockopt(socket, SOL_SOCKET, SO_TYPE, &kind, &length);
    int error = transfer_take(socket, deadline_ns, kind == SOCK_STREAM ? 1 : sizeof state.bytes, &state);
    const size_t wanted = (size_t)1 + state.bytes[0];
    while (!error && state.have < wanted && kind == SOCK_STREAM)
        error = transfer_take(socket, deadline_ns, wanted - state.have, &state);
    if (!error && state.have != wanted) error = EPROTO;
    if (error || state.link < 0) {
        lochi_share_link_close_all(&state.link, 1);
        return transfer_refuse(&state, error);
    }
    *bytes = state.have - 1;
    *link = state.link;
    memcpy(token, state.bytes + 1, *bytes);
    return LOCH_OK;
}
