/* SPDX-License-Identifier: MIT */
/* Hands out blocks. pool.h declares the functions for plain requests. */
#ifndef LOCHI_POOL_ALLOC_H
#define LOCHI_POOL_ALLOC_H

#include "memory/pool/state/state.h"

/* Allocates a block. Slot of the table of operations. */
loch_status lochi_pool_alloc(void *self, const loch_request *request, void **out);

#endif
