/* SPDX-License-Identifier: MIT */
/* The thread that answers importers (server.c). */
#ifndef SHARE_SERVER_H
#define SHARE_SERVER_H

#include "message.h"

/* Starts the thread on first use. `out` is the id of this process. E_HOST_MEMORY, E_LIMIT, E_IO: the system refuses a
 * thread, a descriptor or a socket. */
loch_status lochi_share_server_start(share_key *out);

/* Returns whether `owner` is the id of this process. */
bool lochi_share_server_is(const share_key *owner);

/* Makes a connection to the thread by which a process of any user can import one parcel. `out` is the importer's end.
 * Fails with E_HOST_MEMORY, E_LIMIT, E_IO. */
loch_status lochi_share_server_connect(uint64_t parcel, int *out);

/* Closes the sockets, in the child of a fork. */
void lochi_share_server_forked(void);

#endif
