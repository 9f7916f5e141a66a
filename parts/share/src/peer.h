/* SPDX-License-Identifier: MIT */
/* Connections of this process to the owners of what it imports (peer.c). There is one for each owner. */
#ifndef SHARE_PEER_H
#define SHARE_PEER_H

#include "message.h"

/* A connection to an owner. Counted: one use for each lease and for each thread that asks. */
typedef struct share_owner share_owner;

/* Finds the connection to the owner of a token, or connects. Takes `link`, a connection that was received; -1 for none.
 * E_NOT_FOUND: the owner has gone. E_UNSUPPORTED: the owner is another user than `options` allow.
 * E_BUSY: the owner does not accept the connection in time. */
loch_status share_peer_acquire(const share_token *token, const loch_parcel_import_options *options, int link,
                               share_owner **out);

/* Returns whether the owner has closed the connection, so that another one may be tried. */
bool share_peer_is_closed(share_owner *owner);

/* Releases a use. A few connections without uses stay open for the next import. NULL does nothing. */
void share_peer_release(share_owner *owner);

/* Sends a request and waits for its reply. An import gets the number of its lease, in every
 * case. The caller closes `*count` descriptors, in every case. E_NOT_FOUND: the
 * owner has gone. E_BUSY: no answer in time. E_LIMIT: this process has no descriptor left. E_IO: the reply is wrong. */
loch_status share_peer_ask(share_owner *owner, share_request *request, uint64_t timeout_ns, share_reply *reply,
                           int *descriptors, size_t *count);

/* Ends a lease. Does not wait and cannot fail: what cannot be sent now is sent by a later call. */
void share_peer_end_lease(share_owner *owner, uint64_t lease);

/* Closes the connections, in the child of a fork. */
void share_peer_forked(void);

#endif
