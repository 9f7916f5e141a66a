/* SPDX-License-Identifier: MIT */
/* One byte with the length of the token, the token, and a descriptor with the first byte. On a stream the message is
 * read byte by byte as far as it goes, so that what follows stays in the socket. */
#include "transfer.h"
#include "link.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

loch_status share_transfer_check(int socket)
{
    int domain = 0;
    socklen_t length = sizeof domain;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX) return LOCH_OK;
    return loch_error_set(LOCH_E_INVALID, NULL, 0, "descriptor %d is not a Unix socket", socket);
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

loch_status share_transfer_send(int socket, const uint8_t *token, size_t bytes, int link)
{
    uint8_t message[1 + LOCH_PARCEL_TOKEN_MAX];
    message[0] = (uint8_t)bytes;
    memcpy(message + 1, token, bytes);
    for (size_t sent = 0; sent <= bytes;) { /* the system takes a small message whole, except on a full stream */
        const int error = share_link_send(socket, message + sent, 1 + bytes - sent, &link, sent == 0, 0);
        if (error == EAGAIN)
            transfer_wait(socket, POLLOUT);
        else if (error)
            return transfer_fail("sending", error);
        else
            sent = 1 + bytes;
    }
    return LOCH_OK;
}

/* Receives up to `bytes` bytes with at most one descriptor, waiting as long as it takes. */
static int transfer_take(int socket, uint8_t *to, size_t bytes, size_t *got, int *link)
{
    int descriptors[SHARE_CHUNK];
    size_t count;
    int error;
    while ((error = share_link_receive(socket, to, bytes, 0, got, descriptors, &count)) == EAGAIN)
        transfer_wait(socket, POLLIN);
    if (count && *link < 0) {
        *link = descriptors[0];
        share_link_close_all(descriptors + 1, count - 1);
    } else {
        share_link_close_all(descriptors, count);
    }
    if (error == EMFILE) error = 0; /* without the connection, the import makes its own */
    return error || *got ? error : ECONNRESET;
}

loch_status share_transfer_receive(int socket, uint8_t *token, size_t *bytes, int *link)
{
    uint8_t message[1 + LOCH_PARCEL_TOKEN_MAX];
    int kind = SOCK_STREAM;
    socklen_t length = sizeof kind;
    size_t have = 0, got, wanted;
    *link = -1;
    (void)!getsockopt(socket, SOL_SOCKET, SO_TYPE, &kind, &length);
    int error = transfer_take(socket, message, kind == SOCK_STREAM ? 1 : sizeof message, &have, link);
    wanted = error ? 0 : (size_t)1 + message[0];
    while (!error && have < wanted && kind == SOCK_STREAM) {
        error = transfer_take(socket, message + have, wanted - have, &got, link);
        have += error ? 0 : got;
    }
    if (!error && have != wanted) error = EPROTO;
    if (error) {
        share_link_close_all(link, 1);
        return transfer_fail("receiving", error);
    }
    *bytes = have - 1;
    memcpy(token, message + 1, *bytes);
    return LOCH_OK;
}
