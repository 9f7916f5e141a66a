/* SPDX-License-Identifier: MIT */
/* Finds and walks blocks: slots of the table of operations. */
#ifndef LOCHI_POOL_WALK_H
#define LOCHI_POOL_WALK_H

#include "memory/pool/state/state.h"

/* Describes the live block at an address. */
loch_status lochi_pool_find(void *self, const void *address, loch_block *out);
/* Walks all live blocks, with the lock held. */
loch_status lochi_pool_walk(void *self, loch_block_visitor *visitor, void *user);

/* Writes the live block around an address, its tag and its pool, for people; of a tenant (device/ranges.h). */
void lochi_pool_describe(const lochi_tenant *tenant, uintptr_t address, char *text, size_t bytes);
/* Writes the live block around an address in an annex; of the annex's tenant. */
void lochi_pool_describe_annex(const lochi_tenant *tenant, uintptr_t address, char *text, size_t bytes);

#endif
