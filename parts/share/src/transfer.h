/* SPDX-License-Identifier: MIT */
/* A token and a connection over a socket of the program (transfer.c). */
#ifndef SHARE_TRANSFER_H
#define SHARE_TRANSFER_H

#include "message.h"

/* E_INVALID: `socket` is not a Unix socket. */
loch_status lochi_share_transfer_check(int socket);

/* Sends a token and the descriptor `link`, which stays open here. */
loch_status lochi_share_transfer_send(int socket, const uint8_t *token, size_t bytes, int link);

/* Receives a token, which has room for LOCH_PARCEL_TOKEN_MAX bytes, and the connection that came with it, which is the
 * caller's. E_BUSY: nothing came until the deadline. E_LIMIT: this process has no descriptor left for the connection.
 * E_IO: the socket was closed, something else came, or only a part of a parcel until the deadline. */
loch_status lochi_share_transfer_receive(int socket, uint64_t deadline_ns, uint8_t *token, size_t *bytes, int *link);

#endif
