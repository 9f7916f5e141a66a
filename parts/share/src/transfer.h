/* SPDX-License-Identifier: MIT */
/* A token and a connection over a socket of the program (transfer.c). */
#ifndef SHARE_TRANSFER_H
#define SHARE_TRANSFER_H

#include "message.h"

/* E_INVALID: `socket` is not a Unix socket. */
loch_status share_transfer_check(int socket);

/* Sends a token and the descriptor `link`, which stays open here. */
loch_status share_transfer_send(int socket, const uint8_t *token, size_t bytes, int link);

/* Receives a token, which has room for LOCH_PARCEL_TOKEN_MAX bytes, and the descriptor that came with it; -1 if this
 * process had none left. */
loch_status share_transfer_receive(int socket, uint8_t *token, size_t *bytes, int *link);

#endif
