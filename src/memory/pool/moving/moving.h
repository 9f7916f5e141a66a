/* SPDX-License-Identifier: MIT */
/* The door of the room: moves of blocks, compactions, and blocks that must not change. */
#ifndef LOCHI_POOL_MOVING_H
#define LOCHI_POOL_MOVING_H

#include "memory/pool/moving/compact.h"
#include "memory/pool/moving/move.h"
#include "memory/pool/moving/move_small.h"
#include "memory/pool/moving/plan.h"
#include "memory/pool/moving/protect.h"

#endif
