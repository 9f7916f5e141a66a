/* SPDX-License-Identifier: MIT */
/* What the device has left, and the part of it that a pool leaves to others. */
#ifndef LOCHI_POOL_HEADROOM_H
#define LOCHI_POOL_HEADROOM_H

#include "memory/pool/state/state.h"

/* Reads how much memory there is for a new pool in all, and its headroom: its option, the option of the process, or the
 * default of the device. */
loch_status lochi_pool_read_headroom(lochi_pool *pool);

/* Asks the device how much memory is left, if `bytes` more could come near to it. Drops the pool's lock for that. */
void lochi_pool_look_at_room(lochi_pool *pool, size_t bytes);
/* Makes the next look ask the device, because it has refused memory. */
void lochi_pool_doubt_room(lochi_pool *pool);

/* Returns the bytes that the limits leave, in whole handles; SIZE_MAX for no limit. */
size_t lochi_pool_find_limit_room(const lochi_pool *pool);
/* Returns the bytes that limits and the device leave, in whole handles, as of the last look. SIZE_MAX: unknown. */
size_t lochi_pool_find_room(const lochi_pool *pool);

/* Fails if the device has less than `bytes` left, as of the last look. E_DEVICE_MEMORY. */
loch_status lochi_pool_check_room(const lochi_pool *pool, size_t bytes);

#endif
