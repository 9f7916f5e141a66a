/* SPDX-License-Identifier: MIT */
/* Lanes whose streams have ended. */
#ifndef LOCHI_POOL_ENDED_H
#define LOCHI_POOL_ENDED_H

#include "memory/pool/state/state.h"

/* Gives free memory of ended streams to the lanes of the blocks beside it, except for whole handles, which every lane
 * can remap. Memory that a stream may still use stays. */
void lochi_pool_return_rests(lochi_pool *pool);

#endif
