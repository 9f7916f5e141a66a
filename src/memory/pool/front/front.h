/* SPDX-License-Identifier: MIT */
/* The door of the room: the fast path, the threads' caches, batches between threads, and figures. */
#ifndef LOCHI_POOL_FRONT_H
#define LOCHI_POOL_FRONT_H

#include "memory/pool/front/cache.h"
#include "memory/pool/front/figures.h"
#include "memory/pool/front/gate.h"
#include "memory/pool/front/look.h"
#include "memory/pool/front/fast.h"
#include "memory/pool/front/transfer.h"

#endif
