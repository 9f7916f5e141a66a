/* SPDX-License-Identifier: MIT */
/* Taking blocks back: slots of the table of operations. */
#ifndef LOCHI_POOL_FREE_H
#define LOCHI_POOL_FREE_H

#include "memory/pool/state.h"

/* Frees a block, in the order of `stream` if there is one. */
loch_status lochi_pool_free(void *self, void *address, size_t bytes, loch_stream *stream);
/* Notes a use on a further stream. */
loch_status lochi_pool_record_use(void *self, void *address, loch_stream *stream);

#endif
