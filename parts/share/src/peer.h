/* SPDX-License-Identifier: MIT */
/* Connections of this process to the owners of what it imports (peer.c). */
#ifndef SHARE_PEER_H
#define SHARE_PEER_H

#include "message.h"

/* A connection to an owner. Counted: one use for each lease and for each thread that asks. */
typedef struct share_owner share_owner;

/* Finds the connection to the owner of a token, or connects. E_NOT_FOUND: the owner has gone. E_UNSUPPORTED: the owner
 * is another user than `options` allow. E_BUSY: the owner does not accept the connection in time. */
loch_status lochi_share_peer_acquire(const share_token *token, const loch_parcel_import_options *options,
                                     uint64_t deadline_ns, share_owner **out);

/* Makes a connection of `link`, which was received with a token and which the call takes. It serves one import and is
 * not found by lochi_share_peer_acquire: nothing proves that the owner that the token names is on its other side. E_IO:
 * `link` is not a connection. */
loch_status lochi_share_peer_adopt(const share_token *token, int link, share_owner **out);

/* Returns a number that no other connection of this process has; 0 for a connection that was received. What came over
 * one connection is never taken for what another one brings. */
uint64_t lochi_share_peer_get_number(const share_owner *owner);

/* Returns whether the owner has closed the connection, so that another one may be tried. */
bool lochi_share_peer_is_closed(share_owner *owner);

/* Releases a use. A few connections without uses stay open for the next import. NULL does nothing. */
void lochi_share_peer_release(share_owner *owner);

/* Sends a request and waits for its reply until the deadline, which counts the time in which other threads ask this
 * owner too. An import gets the number of its lease, in every case. The caller closes `*count` descriptors, in every
 * case. E_NOT_FOUND: the owner has gone. E_BUSY: no answer in time. E_LIMIT: this process has no descriptor left.
 * E_IO: the reply is wrong. */
loch_status lochi_share_peer_ask(share_owner *owner, share_request *request, uint64_t deadline_ns, share_reply *reply,
                                 int *descriptors, size_t *count);

/* Ends a lease. Does not wait and cannot fail: what cannot be sent now is sent by a later call. */
void lochi_share_peer_end_lease(share_owner *owner, uint64_t lease);

/* Closes the connections, in the child of a fork. */
void lochi_share_peer_forked(void);

#endif
