/* SPDX-License-Identifier: MIT */
/* Resizes blocks in place: a slot of the table of operations. */
#ifndef LOCHI_POOL_RESIZE_H
#define LOCHI_POOL_RESIZE_H

#include "memory/pool/state/state.h"

/* Resizes a block. On failure nothing changes. */
loch_status lochi_pool_resize(void *self, void *address, size_t bytes, size_t *allocated);

#endif
