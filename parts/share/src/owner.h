/* SPDX-License-Identifier: MIT */
/* Parcels of this process (owner.c). */
#ifndef SHARE_OWNER_H
#define SHARE_OWNER_H

#include "order.h"
#include "link.h"
#include "span.h"
#include <sys/types.h>

struct loch_parcel {
    struct loch_parcel *next; /* of its bucket, under lochi_share_lock */
    uint64_t id;
    unsigned epoch; /* the process that made it: state.h */
    share_key secret;
    loch_buffer *buffer; /* retained */
    void *address;
    size_t bytes;
    bool is_pinned;
    share_order order;
    share_span *span;
    loch_parcel_users users;
    uint32_t user_id;
    loch_access access;
    /* Under lochi_share_lock: one of the owner until it destroys the parcel, one for each import or use. */
    size_t references;
    size_t imports; /* under lochi_share_lock: leases of other processes */
    bool is_listed; /* under lochi_share_lock: the token can be imported */
    size_t token_bytes;
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
};

/* Makes a parcel and lists it. `owner` is the id of this process. */
loch_status lochi_share_owner_create(loch_buffer *buffer, const loch_parcel_options *options, const share_key *owner,
                                     loch_parcel **out);

/* Takes the parcel off the list and releases the reference of its owner. */
void lochi_share_owner_destroy(loch_parcel *parcel);

/* Releases a reference. The last one gives the buffer back. Calls Loch. */
void lochi_share_owner_release(loch_parcel *parcel);

/* Returns whether there is a listed parcel that a process of this user may import. */
bool lochi_share_owner_expects(uid_t user);

/* Finds a listed parcel and takes a reference on it; counts an import too if `is_import`. `user` is NULL for a process
 * that is let in without a check of its user. NULL, and the reason in `result`, if the parcel cannot be imported. */
loch_parcel *lochi_share_owner_acquire(uint64_t id, const share_key *secret, const uid_t *user, bool is_import,
                                       share_result *result);

/* Ends an import that lochi_share_owner_acquire counted, and releases its reference. Calls Loch. */
void lochi_share_owner_end_import(loch_parcel *parcel);

/* Forgets the parcels of the parent, in the child of a fork. */
void lochi_share_owner_forked(void);

#endif
