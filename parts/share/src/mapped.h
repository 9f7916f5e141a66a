/* SPDX-License-Identifier: MIT */
/* Spans of other processes that are mapped here (mapped.c). */
#ifndef SHARE_MAPPED_H
#define SHARE_MAPPED_H

#include "message.h"

/* A span at an address of this process. Counted: one use for each import. */
typedef struct share_mapped share_mapped;

/* Finds a span that came over the connection with this number (lochi_share_peer_get_number), and takes a use of it.
 * NULL if there is none; always NULL for number 0. */
share_mapped *lochi_share_mapped_find(loch_device *device, uint64_t connection, uint64_t span);

/* Reserves addresses for a span of `handles` handles, with one use. `connection` is 0 for one that no other import
 * finds. */
loch_status lochi_share_mapped_create(loch_device *device, uint64_t connection, uint64_t span, size_t bytes,
                                      size_t handles, share_mapped **out);

/* Imports the next handle of a span and maps it. `shared` is what loch_handle_import takes. */
loch_status lochi_share_mapped_add(share_mapped *mapped, loch_share share, const void *shared, size_t bytes);

/* Lets other imports over its connection find a complete span. If another thread was first, releases this one and
 * returns a use of that one. E_IO, and the span is released: handles are missing. */
loch_status lochi_share_mapped_enter(share_mapped **mapped);

/* Returns the address of the first byte. */
char *lochi_share_mapped_start(const share_mapped *mapped);

size_t lochi_share_mapped_bytes(const share_mapped *mapped);

/* Releases a use. The last one unmaps the span. NULL does nothing. Calls Loch. */
void lochi_share_mapped_release(share_mapped *mapped);

/* Forgets the list, in the child of a fork. What is mapped stays until it is released. */
void lochi_share_mapped_forked(void);

#endif
