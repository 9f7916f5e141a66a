/* SPDX-License-Identifier: MIT */
/* Frees blocks: slots of the table of operations. */
#ifndef LOCHI_POOL_FREE_H
#define LOCHI_POOL_FREE_H

#include "memory/pool/state/state.h"

/* Frees a block, ordered on `stream`, or on the block's own stream if `stream` is NULL. */
loch_status lochi_pool_free(void *self, void *address, size_t bytes, loch_stream *stream);
/* Records that a further stream uses a block. */
loch_status lochi_pool_record_use(void *self, void *address, loch_stream *stream);

#endif
