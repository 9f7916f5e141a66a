/* SPDX-License-Identifier: MIT */
/* Handing out blocks. The door (pool.h) declares the ways of plain requests. */
#ifndef LOCHI_POOL_ALLOC_H
#define LOCHI_POOL_ALLOC_H

#include "memory/pool/state.h"

/* Allocates: the slot of the table of operations. */
loch_status lochi_pool_alloc(void *self, const loch_request *request, void **out);

#endif
