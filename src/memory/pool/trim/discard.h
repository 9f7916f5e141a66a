/* SPDX-License-Identifier: MIT */
/* Discards the pages of free memory that cannot go back to the device, because it shares handles with live blocks. The
 * pool keeps the memory and counts it as before; only the system has its pages back, until they are written again. */
#ifndef LOCHI_POOL_DISCARD_H
#define LOCHI_POOL_DISCARD_H

#include "memory/pool/state/state.h"

/* Discards whole pages of free blocks that no stream uses, until about `most` bytes have gone. Does nothing on devices
 * without pages of the host. */
void lochi_pool_discard(lochi_pool *pool, size_t most);

#endif
